"""spinup: learn deep reinforcement learning from code that reads like the papers.

Names are looked up on demand, so that `import spinup` imports neither PyTorch nor TensorFlow:
`from spinup import ppo_pytorch` imports only what PPO needs.
"""

from spinup.parts.imports import forget_current_folder, is_started_as_module

if is_started_as_module():  # before anything else is imported, for it could come from there
    forget_current_folder()

from importlib import import_module

from spinup.algos import ALGORITHMS
from spinup.version import __version__

_names = {"Logger": "spinup.parts.logger", "EpochLogger": "spinup.parts.logger"}
_names["load"] = "spinup.results.agents"
for _backend, _algorithms in ALGORITHMS.items():
    for _algorithm in _algorithms:
        _names[f"{_algorithm}_{_backend}"] = f"spinup.algos.{_backend}.{_algorithm}.{_algorithm}"

__all__ = ["ALGORITHMS", "__version__", *_names]


def __getattr__(name):
    if name not in _names:
        raise AttributeError(f"spinup has no attribute {name!r}; it has {', '.join(__all__)}")
    module = import_module(_names[name])
    return getattr(module, name.rpartition("_")[0] or name)


def __dir__():
    return __all__
