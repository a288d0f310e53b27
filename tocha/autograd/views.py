"""Histories of views: after an in-place change of a base (or of a view of it), every view's node is made anew from the
base's by replaying the view's chain."""

from __future__ import annotations

from typing import Any

from tocha.autograd.graph import Node, next_order
from tocha.autograd.mode import state
from tocha.backends import geometry, namespace
from tocha.backends.lazy import Lazy
from tocha.tensor import Tensor, View

_AMBIGUOUS = (
    "Given that this use case is ambiguous and error-prone, it is forbidden. Make the view and the in-place change both with gradients "
    "recorded, or both without."
)
_REFUSALS = {
    "no_grad": "A view was created in no_grad mode and {} with grad mode enabled. " + _AMBIGUOUS,
    "inference": "A view was created in inference mode and {} in normal mode. " + _AMBIGUOUS,
    "multi": "An output of a function that returns multiple views is a view and {}. Such functions do not allow the output views to be "
    "modified inplace. You should replace the inplace operation by an out-of-place one.",
    "custom": "A view was created inside a custom Function (or because an input was returned as-is) and {}. The autograd logic to handle "
    "view+inplace would override the custom backward associated with the custom Function, leading to incorrect gradients. Return a "
    "clone of it from the Function, or clone the output before changing it.",
}


def refusal(kind: str, change: str) -> str:
    """Why a view of this kind has no part in a recorded in-place `change`."""
    return _REFUSALS[kind].format(change)


def refresh(tensor: Tensor) -> None:
    """Bring `tensor._node` up to date if its base was changed in place since."""
    view = tensor._view
    if view is None or tensor._vc is None or view.version == tensor._vc.value:
        return
    if tensor._node is None and not view.base._rg:
        return
    if view.kind != "normal":
        raise RuntimeError(refusal(view.kind, "its base or another view of its base has been modified inplace"))
    if view.base._rg:
        again = _again(tensor, view)
        tensor._node, tensor._nr, tensor._rg = again._node, again._nr, again._rg
    else:  # its base was cut off by detach_
        tensor._node, tensor._nr = Severed(()), 0
    view.version = tensor._vc.value


def settle(tensor: Tensor) -> None:
    """Make the chain of a view lead to it again if its base or itself took another geometry in place."""
    if tensor._view is not None and tensor._vc is not None and tensor._vc.reshaped:
        _again(tensor, tensor._view)


def _again(tensor: Tensor, view: View) -> Tensor:
    """The view made anew: by its chain, or by its place in the storage where the chain leads elsewhere by now."""
    mode, state.grad = state.grad, 1
    try:
        own = geometry(tensor._a)
        try:
            again = replay(view.base, view)
        except (RuntimeError, ValueError, IndexError):
            again = None
        if (
            again is None
            or geometry(again._a) != own
            or again._a.dtype is not tensor._a.dtype
            or _pending(again._a) != _pending(tensor._a)
        ):
            view.chain = _by_place(tensor, view.base, own)
            again = replay(view.base, view)
        return again
    finally:
        state.grad = mode


def _pending(array: Any) -> tuple[bool, bool]:
    return (array.conj, array.neg) if array.__class__ is Lazy else (False, False)


def _by_place(tensor: Tensor, base: Tensor, own: Any) -> tuple[Any, ...]:
    from tocha.dispatch.prim import REGISTRY

    xp = namespace(tensor._a)
    plain = _pending(base._a) == _pending(tensor._a) == (False, False)
    same_memory = plain and namespace(base._a) is xp and xp.root(base._a) is xp.root(tensor._a)
    if not same_memory or base._a.dtype is not tensor._a.dtype:
        raise RuntimeError(
            "A view is used after the tensor it is a view of, or the view itself, was given other memory or another type in place "
            "(set_, resize_, .data = …) and was modified: the view is none of it any more. Make the view again after the change."
        )
    size, stride, offset, _ = own
    return ((REGISTRY["as_strided"], {"size": size, "stride": stride, "offset": offset}),)


def replay(base: Tensor, view: View) -> Tensor:
    """The same view of another tensor of the base's shape."""
    out: Any = base
    for prim, params in view.chain:
        out = prim(out, **params)
    return out


class Severed(Node):
    """History of a view whose base has none any more: no gradient flows."""

    __slots__ = ()

    def name(self) -> str:
        return "AsStridedBackward0"

    def apply(self, grad: Any) -> tuple[()]:
        return ()


def edge_of(tensor: Tensor) -> Node | Tensor | None:
    """Where a gradient of `tensor` (which requires grad) flows: its node, or the tensor itself if it is a leaf. Nowhere
    (None) from a view that requires grad only because its base does and was made without recording."""
    if tensor._view is not None:
        refresh(tensor)
        if tensor._node is None and tensor._rg is not True:
            return None
    node = tensor._node
    if node is not None:
        return node
    extra = tensor._extra
    if extra is not None and extra.post_accumulate and extra.first_use is None:
        extra.first_use = next_order()
    return tensor
