"""Floats from outside a capture whose values change from call to call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
from tests._dynamo import helpers
from tocha._dynamo.testing import CompileCounter

X = torch.tensor([[0.1, -2.0, 3.3], [0.5, 4.7, -1.0]])
NUMBERS = [0.1, 1 / 3, -2.5, 1e30, 1e-30, 7.0, math.inf, math.nan, -0.0, 0.3, 0.7, 0.9]


def bits(a: Any) -> Any:
    """Equal if results are the same to the last bit."""
    if isinstance(a, torch.Tensor):
        return a.dtype, a.shape, a.numpy().tobytes()
    return repr(a) if isinstance(a, float) else tuple(map(bits, a)) if isinstance(a, tuple) else a


def graphs(function: Callable[..., Any], numbers: Any = NUMBERS, x: Any = X, backend: Any = None) -> int:
    """How many graphs it takes to give what plain Python gives, whatever the number."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=backend or counter, fullgraph=True)
    for s in numbers:
        assert bits(function(x, s)) == bits(compiled(x, s)), s
    return counter.frame_count


@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: (x * s, s * x, x + s, s + x, x - s, s - x, x / s, s / x),
        lambda x, s: (torch.mul(x, s), x.add(s), x.clone().mul_(s), x.clone().div_(s)),
        lambda x, s: (x.sum() * s, x.double() * s, x.sum() + s, s - x.double().sum()),
        lambda x, s: x * (s * 2 + 1 - s) + (s / 4),
        lambda x, s: (x * s, s, s * 3, float(s), isinstance(s, float), type(s) is float, s is None),
    ],
)
@pytest.mark.parametrize("backend", [None, "inductor"])
def test_arithmetic_is_as_in_plain_python(function: Any, backend: Any) -> None:
    assert graphs(function, backend=backend) == (2 if backend is None else 0)


def test_the_type_is_that_of_a_number() -> None:
    compiled = torch.compile(lambda x, s: x * s, backend="eager", fullgraph=True)
    for s in (1.5, 2.5, 3.5):
        for x, dtype in ((X, torch.float32), (X.sum(), torch.float32), (X.double(), torch.float64)):
            assert compiled(x, s).dtype is dtype


def test_what_is_decided_on_a_float_is_guarded() -> None:
    def f(x: Any, s: Any) -> Any:
        return x * s if s > 1.0 else x - s

    assert graphs(f, [0.5, 0.25, 0.75, 2.0, 3.0, 4.0, math.nan, 0.1, 9.0]) == 3


@pytest.mark.parametrize(
    "function",
    [
        lambda x, s: x * min(abs(s), 1.0),
        lambda x, s: x * math.sqrt(s),
        lambda x, s: x * (1 / s),
        lambda x, s: x.half() * s,
        lambda x, s: x.long() * s,
        lambda x, s: (x * 2, {s: 1}, f"{s}", s**2, round(s, 1)),
        lambda x, s: torch.clamp(x, s),
    ],
)
def test_what_isnt_exact_keeps_floats_constant(function: Any) -> None:
    assert graphs(function, [0.1, 0.2, 0.3, 0.4, 0.1]) == 4


def test_attributes_that_a_program_changes() -> None:
    class Schedule:
        def __init__(self) -> None:
            self.rate = 1.0

    def f(s: Any, x: Any) -> Any:
        s.rate *= 0.9
        return x * s.rate

    ours, theirs, counter = Schedule(), Schedule(), CompileCounter()
    compiled = torch.compile(f, backend=counter, fullgraph=True)
    for _ in range(40):
        assert bits(f(theirs, X)) == bits(compiled(ours, X))
        assert ours.rate == theirs.rate
    assert counter.frame_count == 2


def test_a_float_that_stays_and_then_changes_is_noticed_in_bound_segments() -> None:
    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(4)])
            self.scale = 1.0

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                x = layer(x) * self.scale
            return x

    m = Scaled()
    compiled = torch.compile(m, backend="eager")
    for scale in (1.0, 0.5, 0.25, 2.0):
        m.scale = scale
        for _ in range(20):
            assert helpers.same(m(X), compiled(X), 1e-6)


def test_division_by_zero_raises_as_in_plain_python() -> None:
    compiled = torch.compile(lambda x, s: x * (1 / s), backend="eager")
    for s in (1.0, 2.0, 4.0):
        compiled(X, s)
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0.0)
