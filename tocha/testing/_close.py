"""assert_close and the older assert_allclose (torch docs: torch.testing)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.ops.creation import as_tensor
from tocha.tensor import Tensor

# Default (rtol, atol) by dtype (torch docs: torch.testing.assert_close); integers and bools must be equal.
_TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5), dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5), dtypes.complex128: (1e-7, 1e-7),
}  # fmt: skip


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True, check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:  # fmt: skip
    """AssertionError unless `actual` and `expected` (tensors, numbers, arrays, or containers of them) are close."""
    if (rtol is None) != (atol is None):
        raise ValueError(f"rtol and atol must both be specified or both be unspecified, but got rtol={rtol} and atol={atol}")
    options = {
        "rtol": rtol,
        "atol": atol,
        "equal_nan": equal_nan,
        "device": check_device,
        "dtype": check_dtype,
        "stride": check_stride,
    }
    try:
        _compare(actual, expected, "", options)
    except AssertionError as error:
        if msg is None:
            raise
        raise AssertionError(msg(str(error)) if callable(msg) else msg) from None


# Those of `assert_allclose`.
_LOOSE = {dtypes.float16: (1e-3, 1e-3), dtypes.float32: (1e-4, 1e-5), dtypes.float64: (1e-5, 1e-8)}


def assert_allclose(
    actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = True, msg: str = ""
) -> None:
    """Deprecated: `assert_close` with tolerances of its own and without a look at types (torch docs: torch.testing)."""
    warnings.warn("torch.testing.assert_allclose() is deprecated: use torch.testing.assert_close()", FutureWarning, stacklevel=2)
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    if rtol is None:
        kinds = [x.dtype if isinstance(x, Tensor) else as_tensor(x).dtype for x in (actual, expected)]
        pairs = [_LOOSE.get(kind, (0.0, 0.0)) for kind in kinds]
        rtol, atol = (max(values) for values in zip(*pairs, strict=True))
    assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_dtype=False, msg=msg or None)


def _compare(a: Any, b: Any, place: str, options: dict[str, Any]) -> None:
    where = f" (at {place})" if place else ""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        if a.keys() != b.keys():
            raise AssertionError(f"The keys of the mappings do not match{where}: {sorted(map(str, a))} and {sorted(map(str, b))}")
        for k in a:
            _compare(a[k], b[k], f"{place}[{k!r}]", options)
    elif isinstance(a, Sequence) and isinstance(b, Sequence) and not isinstance(a, str):
        if len(a) != len(b):
            raise AssertionError(f"The length of the sequences mismatch{where}: {len(a)} != {len(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            _compare(x, y, f"{place}[{i}]", options)
    elif a is None or isinstance(a, str):
        if a != b:
            raise AssertionError(f"{a!r} != {b!r}{where}")
    else:
        _compare_values(a, b, where, options)


def _compare_values(a: Any, b: Any, where: str, options: dict[str, Any]) -> None:
    for x, y in ((a, b), (b, a)):
        if isinstance(x, Tensor) and not isinstance(y, Tensor):
            raise TypeError(f"No comparison pair was able to handle inputs of type {type(a)} and {type(b)}{where}.")
    x, y = _array(a), _array(b)
    if x.shape != y.shape:
        raise AssertionError(f"The values for attribute 'shape' do not match{where}: {tuple(x.shape)} != {tuple(y.shape)}.")
    kinds = [v.dtype if isinstance(v, Tensor) else dtypes.from_numpy(w.dtype) for v, w in ((a, x), (b, y))]
    if isinstance(a, Tensor):
        for name, want in (("dtype", options["dtype"]), ("device", options["device"]), ("stride", options["stride"])):
            got = (a.stride(), b.stride()) if name == "stride" else (getattr(a, name), getattr(b, name))
            if want and got[0] != got[1]:
                raise AssertionError(f"The values for attribute '{name}' do not match{where}: {got[0]} != {got[1]}.")
    pairs = [_TOLERANCES.get(k, (0.0, 0.0)) for k in kinds]
    rtol, atol = (
        (max(p[0] for p in pairs), max(p[1] for p in pairs)) if options["rtol"] is None else (options["rtol"], options["atol"])
    )
    wide = (
        np.complex128 if any(k.is_complex for k in kinds) else np.float64 if any(k.is_floating_point for k in kinds) else x.dtype
    )
    x, y = x.astype(wide), y.astype(wide)
    with np.errstate(all="ignore"):
        ok = (
            (x == y) | (np.abs(x - y) <= atol + rtol * np.abs(y)) & np.isfinite(y)
            if wide in (np.float64, np.complex128)
            else x == y
        )
        if options["equal_nan"]:
            ok = ok | np.isnan(x) & np.isnan(y)
    if not np.all(ok):
        _mismatch(x, y, ok, rtol, atol, where)


def _mismatch(x: Any, y: Any, ok: Any, rtol: float, atol: float, where: str) -> None:
    if x.ndim == 0:
        raise AssertionError(
            f"Scalars are not close{where}!\n\nExpected {y.item()} but got {x.item()} (allowed: rtol {rtol:g}, atol {atol:g})."
        )
    bad = np.argwhere(~ok)
    with np.errstate(all="ignore"):
        error = np.abs(np.subtract(x, y, dtype=np.result_type(x, np.float64)))
        relative = error / np.abs(y)
    worst = tuple(int(i) for i in np.unravel_index(int(np.nanargmax(np.where(ok, -1, error))), x.shape))
    far = tuple(int(i) for i in np.unravel_index(int(np.nanargmax(np.where(ok, -1, relative))), x.shape))
    raise AssertionError(
        f"Tensor-likes are not close{where}!\n\nMismatched elements: {len(bad)} / {x.size} ({100 * len(bad) / x.size:.1f}%)\n"
        f"Greatest absolute difference: {error[worst]} at index {worst} (up to {atol:g} allowed)\n"
        f"Greatest relative difference: {relative[far]} at index {far} (up to {rtol:g} allowed)"
    )


def _array(value: Any) -> Any:
    if isinstance(value, Tensor):
        value = value.detach().cpu()._a
        return value.astype(np.float32) if value.dtype in dtypes.HALF_NP else value
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"No comparison pair was able to handle inputs of type {type(value)}.")
    return array
