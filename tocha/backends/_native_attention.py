"""Attention and its gradient on native kernels (tocha.inductor.templates.attention): arrays in, arrays out, or None for NumPy.

Any strides, head sizes and float types will do; memory beside the results is linear in the lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tocha import threads
from tocha.backends import _native_products as products
from tocha.backends import native

_COMPUTE = {"f32": np.dtype(np.float32), "f64": np.dtype(np.float64), "f16": np.dtype(np.float32), "bf16": np.dtype(np.float32)}
_BOOL = np.dtype(np.bool_)
Shape = tuple[int, ...]


class _Plan(NamedTuple):
    """What a call of certain shapes, strides and types needs."""

    spec: Any
    compute: Any
    work: Any
    offsets: Any
    slots: int
    scratch: int


def _serves(arrays: list[Any]) -> bool:
    """Whether the kernels can compute a call on (query, key, value, mask, others…)."""
    query, _, _, mask, *others = arrays
    if products.NAMES.get(query.dtype) not in _COMPUTE:
        return False
    for a in arrays:
        if a is not None and (a.size == 0 or not a.flags.aligned or (not a.flags.c_contiguous and products.odd(a))):
            return False
    if any(a.dtype is not query.dtype for a in (*arrays[1:3], *others)):
        return False
    return mask is None or mask.dtype is _BOOL or products.NAMES.get(mask.dtype) in _COMPUTE


def _spec(query: Any, mask: Any) -> Any:
    from tocha.inductor.templates import attention

    return attention.Spec(
        products.NAMES[query.dtype], None if mask is None else "u8" if mask.dtype is _BOOL else products.NAMES[mask.dtype]
    )


def _steps(a: Any) -> tuple[int, int]:
    """Strides of the last two dimensions in elements; those of single elements don't count."""
    row, step = (0 if n == 1 else s // a.dtype.itemsize for n, s in zip(a.shape[-2:], a.strides[-2:], strict=True))
    return row, step if a.shape[-1] > 1 else 1


def _starts(a: Any) -> Any:
    """Where each head's matrix begins."""
    return products.starts(a, a.shape[:-2], a.dtype.itemsize)


def _like(a: Any, shape: Shape) -> Any:
    """A new array of `shape` in `a`'s order of memory, rows dense."""
    if a.shape == shape:
        out = np.empty_like(a)
        if out.strides[-1] == out.dtype.itemsize:
            return out
    return np.empty(shape, a.dtype)


def _masked(mask: Any, shape: Shape) -> Any:
    return None if mask is None else np.broadcast_to(mask, shape)


def forward(arrays: list[Any], params: dict[str, Any]) -> Any:
    """`flash_attention` (tocha.prims.attention)."""
    if not _serves(arrays) or native.inductor() is None:
        return None
    query, key, value, mask = arrays
    slots, causal = threads.get_num_threads(), params["causal"]
    out = _like(query, (*query.shape[:-1], value.shape[-1]))
    signature = _signature("attention", (*arrays, out), causal, slots)
    plan = native.remember(signature, lambda: _forward_plan(arrays, out, causal, slots))
    main = _kernel("attention", plan.spec)
    if main is None:
        return None
    lse = np.empty(query.shape[:-1], plan.compute)
    main(
        out, lse, query, key, value, query if mask is None else mask, np.array([params["scale"]], plan.compute), plan.offsets,
        np.zeros(plan.slots, np.int64), np.empty(plan.slots * plan.scratch, plan.compute), plan.work,
    )  # fmt: skip
    return out, lse


def _signature(name: str, arrays: tuple[Any, ...], causal: bool, slots: int) -> Any:
    return (name, causal, slots, *[None if a is None else (a.shape, a.strides, a.dtype) for a in arrays])


def _kernel(name: str, spec: Any) -> Any:
    modules = native.inductor()
    assert modules is not None

    def build() -> Any:
        from tocha.inductor.templates import attention, attention_backward

        module = attention if name == "attention" else attention_backward
        return modules.entry.build_template(name, module.BUFFERS, module.SIZES, module.code(spec))

    return native.built((name, spec.type, spec.mask), build)


def _forward_plan(arrays: list[Any], out: Any, causal: bool, slots: int) -> _Plan:
    from tocha.inductor.templates import attention

    query, key, value, mask = arrays
    spec = _spec(query, mask)
    lead, (length, width), keys, channels = query.shape[:-2], query.shape[-2:], key.shape[-2], value.shape[-1]
    wide = _masked(mask, (*lead, length, keys))
    heads = out.size // (length * channels)
    group = heads // (key.size // (keys * width))
    starts = [_starts(query), np.repeat(_starts(key), group), np.repeat(_starts(value), group)]
    starts += [np.zeros(heads, np.int64) if wide is None else _starts(wide), _starts(out)]
    fields = attention.sizes(spec, heads, length, keys, width, channels, slots)
    fields |= {
        "length": length,
        "keys": keys,
        "width": width,
        "channels": channels,
        "out_row": _steps(out)[0],
        "causal": int(causal),
    }
    for name, a in (("q", query), ("k", key), ("v", value)):
        fields[f"{name}_row"], fields[f"{name}_width"] = _steps(a)
    fields["mask_row"], fields["mask_key"] = (0, 0) if wide is None else _steps(wide)
    return _plan(attention, spec, fields, heads * fields["chunks"], np.stack(starts, axis=-1))


def _plan(module: Any, spec: Any, fields: dict[str, int], units: int, offsets: Any) -> _Plan:
    work = np.array([units, 1, *[fields[name] for name in module.SIZES]], np.int64)
    return _Plan(spec, _COMPUTE[spec.type], work, np.ascontiguousarray(offsets), fields["slots"], fields["scratch_size"])


def backward(arrays: list[Any], params: dict[str, Any]) -> Any:
    """`flash_attention_backward` (tocha.prims.attention)."""
    g, query, key, value, mask, out, lse = arrays
    given = [query, key, value, mask, g, out]
    if not _serves(given) or native.inductor() is None or not lse.flags.c_contiguous:
        return None
    if lse.dtype is not _COMPUTE[products.NAMES[query.dtype]]:
        return None
    slots, causal = threads.get_num_threads(), params["causal"]
    results = [_like(x, x.shape) for x in (query, key, value)]
    plan = native.remember(
        _signature("attention_backward", (*given, *results), causal, slots), lambda: _backward_plan(given, results, causal, slots)
    )
    main = _kernel("attention_backward", plan.spec)
    if main is None:
        return None
    main(
        *results, g, query, key, value, query if mask is None else mask, out, lse, np.array([params["scale"]], plan.compute), plan.offsets,
        np.zeros(plan.slots, np.int64), np.empty(plan.slots * plan.scratch, plan.compute), plan.work,
    )  # fmt: skip
    return tuple(results)


def _backward_plan(given: list[Any], results: list[Any], causal: bool, slots: int) -> _Plan:
    from tocha.inductor.templates import attention_backward

    query, key, value, mask, g, out = given
    spec = _spec(query, mask)
    lead, (length, width), keys, channels = query.shape[:-2], query.shape[-2:], key.shape[-2], value.shape[-1]
    wide = _masked(mask, (*lead, length, keys))
    units, heads = key.size // (keys * width), query.size // (length * width)
    fields = attention_backward.sizes(spec, length, keys, width, channels, min(slots, units))
    fields |= {"units": units, "group": heads // units, "causal": int(causal)}
    for name, a in (("q", query), ("k", key), ("v", value), ("g", g), ("out", out)):
        fields[f"{name}_row"], fields[f"{name}_width"] = _steps(a)
    for name, a in zip(("dq", "dk", "dv"), results, strict=True):
        fields[f"{name}_row"] = _steps(a)[0]
    fields["mask_row"], fields["mask_key"] = (0, 0) if wide is None else _steps(wide)
    masks = np.zeros(heads, np.int64) if wide is None else _starts(wide)
    by_key = np.stack([_starts(x) for x in (key, value, results[1], results[2])], axis=-1)
    by_query = np.stack([_starts(query), masks, _starts(out), _starts(g), _starts(results[0])], axis=-1)
    # An only unit is counted as two: Python's lock is released for several.
    return _plan(attention_backward, spec, fields, max(units, 2), np.concatenate([by_key.ravel(), by_query.ravel()]))


RUNS = {"flash_attention": forward, "flash_attention_backward": backward}
