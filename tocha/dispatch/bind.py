"""bind: run a primitive on tensors. Plain tensors go straight to the backend's kernel; anything unusual (an
interpreter such as vmap, a subclass with __torch_dispatch__) is met behind one check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tocha.autograd.mode import INFERENCE, state
from tocha.backends import cpu, device_of, meta, namespace, native, while_traced
from tocha.backends.lazy import Lazy, resolved
from tocha.dispatch import override
from tocha.dispatch.override import INTERPRETERS, NO_DISPATCH
from tocha.dispatch.prim import Prim, record, view_of
from tocha.dtypes import HALF_NP
from tocha.tensor import Tensor, mark, wrap

_ndarray, _new = np.ndarray, object.__new__
_FLOAT32 = np.dtype(np.float32)
_SCALARS = (np.generic, bool, int, float, complex)  # what NumPy hands back for 0-d results


def bind(prim: Prim, *args: Any, **params: Any) -> Any:
    """Run `prim` on tensors (None where an argument is optional) and record it. One tensor, or a tuple of them."""
    if INTERPRETERS:
        return override.dispatch_prim(prim, args, params)
    arrays: list[Any] = []
    wanted = False
    for a in args:
        if a is None:
            arrays.append(None)
            continue
        if a.__class__ not in NO_DISPATCH:
            return override.dispatch_prim(prim, args, params)
        x = a._a
        if x.__class__ is not _ndarray or x.dtype in HALF_NP:
            return bind_plain(prim, args, params) if not unusual(args) else override.dispatch_prim(prim, args, params)
        arrays.append(x)
        if a._rg:
            wanted = True
    if prim.family == "view":
        return _bind_view(prim, args[0], params)
    got = None
    if prim.native and (arrays[0].size >= prim.native or (prim.family == "pointwise" and _largest(arrays) >= prim.native)):
        got = native.prim(prim.name, arrays, params)
    if got is None:
        got = state.run(prim.impl, cpu, *arrays, **params)
    if got.__class__ is _ndarray:
        out = _new(Tensor)
        out._a = got
        out._rg = False
        out._grad = out._node = out._vc = out._view = out._extra = None
        out._nr = 0
        if INFERENCE:
            mark(out)
        if wanted and state.grad and prim.vjp is not None:
            record(prim, args, (out,), params)
        return out
    outs = tuple([wrap(g if g.__class__ is _ndarray else _array(g)) for g in (got if got.__class__ is tuple else (got,))])
    if wanted and state.grad and prim.vjp is not None:
        record(prim, args, outs, params)
    return outs[0] if len(prim.outputs) == 1 else outs


def _largest(arrays: list[Any]) -> int:
    return max([a.size for a in arrays if a is not None])


def _array(got: Any) -> Any:
    """A kernel's result as an array: NumPy hands 0-d results back as scalars."""
    return np.asarray(got) if isinstance(got, _SCALARS) else got


Prim.__call__ = bind  # type: ignore[method-assign, assignment]


def bind_plain(prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """`bind` without interpreters, on any backend and type."""
    if prim.family == "view":
        a = args[0]._a
        seen = a.seen(prim.impl(namespace(a), a.raw, **params)) if a.__class__ is Lazy else None
        return _bind_view(prim, args[0], params, seen)
    outs = run(prim, args, params)
    if state.grad and prim.vjp is not None:
        for a in args:
            if a is not None and a._rg:
                record(prim, args, outs, params)
                break
    return outs[0] if len(prim.outputs) == 1 else outs


def unusual(args: Sequence[Any]) -> bool:
    """Whether some argument is a tensor whose class has __torch_dispatch__."""
    for a in args:
        if a is not None and a.__class__ not in NO_DISPATCH and override.has_dispatch(a):
            return True
    return False


def run(prim: Prim, args: Sequence[Any], params: dict[str, Any]) -> tuple[Tensor, ...]:
    """The primitive's values as new tensors without history."""
    arrays = [None if a is None else a._a for a in args]
    first: Any = next((a for a in arrays if a is not None), None)
    xp = namespace(first)
    for a in arrays:
        if a is not None and (a.__class__ is not first.__class__ or a.__class__ is Lazy):
            arrays = one_device(prim, arrays)
            first = next(a for a in arrays if a is not None)
            xp = namespace(first)
            break
    got = xp.run_prim(prim, arrays, params)
    return tuple([wrap(g if g.__class__ is _ndarray else _array(g)) for g in (got if got.__class__ is tuple else (got,))])


def one_device(prim: Prim, arrays: list[Any]) -> list[Any]:
    """Arrays with nothing pending on one device: 0-d CPU arrays follow the others to theirs; anything else mixed is an error."""
    if any(a.__class__ is Lazy for a in arrays):
        arrays = [resolved(a) for a in arrays]
        if len({a.__class__ for a in arrays if a is not None}) == 1:
            return arrays
    arrays = while_traced(arrays)
    kinds = {str(device_of(a)): a for a in arrays if a is not None}
    if len(kinds) == 1:
        return arrays
    away = next((a for a in arrays if a is not None and device_of(a).type != "cpu"), None)
    movable = all(a is None or a.__class__ is away.__class__ or a.ndim == 0 for a in arrays)
    if away is None or not movable:
        raise RuntimeError(
            f"{prim.name}: Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(kinds))}! Move the operands to one device with .to()"
        )
    if prim.family == "pointwise" and away.__class__ is not meta.MetaArray:
        return [a[()] if a.__class__ is _ndarray else a for a in arrays]  # kernels take numbers without a copy
    xp, index = namespace(away), device_of(away).index
    return [a if a is None or a.__class__ is away.__class__ else xp.from_host(a, index) for a in arrays]


def _bind_view(prim: Prim, x: Tensor, params: dict[str, Any], got: Any = None) -> Any:
    """A view primitive: the output shares x's memory, version counter and base. Several outputs share one node."""
    if got is None:
        got = prim.impl(namespace(x._a), x._a, **params)
    if got.__class__ is list:
        find = prim.steps if len(got) < 64 else prim.steps.__wrapped__  # type: ignore[attr-defined]
        steps = find(len(got), **params)
        outs = [view_of(x, g, step, own, "multi") for g, (step, own) in zip(got, steps, strict=True)]
        if state.grad and x._rg:
            record(prim, (x,), outs, params)
        return tuple(outs)
    return view_of(x, got, prim, params)
