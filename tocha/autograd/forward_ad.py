"""torch.autograd.forward_ad: dual numbers, a primal value with a tangent that every operator carries along."""

from __future__ import annotations

from typing import NamedTuple

from tocha.autograd.mode import _ContextDecorator
from tocha.dispatch import dual as forward
from tocha.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """What `unpack_dual` returns; `tangent` is None for a tensor that depends on no dual one."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Start a level of forward mode; there can be one at a time."""
    if forward.current() is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    return forward.enter().level


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: duals made in it lose their tangents."""
    if forward.current() is None:
        raise RuntimeError("Trying to exit a forward AD level that was not the last one that was created")
    forward.leave()


class dual_level(_ContextDecorator):
    """A level of forward mode for a with block."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with `tangent` (of the same shape and type); RuntimeError outside a `dual_level`."""
    current = forward.current()
    if current is None:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    for what, x in (("primal", tensor), ("tangent", tangent)):
        if not (x.is_floating_point() or x.is_complex()):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {x.dtype}")
    if tangent.shape != tensor.shape:
        raise RuntimeError(
            f"Expected tangent to have the same shape as the primal, but got {list(tangent.shape)} and {list(tensor.shape)}"
        )
    if tangent.dtype is not tensor.dtype:
        raise RuntimeError(f"Expected tangent to have the same dtype as the primal, but got {tangent.dtype} and {tensor.dtype}")
    return forward.dual(tensor, tangent, current.level)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """(primal, tangent) of a tensor in the current level."""
    current = forward.current()
    if current is not None and current.holds(tensor):
        assert isinstance(tensor, forward.Dual)
        return UnpackedDualTensor(tensor.primal.view_as(tensor.primal), tensor.tangent)
    return UnpackedDualTensor(tensor, None)
