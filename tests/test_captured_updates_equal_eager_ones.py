"""A captured update gives what the same code gives eagerly, whatever it is made of.

Programs are put together at random from the ingredients of program_pieces.py: operations, layers,
optimizers, Python's side effects, and what a user changes between two calls. Each program runs
twice over ten batches, as two modules with a learner each: one calls `update`, the other
`update.eager`, with the same random seeds. After every call all that either of them can see is
compared: results, weights, buffers, gradients (and whether there are any), optimizers, plain
values, globals, files, what was printed, and the random streams.
"""

import contextlib
import importlib.util
import io
import random
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import program_pieces
import pytest
import torch
from torch import nn

CALLS = 10
ROWS = 12
PROGRAMS = 150
# Of the length of a tensor. One number alone may differ by more: where a gradient is nothing but
# rounding, Adam steps with any sign (eps in the programs is large, to make that rare).
TOLERANCE = 2e-3


class Batch(NamedTuple):
    x: Any
    y: Any
    n: Any
    image: Any
    extra: Any = None


def make_batch(i) -> Batch:
    g = torch.Generator().manual_seed(100 + i)
    return Batch(
        torch.randn(ROWS, 4, generator=g),
        torch.randn(ROWS, generator=g),
        torch.randint(6, (ROWS,), generator=g),
        torch.randint(256, (ROWS, 8, 8, 3), generator=g, dtype=torch.uint8),
    )


def seed_all(seed):
    torch.default_generator.manual_seed(seed)  # of the CPU alone, which is quicker
    np.random.seed(seed)
    random.seed(seed)


def random_states() -> list:
    _, keys, *rest = np.random.get_state()
    return [torch.get_rng_state(), keys, rest, str(random.getstate())]


def seen(value) -> Any:
    """All that can be seen of a value, as nested lists and dicts of tensors and plain values."""
    if isinstance(value, torch.Tensor):
        found = dict(value=value.detach().clone(), requires_grad=value.requires_grad)
        return found | (dict(grad=seen(value.grad)) if value.is_leaf else {})
    if isinstance(value, nn.Module):
        modules = {
            name: dict(
                type=type(m).__name__,
                hooks=len(m._forward_hooks),
                **{k: seen(v) for k, v in vars(m).items() if not k.startswith("_")},
            )
            for name, m in value.named_modules()
        }
        params = {name: seen(p) for name, p in value.named_parameters()}
        return dict(modules=modules, params=params, buffers=seen(dict(value.named_buffers())))
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, torch.optim.lr_scheduler.LRScheduler):
        return seen({k: v for k, v in value.state_dict().items() if not k.startswith("_")})
    if hasattr(value, "param_groups"):
        groups = [{k: v for k, v in g.items() if k != "params"} for g in value.param_groups]
        return dict(state=seen(value.state_dict()), groups=groups, type=type(value).__name__)
    if isinstance(value, SimpleNamespace):
        return seen(vars(value))
    if is_dataclass(value):
        return {f.name: seen(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {str(k): seen(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [seen(v) for v in value]
    if isinstance(value, set):
        return sorted(value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype, torch.device)):
        return value
    return getattr(value, "__name__", type(value).__name__)  # functions, classes


def numbers(result) -> Any:
    """What can be seen of results, without their graphs: a replay makes none."""
    if isinstance(result, torch.Tensor):
        return result.detach().clone()
    if isinstance(result, dict):
        return {key: numbers(value) for key, value in result.items()}
    return [numbers(v) for v in result] if isinstance(result, (list, tuple)) else result


def globals_of(module: ModuleType) -> dict:
    """The module's own values, which are in capitals, and its file."""
    names = [name for name in vars(module) if name.isupper() and name != "LOG_FILE"]
    file = Path(module.LOG_FILE)
    own = {name: seen(getattr(module, name)) for name in names}
    return dict(own, file=file.read_text() if file.exists() else None)


def assert_same(found, expected, where=""):
    """Equal; numbers of single or double precision to rounding."""
    assert type(found) is type(expected), (where, found, expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_same(found[key], expected[key], f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), where
        for index, pair in enumerate(zip(found, expected)):
            assert_same(*pair, f"{where}[{index}]")
    elif isinstance(expected, torch.Tensor):
        assert found.shape == expected.shape and found.dtype == expected.dtype, where
        if not expected.is_floating_point():
            assert torch.equal(found, expected), where
            return
        a, b = found.double(), expected.double()
        assert torch.equal(a.isnan(), b.isnan()), where
        error, length = (a - b).nan_to_num().norm(), b.nan_to_num().norm()
        assert error <= TOLERANCE * length + 1e-5, f"{where}: {error:.3g} of {length:.3g}"
    elif isinstance(expected, np.ndarray):
        np.testing.assert_allclose(found, expected, TOLERANCE, 1e-5, err_msg=where)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=TOLERANCE, abs=1e-5, nan_ok=True), where
    else:
        assert found == expected, (where, found, expected)


class Side:
    """One of the two ways to run a program."""

    def __init__(self, path, name, eager):
        spec = importlib.util.spec_from_file_location(name, path.with_name(f"{name}.py"))
        Path(spec.origin).write_text(path.read_text())
        self.module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        update = self.module.update
        self.learner, self.update = self.module.make_learner(), update.eager if eager else update
        self.results, self.printed = [], ""

    def call(self, i):
        """Make the i-th call; gives all that can be seen after it."""
        batch, settings = make_batch(i), self.module.SETTINGS
        if i > 0:
            seed_all(1000 + i)
            batch, settings = self.module.between(self.learner, batch, i)
        seed_all(i)
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
            result = self.update(self.learner, batch, **settings)
        states = random_states()
        self.printed += out.getvalue()
        self.results.append((result, numbers(result)))
        return dict(
            result=numbers(result),
            learner=seen(self.learner),
            globals=globals_of(self.module),
            batch=seen(batch),
            random=states,
        )


def run_both(text, tmp_path):
    """Run a program both ways and compare; gives the report on the captured one."""
    path = tmp_path / "program.py"
    path.write_text(text)
    fast, eager = Side(path, "program_fast", False), Side(path, "program_eager", True)
    for i in range(CALLS):
        expected = eager.call(i)
        assert_same(fast.call(i), expected, f"call {i}")
    for index, (result, then) in enumerate(fast.results):
        assert_same(numbers(result), then, f"result {index}, kept by the caller")
    report = fast.module.update.report(fast.learner)
    lines = fast.printed.splitlines()
    if report.reason is not None:
        told = [line for line in lines if report.reason in line]
        assert len(told) <= 1, lines  # not again, where an earlier program had the same reason
        lines = [line for line in lines if line not in told]
    assert lines == eager.printed.splitlines()
    assert report.replays + report.eager_calls == CALLS
    return report


def check(names, step, tmp_path, named_tuple=False):
    text = program_pieces.program(names, step, named_tuple)
    report = run_both(text, tmp_path)
    if program_pieces.must_be_captured(names, step) and not named_tuple:
        assert report.reason is None and report.captures > 0, report.reason
        assert report.replays >= CALLS - 2


@pytest.mark.parametrize("name", program_pieces.INGREDIENTS)
def test_every_ingredient_alone(name, tmp_path):
    check([name], "our Adam", tmp_path)


@pytest.mark.parametrize("step", program_pieces.STEPS)
def test_every_kind_of_step(step, tmp_path):
    check(["tanh", "our mlp, relu"], step, tmp_path)


@pytest.mark.parametrize("name", ["tanh", "gru", "print", "a float changed outside"])
def test_a_named_tuple_as_learner(name, tmp_path):
    named_tuple = not program_pieces.assigns([name], "our Adam")
    check([name], "our Adam", tmp_path, named_tuple)
    assert named_tuple or name == "a float changed outside"


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs(seed, tmp_path):
    names, step, named_tuple = program_pieces.random_program(seed)
    check(names, step, tmp_path, named_tuple)


def test_the_programs_are_many_and_different():
    made = [program_pieces.random_program(seed) for seed in range(PROGRAMS)]
    used = {name for names, *_ in made for name in names} | {step for _, step, _ in made}
    everything = {*program_pieces.INGREDIENTS, *program_pieces.STEPS}
    assert len(everything) > 200 and len(used) > 0.8 * len(everything)
    assert (
        sum(program_pieces.must_be_captured(names, step) for names, step, _ in made) >= PROGRAMS / 3
    )
    assert any(named_tuple for *_, named_tuple in made)


# A call that is replayed as if nothing had changed would do this: the comparison must see it.
FROZEN = {
    "a float": ("a float changed outside", "learner.scale0", "1.0"),
    "a global": ("a global changed outside", "* FACTOR", "* 1.0"),
    "a side effect": ("list of tensors", "learner.history0.append(loss.detach())", "pass"),
    "noise": ("a random number of Python's", "random.random()", "0.5"),
    "what is printed": ("print", "print('an update')", "pass"),
    "an operation": ("sigmoid at -20", "torch.sigmoid(0.1 * h - 20)", "torch.zeros_like(h) + 1e-8"),
    "a gradient": ("our mlp, relu", "learner.A0(h)", "learner.A0(h.detach())"),
}


@pytest.mark.parametrize("case", FROZEN)
def test_the_comparison_sees_a_difference(case, tmp_path):
    """Two programs that differ in one place must not pass for equal."""
    name, text, other = FROZEN[case]
    written = program_pieces.program([name])
    body, rest = written.split("def between")
    changed = (
        body.split("def update")[0]
        + "def update"
        + body.split("def update")[1].replace(text, other)
    )
    assert changed != body
    path = tmp_path / "program.py"
    path.write_text(changed + "def between" + rest)
    fast = Side(path, "program_frozen", True)
    path.write_text(written)
    eager = Side(path, "program_eager", True)
    with pytest.raises(AssertionError):
        for i in range(CALLS):
            assert_same(fast.call(i), eager.call(i))
            assert fast.printed == eager.printed
