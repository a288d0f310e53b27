"""Products with Jacobians and Hessians, and the matrices themselves (torch docs: torch.autograd.functional).

Forward-mode products are made of two reverse passes: the gradient of v·J with respect to v is J applied to a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tocha.autograd.engine import grad
from tocha.autograd.mode import transform_grad
from tocha.tensor import Tensor

Tensors = tuple[Tensor, ...]


def _tuple(x: Any, what: str) -> tuple[bool, Tensors]:
    """(whether x was a tuple, x as one)."""
    is_tuple = isinstance(x, tuple)
    items = x if is_tuple else (x,)
    for t in items:
        if not isinstance(t, Tensor):
            raise TypeError(f"The {what} must be either a Tensor or a tuple of Tensors, got {type(t).__name__}")
    return is_tuple, items


def _inputs(inputs: Tensors, create_graph: bool) -> Tensors:
    """Copies to differentiate with respect to (connected to the originals if a graph is wanted)."""
    if create_graph:
        return tuple(x.view_as(x) if x.requires_grad else x.detach().requires_grad_() for x in inputs)
    return tuple(x.detach().requires_grad_() for x in inputs)


def _give(is_tuple: bool, items: Sequence[Tensor], create_graph: bool) -> Any:
    items = tuple(items if create_graph else (x.detach() for x in items))
    return items if is_tuple else items[0]


def _zeros_for_none(grads: Sequence[Tensor | None], like: Tensors, strict: bool, what: str) -> Tensors:
    if strict and any(g is None for g in grads):
        raise RuntimeError(f"{what}: some input is independent of the outputs, which strict=True forbids")
    return tuple(x.detach().new_zeros(x.shape) if g is None else g for g, x in zip(grads, like, strict=True))


def _vector(v: Any, like: Tensors, what: str) -> Tensors:
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"{what}: the vector v can only be None if there is a single one-element tensor")
        return (like[0].detach().new_ones(like[0].shape),)
    vectors = _tuple(v, "v")[1]
    if len(vectors) != len(like) or any(a.shape != b.shape for a, b in zip(vectors, like, strict=True)):
        raise RuntimeError(f"{what}: v has shapes {[list(a.shape) for a in vectors]}, expected {[list(a.shape) for a in like]}")
    return vectors


def _differentiable(outputs: Tensors, strict: bool, what: str) -> list[Tensor]:
    if strict and any(not o.requires_grad for o in outputs):
        raise RuntimeError(f"{what}: some output is independent of the inputs, which strict=True forbids")
    return [o for o in outputs if o.requires_grad]


def vjp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, v·J): the product of a vector with the Jacobian of `func` at `inputs`."""
    with transform_grad():
        is_tuple, given = _tuple(inputs, "inputs")
        xs = _inputs(given, create_graph)
        out_tuple, ys = _tuple(func(*xs), "outputs")
        vectors = _vector(v, ys, "vjp")
        kept = _differentiable(ys, strict, "vjp")
        pairs = [(y, w) for y, w in zip(ys, vectors, strict=True) if y.requires_grad]
        grads = (
            grad([y for y, _ in pairs], xs, [w for _, w in pairs], create_graph=create_graph, allow_unused=True)
            if kept
            else (None,) * len(xs)
        )
        found = _zeros_for_none(grads, xs, strict, "vjp")
    return _give(out_tuple, ys, create_graph), _give(is_tuple, found, create_graph)


def jvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(outputs, J·v): the product of the Jacobian of `func` at `inputs` with a vector."""
    with transform_grad():
        given = _tuple(inputs, "inputs")[1]
        xs = _inputs(given, create_graph)
        vectors = _vector(v, xs, "jvp")
        out_tuple, ys = _tuple(func(*xs), "outputs")
        found = push_forward(ys, xs, vectors, create_graph, strict)
    return _give(out_tuple, ys, create_graph), _give(out_tuple, found, create_graph)


def push_forward(ys: Tensors, xs: Tensors, vectors: Tensors, create_graph: bool, strict: bool = False) -> Tensors:
    """J·v from a graph already made: differentiate w·J (linear in w) with respect to w."""
    _differentiable(ys, strict, "jvp")
    results = []
    for y in ys:
        if not y.requires_grad:
            results.append(y.detach().new_zeros(y.shape))
            continue
        w = y.detach().new_zeros(y.shape).requires_grad_()
        back = grad(y, xs, w, create_graph=True, allow_unused=True)
        pairs = [(b, v) for b, v in zip(back, vectors, strict=True) if b is not None and b.requires_grad]
        if not pairs:
            results.append(y.detach().new_zeros(y.shape))
            continue
        got = grad([b for b, _ in pairs], w, [v for _, v in pairs], create_graph=create_graph, allow_unused=True)
        results.append(_zeros_for_none(got, (y,), strict, "jvp")[0])
    return tuple(results)


def jacobian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Jacobian of `func` at `inputs`, shaped output.shape + input.shape for each pair."""
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(f"jacobian: strategy must be 'reverse-mode' or 'forward-mode', got {strategy!r}")
    with transform_grad():
        is_tuple, given = _tuple(inputs, "inputs")
        xs = _inputs(given, create_graph)
        out_tuple, ys = _tuple(func(*xs), "outputs")
        _differentiable(ys, strict, "jacobian")
        rows = tuple(_rows(y, xs, create_graph, strict) for y in ys)
    picked = [tuple(r) if is_tuple else r[0] for r in rows]
    return tuple(picked) if out_tuple else picked[0]


def _rows(y: Tensor, xs: Tensors, create_graph: bool, strict: bool) -> list[Tensor]:
    """For one output, its Jacobian with respect to each input: one reverse pass an element."""
    from tocha.ops.shape import stack

    columns: list[list[Tensor]] = [[] for _ in xs]
    flat = y.reshape(-1)
    for i in range(flat.shape[0]):
        grads: Sequence[Tensor | None] = (None,) * len(xs)
        if y.requires_grad:
            grads = grad(flat.select(0, i), xs, retain_graph=True, create_graph=create_graph, allow_unused=True)
        for column, g in zip(columns, _zeros_for_none(grads, xs, strict, "jacobian"), strict=True):
            column.append(g)
    out = []
    for column, x in zip(columns, xs, strict=True):
        block = stack(column) if column else x.detach().new_zeros((0, *x.shape))
        out.append(block.reshape(*y.shape, *x.shape))
    return out


def hessian(
    func: Callable[..., Any], inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:  # fmt: skip
    """The Hessian of a scalar function at `inputs`."""
    is_tuple, given = _tuple(inputs, "inputs")

    def gradient(*xs: Tensor) -> Any:
        y = _scalar(func(*xs), "hessian")
        if not y.requires_grad:
            return tuple(x * 0 for x in xs)
        grads = grad(y, xs, create_graph=True, allow_unused=True)
        return tuple(x * 0 if g is None else g for g, x in zip(grads, xs, strict=True))

    found = jacobian(gradient, given, create_graph, strict)
    return found if is_tuple else found[0][0]


def _scalar(y: Any, what: str) -> Tensor:
    if not isinstance(y, Tensor) or y.numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {what} should contain a single element")
    return y.reshape(())


def vhp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, v·H) for a scalar function."""
    with transform_grad():
        is_tuple, given = _tuple(inputs, "inputs")
        xs = _inputs(given, create_graph)
        vectors = _vector(v, xs, "vhp")
        y = _scalar(func(*xs), "vhp")
        first = grad(y, xs, create_graph=True, allow_unused=True) if y.requires_grad else (None,) * len(xs)
        pairs = [(g, w) for g, w in zip(first, vectors, strict=True) if g is not None and g.requires_grad]
        second: Sequence[Tensor | None] = (None,) * len(xs)
        if pairs:
            second = grad([g for g, _ in pairs], xs, [w for _, w in pairs], create_graph=create_graph, allow_unused=True)
        found = _zeros_for_none(second, xs, strict, "vhp")
    return _give(False, (y,), create_graph), _give(is_tuple, found, create_graph)


def hvp(
    func: Callable[..., Any], inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """(output, H·v) for a scalar function: the Hessian is symmetric, so this is vhp."""
    return vhp(func, inputs, v, create_graph, strict)
