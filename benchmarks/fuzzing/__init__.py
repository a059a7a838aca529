"""What benchmarks/fuzz.py tries, and the processes it tries it in.

Importing this decides what libraries find in the environment, before any of them is loaded.
"""

import os

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # threads do not survive a fork
os.environ.pop("DISPLAY", None)
os.environ |= dict(SDL_VIDEODRIVER="dummy", WANDB_MODE="offline", MPLBACKEND="agg")
