"""Complex tensors from real ones: complex, polar."""

from __future__ import annotations

from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.dispatch.registry import op
from tocha.dtypes import FROM_NP
from tocha.ops.arguments import check_tensor
from tocha.prims.pointwise import broadcast_shapes
from tocha.tensor import Tensor


@prim("complex", "pointwise", half="native", vjp=(lambda g: g.real, lambda g: g.imag),
      infer=lambda real, imag, *, dtype: MetaArray(broadcast_shapes("complex", real.shape, imag.shape), dtype))  # fmt: skip
def _complex(xp: Any, real: Any, imag: Any, *, dtype: Any) -> Any:
    """real + i imag."""
    out = xp.empty(broadcast_shapes("complex", real.shape, imag.shape), dtype)
    out.real, out.imag = real, imag
    return out


@prim("polar", "pointwise", half="native", vjp=(lambda g, out: (g * out.sgn().conj()).real, lambda g, out: (g * (out * 1j).conj()).real),
      infer=lambda abs, angle, *, dtype: MetaArray(broadcast_shapes("polar", abs.shape, angle.shape), dtype))  # fmt: skip
def _polar(xp: Any, abs: Any, angle: Any, *, dtype: Any) -> Any:
    """abs (cos angle + i sin angle)."""
    out = xp.empty(broadcast_shapes("polar", abs.shape, angle.shape), dtype)
    out.real, out.imag = abs * xp.cos(angle), abs * xp.sin(angle)
    return out


_complex.fit = _polar.fit = True


def _check(first: Any, second: Any, name: str, names: tuple[str, str]) -> Any:
    """The complex NumPy dtype for two real tensors of one type."""
    for i, x in enumerate((first, second)):
        check_tensor(x, name, names[i], i + 1)
        if x.dtype.name not in ("float16", "float32", "float64"):
            raise RuntimeError(
                f"Expected both inputs to be Half, Float or Double tensors but got {first.dtype} and {second.dtype}"
            )
    if first.dtype is not second.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {first.dtype.name} but got scalar type {second.dtype.name} for second argument"
        )
    if first.dtype.name == "float16":
        raise RuntimeError(f"{name}: complex32 is not supported; use float32 inputs")
    broadcast_shapes(name, first._a.shape, second._a.shape)
    return FROM_NP[first._a.dtype].to_complex().np


@op("torch strictout")
def complex(real: Tensor, imag: Tensor) -> Tensor:
    """real + i imag (torch docs: torch.complex)."""
    return _complex(real, imag, dtype=_check(real, imag, "complex", ("real", "imag")))


@op("torch strictout")
def polar(abs: Tensor, angle: Tensor) -> Tensor:
    """Complex numbers of given size and angle (torch docs: torch.polar)."""
    kind = _check(abs, angle, "polar", ("abs", "angle"))
    return _polar(abs, angle, dtype=kind)
