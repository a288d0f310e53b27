"""Sequences of numbers and matrices made of them: arange, linspace, logspace, eye."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.device import get_default_device
from tocha.dispatch.registry import op
from tocha.dtypes import dtype as DType
from tocha.ops.arguments import check_dtype, check_sizes
from tocha.ops.creation import from_host, options, with_grad
from tocha.rng.fused import fma64
from tocha.tensor import Tensor, wrap


def _short_arange(start: Any = None, end: Any = None, *step: Any) -> Tensor | None:
    """Whole numbers on the CPU, one by one."""
    if step or start.__class__ is not int or (end is not None and end.__class__ is not int) or get_default_device().type != "cpu":
        return None
    first, last = (0, start) if end is None else (start, end)
    return wrap(np.arange(first, last, dtype=np.int64)) if first <= last else None


@op("torch typedout", short=_short_arange)
def arange(
    *args: Any, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """start, start+step, … below end (torch docs: torch.arange). Integers give int64."""
    names = ("end",) if len(args) == 1 and "end" not in kwargs else ("start", "end", "step")
    given = dict(zip(names, args, strict=False)) | kwargs
    start, end, step = (given.get(n, d) for n, d in (("start", 0), ("end", None), ("step", 1)))
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    if end is None:
        raise TypeError("arange() missing required argument: 'end'")
    integers = all(isinstance(x, (int, np.integer)) for x in (start, end, step))
    found = check_dtype(dtype, "arange") or (dtypes.int64 if integers else dtypes.get_default_dtype())
    if found is dtypes.bool_ or found.is_complex:
        raise NotImplementedError(f"\"arange_cpu\" not implemented for '{found.name}'")
    if step == 0:
        raise RuntimeError("step must be nonzero")
    _check_direction(start, end, step)
    length = -((start - end) // step) if integers else math.ceil((end - start) / step)
    if found.category == dtypes.INTEGRAL and not integers:  # counted in the numbers given, but made of whole ones
        start, end, step = int(start), int(end), int(step)  # type: ignore[arg-type]
        if found is dtypes.int64:
            if step == 0:
                raise ValueError("step must be nonzero")
            length = -((start - end) // step)
        integers = True
    values = start + step * np.arange(length, dtype=np.int64 if integers else np.float64)
    return with_grad(from_host(values, found, device), requires_grad)


def _check_direction(start: Any, end: Any, step: Any) -> None:
    if any(isinstance(x, float) and not math.isfinite(x) for x in (start, end, step)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(f"upper bound and lower bound inconsistent with step sign: start {start}, end {end}, step {step}")


@op("torch typedout")
def range(
    start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """start, start+step, … up to end itself (torch docs: torch.range, which warns too)."""
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with Python's "
        "range builtin. Instead, use torch.arange, which produces values in [start, end).",
        UserWarning,
        stacklevel=3,
    )
    found = check_dtype(dtype, "range") or dtypes.get_default_dtype()
    if step == 0:
        raise RuntimeError("step must be nonzero")
    _check_direction(start, end, step)
    values = start + step * np.arange(int((end - start) / step + 1))
    return with_grad(from_host(values, found, device), requires_grad)


@op("torch typedout")
def linspace(
    start: Any, end: Any, steps: int, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """`steps` values from start to end, both included (torch docs: torch.linspace).

    Computed from both ends towards the middle in the target's precision, as torch does.
    """
    a, b = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    if isinstance(steps, bool) or not hasattr(steps, "__index__"):
        raise TypeError(f"linspace(): argument 'steps' must be int, not {type(steps).__name__}")
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    is_complex = isinstance(a, complex) or isinstance(b, complex)
    default = dtypes.get_default_dtype()
    found = check_dtype(dtype, "linspace") or (default.to_complex() if is_complex else default)
    if steps == 1:
        return with_grad(from_host(np.array([a]), found, device), requires_grad)
    if found.is_complex:
        real, imaginary = (
            _evenly(x, y, steps, found.to_real())
            for x, y in ((complex(a).real, complex(b).real), (complex(a).imag, complex(b).imag))
        )
        return with_grad(from_host(real + 1j * imaginary, found, device), requires_grad)
    return with_grad(from_host(_evenly(a, b, steps, found), found, device), requires_grad)


def _evenly(first: Any, last: Any, steps: int, dtype: DType) -> Any:
    """linspace with torch's roundings: fused multiply-adds, but each operation rounded in half precision."""
    half = steps // 2
    i, back = np.arange(half, dtype=np.float64), np.arange(steps - 1 - half, -1, -1, dtype=np.float64)
    if dtype in dtypes.HALF:
        a, b, n, up, down = (np.asarray(x, np.float32).astype(dtype.np) for x in (first, last, max(steps - 1, 1), i, back))
        step = (b - a) / n
        return np.concatenate([a + step * up, b - step * down])
    work = np.float32 if dtype is dtypes.float32 else np.float64
    if dtype.category == dtypes.INTEGRAL:
        first, last = int(first), int(last)
    a, b = work(first), work(last)  # type: ignore[assignment]
    step = float((b - a) / work(max(steps - 1, 1)))
    exact = work is np.float32 and steps < 1 << 29  # products of a float32 and a smaller integer
    out = np.empty(steps, np.float64)
    for part, j, slope, start in ((out[:half], i, step, float(a)), (out[half:], back, -step, float(b))):
        if exact:
            np.multiply(j, slope, out=part)
            part += start
        else:
            part[...] = fma64(j, slope, start)
    return out


@op("torch typedout")
def logspace(
    start: Any, end: Any, steps: int, base: float = 10.0, *, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """base**x for evenly spaced x (torch docs: torch.logspace)."""
    found = check_dtype(dtype, "logspace") or dtypes.get_default_dtype()
    work = dtypes.float64 if found.category == dtypes.INTEGRAL else dtypes.float32 if found in dtypes.HALF else found
    if found.category == dtypes.INTEGRAL:
        start, end = (int(x.item() if isinstance(x, Tensor) else x) for x in (start, end))
    elif found in dtypes.HALF:
        start, end = (float(np.asarray(x, np.float32).astype(found.np)) for x in (start, end))
    exponents = linspace(start, end, steps, dtype=work, device="cpu")
    with np.errstate(all="ignore"):
        values = np.power(work.np.type(base), exponents._a)
    return with_grad(from_host(values, found, device), requires_grad)


@op("torch typedout")
def eye(
    n: int, m: int | None = None, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Ones on the diagonal (torch docs: torch.eye)."""
    check_sizes((n, m if m is not None else n), "eye")
    found, where = options(dtype, device, layout, "eye")
    return with_grad(from_host(np.eye(n, m, dtype=found.np), found, where), requires_grad)
