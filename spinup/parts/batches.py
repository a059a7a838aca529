"""Batches of experience: named tuples, which a script may also ask as it asks a dict.

`o, a, r, o2, terminated = batch` takes the columns in order; `batch["rew"]`, `batch.items()`,
`dict(batch)` and `"rew" in batch` name them as the original did, with `done` for `terminated`. A
loop over the batch itself gives the columns; for their names, loop over `batch.keys()`.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")
ALIASES = {"terminated": "done"}  # columns that have another name in the original


def _keys(batch: Any) -> tuple[str, ...]:
    """The names of the columns, as the original calls them."""
    return tuple(ALIASES.get(name, name) for name in batch._fields)


def _values(batch: Any) -> tuple:
    """The columns, in the order of `keys()`."""
    return tuple(batch)


def _items(batch: Any) -> Iterator[tuple[str, Any]]:
    """Each column with its name."""
    return zip(_keys(batch), batch, strict=True)


def _item(batch: Any, key: Any) -> Any:
    """A column by its name, or by its place."""
    if not isinstance(key, str):
        return tuple.__getitem__(batch, key)
    if key not in batch:
        raise KeyError(f"{key!r} is not in this batch; it has {', '.join(_keys(batch))}")
    return getattr(batch, "terminated" if key == "done" else key)


def _contains(batch: Any, key: object) -> bool:
    """Whether a column has this name."""
    return key in _keys(batch) or key in batch._fields


def _get(batch: Any, key: str, default: Any = None) -> Any:
    """A column by its name, or the default where there is no such column."""
    try:
        return batch[key]
    except KeyError:
        return default


def _assign(batch: Any, key: str, value: Any) -> None:
    """Refuse to change a batch: its columns may be shared."""
    name = "terminated" if key == "done" else key
    raise TypeError(f"A batch cannot be changed in place. Make another: batch._replace({name}=…)")


def dict_like(kind: type[T]) -> type[T]:
    """Let a named tuple be asked as a dict is; unpacking still gives its columns."""
    methods: dict[str, Any] = dict(keys=_keys, values=_values, items=_items)
    methods |= dict(__getitem__=_item, __contains__=_contains, get=_get, __setitem__=_assign)
    for name, method in methods.items():
        setattr(kind, name, method)
    return kind


@dict_like
class Transitions(NamedTuple):
    """A batch of (s, a, r, s', terminated); one row each, arrays or the tensors of a backend."""

    obs: Any
    act: Any
    rew: Any
    obs2: Any
    terminated: Any  # 1 where the task ended, so that nothing is to be bootstrapped


@dict_like
class NStepTransitions(NamedTuple):
    """A batch of (s, a, n-step reward, state after the n steps, terminated), n from 1 upwards."""

    obs: Any
    act: Any
    rew: Any  # the rewards of the n steps, each discounted for its delay
    obs2: Any
    terminated: Any  # 1 where the task ended with the last of them
    discount: Any  # gamma ** n, the discount of the value of obs2
    weight: Any  # importance weight / batch size: the share of the row in the loss
    indices: Any  # where in the buffer the first of the n steps stands


@dict_like
class Segments(NamedTuple):
    """Runs of consecutive steps of one environment, one run behind the other; one row per step."""

    obs: Any
    act: Any
    rew: Any
    obs2: Any  # the true successor: where an episode ended, the next row is not it
    terminated: Any
    truncated: Any
    logp: Any  # log probability of *every* action when act was chosen


@dict_like
class Rollout(NamedTuple):
    """On-policy experience with its advantages; one row per step."""

    obs: Any
    act: Any
    ret: Any  # return-to-go, discounted; bootstrapped with the value where the path was cut
    adv: Any  # advantage (GAE), normalised
    logp: Any  # log probability of act when it was taken
