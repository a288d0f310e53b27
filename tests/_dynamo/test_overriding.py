"""Captures of tensor subclasses with a `__torch_function__`, and of function modes."""

from __future__ import annotations

from typing import Any

import pytest

import tocha as torch
from tests._dynamo import helpers
from tocha._dynamo.testing import CompileCounter
from tocha.overrides import TorchFunctionMode

X = torch.tensor([1.0, -2.0, 3.0])


class Plain(torch.Tensor):
    pass


class Child(Plain):
    pass


class Unit(torch.Tensor):
    """Hands an attribute on."""

    scale = 1.0

    @staticmethod
    def __new__(cls, data: Any, unit: str = "m") -> Any:
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data: Any, unit: str = "m") -> None:
        self.unit = unit

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.relu:
            return torch.clamp(args[0], min=0.25)
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and func is not torch.Tensor.sum:
            out = out.as_subclass(cls)
            out.unit = next(a.unit for a in args if isinstance(a, Unit)) + "!"
        return out

    @property
    def twice(self) -> Any:
        return self * 2 * self.scale


class Noting(torch.Tensor):
    """Notes what is called."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Counted(torch.Tensor):
    """Defines operators of its own."""

    count = 0

    def __add__(self, other: Any) -> Any:
        Counted.count += 1
        return super().__add__(other) * 2

    def __getitem__(self, i: Any) -> Any:
        return super().__getitem__(i) + 100

    def __len__(self) -> int:
        return 42


class Tripled(TorchFunctionMode):
    """Multiplies sines."""

    def __init__(self, by: float = 3) -> None:
        super().__init__()
        self.by, self.calls = by, []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls.append(func.__name__)
        out = func(*args, **(kwargs or {}))
        return out * self.by if func is torch.sin else out


def _of(cls: type, t: Any = X) -> Any:
    return t.clone().as_subclass(cls)


def _both(function: Any, *args: Any) -> None:
    """Results and their attributes, call after call, as in plain Python, in one graph."""
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=counter, fullgraph=True)
    for _ in range(3):
        expected, got = function(*args), compiled(*args)
        assert helpers.same(expected, got, 1e-6)
        for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (expected, got)], strict=True):
            assert not isinstance(a, torch.Tensor) or a.__dict__ == b.__dict__
    assert counter.frame_count <= 1


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1, 1 - x, x[0], -x, x > 0, abs(x), x.sum(0), x.detach(), x.contiguous(), x.data, x.view(-1)),
        lambda x: (x.shape, x.size(), len(x), x.dtype, x.dim(), x.requires_grad, x.numel()),
        lambda x: (torch.cat([x, X]), torch.stack([X, x]), x.split(1), torch.where(x > 0, x, -x)),
        lambda x: (isinstance(x, Plain), type(x * 2) is type(x), x.as_subclass(torch.Tensor), x.as_subclass(Child)),
        lambda x: torch.nn.functional.softmax(x, dim=0),
    ],
)
@pytest.mark.parametrize("cls", [Plain, Child])
def test_what_a_class_that_overrides_nothing_gives(function: Any, cls: type) -> None:
    _both(function, _of(cls))


def test_a_handler_is_interpreted_and_attributes_are_handed_on() -> None:
    _both(lambda u: (u * 2 + u, u.unit, u.sum(), u.mean(0), torch.relu(u), u.twice), Unit(X, "kg"))
    _both(lambda x: (Unit(x, "kg") * 2).sin(), X)
    out = torch.compile(lambda u: u * 2 + u, fullgraph=True, backend="eager")(Unit(X, "kg"))
    assert type(out) is Unit
    assert out.unit == "kg!!"
    assert out.as_subclass(torch.Tensor).tolist() == [3, -6, 9]


def test_what_a_handler_notes_is_noted_at_every_call() -> None:
    compiled = torch.compile(lambda u: torch.relu(u) + u.shape[0], fullgraph=True, backend="eager")
    for _ in range(2):
        u = _of(Noting)
        Noting.seen = []
        compiled(u)
        ours = Noting.seen
        Noting.seen = []
        torch.relu(u) + u.shape[0]
        assert ours == Noting.seen
        assert len(ours) == 3


def test_operators_that_a_class_defines() -> None:
    before = Counted.count
    compiled = torch.compile(lambda x: (x + 1, x[0], len(x)), fullgraph=True, backend="eager")
    for _ in range(2):
        added, item, length = compiled(_of(Counted))
        assert added.as_subclass(torch.Tensor).tolist() == [4, -2, 8]
        assert (torch.Tensor.item(item.as_subclass(torch.Tensor)), length) == (202, 42)
    assert Counted.count == before + 4  # `+ 100` is one too


def test_attributes_and_writes() -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * 2
        z.tag, y.count = "a", 3
        x.add_(1)
        made = y.as_subclass(Plain)
        made[0] = 5.0
        return z, z.tag, y.count, x * 3, made

    torch._dynamo.reset()
    compiled = torch.compile(f, fullgraph=True, backend="eager")
    for _ in range(2):
        a, b = (_of(Plain), X.clone()), (_of(Plain), X.clone())
        assert helpers.same(f(*a), compiled(*b))
        assert helpers.same(a, b)
        assert b[1].tolist() == [5, -2, 3]


def test_gradients() -> None:
    def f(x: Any) -> Any:
        u = x.as_subclass(Plain)
        return (u * u).sum()

    for start in (X.clone().requires_grad_(), _of(Plain).requires_grad_()):
        for g in (f, torch.compile(f, fullgraph=True)):
            start.grad = None
            out = g(start)
            assert type(out) is Plain
            out.backward()
            assert start.grad.as_subclass(torch.Tensor).tolist() == [2, -4, 6]


def test_guards_ask_for_the_class_and_its_handler() -> None:
    class Changing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return super().__torch_function__(func, types, args, kwargs or {})

    def other(cls: type, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return "other"

    compiled = torch.compile(lambda x: torch.nn.functional.relu(x), fullgraph=True, backend="eager")
    x = _of(Changing)
    assert type(compiled(x)) is Changing
    assert type(compiled(X)) is torch.Tensor
    Changing.__torch_function__ = classmethod(other)  # type: ignore[assignment]
    assert compiled(x) == "other"


def test_sizes_of_subclasses_vary() -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda x: (x * 2).sin(), fullgraph=True, backend=counter)
    for n in range(2, 14):
        assert compiled(_of(Plain, torch.ones(n))).shape == (n,)
    assert counter.frame_count == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.unsqueeze_(0) * 2,
        lambda x: torch.cond(x.sum() > 0, lambda a: a * 2, lambda a: a * 3, (x,)),
        lambda x: torch.func.grad(lambda a: a.sin().sum())(x),
        lambda x: torch.vmap(lambda a: a.sin())(x),
    ],
)
def test_what_a_plain_alias_cant_do_breaks_the_graph(function: Any) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(function, fullgraph=True)(_of(Plain))
    a, b = _of(Plain), _of(Plain)
    assert helpers.same((function(a), a), (torch.compile(function)(b), b), 1e-6)


def test_modes_entered_inside() -> None:
    def f(x: Any) -> Any:
        with Tripled(3) as outer:
            with Tripled(5) as inner:
                y = torch.sin(x) + torch.ones(3)
            z = torch.sin(x).sum(), x.size(0), x.shape, len(x)
        return y, z, outer.calls, inner.calls, torch.sin(x)

    helpers.check(f, X, fullgraph=True, calls=3)
    helpers.check(f, _of(Plain), fullgraph=True, calls=3)


def test_a_mode_is_left_by_return_and_by_exceptions() -> None:
    def f(x: Any) -> Any:
        with Tripled():
            return torch.sin(x)

    def g(x: Any) -> Any:
        try:
            with Tripled():
                y = torch.sin(x)
                raise ValueError
        except ValueError:
            return torch.sin(x) + y

    helpers.check(f, X, fullgraph=True)
    helpers.check(g, X, fullgraph=True)


def test_a_break_inside_a_mode() -> None:
    def f(x: Any) -> Any:
        x = x + 1
        with Tripled():
            y = torch.sin(x)
            print(end="")
            y = torch.sin(y)
        with torch.device("cpu"):
            print(end="")
            z = torch.ones(3)
        return torch.sin(y) + z

    helpers.check(f, X, graphs=None, calls=3)


def test_the_default_device() -> None:
    def f(x: Any) -> Any:
        torch.set_default_device("cpu")
        with torch.device("cpu"):
            return x + torch.ones(3), torch.get_default_device()

    helpers.check(f, X, fullgraph=True)

    def g(x: Any) -> Any:
        with torch.device("meta"):
            y = torch.ones(3)
        return x, y.device.type

    helpers.check(g, X, graphs=None)


def test_modes_around_a_compiled_function() -> None:
    def f(x: Any) -> Any:
        print(end="") if x.dim() > 1 else None
        return torch.sin(x) + torch.ones(3)

    compiled = torch.compile(f, backend="eager")
    counter = CompileCounter()
    whole = torch.compile(lambda x: torch.sin(x) + torch.ones(3), fullgraph=True, backend=counter)
    for x in (X, X[None], X):
        for modes in ([], [3], [3, 5]):
            results = []
            for g in (f, compiled, whole):
                made = [Tripled(m) for m in modes]
                for m in made:
                    m.__enter__()
                results.append(g(x))
                for m in reversed(made):
                    m.__exit__(None, None, None)
                results.append([[n for n in m.calls if n in ("sin", "add", "ones")] for m in made])
            assert helpers.same(results[0], results[2], 1e-6)
            assert helpers.same(results[0], results[4], 1e-6)
            assert results[1] == results[3] == results[5]
    assert counter.frame_count == 6


def test_disabled_functions_around_a_compiled_function() -> None:
    compiled = torch.compile(lambda x: x.sin(), fullgraph=True, backend="eager")
    for _ in range(2):
        assert type(compiled(_of(Plain))) is Plain
        for disable in (torch._C.DisableTorchFunctionSubclass, torch._C.DisableTorchFunction):
            with disable():
                assert type(compiled(_of(Plain))) is torch.Tensor
