"""vmap: run primitives on a batch as if on one example.

Inside vmap a batched tensor shows its per-example shape and holds a value with one more dimension, the first. A family
has one batching rule; primitives without one are run example by example, which is slow and right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.interpret import pop, push
from tocha.dispatch.override import NO_DISPATCH, PLAIN, stacks
from tocha.dispatch.prim import Prim
from tocha.tensor import Tensor, wrap_as

Shape = tuple[int, ...]
_ALL = slice(None)


class Batched(Tensor):
    """A tensor inside vmap: `value` has the batch as dimension 0, the tensor itself the shape of one example."""

    value: Tensor
    level: int

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
        self._rg = self.value._rg
        return self

    def __repr__(self, *unused: Any, **options: Any) -> str:
        return f"BatchedTensor(lvl={self.level}, bdim=0, value={self.value!r})"


PLAIN.add(Batched)
NO_DISPATCH.add(Batched)


def batched(value: Tensor, level: int) -> Batched:
    """A batched tensor on a value whose first dimension is the batch."""
    a = value._a
    shape, strides = a.shape[1:], a.strides[1:]
    out: Batched = wrap_as(Batched, MetaArray(shape, a.dtype, strides))
    out.value, out.level = value, level
    out._rg = value._rg
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

    def run(self, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Apply the family's batching rule, or go example by example."""
        mine = [isinstance(a, Batched) and a.level == self.level for a in args]
        if not any(mine):
            return prim(*args, **params)
        values = [a.value if m else a for a, m in zip(args, mine, strict=True)]
        rule = prim.batch or _BY_NAME.get(prim.name) or _BY_FAMILY.get(prim.family)
        got = rule(prim, values, mine, params, self.size) if rule is not None else None
        if got is None:
            got = _one_by_one(prim, values, mine, params, self.size)
        if isinstance(got, tuple):
            return tuple(batched(g, self.level) for g in got)
        return batched(got, self.level)


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
    x, y = values
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
    "unsqueeze": _shift("dim"),
    "squeeze": _shift("dims"),
    "slice": _with(lambda p, n: {"index": (_ALL, *p["index"])}),
    "index_scatter": _with(lambda p, n: {"index": (_ALL, *p["index"]), "shape": (n, *p["shape"])}),
    "split": _shift("dim"),
    "unbind": _shift("dim"),
    "diagonal": _with(lambda p, n: {"dim1": p["dim1"] + 1, "dim2": p["dim2"] + 1}),
    "unfold": _shift("dim"),
    "view_as_real": _same,
    "view_as_complex": _same,
    "cast": _same,
    "clone": _same,
    "to_device": _same,
    "cat": _cat,
    "sum": _shift("dim"),
    "mean": _shift("dim"),
    "amax": _shift("dim"),
    "amin": _shift("dim"),
    "softmax": _shift("dim"),
    "log_softmax": _shift("dim"),
    "matmul": _matmul,
    "mm": _matmul,
    "bmm": _matmul,
}


def lower(tensors: Any, size: int | None = None) -> tuple[list[Any], int | None]:
    """Values of the innermost level's batched tensors, for autograd calls made inside vmap."""
    stack = stacks.interpreters
    level = stack[-1].level if stack and isinstance(stack[-1], Vmap) else None
    if level is None:
        return list(tensors), None
    return [t.value if isinstance(t, Batched) and t.level == level else t for t in tensors], level
