"""Gradient transforms. They nest: inside another transform the tape is kept, so that the outer one can go through."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from tocha.autograd.engine import grad as engine_grad
from tocha.autograd.functional import push_forward
from tocha.autograd.mode import transform_grad
from tocha.autograd.views import edge_of
from tocha.dispatch.vmap import down, levels_of, outside, up
from tocha.dispatch.vmap import levels as vmap_levels
from tocha.func._vmap import vmap
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_map, tree_unflatten


class _Depth(threading.local):
    def __init__(self) -> None:
        self.count = 0


_depth = _Depth()


class _Level:
    """Counts how deep gradient transforms are nested in this thread."""

    def __enter__(self) -> None:
        _depth.count += 1

    def __exit__(self, *exc: object) -> None:
        _depth.count -= 1


def _fresh(x: Any) -> Any:
    """A tensor to differentiate with respect to: a new leaf, or a step away from an outer transform's tape."""
    if not isinstance(x, Tensor):
        raise ValueError(f"grad: expected tensors to differentiate with respect to, got {type(x).__name__}")
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(f"only Tensors of floating point dtype can require gradients, got {x.dtype}")
    through = vmap_levels()
    value = down(x, through)
    with outside(through):
        if value.requires_grad:
            value = value.view_as(value)
        else:
            value = value.detach().requires_grad_()
            value.__dict__["_of_transform"] = True
    return up(value, through)


def _keep_tape(fresh: list[Tensor], outs: list[Any]) -> bool:
    """Whether gradients must be on the tape: inside another transform, or where outputs depend on more than `fresh`."""
    if _depth.count > 1:
        return True
    through = levels_of((*fresh, *outs))
    own = {id(down(x, through)) for x in fresh}
    places = [edge_of(v) for o in outs if isinstance(o, Tensor) and (v := down(o, through))._rg]
    seen = set(map(id, places))
    while places:
        place = places.pop()
        if isinstance(place, Tensor) and id(place) not in own and "_of_transform" not in place.__dict__:
            return True
        for edge in getattr(place, "edges", ()):
            if edge is not None and id(edge) not in seen:
                seen.add(id(edge))
                places.append(edge)
    return False


def _gradients(outs: list[Tensor], xs: list[Tensor], cotangents: list[Any], keep: bool, retain: bool = False) -> list[Tensor]:
    """autograd.grad, on the values when inside vmap (examples don't mix, so a summed gradient is each one's own)."""
    through = levels_of((*xs, *outs))  # cotangents alone may be batched at further levels, which stay in force
    values = [down(x, through) for x in xs]
    pairs = [(down(o, through), down(c, through)) for o, c in zip(outs, cotangents, strict=True)]
    pairs = [(o, c) for o, c in pairs if o.requires_grad]
    with outside(through):
        found: Any = (None,) * len(xs)
        if pairs:
            found = engine_grad(
                [o for o, _ in pairs], values, [c for _, c in pairs], create_graph=keep, retain_graph=keep or retain,
                allow_unused=True,
            )  # fmt: skip
        grads = [x.detach().new_zeros(x.shape) if g is None else g for g, x in zip(found, values, strict=True)]
    return [up(g, through) for g in grads]


def _detached(aux: Any) -> Any:
    """Tensors beside a result, without a history."""
    return tree_map(lambda a: a.detach() if isinstance(a, Tensor) else a, aux)


def _split_args(args: tuple[Any, ...], argnums: Any) -> tuple[tuple[int, ...], list[Any]]:
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    for n in numbers:
        if not isinstance(n, int) or not -len(args) <= n < len(args):
            raise RuntimeError(f"Got argnums={n}, but only {len(args)} positional inputs")
    numbers = tuple(n % len(args) for n in numbers)
    return numbers, [args[n] for n in numbers]


def grad_and_value(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function returning (gradient, value) of scalar `func`; with `has_aux`, (gradient, (value, aux))."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with transform_grad(), _Level():
            numbers, chosen = _split_args(args, argnums)
            flat, spec = tree_flatten(chosen)
            fresh = [_fresh(x) for x in flat]
            replaced = dict(zip(numbers, tree_unflatten(fresh, spec), strict=True))
            out = func(*[replaced.get(i, a) for i, a in enumerate(args)], **kwargs)
            out, aux = out if has_aux else (out, None)
            if not isinstance(out, Tensor):
                raise RuntimeError(f"Expected f(*args) to return a tensor, got {type(out).__name__}")
            if out.numel() != 1:
                raise RuntimeError(
                    f"grad_and_value(f)(*args): Expected f(*args) to return a scalar tensor, got tensor with {out.ndim} dims."
                )
            keep = _keep_tape(fresh, [out])
            grads = tree_unflatten(_gradients([out], fresh, [out.detach().new_ones(out.shape)], keep), spec)
        given = grads[0] if not isinstance(argnums, tuple) else tuple(grads)
        value = out if keep else out.detach()
        if not has_aux:
            return given, value
        return given, (value, aux if keep else _detached(aux))

    return wrapped


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """A function returning the gradient of scalar `func` (torch docs: torch.func.grad)."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        g, rest = both(*args, **kwargs)
        return (g, rest[1]) if has_aux else g

    return wrapped


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(outputs, vjp_fn): vjp_fn(cotangents) gives the gradients for `primals` (torch docs: torch.func.vjp)."""
    with transform_grad(), _Level():
        flat, spec = tree_flatten(primals)
        fresh = [_fresh(x) for x in flat]
        with _uncompiled():
            got = func(*tree_unflatten(fresh, spec))
        got, aux = got if has_aux else (got, None)
        outs, out_spec = tree_flatten(got)
        keep = _keep_tape(fresh, outs)

    def pull_back(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = tree_flatten(cotangents[0] if len(cotangents) == 1 else cotangents)[0]
        if len(given) != len(outs):
            raise RuntimeError(f"vjp: expected {len(outs)} cotangents, got {len(given)}")
        with transform_grad():
            again = keep or _depth.count > 0 or any(isinstance(c, Tensor) and c.requires_grad for c in given)
            grads = _gradients(outs, fresh, given, again, retain=True)
        result = tree_unflatten(grads, spec)
        return tuple(result)

    shown = tree_unflatten([o if keep else o.detach() for o in outs], out_spec)
    return (shown, pull_back, aux if keep else _detached(aux)) if has_aux else (shown, pull_back)


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Inside, compiled functions run in plain Python: their backward can't be differentiated."""
    found = sys.modules.get("tocha._dynamo.eval_frame")
    if found is None:
        yield
        return
    before, found.stance[0] = found.stance[0], "force_eager"
    try:
        yield
    finally:
        found.stance[0] = before


def jvp(
    func: Callable[..., Any], primals: tuple[Any, ...], tangents: tuple[Any, ...], *, strict: bool = False, has_aux: bool = False
) -> Any:
    """(outputs, J·tangents) (torch docs: torch.func.jvp)."""
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple) or not primals:
        raise RuntimeError("jvp: Expected primals and tangents to be non-empty tuples")
    with transform_grad(), _Level():
        flat, spec = tree_flatten(primals)
        vectors = tree_flatten(tangents)[0]
        if len(vectors) != len(flat):
            raise RuntimeError(f"jvp: expected as many tangents ({len(vectors)}) as primals ({len(flat)})")
        fresh = [_fresh(x) for x in flat]
        with _uncompiled():
            got = func(*tree_unflatten(fresh, spec))
        got, aux = got if has_aux else (got, None)
        outs, out_spec = tree_flatten(got)
        keep = _keep_tape(fresh, outs) or any(v.requires_grad for v in vectors)
        through = levels_of((*fresh, *outs))
        ys, xs, tangents_in = (tuple(down(t, through) for t in ts) for ts in (outs, fresh, vectors))
        with outside(through):
            pushed = push_forward(ys, xs, tangents_in, keep, strict)
        pushed = tuple(up(p, through) for p in pushed)
        shown = [o if keep else o.detach() for o in outs]
        pushed = pushed if keep else tuple(p.detach() for p in pushed)
    result = (tree_unflatten(shown, out_spec), tree_unflatten(pushed, out_spec))
    return (*result, aux if keep else _detached(aux)) if has_aux else result


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(outputs, a function computing J·v at `primals`) (torch docs: torch.func.linearize)."""
    return func(*primals), lambda *tangents: jvp(func, primals, tangents)[1]


def jacrev(
    func: Callable[..., Any],
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Any:
    """A function returning the Jacobian of `func`, one reverse pass an output element (torch docs: torch.func.jacrev)."""

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers, chosen = _split_args(args, argnums)

        def of_chosen(*xs: Any) -> Any:
            replaced = dict(zip(numbers, xs, strict=True))
            return func(*[replaced.get(i, a) for i, a in enumerate(args)], **kwargs)

        found = vjp(of_chosen, *chosen, has_aux=has_aux)
        outs, out_spec = tree_flatten(found[0])
        blocks = []
        for k, out in enumerate(outs):
            units = [_units(o, out.numel(), j == k) for j, o in enumerate(outs)]
            rows = vmap(found[1], chunk_size=chunk_size)(tree_unflatten(units, out_spec)) if out.numel() else ()
            blocks.append(_shaped(rows, out, chosen))
        picked = [b if isinstance(argnums, tuple) else b[0] for b in blocks]
        jacobian = tree_unflatten(picked, out_spec)
        return (jacobian, found[2]) if has_aux else jacobian

    return wrapped


def _units(out: Tensor, count: int, own: bool) -> Tensor:
    """`count` cotangents for `out`: its unit tensors if `own`, else zeros."""
    from tocha.ops.creation import make

    flat = make((count, out.numel()), out.dtype, out.device, 0)
    if own:
        flat.fill_diagonal_(1)
    return flat.reshape(count, *out.shape)


def _shaped(rows: Any, out: Tensor, chosen: list[Any]) -> Any:
    """The stacked rows of a Jacobian as output.shape + input.shape, in the structure of the inputs."""
    flat, spec = tree_flatten(tuple(chosen))
    leaves = tree_flatten(rows)[0] or [x.new_zeros((0, *x.shape)) for x in flat]
    return tree_unflatten([r.reshape(*out.shape, *x.shape) for r, x in zip(leaves, flat, strict=True)], spec)


def jacfwd(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False, *, randomness: str = "error") -> Any:
    """A function returning the Jacobian of `func`. Forward products are made of reverse passes here, so it is jacrev."""
    return jacrev(func, argnums, has_aux=has_aux)


def hessian(func: Callable[..., Any], argnums: Any = 0) -> Any:
    """A function returning the Hessian of scalar `func` (torch docs: torch.func.hessian)."""
    return jacfwd(jacrev(func, argnums), argnums)
