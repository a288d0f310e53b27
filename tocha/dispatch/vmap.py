"""vmap: run primitives on a batch as if on one example.

Inside vmap a batched tensor shows its per-example shape and holds a value with one more dimension, the first. A family
has one batching rule; primitives without one are run example by example, which is slow and right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from tocha.backends.meta import MetaArray
from tocha.dispatch.interpret import pop, push
from tocha.dispatch.override import HOLLOW, NO_DISPATCH, Hollow, stacks
from tocha.dispatch.prim import Prim
from tocha.tensor import Tensor, wrap_as

Shape = tuple[int, ...]
_ALL = slice(None)


class Batched(Hollow):
    """A tensor inside vmap: `value` has the batch as dimension 0, the tensor itself the shape of one example."""

    level: int

    @property
    def value(self) -> Tensor:
        """The tensor with all examples."""
        return self.inner

    @property
    def device(self) -> Any:
        return self.value.device

    @property
    def grad_fn(self) -> Any:
        return self.value.grad_fn

    def item(self) -> Any:
        raise RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() on a Tensor, please "
            "try to rewrite what you're doing with other operations."
        )

    def __bool__(self) -> bool:
        raise RuntimeError(
            "vmap: It looks like you're attempting to use a Tensor in some data-dependent control flow. We don't support that yet; use "
            "torch.where in place of if."
        )

    tolist = numpy = item

    def detach(self) -> Tensor:
        return batched(self.value.detach(), self.level)

    def assign_in_place(self, value: Tensor, operator: str) -> Tensor:
        """`self[...] = value` for every example."""
        from tocha.dispatch.inplace import assign

        assign(self.value, lift(value, self.level, self.value._a.shape[0]), operator)
        return self

    def __repr__(self, *unused: Any, **options: Any) -> str:
        return f"BatchedTensor(lvl={self.level}, bdim=0, value={self.value!r})"


HOLLOW.add(Batched)
NO_DISPATCH.add(Batched)


def batched(value: Tensor, level: int) -> Batched:
    """A batched tensor on a value whose first dimension is the batch."""
    a = value._a
    shape, strides = a.shape[1:], a.strides[1:]
    out: Batched = wrap_as(Batched, MetaArray(shape, a.dtype, strides))
    out.inner, out.level = value, level
    return out


def lift(x: Any, level: int, size: int) -> Tensor:
    """x's value at `level`, expanded to a batch if it isn't one."""
    if isinstance(x, Batched) and x.level == level:
        return x.value
    return x.unsqueeze(0).expand(size, *x.shape)


class Vmap:
    """One level of vmap."""

    def __init__(self, level: int, size: int, randomness: str = "error") -> None:
        self.level, self.size, self.randomness = level, size, randomness

    def like(self, source: Any, got: Tensor) -> Tensor:
        """A tensor newly made like a batched one is batched, so that examples can be written to apart."""
        if not isinstance(source, Batched) or source.level != self.level:
            return got
        with off(self):
            return batched(got.unsqueeze(0).repeat(self.size, *(1,) * got.ndim), self.level)

    def run(self, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Apply the family's batching rule, or go example by example."""
        mine = [isinstance(a, Batched) and a.level == self.level for a in args]
        if not any(mine):
            return prim(*args, **params)
        if prim.name in _SHAPE_FROM_VALUES:
            raise RuntimeError(f"vmap: {prim.name}: the shape of the result depends on values, so that examples may differ in it")
        values = [a.value if m else a for a, m in zip(args, mine, strict=True)]
        from tocha.dispatch.batching import RULES  # rarely needed, and import has a time budget

        rule = prim.batch or _BY_NAME.get(prim.name) or RULES.get(prim.name) or _BY_FAMILY.get(prim.family)
        got = rule(prim, values, mine, params, self.size) if rule is not None else None
        if got is None:
            got = _one_by_one(prim, values, mine, params, self.size)
        if isinstance(got, tuple):
            return tuple(batched(g, self.level) for g in got)
        return batched(got, self.level)


@contextlib.contextmanager
def off(level: Vmap) -> Iterator[None]:
    """Around work on values of the innermost level: it does not apply to them."""
    top = stacks.interpreters.pop()
    assert top is level
    try:
        yield
    finally:
        stacks.interpreters.append(top)


def drawing(name: str) -> Vmap | None:
    """The vmap level for each of whose examples random values are to be drawn apart, if any; RuntimeError where vmap was
    not told what to do about randomness."""
    top = stacks.interpreters[-1] if stacks.interpreters else None
    if not isinstance(top, Vmap):
        return None
    if top.randomness == "error":
        raise RuntimeError(
            f"vmap: called random operation {name} while in randomness error mode. Please either use the 'same' or 'different' "
            "randomness flags on vmap or perform the randomness operation out of vmap"
        )
    return top if top.randomness == "different" else None


class VmapInfo(NamedTuple):
    """What a Function's own vmap rule is told."""

    batch_size: int
    randomness: str


def apply_function(cls: Any, args: tuple[Any, ...], level: Vmap) -> Any:
    """A custom Function on batched tensors: by its vmap rule, or example by example where it asks for a generated one."""
    from tocha.autograd.function import Function
    from tocha.ops.shape import stack

    mine = [isinstance(a, Batched) and a.level == level.level for a in args]
    values = [a.value if m else a for a, m in zip(args, mine, strict=True)]
    own_rule = cls.vmap is not Function.vmap
    if own_rule and cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap staticmethod."
        )
    if not own_rule and not cls.generate_vmap_rule:
        raise RuntimeError(
            f"You tried to vmap over {cls.__name__}, but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True."
        )
    top = stacks.interpreters.pop()
    try:
        if own_rule:
            in_dims = tuple(0 if m else None for m in mine)
            got, dims = cls.vmap(VmapInfo(level.size, level.randomness), in_dims, *values)
            several = isinstance(got, tuple)
            outs = got if several else (got,)
            dims = dims if isinstance(dims, tuple) else (dims,) * len(outs)
            results = [(o, False) if d is None else (o.movedim(d, 0), True) for o, d in zip(outs, dims, strict=True)]
        else:
            rows = [
                cls.apply(*[v.select(0, i) if m else v for v, m in zip(values, mine, strict=True)]) for i in range(level.size)
            ]
            several = isinstance(rows[0], tuple)
            columns = list(zip(*rows, strict=True)) if several else [tuple(rows)]
            results = [(stack(list(c)), True) if isinstance(c[0], Tensor) else (c[0], False) for c in columns]
    finally:
        stacks.interpreters.append(top)
    wrapped = tuple(batched(o, level.level) if b else o for o, b in results)
    return wrapped if several else wrapped[0]


def enter(size: int, randomness: str) -> Vmap:
    """Start a level; `leave` ends it."""
    level = Vmap(len(stacks.interpreters), size, randomness)
    push(level)
    return level


leave = pop


def _one_by_one(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    from tocha.ops.shape import stack

    if size == 0:
        raise RuntimeError(f"vmap: {prim.name} has no batching rule and the batch is empty")
    rows = [prim(*[v.select(0, i) if m else v for v, m in zip(values, mine, strict=True)], **params) for i in range(size)]
    if isinstance(rows[0], tuple):
        return tuple(stack(list(column)) for column in zip(*rows, strict=True))
    return stack(rows)


# ---- rules: (prim, values, which are batched, params, batch size) -> value(s) with the batch first


def _pointwise(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    ranks = [v.ndim - m if isinstance(v, Tensor) else 0 for v, m in zip(values, mine, strict=True)]
    rank = max(ranks)
    aligned = []
    for v, m, r in zip(values, mine, ranks, strict=True):
        if m and r < rank:
            v = v.reshape(size, *(1,) * (rank - r), *v.shape[1:])
        aligned.append(v)
    # A per-example 0-d operand ranks as a number in promotion; with the batch dimension it would not.
    return prim(*_keep_rank(values, mine, ranks, aligned), **params)


def _keep_rank(values: list[Any], mine: list[bool], ranks: list[int], aligned: list[Any]) -> list[Any]:
    from tocha.dispatch.promote import result_type

    tensors = [v for v in values if isinstance(v, Tensor)]
    if len({t._a.dtype for t in tensors}) < 2:
        return aligned
    examples = [v.new_empty((1,) * r, device="meta") if isinstance(v, Tensor) else v for v, r in zip(values, ranks, strict=True)]
    kind = result_type(examples)
    return [a.to(kind) if m and r == 0 and a.dtype is not kind else a for a, m, r in zip(aligned, mine, ranks, strict=True)]


def _shift(name: str) -> Callable[..., Any]:
    """Rule for one-tensor primitives whose parameter `name` is a dimension or a tuple of them."""

    def rule(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
        d = params[name]
        moved = tuple(i + 1 for i in d) if isinstance(d, tuple) else d + 1
        if values[0].ndim == 1 and not isinstance(d, tuple):
            return None  # a 0-d example: its only dimension doesn't exist in the value
        return prim(*values, **{**params, name: moved})

    return rule


def _same(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return prim(*values, **params)


def _with(change: Callable[[Any, int], dict[str, Any]]) -> Callable[..., Any]:
    def rule(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
        return prim(*values, **{**params, **change(params, size)})

    return rule


def _reshape(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    return values[0].reshape(size, *params["shape"])


def _expand(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    v, shape = values[0], params["shape"]
    v = v.reshape(size, *(1,) * (len(shape) - v.ndim + 1), *v.shape[1:])
    return prim(v, shape=(size, *shape))


def _cat(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    lifted = [v if m else v.unsqueeze(0).expand(size, *v.shape) for v, m in zip(values, mine, strict=True)]
    return prim(*lifted, dim=params["dim"] + 1)


def _matmul(prim: Prim, values: list[Any], mine: list[bool], params: dict[str, Any], size: int) -> Any:
    """Any product of at most two matrices per example is a batched product."""
    x, y = values = [v.mT if params.get(flag) else v for v, flag in zip(values, ("ta", "tb"), strict=True)]
    ranks = [v.ndim - m for v, m in zip(values, mine, strict=True)]
    if ranks == [1, 1]:
        return (x * y).sum(-1)
    if ranks[0] == 1:
        return ((x.unsqueeze(-2)) @ y).squeeze(-2)
    if ranks[1] == 1:
        return (x @ y.unsqueeze(-1)).squeeze(-1)
    for i, (r, m) in enumerate(zip(ranks, mine, strict=True)):
        if m and r < max(ranks):
            values[i] = values[i].reshape(size, *(1,) * (max(ranks) - r), *values[i].shape[1:])
    return values[0] @ values[1]


_BY_FAMILY: dict[str, Callable[..., Any]] = {"pointwise": _pointwise}
_BY_NAME: dict[str, Callable[..., Any]] = {
    "permute": _with(lambda p, n: {"dims": (0, *(d + 1 for d in p["dims"]))}),
    "view": _reshape,
    "expand": _expand,
    "unsqueeze": _with(lambda p, n: {"dim": p["dim"] + 1}),
    "squeeze": _shift("dims"),
    "slice": _with(lambda p, n: {"index": (_ALL, *p["index"])}),
    "index_scatter": _with(lambda p, n: {"index": (_ALL, *p["index"]), "shape": (n, *p["shape"])}),
    "diagonal": _with(lambda p, n: {"dim1": p["dim1"] + 1, "dim2": p["dim2"] + 1}),
    **dict.fromkeys(("view_as_real", "view_as_complex", "conj", "neg_view", "cast", "clone", "to_device"), _same),
    **dict.fromkeys(("amax", "amin", "log_softmax", "mean", "softmax", "split", "sum", "unbind", "unfold"), _shift("dim")),
    **dict.fromkeys(("bmm", "matmul", "mm"), _matmul),
    "cat": _cat,
}


#: Primitives whose outputs' shapes depend on values.
_SHAPE_FROM_VALUES = frozenset(("nonzero", "unique", "bincount"))


def levels() -> list[Vmap]:
    """The vmap levels in force, the outermost first."""
    return [i for i in stacks.interpreters if isinstance(i, Vmap)]


def levels_of(tensors: Iterable[Any]) -> list[Vmap]:
    """Those levels in force at which some of the tensors is batched."""
    found = set()
    for t in tensors:
        while t.__class__ in HOLLOW:
            if isinstance(t, Batched):
                found.add(t.level)
            t = t.inner
    return [level for level in levels() if level.level in found]


def down(x: Any, through: list[Vmap]) -> Tensor:
    """The tensor behind one that may be batched at these levels, expanded at those where it isn't: their batch dimensions
    come first. It stays batched at other levels."""
    for level in reversed(through):
        with outside([i for i in levels() if i.level >= level.level]):
            v, above = _peel(x, level.level)
            if isinstance(v, Batched) and v.level == level.level:
                v = v.value.movedim(0, len(above)) if above else v.value  # the very tensor, which may be a leaf
            else:
                v = v.unsqueeze(len(above))
                v = v.expand(*v.shape[: len(above)], level.size, *v.shape[len(above) + 1 :])
        x = _rewrap(v, above)
    return x


def up(value: Tensor, through: list[Vmap]) -> Tensor:
    """The inverse of `down`."""
    for level in through:
        with outside([i for i in levels() if i.level >= level.level]):
            v, above = _peel(value, level.level)
            v = batched(v.movedim(len(above), 0) if above else v, level.level)
        value = _rewrap(v, above)
    return value


def _peel(x: Any, level: int) -> tuple[Any, list[int]]:
    """What lies under x's batches at levels above `level`, and those levels."""
    above = []
    while isinstance(x, Batched) and x.level > level:
        above.append(x.level)
        x = x.value
    return x, above


def _rewrap(x: Tensor, above: list[int]) -> Tensor:
    for level in reversed(above):
        x = batched(x, level)
    return x


@contextlib.contextmanager
def outside(through: list[Vmap]) -> Iterator[None]:
    """Around work on tensors from `down`: no vmap applies to them."""
    stack = stacks.interpreters
    stacks.interpreters = [i for i in stack if i not in through]
    try:
        yield
    finally:
        stacks.interpreters = stack
