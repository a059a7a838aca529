"""One thread per process, set before PyTorch is loaded: the suite runs several at a time."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
