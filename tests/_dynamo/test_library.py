"""What programs use of the standard library and of torch's Python side, in one graph; custom Functions too."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import operator
import re
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tests._dynamo.helpers import check, same
from tocha import nn
from tocha.autograd.function import once_differentiable
from tocha.utils.checkpoint import checkpoint

W = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)


class Vector:
    def __init__(self, t: Any) -> None:
        self.t = t

    def __add__(self, other: Any) -> Vector:
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    __radd__ = __add__


@dataclasses.dataclass
class Pair:
    a: Any
    b: int = 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
        self.tied = self.layers[0]


NET = Net()


@functools.lru_cache
def width(n: int) -> int:
    return 2 * n


def sending(x: Any) -> Any:
    def echo() -> Any:
        got = yield 0
        while True:
            got = yield got * 2

    echoing = echo()
    next(echoing)
    return echoing.send(x) + echoing.send(x + 1)


def stack_of_contexts(x: Any) -> Any:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        y = stack.enter_context(contextlib.nullcontext(x * 2))
    return y + x


def decorated(x: Any) -> Any:
    @torch.no_grad()
    def twice(y: Any) -> Any:
        return y * 2

    return twice(x), x * 3


def annotated(x: Any) -> Any:
    def scale(k: typing.Optional[int] = None) -> int:  # noqa: UP045
        return 3 if k is None else k

    return x * scale()


def masked(x: Any) -> Any:
    y = x.clone()
    y[y > 0.5] = 0
    y[x[:, 0] < 0] = y.sum()
    return y * x


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "send": sending,
    "exit stack": stack_of_contexts,
    "asdict": lambda x: x * dataclasses.asdict(Pair(1, 3))["b"],
    "reflected operators": lambda x: (1 + Vector(x) + 2.5).t,
    "cached function": lambda x: x * width(3),
    "methodcaller": lambda x: operator.methodcaller("sum", 0)(x),
    "hash": lambda x: x * (hash("a") == hash("a")) + hash((1, 2)) * 0,
    "deepcopy": lambda x: (x * 1, copy.deepcopy([1, [2]]), copy.copy({"a": 1})),
    "parameters": lambda x: x + sum(p.sum() for p in NET.parameters()) + len([n for n, _ in NET.named_modules()]),
    "part of a Sequential": lambda x: NET.layers[:2](x) + NET.layers[1:](x),
    "layers made inside": lambda x: nn.Sequential(nn.ReLU(), nn.Dropout(0.0), NET.tied)(x) + nn.GELU()(x),
    "a decorator": decorated,
    "annotations": annotated,
    "types": lambda x: x.to(torch.promote_types(torch.int8, torch.float64)),
    "checkpoint": lambda x: checkpoint(lambda y, k: F.dropout(y.sin(), 0.5) * k, x, k=2, use_reentrant=False),
    "reentrant checkpoint": lambda x: checkpoint(lambda y: y.sin() * W, x, use_reentrant=True),
    "masks": masked,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str) -> None:
    check(PROGRAMS[name], torch.randn(2, 3).requires_grad_(name == "reentrant checkpoint"), fullgraph=True)


@pytest.mark.parametrize("name", ["checkpoint", "masks"])
def test_gradients(name: str) -> None:
    found = []
    for f in (PROGRAMS[name], torch.compile(PROGRAMS[name], fullgraph=True)):
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        torch.manual_seed(0)
        f(x).pow(2).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def test_layers_with_parameters_are_not_made_in_graphs() -> None:
    def f(x: Any) -> Any:
        return nn.Linear(3, 3)(x)

    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"a Linear is made, with parameters.*make layers outside"):
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    torch._dynamo.reset()
    check(f, torch.ones(3), graphs=None)


# ---- custom Functions


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, k: float) -> Any:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * ctx.k + 0 * x, None


class Gate(torch.autograd.Function):
    """Saves an input, an output and something between, keeps a tensor on ctx, and has a result without gradient."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        s = torch.sigmoid(x)
        y, above = x * s * w, s > 0.5
        ctx.save_for_backward(x, y, s, None)
        ctx.mark_non_differentiable(above)
        ctx.w = w
        return y, above

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Any, _: Any) -> Any:
        x, _y, s, nothing = ctx.saved_tensors
        assert nothing is None
        return g * (s + x * s * (1 - s)) * ctx.w, g * x * s if ctx.needs_input_grad[1] else None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(x: Any) -> Any:
        return x.round()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * (1 + (x - y).abs())


class Reversed(torch.autograd.Function):
    """The gradient's sign is changed; the result is a view of the input."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return -g


def all_four(x: Any) -> Any:
    y, above = Gate.apply(Scaled.apply(x, 3.0), W)
    return Rounded.apply(y * 2).sum() + Reversed.apply(y * y).sum() + above.sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_functions(backend: str) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(all_four, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.randn(2, 3, requires_grad=True)
        want, got = all_four(x), compiled(x)
        torch.testing.assert_close(got, want)
        for a, b in zip(torch.autograd.grad(got, [x, W]), torch.autograd.grad(want, [x, W]), strict=True):
            torch.testing.assert_close(a, b)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), all_four(x))


def test_gradients_of_a_functions_gradient() -> None:
    x = torch.tensor([0.3, 1.4], requires_grad=True)
    found = []
    for f in (lambda x: Rounded.apply(x * x).sum(), torch.compile(lambda x: Rounded.apply(x * x).sum(), fullgraph=True)):
        (slope,) = torch.autograd.grad(f(x), x, create_graph=True)
        found.append([slope.detach(), *torch.autograd.grad(slope.sum(), x)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(b, a)


def test_what_a_functions_backward_reads_is_guarded() -> None:
    factor = [2.0]

    class Times(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * factor[0]

    compiled, x = torch.compile(lambda x: Times.apply(x), fullgraph=True), torch.ones(2, requires_grad=True)
    for expected in (2.0, 5.0):
        factor[0] = expected
        assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [expected] * 2


def test_functions_that_count_their_calls_run_in_plain_python() -> None:
    class Counting(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            Counting.calls += 1
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    compiled = torch.compile(lambda x: Counting.apply(x) + 1)
    for number in (1, 2, 3):
        assert compiled(torch.ones(1, requires_grad=True)).item() == 3
        assert Counting.calls == number


def test_lru_cache_holds_what_eager_would_hold() -> None:
    made: list[int] = []

    @functools.lru_cache
    def table(n: int) -> Any:
        made.append(n)
        return torch.arange(float(n))

    class Scale:
        k = 2.0

        @functools.lru_cache  # noqa: B019
        def twice(self, n: int) -> Any:
            return self.k * n

    scale = Scale()
    compiled = torch.compile(lambda x: x + table(2) * scale.twice(3), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [1, 7]
    table(2)[0] = 1.0  # the cached tensor itself
    assert compiled(torch.ones(2)).tolist() == [7, 7]
    assert made == [2]
    scale.k = 5.0
    assert compiled(torch.ones(2)).tolist() == [7, 7]  # as cached
    Scale.twice.cache_clear()
    assert compiled(torch.ones(2)).tolist() == [16, 16]


def test_a_bound_slot_found_by_super_survives_a_break() -> None:
    def noisy() -> dict[str, Any]:
        print(end="")
        return {}

    class Base:
        def __init__(self) -> None:
            super().__init__(**noisy())
            self.k = 3

    class Derived(Base):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.k += a + b

    assert torch.compile(lambda x: x * Derived(1, 2).k, backend="eager")(torch.ones(1)).item() == 6


class Alternative:
    @classmethod
    def made(cls) -> Any:
        return cls()

    def value(self) -> float:
        return 2.0


class OfClasses(Alternative):
    @classmethod
    def made(cls) -> Any:
        return super().made()


class Ducks(type):
    def __instancecheck__(cls, obj: Any) -> bool:
        return hasattr(obj, "value")


class Duck(metaclass=Ducks):
    pass


class Positions:
    def __getitem__(self, i: int) -> int:
        return [3, 4][i]

    def __float__(self) -> float:
        return 1.5

    def __repr__(self) -> str:
        return "P"


@contextlib.contextmanager
def swallowing(log: list[Any]) -> Any:
    try:
        yield 2
    except RuntimeError as error:
        log.append(str(error))
    finally:
        log.append("left")


def managed(x: Any) -> Any:
    log: list[Any] = []
    with swallowing(log) as k:
        x = x * k
        raise RuntimeError("inside")
    g = (n for n in range(3))
    first = next(g)
    g.close()
    return x + first, log, list(g)


CAST = torch.autocast("cpu", dtype=torch.bfloat16)


@CAST
def cast(x: Any) -> Any:
    return x @ x


LANGUAGE: dict[str, Callable[[Any], Any]] = {
    "super in a class method": lambda x: x * OfClasses.made().value(),
    "a metaclass that checks instances": lambda x: x * isinstance(OfClasses(), Duck) + isinstance(3, (Duck, int)),
    "iteration by position, to a sentinel": lambda x: (x * sum(Positions()), [*iter([2, 0, 1].pop, 0)], float(Positions())),
    "texts": lambda x: (x * 1, f"{Positions()}", str(Positions()), re.sub("a", "b", "aa"), re.findall("[0-9]", "a1b2")),
    "membership by __eq__": lambda x: x * (Vector(1) in [Vector(2), 3]),
    "generators thrown into and closed": managed,
    "an autocast from outside": lambda x: (cast(x), cast(x).dtype, (x @ x).dtype),
    "NumPy's numbers": lambda x: x * np.sqrt(2.0) + np.float32(2) * int(np.prod(x.shape)) - np.pi,
    "distributions": lambda x: (torch.distributions.Normal(x, 2.0).log_prob(x + 1), torch.distributions.Categorical(x.softmax(-1)).sample()),
}


@pytest.mark.parametrize("name", LANGUAGE)
def test_more_of_python(name: str) -> None:
    check(LANGUAGE[name], torch.tensor([[1.0, 2.0], [0.5, -1.0]]), fullgraph=True)


def test_an_autocast_from_outside_is_left_after_a_break() -> None:
    def broken(x: Any) -> Any:
        with CAST:
            y = x @ x
            if y.sum() > 0:
                y = y @ x
        return y.dtype, (x @ x).dtype

    assert torch.compile(broken, backend="eager")(torch.ones(2, 2)) == (torch.bfloat16, torch.float32)


def test_a_module_with_backward_hooks_runs_them() -> None:
    layer, seen = nn.Linear(2, 2), []
    layer.register_full_backward_hook(lambda m, gi, go: seen.append(go[0].sum().item()))
    x = torch.ones(1, 2, requires_grad=True)
    torch.compile(lambda x: layer(x) * 3, backend="eager")(x).sum().backward()
    assert seen == [6.0]


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_random_numbers_by_tensors_of_parameters(backend: str) -> None:
    def draws(p: Any) -> Any:
        q = (p * 1.0).sigmoid()
        return (
            torch.bernoulli(q), torch.empty(6).bernoulli_(q), torch.normal(q, q + 1), torch.poisson(q * 9), q.multinomial(3),
            q.multinomial(8, True),
        )  # fmt: skip

    p, outs = torch.linspace(-2, 2, 6), []
    for f in (draws, torch.compile(draws, backend=backend, fullgraph=True)):
        torch.manual_seed(7)
        outs.append([*f(p), *f(p)])
    for want, got in zip(*outs, strict=True):
        torch.testing.assert_close(got, want)
    with pytest.raises(RuntimeError, match="expected every probability p to be in"):
        torch.compile(lambda p: torch.bernoulli(p * 2), backend=backend)(torch.ones(2))


def test_numbers_of_numpy_are_guarded() -> None:
    compiled = torch.compile(lambda x, k: x / k, backend="eager", fullgraph=True)
    for k in (np.float32(2), np.float16(4), np.float16(5), np.int8(2), np.int8(4), np.float32(0.0), np.float32(-0.0)):
        assert compiled(torch.ones(1), k).item() == (torch.ones(1) / k).item()


class Named:
    """Takes part in torch's functions without being a tensor."""

    calls = 0

    def __init__(self, t: Any, name: str) -> None:
        self.t, self.name = t, name

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        Named.calls += 1
        return cls(func(*[a.t if isinstance(a, Named) else a for a in args], **(kwargs or {})), func.__name__)


def test_objects_with_a_torch_function() -> None:
    compiled = torch.compile(lambda x, n: torch.add(torch.mul(n, 2), x), backend="eager", fullgraph=True)
    for calls in (2, 4):
        out = compiled(torch.ones(2), Named(torch.ones(2), "given"))
        assert out.t.tolist() == [3, 3]
        assert out.name == "add"
        assert Named.calls == calls


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_are_clipped_in_a_graph(backend: str) -> None:
    a, b = (torch.zeros(2, requires_grad=True) for _ in range(2))
    a.grad, b.grad = torch.tensor([3.0, 0.0]), torch.tensor([0.0, 4.0])
    compiled = torch.compile(lambda: torch.nn.utils.clip_grad_norm_([a, b], 1.0), backend=backend, fullgraph=True)
    assert compiled().item() == 5
    torch.testing.assert_close(a.grad, torch.tensor([0.6, 0.0]))
    torch.testing.assert_close(b.grad, torch.tensor([0.0, 0.8]))


X = torch.tensor([1.0, -2.0, 3.0])


class Count(int):
    pass


class Rate(float):
    pass


class Name(str):
    pass


class Clock(int):
    def __mul__(self, other: Any) -> Any:
        return other * (int(self) % 12)

    __rmul__ = __mul__


@pytest.mark.parametrize("function", [lambda x, n: x * n, lambda x, n: x + n * 2, lambda x, n: (x / n, n, isinstance(n, int))])
def test_subclasses_of_numbers(function: Any) -> None:
    compiled = torch.compile(function, backend="eager")
    for n in (Count(3), Rate(2.5), Count(4), Rate(0.5), 3, Count(3)):
        assert same(function(X, n), compiled(X, n))
    check(function, X, Rate(1.5), fullgraph=True)
    assert same(X * Clock(15), torch.compile(lambda x, n: x * n, backend="eager")(X, Clock(15)))


def test_subclasses_of_str() -> None:
    compiled = torch.compile(lambda x, s: x * len(s) if s.startswith("a") else x, backend="eager", fullgraph=True)
    for s in (Name("ab"), Name("abc"), Name("b"), "ab"):
        assert same(compiled(X, s), X * len(s) if s[0] == "a" else X)


PATTERN = re.compile(r"(\d+)x")


def test_regular_expressions() -> None:
    def f(x: Any, text: str) -> Any:
        found = re.match(r"(\d+)", text)
        other = PATTERN.search(text)
        return (x if found is None else x * int(found.group(1))) + (0 if other is None else int(other[1]))

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    for text in ("12x", "7", "a3x", ""):
        assert same(f(X, text), compiled(X, text))
    assert torch.compile(lambda x: (x, re.match("a", "ab")), backend="eager")(X)[1].group() == "a"


def test_named_regions() -> None:
    def f(x: Any) -> Any:
        with torch.profiler.record_function("region"), torch.autograd.profiler.record_function("inner") as inner:
            y = x.sin()
        return y + 1, inner is None

    check(f, X, fullgraph=True)
