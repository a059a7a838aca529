"""The table of what config.json holds besides the settings of one algorithm, and what it is for."""

from typing import Any, NamedTuple

STOPS = "stops_when_not_finite"  # in progress.txt of such a run, NaN means: not measured


class Entry(NamedTuple):
    """A key of config.json or job.json, and what the library does with its value."""

    kind: Any = None  # the type, or that of each key inside; None where the value is not used
    added: bool = True  # training adds it; it is no setting that `spinup resume` passes on
    compared: bool = True  # a run does not resume with another value
    of_experiment: bool = True  # runs with other values belong to another experiment
    on_page: bool = True  # the report page shows it among the settings
    tracked: bool = True  # Weights & Biases gets it


ENVIRONMENT = dict(id=str, made_by=str, kwargs=dict, wrappers=list, max_episode_steps=int)
ENTRIES = {
    "algorithm": Entry(str),
    "actor_critic": Entry(str),
    "env_fn": Entry(dict(env_name=str, env_kwargs=dict)),
    "environment": Entry(ENVIRONMENT, tracked=False),
    "spaces": Entry(
        dict(observation=str, action=str), of_experiment=False, on_page=False, tracked=False
    ),
    "num_procs": Entry(int),
    "exp_name": Entry(str, of_experiment=False, on_page=False),
    "logger_kwargs": Entry(dict, compared=False, of_experiment=False, on_page=False, tracked=False),
    "planned_epochs": Entry(compared=False, of_experiment=False),
    "resume": Entry(compared=False, of_experiment=False),
    "versions": Entry(of_experiment=False, tracked=False),
    STOPS: Entry(of_experiment=False, on_page=False),
    # Settings of all algorithms.
    "seed": Entry(int, added=False, of_experiment=False, on_page=False),
    "epochs": Entry(int, added=False, compared=False, of_experiment=False),
    "save_freq": Entry(added=False, compared=False, of_experiment=False),
    "ac_kwargs": Entry(dict, added=False),
    # Of a copied algorithm, of job.json, and of the original library.
    "code": Entry(added=False, compared=False),
    "env_name": Entry(str, added=False),
    "job": Entry(added=False, of_experiment=False, on_page=False),
    "logger": Entry(added=False, of_experiment=False),
}


def keys_with(**flags: bool) -> set[str]:
    """The keys whose entries have these flags: `keys_with(tracked=False)`."""
    return {
        key
        for key, entry in ENTRIES.items()
        if all(getattr(entry, name) == value for name, value in flags.items())
    }
