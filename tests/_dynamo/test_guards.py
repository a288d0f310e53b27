"""Guards: what is captured anew and what is not, and that a stale graph never runs."""

from __future__ import annotations

import collections
import dataclasses
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn
from tocha._dynamo.testing import CompileCounter
from tocha.autograd.mode import state

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
FLAG = True
OPTIONS = types.SimpleNamespace(scale=2.0, names=["a"])


@dataclasses.dataclass
class Config:
    scale: float = 2.0
    layers: tuple[int, ...] = (1, 2)
    extra: Any = None


Pair = collections.namedtuple("Pair", "a b")


def counted(function: Callable[..., Any], *calls: tuple[Any, ...]) -> int:
    """How many graphs these calls take; each gives the plain result."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter)
    for args in calls:
        expected, got = function(*args), compiled(*args)
        assert torch.equal(expected, got), args
    return counter.frame_count


def test_equal_but_new_objects_share_a_graph() -> None:
    def f(x: Any, config: Any, table: Any, items: Any, pair: Any, fn: Any, text: Any) -> Any:
        for n in config.layers:
            x = x * n + table["k"][0]
        return fn(x) * config.scale + items[0] + pair.a + len(text)

    def make() -> tuple[Any, ...]:
        return X.clone(), Config(), {"k": [1, 2]}, [3.0], Pair(1, 2), lambda v: v * 2, "".join(["a", "b"])

    assert counted(f, make(), make(), make()) == 1


@pytest.mark.parametrize(
    "values",
    [
        (1, 2, 1), (1, 1.0, True), (0.0, -0.0), (math.inf, -math.inf), ([1], [1, 2]), ((1,), [1]), ({"a": 1}, {"b": 1}), ("a", "b"), (None, 0),
        (Config(), Config(scale=3.0), Config(layers=(1,))), (torch.float16, torch.float64), (F.relu, F.tanh), (1 + 2j, 1 - 2j),
        (types.SimpleNamespace(a=1), types.SimpleNamespace(b=1)), ({1, 2}, {1}, {True}, {1.0}),
        ({1: 2}, {True: 2}, {1.0: 2}), (range(2), range(3)), (slice(0, 1), slice(0, 2)),
    ],
    ids=repr,
)  # fmt: skip
def test_other_values_are_captured_anew(values: tuple[Any, ...]) -> None:
    def f(x: Any, v: Any) -> Any:
        if callable(v):
            return v(x)
        if isinstance(v, torch.dtype):
            return x.to(v)
        if isinstance(v, slice):
            return x[v]
        if isinstance(v, Config):
            return x * v.scale + sum(v.layers)
        if isinstance(v, float):
            return x + math.copysign(1, v) * (v if math.isfinite(v) else 3)
        if isinstance(v, complex):
            return x + v.imag
        if isinstance(v, types.SimpleNamespace):
            return x + (1 if hasattr(v, "a") else 2)
        return (
            x
            + len(str(v))
            + (3 if isinstance(v, bool) else 0)
            + (len(v) * 10 if isinstance(v, (list, dict, tuple, set, range)) else 0)
        )

    calls = [(X, v) for v in values]
    assert counted(f, *calls, *calls) == len({repr(v) for v in values})


@pytest.mark.parametrize(
    "other",
    [
        X.double(),
        X[:, :2],
        X.t().contiguous().t(),
        X.clone().requires_grad_(),
        nn.Parameter(X.clone()),
        X.reshape(2, 3, 1),
        X.to(torch.int64),
    ],
    ids=range(7),
)
def test_other_tensors_are_captured_anew(other: Any) -> None:
    assert counted(lambda x: x * 2, (X,), (other,), (X + 1,), (other,)) == 2


def test_globals_closures_and_patched_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    k = 3

    def helper(x: Any) -> Any:
        return F.relu(x) * k

    def f(x: Any) -> Any:
        return helper(x) + OPTIONS.scale if FLAG else x - len(OPTIONS.names)

    compiled = torch.compile(f, backend="eager")
    assert torch.equal(compiled(X), f(X))
    k = 4
    assert torch.equal(compiled(X), f(X))
    monkeypatch.setattr(OPTIONS, "scale", 5.0)
    assert torch.equal(compiled(X), f(X))
    monkeypatch.setattr(F, "relu", torch.tanh)
    assert torch.equal(compiled(X), f(X))
    monkeypatch.setitem(globals(), "FLAG", False)
    assert torch.equal(compiled(X), f(X))
    OPTIONS.names.append("b")
    assert torch.equal(compiled(X), f(X))
    OPTIONS.names.pop()


def test_patched_methods_and_defaults() -> None:
    class Scale:
        factor = 2

        def __call__(self, x: Any, k: Any = 1) -> Any:
            return x * self.factor * k

    s = Scale()
    compiled = torch.compile(lambda x, s: s(x), backend="eager")
    assert torch.equal(compiled(X, s), X * 2)
    Scale.__call__.__defaults__ = (3,)
    assert torch.equal(compiled(X, s), X * 6)
    Scale.factor = 5
    assert torch.equal(compiled(X, s), X * 15)
    s.factor = 7
    assert torch.equal(compiled(X, s), X * 21)
    Scale.__call__ = lambda self, x: x - 1  # type: ignore[method-assign, assignment]
    assert torch.equal(compiled(X, s), X - 1)


def test_modes_around_the_call() -> None:
    counter = CompileCounter()
    x = X.clone().requires_grad_()
    compiled = torch.compile(lambda x: x @ x.t(), backend=counter)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert compiled(x).dtype is torch.bfloat16
    assert compiled(x).dtype is torch.float32 and compiled(x).requires_grad
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.compile(lambda: torch.ones(1) * 2, backend="eager")().dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert torch.compile(lambda: torch.ones(1) * 2, backend="eager")().dtype is torch.float32


def test_the_limit_keeps_good_entries() -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(lambda x, n: x * n, backend=counter)
    limit = torch._dynamo.config.recompile_limit
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in range(limit + 4):
            assert torch.equal(compiled(X, n), X * n)
    assert counter.frame_count == limit and len([w for w in seen if "recompile_limit" in str(w.message)]) == 1
    assert torch.equal(compiled(X, 0), X * 0) and counter.frame_count == limit


def test_reset_forgets() -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x * 2, backend=counter)
    compiled(X)
    torch._dynamo.reset()
    compiled(X)
    assert counter.frame_count == 2


def test_backends() -> None:
    given: list[Any] = []

    def mine(gm: Any, inputs: Any) -> Any:
        given.append((type(gm), [tuple(t.shape) for t in inputs]))
        assert "relu" in gm.code
        return gm.forward

    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert torch.equal(torch.compile(model, backend=mine)(X), model(X))
    assert issubclass(given[0][0], torch.fx.GraphModule) and given[0][1] == [(2, 3), (3, 3), (3,)]
    torch._dynamo.register_backend(mine, name="mine")
    assert "mine" in torch._dynamo.list_backends() and torch.equal(torch.compile(model, backend="mine")(X), model(X))
    with pytest.raises(RuntimeError, match="Invalid backend"):
        torch.compile(model, backend="nothing")(X)

    def broken(gm: Any, inputs: Any) -> Any:
        raise ValueError("mine")

    with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="mine"):
        torch.compile(model, backend=broken)(X)


def test_compile_by_its_arguments() -> None:
    with pytest.raises(RuntimeError, match="mode"):
        torch.compile(lambda x: x, mode="nothing")
    with pytest.raises(RuntimeError, match="Either mode or options"):
        torch.compile(lambda x: x, mode="default", options={})
    f = torch.compile(lambda x: x, disable=True)
    assert f(1) == 1 and not hasattr(f, "_torchdynamo_orig_callable")
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        torch.compile(lambda x: x, backend="eager")()

    @torch.compile(backend="eager")
    def g(x: Any) -> Any:
        "Text."
        return x + 1 if torch.compiler.is_compiling() else x

    assert g.__doc__ == "Text." and torch.equal(g(X), X + 1) and not torch.compiler.is_compiling()
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(g(X), X)


def test_what_means_nothing_outside_inference_mode_is_no_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is_grad_enabled would say in inference mode changes with the first switch of recording in a process, a capture's own too."""
    monkeypatch.setattr(state, "enabled", False)
    counter = CompileCounter()
    f = torch.compile(lambda x: x * 2, backend=counter)
    for _ in range(3):
        f(torch.ones(3))
    assert counter.frame_count == 1
