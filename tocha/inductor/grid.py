"""Kernels that sample images (batch, channels, *sizes) at the places a grid (batch, points, dimensions) names, and their gradients.

Work goes by blocks of points: first where each point's corners lie (offsets in the image, -1 outside) and what they weigh, into tables in cache,
then channel by channel along the points. Places and weights are computed operation for operation as tocha.ops.grid does on tensors. The caller
promises images of fewer than 2**24 places along each dimension, and of fewer than 2**31.
"""

from __future__ import annotations

import itertools
import math
from functools import reduce
from typing import NamedTuple

from tocha.inductor.loop_ir import (
    Binary,
    Buffer,
    Const,
    Expr,
    If,
    Index,
    Kernel,
    Load,
    Local,
    Loop,
    Size,
    Statement,
    Store,
    Unary,
    compare,
    const,
    convert,
    select,
    verify,
)  # fmt: skip

BLOCK, GROUP = 64, 16  # points of a table; channels that a unit of the image's gradient takes
_ZERO = Const(0, "index")
_A = -0.75  # the cubic's parameter
_ONE_MORE = {"bilinear": 2, "nearest": 1, "bicubic": 4}


class Key(NamedTuple):
    """What a kernel depends on: the type, the number of the image's dimensions, and grid_sample's modes."""

    type: str
    dimensions: int
    mode: str
    padding: str
    align: bool


def _floor(x: Expr) -> Expr:
    return Unary("floor", x)


def _near(x: Expr) -> Expr:
    return (x * (_A + 2) - (_A + 3)) * x * x + 1.0


def _far(x: Expr) -> Expr:
    return ((x * _A - 5 * _A) * x + 8 * _A) * x - 4 * _A


def _near_slope(x: Expr) -> Expr:
    return (x * (3 * (_A + 2)) - 2 * (_A + 3)) * x


def _far_slope(x: Expr) -> Expr:
    return (x * (3 * _A) - 10 * _A) * x + 8 * _A


class _Axis(NamedTuple):
    """Of a point along one dimension: places of the corners (floats), their weights, the weights' slopes and that of the place itself, with
    whether it counts."""

    places: list[Expr]
    weights: list[Expr]
    slopes: list[Expr]
    slope: Expr
    counts: Expr


class _Points:
    def __init__(self, key: Key, batch: Expr, block: Expr) -> None:
        self.key, self.batch = key, batch
        self.points, self.channels = Size("points"), Size("channels")
        self.first = block * BLOCK
        self.width = Binary("min", self.points - self.first, Const(BLOCK, "index"))
        self.sizes = [Size(f"n{d}") for d in range(key.dimensions)]
        self.image: Expr = self.sizes[0]
        for n in self.sizes[1:]:
            self.image = self.image * n
        self.corners = list(itertools.product(range(_ONE_MORE[key.mode]), repeat=key.dimensions))

    # ---- where a point lies

    def extent(self, d: int) -> Expr:
        return convert(self.sizes[d], self.key.type)

    def _inside(self, x: Expr, d: int) -> tuple[Expr, Expr, Expr]:
        """A coordinate moved into the image as the padding says; the slope, and where it isn't 0."""
        one, true = const(1, self.key.type), const(True, "bool")
        if self.key.padding == "zeros":
            return x, one, true
        size = self.extent(d)
        top: Expr = size - 1.0
        slope: Expr = one
        if self.key.padding == "reflection":
            x, slope = self._reflected(x, d)
        x = select(compare("eq", x, x), x, 0.0)
        inner = compare("gt", x, 0.0) & compare("lt", x, top)
        return select(inner, x, Binary("min", Binary("max", x, const(0, x.type)), top)), slope, inner

    def _reflected(self, x: Expr, d: int) -> tuple[Expr, Expr]:
        size, low = self.extent(d), 0.0 if self.key.align else -0.5
        span = size - 1.0 if self.key.align else size
        away = x - low
        distance = abs(away)
        turns = _floor(distance / span)
        rest = distance - turns * span
        even = compare("eq", turns - _floor(turns * 0.5) * 2.0, 0.0)
        side = select(compare("gt", away, 0.0), const(1, x.type), select(compare("lt", away, 0.0), const(-1, x.type), 0.0))
        found, slope = select(even, rest + low, span - rest + low), select(even, side, -side)
        if self.key.align:  # a single place is both ends
            alone = compare("eq", span, 0.0)
            return select(alone, x * 0.0, found), select(alone, const(0, x.type), slope)
        return found, slope

    def axis(self, d: int, j: Expr) -> _Axis:
        key, n = self.key, self.key.dimensions
        given = Load("grid", ((self.batch * self.points) + self.first + j) * n + (n - 1 - d), key.type)  # x comes first
        size = self.extent(d)
        x = (given + 1.0) * 0.5 * (size - 1.0) if key.align else ((given + 1.0) * size - 1.0) * 0.5
        whole = (size - 1.0 if key.align else size) * 0.5
        one = const(1, key.type)
        if key.mode == "bicubic":
            low = _floor(x)
            t = x - low
            weights = [_far(t + 1.0), _near(t), _near(1.0 - t), _far(2.0 - t)]
            slopes = [_far_slope(t + 1.0), _near_slope(t), -_near_slope(1.0 - t), -_far_slope(2.0 - t)]
            return _Axis([self._inside(low + (k - 1.0), d)[0] for k in range(4)], weights, slopes, whole, const(True, "bool"))
        x, slope, counts = self._inside(x, d)
        if key.mode == "nearest":
            return _Axis([Unary("rint", x)], [one], [const(0, key.type)], whole, counts)
        low = _floor(x)
        part = x - low
        return _Axis([low, low + 1.0], [1.0 - part, part], [const(-1, key.type), one], slope * whole, counts)

    def axes(self, j: Expr) -> list[_Axis]:
        return [self.axis(d, j) for d in range(self.key.dimensions)]

    # ---- tables

    def tables(self) -> list[Statement]:
        """The locals that hold tables; they lie before loops over blocks."""
        found: list[Statement] = []
        for k in range(len(self.corners)):
            found.append(Local(f"at{k}", "i32", BLOCK))
            if self.key.mode != "nearest":
                found.append(Local(f"weight{k}", self.key.type, BLOCK))
        return found

    def fill(self) -> Statement:
        j = Index("table")
        axes, stores = self.axes(j), []
        for k, corner in enumerate(self.corners):
            ok: Expr | None = None
            flat: Expr | None = None
            weight: Expr | None = None
            for d, step in enumerate(corner):
                place = axes[d].places[step]
                here = compare("ge", place, 0.0) & compare("le", place, self.extent(d) - 1.0)
                whole = convert(select(here, place, 0.0), "i32")
                ok = here if ok is None else ok & here
                flat = whole if flat is None else flat * convert(self.sizes[d], "i32") + whole
                weight = axes[d].weights[step] if weight is None else weight * axes[d].weights[step]
            assert ok is not None and flat is not None and weight is not None
            stores.append(Store(f"at{k}", j, select(ok, flat, -1)))
            if self.key.mode != "nearest":
                stores.append(Store(f"weight{k}", j, weight))
        return Loop("table", _ZERO, self.width, tuple(stores), "vector")

    def at(self, k: int, j: Expr) -> Expr:
        return Load(f"at{k}", j, "i32")

    def weight(self, k: int, j: Expr) -> Expr:
        return Load(f"weight{k}", j, self.key.type)

    def plane(self, channel: Expr) -> Expr:
        return self.batch * self.channels + channel

    def value(self, k: int, channel: Expr, j: Expr) -> Expr:
        """The image at a corner, 0 outside."""
        at = self.at(k, j)
        place = self.plane(channel) * self.image + convert(Binary("max", at, const(0, "i32")), "index")
        return select(compare("ge", at, 0), Load("image", place, self.key.type), 0.0)

    def point(self, channel: Expr, j: Expr) -> Expr:
        """A point's offset in what has one value for each channel."""
        return self.plane(channel) * self.points + self.first + j


def _kernel(name: str, key: Key, buffers: tuple[str, ...], body: tuple[Statement, ...]) -> Kernel:
    sizes = ("channels", "points", "parts", *[f"n{d}" for d in range(key.dimensions)])
    made = Kernel(name, tuple([Buffer(b, key.type) for b in buffers]), (), tuple(map(Size, sizes)), body)
    verify(made)
    return made


def _by_points(key: Key) -> _Points:
    """Units are batches' blocks of points (parts)."""
    return _Points(key, Binary("div", Index("unit"), Size("parts")), Binary("rem", Index("unit"), Size("parts")))


def forward(key: Key) -> Kernel:
    """out, image, grid."""
    p, c, j = _by_points(key), Index("c"), Index("j")
    total: Expr | None = None
    for k in range(len(p.corners)):
        part = p.value(k, c, j)
        part = part if key.mode == "nearest" else part * p.weight(k, j)
        total = part if total is None else total + part
    assert total is not None
    store = Store("out", p.point(c, j), total)
    channels = Loop("c", _ZERO, p.channels, (Loop("j", _ZERO, p.width, (store,), "vector"),))
    body = (*p.tables(), Loop("unit", Size("lo"), Size("hi"), (p.fill(), channels)))
    return _kernel("grid_sample", key, ("out", "image", "grid"), body)


def of_image(key: Key) -> Kernel:
    """into (zeros of the image's shape), gradient, grid. Units are batches' groups of channels (parts), which nobody else writes to."""
    p = _Points(key, Binary("div", Index("unit"), Size("parts")), Index("block"))
    first = Binary("rem", Index("unit"), Size("parts")) * GROUP
    c, j = Index("c"), Index("j")
    steps: list[Statement] = []
    for k in range(len(p.corners)):
        at = p.at(k, j)
        place = p.plane(c) * p.image + convert(at, "index")
        value: Expr = Load("gradient", p.point(c, j), key.type)
        if key.mode != "nearest":
            value = value * p.weight(k, j)
        steps.append(If(compare("ge", at, 0), (Store("into", place, Load("into", place, key.type) + value),)))
    last = Binary("min", first + GROUP, p.channels)
    channels = Loop("c", first, last, (Loop("j", _ZERO, p.width, tuple(steps)),))
    blocks = Loop("block", _ZERO, Binary("div", p.points + (BLOCK - 1), Const(BLOCK, "index")), (p.fill(), channels))
    body = (*p.tables(), Loop("unit", Size("lo"), Size("hi"), (blocks,)))
    return _kernel("grid_sample_of_image", key, ("into", "gradient", "grid"), body)


def of_grid(key: Key) -> Kernel:
    """into, gradient, image, grid."""
    p, c, j, z, e = _by_points(key), Index("c"), Index("j"), Index("z"), Index("e")
    corners = range(len(p.corners))
    clear, sums = [], []
    for k in corners:  # of each weight
        clear.append(Store(f"slope{k}", z, const(0, key.type)))
        g = Load("gradient", p.point(c, j), key.type)
        sums.append(Store(f"slope{k}", j, Load(f"slope{k}", j, key.type) + g * p.value(k, c, j)))
    axes, stores = p.axes(e), []
    for d, axis in enumerate(axes):
        total: Expr = const(0, key.type)
        for k, corner in enumerate(p.corners):
            factors = [axes[other].slopes[s] if other == d else axes[other].weights[s] for other, s in enumerate(corner)]
            total = total + Load(f"slope{k}", e, key.type) * reduce(lambda x, y: x * y, factors)
        place = (p.batch * p.points + p.first + e) * key.dimensions + (key.dimensions - 1 - d)
        stores.append(Store("into", place, select(axis.counts, total * axis.slope, 0.0)))
    unit = (
        p.fill(), Loop("z", _ZERO, p.width, tuple(clear), "vector"),
        Loop("c", _ZERO, p.channels, (Loop("j", _ZERO, p.width, tuple(sums), "vector"),)),
        Loop("e", _ZERO, p.width, tuple(stores), "vector"),
    )  # fmt: skip
    head = [*p.tables(), *[Local(f"slope{k}", key.type, BLOCK) for k in corners]]
    return _kernel(
        "grid_sample_of_grid", key, ("into", "gradient", "image", "grid"), (*head, Loop("unit", Size("lo"), Size("hi"), unit))
    )


def corners(key: Key) -> int:
    """How many of the image's elements one of the result's is made of."""
    return int(math.pow(_ONE_MORE[key.mode], key.dimensions))
