"""Random programs, captured against plain: results, writes, exceptions, gradients."""

from __future__ import annotations

import linecache
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
from tests._dynamo import helpers
from tests._dynamo.programs import Program, State


def load(seed: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A random program twice, each with globals of its own."""
    source, name = Program(seed).source(), f"<program {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    code = compile(source, name, "exec")
    spaces: list[dict[str, Any]] = [{"__name__": "program"}, {"__name__": "program"}]
    for space in spaces:
        exec(code, space)
    return tuple([types.FunctionType(spaces[0]["f"].__code__, space, "f") for space in spaces])  # type: ignore[return-value]


def given(number: int) -> list[Any]:
    """Arguments of a program."""
    torch.manual_seed(number)
    a, b = torch.randn(3, 3), torch.randn(3, 3)
    if number >= 2:
        b.requires_grad_()
        a = (a.requires_grad_() * 1).tanh() if number == 2 else a.requires_grad_()
    items: list[Any] = [1, 2] if number % 2 else []
    return [a, b, number % 3, items, {"t": torch.randn(3, 3)} if number % 2 else {}, State(torch.randn(3, 3))]


def alike(a: Any, b: Any, seen: dict[int, Any]) -> bool:
    """Equality of graphs of objects: the same aliases, values within rounding."""
    if isinstance(a, torch.Tensor):
        return helpers.same(a, b, 1e-4)
    if isinstance(a, float):
        return isinstance(b, float) and (abs(a - b) <= 1e-4 * max(1, abs(a)) or (a != a and b != b))
    if isinstance(a, types.FunctionType):
        return isinstance(b, types.FunctionType) and a.__code__ is b.__code__
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple, dict, State)):
        if id(a) in seen:
            return seen[id(a)] is b
        seen[id(a)] = b
        if isinstance(a, State):
            return alike(vars(a), vars(b), seen)
        if isinstance(a, dict):
            return list(a) == list(b) and all(alike(x, y, seen) for x, y in zip(a.values(), b.values(), strict=True))
        return len(a) == len(b) and all(alike(x, y, seen) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def gradients(out: Any, ins: list[Any]) -> Any:
    """What backward from the tensors of a result leaves on the inputs; the class of what it raises."""
    wanted = [t.sum() for t in out[1][0] if isinstance(t, torch.Tensor) and t.requires_grad] if out[0] == "returned" else []
    ran = helpers.run(lambda: sum(wanted).backward() if wanted else None, (), {})
    # An output that backward doesn't start from gives gradients of zero where a graph is one node, none otherwise.
    return ran[:2], [torch.zeros(3, 3) if t.grad is None else t.grad for t in ins[:2] if t.is_leaf]


def compare(seed: int, backend: str) -> None:
    """The program's calls, in plain Python and compiled."""
    plain, ours = load(seed)
    torch._dynamo.reset()
    compiled = torch.compile(ours, backend=backend)
    for number in (0, 1, 0, 2, 3, 1):
        ins = [given(number), given(number)]
        outs = [helpers.run(plain, tuple(ins[0]), {}), helpers.run(compiled, tuple(ins[1]), {})]
        globals_of = [(f.__globals__["TOTAL"], f.__globals__["COUNT"]) for f in (plain, ours)]  # type: ignore[attr-defined]
        assert alike((outs[0], ins[0], globals_of[0]), (outs[1], ins[1], globals_of[1]), {}), f"seed {seed}, call {number}"
        expected = gradients(outs[0], ins[0])
        if expected[0][0] == "returned":  # what a write spoils for the tape, a functional graph still has
            assert alike(expected, gradients(outs[1], ins[1]), {}), f"seed {seed}, gradients of call {number}"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("seed", range(30))
def test_random_programs(seed: int, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(seed, backend)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_more_random_programs(block: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(1000 + 30 * block, 1030 + 30 * block):
            compare(seed, ("eager", "aot_eager")[seed % 2])
