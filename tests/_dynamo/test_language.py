"""Python's constructs, captured: one graph, the plain result."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import functools
import gc
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import tocha as torch
import tocha.nn.functional as F
from tests._dynamo import helpers
from tocha import nn

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
SCALE = 2.0
TABLE = {"relu": F.relu, "double": lambda x: x * 2}


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: Any
    y: Any = 3


@dataclasses.dataclass
class Config:
    width: int = 3
    scale: float = 0.5
    names: list[str] = dataclasses.field(default_factory=list)

    @property
    def double(self) -> float:
        return self.scale * 2


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any


class Base:
    factor = 3

    def __init__(self, bias: Any) -> None:
        self.bias = bias

    def apply(self, x: Any) -> Any:
        return x * self.factor + self.bias

    @classmethod
    def make(cls, bias: Any) -> Any:
        return cls(bias)

    @staticmethod
    def twice(x: Any) -> Any:
        return x * 2


class Derived(Base):
    factor = 5

    def __init__(self, bias: Any) -> None:
        super().__init__(bias)
        self.extra = 1

    def apply(self, x: Any) -> Any:
        return super().apply(x) + self.extra

    def __call__(self, x: Any) -> Any:
        return self.apply(x)

    def __getitem__(self, key: Any) -> Any:
        return self.bias * key

    def __len__(self) -> int:
        return 4

    def __add__(self, other: Any) -> Any:
        return self.bias + other

    def __contains__(self, item: Any) -> bool:
        return item == self.extra

    def __iter__(self) -> Any:
        yield self.bias
        yield self.extra

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Derived) and self.extra == other.extra

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a: Any) -> None:
        self.a = a
        self.b = 2


class Typed:
    """A descriptor."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, kind: Any = None) -> Any:
        return obj.__dict__.get(self.name, 7)

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__[self.name] = value + 1


class WithDescriptor:
    size = Typed()

    def __init__(self) -> None:
        self.size = 4

    @functools.cached_property
    def cached(self) -> int:
        return self.size * 2


@contextlib.contextmanager
def scaled(x: Any) -> Any:
    yield x * 3


class Manager:
    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __enter__(self) -> Any:
        self.log.append("in")
        return 5

    def __exit__(self, *error: Any) -> bool:
        self.log.append("out")
        return error[0] is ValueError


def closure(x: Any) -> Any:
    k = 3

    def inner(y: Any, *, z: int = 2) -> Any:
        nonlocal k
        k += 1
        return y * k + z

    return inner(x) + inner(x, z=5) + k


def arguments(x: Any, *args: Any, flag: bool = True, **kwargs: Any) -> Any:
    def total(a: Any, b: Any, /, c: Any = 1, *rest: Any, d: Any, **more: Any) -> Any:
        return a + b * c + sum(rest) + d + sum(more.values())

    return total(x, *args, d=4, **kwargs) if flag else x


def comprehensions(x: Any) -> Any:
    rows = [x[i] * (i + 1) for i in range(x.shape[0]) if i < 5]
    table = {str(i): r + 1 for i, r in enumerate(rows)}
    found = {i % 2 for i in range(7)}
    return torch.stack(rows), table["1"], sorted(found), sum(r.sum() for r in rows)


def generators(x: Any) -> Any:
    def count(n: int) -> Any:
        for i in range(n):
            got = yield x * i
            if got:
                yield got
        return n

    def outer() -> Any:
        last = yield from count(3)
        yield x + last

    return list(outer())[-1] + sum(count(3)), max(i for i in range(4))


def loops(x: Any) -> Any:
    total = x
    for i in range(4):
        if i == 1:
            continue
        if i == 3:
            break
        total = total + i
    else:
        total = total * 100
    n = 3
    while n:
        n -= 1
        total = total * 1.5
    for a, (b, c) in zip([1, 2], [(3, 4), (5, 6)]):
        total = total + a * b - c
    for i, row in enumerate(x):
        total = total + row * i
    for k, v in {"a": 1, "b": 2}.items():
        total = total + v * len(k)
    for a in reversed([1, 2]):
        total = total * a
    return total


def errors(x: Any) -> Any:
    out = []
    try:
        {"a": 1}["b"]
    except KeyError as error:
        out.append(str(error))
    try:
        try:
            raise ValueError("first")
        finally:
            out.append("finally")
    except (TypeError, ValueError) as error:
        out.append(error.args[0])
    else:
        out.append("else")
    try:
        out.append("fine")
    except ValueError:
        out.append("not")
    else:
        out.append("else")
    finally:
        out.append("last")
    return x + len(out), out


def returns_in_finally(x: Any) -> Any:
    for _ in range(3):
        try:
            return x * 2
        finally:
            x = x + 1
    return x


def managers(x: Any) -> Any:
    log: list[Any] = []
    with Manager(log) as five, scaled(x) as three:
        y = three + five
    with Manager(log):
        raise ValueError("swallowed")
    with contextlib.nullcontext(2) as two:
        y = y * two
    return y, log


def grad_modes(x: Any) -> Any:
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    flag = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        c = x * 4
    return a, b, c, flag, a.requires_grad, b.requires_grad


@torch.no_grad()
def decorated(x: Any) -> Any:
    return x * 2


def objects(x: Any) -> Any:
    d = Derived.make(x)
    pair = Derived(x)
    first, second = d
    return (
        d(x) + d.twice(x) + d[2] + (d + 1) + len(d) * first + second,
        1 in d,
        d == pair,
        d != pair,
        isinstance(d, Base),
        type(d).__name__,
    )


def slots(x: Any) -> Any:
    s = Slotted(x)
    s.b = s.b + 1
    return s.a * s.b


def descriptors(x: Any) -> Any:
    d = WithDescriptor()
    d.size = d.size + 1
    return x * d.size + d.cached + d.cached


def dataclass(x: Any) -> Any:
    c = Config(names=["a"])
    c.names.append("b")
    c.width += 1
    changed = dataclasses.replace(c, scale=4.0)
    return x * c.double * changed.scale + c.width, c, Frozen(x + 1), [f.name for f in dataclasses.fields(c)]


def named_tuples(x: Any) -> Any:
    p = Point(x)
    q = p._replace(y=x + 1)
    a, b = q
    return q, p.x + b, p[1], a


def enums(x: Any) -> Any:
    color = Color(1)
    kinds = {Color.RED: 2, Color.BLUE: 3}
    return x * kinds[color] * Color.BLUE.value, color is Color.RED, color


def containers(x: Any) -> Any:
    out = [x]
    out.append(x + 1)
    out += [x * 2]
    out.insert(0, x - 1)
    last = out.pop()
    table: dict[Any, Any] = {}
    table["a"] = last
    table.update(b=x, c=1)
    table.setdefault("d", []).append(x)
    del table["c"]
    queue = collections.deque([1, 2], maxlen=2)
    queue.append(3)
    counts: dict[Any, Any] = collections.defaultdict(list)
    counts["k"].append(x)
    ordered = collections.OrderedDict(z=1)
    ordered["y"] = x
    seen = {1, 2} | {3}
    seen.discard(1)
    return out, table, queue, counts["k"], list(ordered), seen, out[1:], [*out, 1], {**table, "e": 2}, len(table)


def aliases(x: Any) -> Any:
    a = [x]
    b = {"a": a, "self": a}
    a.append(x + 1)
    return b, a


def functional(x: Any) -> Any:
    add = functools.partial(torch.add, alpha=2)
    y = functools.reduce(operator.mul, [x, x + 1, x + 2])
    rows = list(map(lambda r: r * 2, x))  # noqa: C417
    kept = list(filter(lambda i: i % 2, range(6)))
    chained = list(itertools.chain([1], (2, 3)))
    pairs = list(itertools.product([1, 2], repeat=2))
    total = list(itertools.accumulate([1, 2, 3]))
    return (
        add(x, y),
        rows,
        kept,
        chained,
        pairs,
        total,
        sorted([3, 1, 2], key=lambda v: -v),
        operator.itemgetter(1)([4, 5]),
        math.sqrt(16) * x,
    )


def strings(x: Any) -> Any:
    name = "layer"
    n = 3
    return (
        x + n,
        f"{name}-{n:03d}-{x.shape[0]!r}-{x.dtype}",
        "%s %d" % (name, n),  # noqa: UP031
        f"{name}:{n}",
        name.upper()[1:],
        ",".join(["a", "b"]),
    )


def matching(x: Any, what: Any = (1, {"k": 2})) -> Any:
    match what:
        case (1, {"k": k}):
            y = x * k
        case _:
            y = x
    match Point(1, 2):
        case Point(x=1, y=b):
            y = y + b
    match "a":
        case "a" | "b":
            y = y + 1
    return y


def unpacking(x: Any) -> Any:
    a, *rest, b = [x, 1, 2, 3]
    (c, d), e = x, 5
    return a + b, rest, c - d, e


def introspection(x: Any) -> Any:
    return (
        x * Config().width if hasattr(x, "shape") else x, isinstance(x, torch.Tensor), callable(len), getattr(x, "nothing", 5),
        issubclass(Derived, Base), torch.is_tensor(x), x.dim(), x.size(), x.shape[-1], x.dtype is torch.float32, x.device.type, x.numel(),
        torch.is_floating_point(x), x.is_contiguous(), len(x), x.stride(),
    )  # fmt: skip


def globals_read(x: Any) -> Any:
    return TABLE["relu"](x) * SCALE + TABLE["double"](x)


def recursion(x: Any, n: int = 3) -> Any:
    return x if n == 0 else recursion(x + n, n - 1) * 2


def lambdas(x: Any) -> Any:
    fs = [lambda y, k=k: y * k for k in range(3)]
    return [f(x) for f in fs], (lambda *a, **k: a[0] + k["b"])(x, b=2)


def inplace(x: Any) -> Any:
    y = x.clone()
    y.add_(1)
    y[0] = 5
    y[:, 1] *= 2
    y += 1
    z = y.view(-1)
    z[2] = -1
    y @= torch.eye(3)
    return y, z


def creation(x: Any) -> Any:
    mask = torch.arange(3) > 1
    return x + torch.zeros(3) + torch.ones_like(x), torch.where(mask, x, 0), torch.tensor([1, 2]), torch.full((2,), 3.0)


def random(x: Any) -> Any:
    return F.dropout(x, 0.5) + torch.rand(3), torch.randn(2), torch.randint(0, 5, (2,))


def conditional(x: Any) -> Any:
    y = None
    y = x if y is None else y
    z = (y is not None and y.shape[0] > 1) or False
    assert z, "two rows"
    return (x > 0).all() if not z else y * (1 if 1 < x.ndim <= 2 else 7)


def walrus(x: Any) -> Any:
    return x * n if (n := x.shape[1]) > 2 else x


def imports(x: Any) -> Any:
    import math as m
    from math import pi

    return x * m.floor(pi)


def sizes(x: Any) -> Any:
    b, n = x.shape
    return (
        x.view(b * n),
        x.reshape(n, -1),
        torch.Size([1, 2]).numel(),
        x.split([1, 2], dim=1),
        x.chunk(2),
        x.unbind(0),
        x.max(dim=0).values,
    )


def slices(x: Any) -> Any:
    items = [1, 2, 3, 4]
    items[1:3] = [x]
    return x[:, 1:], x[..., None], x[0:1, ::2], items, items[slice(0, 2)], x[[0, 1], [1, 2]], x[torch.tensor([1])]


CASES = [
    closure, comprehensions, generators, loops, errors, returns_in_finally, managers, grad_modes, decorated, objects, slots, descriptors,
    dataclass, named_tuples, enums, containers, aliases, functional, strings, matching, unpacking, introspection, globals_read, recursion,
    lambdas, inplace, creation, random, conditional, walrus, imports, sizes, slices,
]  # fmt: skip


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_captured_whole(function: Callable[..., Any]) -> None:
    helpers.check(function, X.clone(), fullgraph=True)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_with_gradients_ahead_of_time(function: Callable[..., Any]) -> None:
    if function not in (random,):
        helpers.check(function, X.clone(), backend="aot_eager", graphs=None)


def test_arguments_of_all_kinds() -> None:
    helpers.check(arguments, X.clone(), 1, 2, 3, p=5, fullgraph=True)
    helpers.check(arguments, X.clone(), 1, flag=False, graphs=0)


class Backwards:
    def __reversed__(self) -> Iterator[int]:
        yield from (5, 6)


class Squares:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> int:
        return i * i


def test_reversed() -> None:
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Sequential(nn.Sigmoid(), nn.ReLU())])

    def f(x: Any) -> Any:
        for layer in reversed(layers):
            x = layer(x) * 2
        for layer in reversed(layers[2]):
            x = layer(x) - 0.5
        for items in (Backwards(), Squares(), [1, x], {"a": 1, "bb": 2}, range(3)):
            for item in reversed(items):
                x = x * 2 + (len(item) if isinstance(item, str) else item)
        return x, [type(m).__name__ for m in reversed(layers)]

    helpers.check(f, torch.tensor([0.5, -0.5]), fullgraph=True)


def test_a_generator_left_in_yield_from_is_dropped_in_silence() -> None:
    def inner(x: Any) -> Iterator[Any]:
        for i in range(3):
            yield x * i

    def outer(x: Any) -> Iterator[Any]:
        yield from inner(x)

    def f(x: Any) -> Any:
        for y in outer(x):
            torch._dynamo.graph_break()
            if y.sum() >= 0:
                return y + 1
        return x

    failed: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, failed.append
    try:
        assert torch.compile(f)(torch.ones(2)).tolist() == [1, 1]
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert not failed
