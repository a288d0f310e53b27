"""Histories of views: after an in-place change of a base (or of a view of it), every view's node is made anew from the
base's by replaying the view's chain."""

from __future__ import annotations

from typing import Any

from tocha.autograd.mode import state
from tocha.backends import geometry
from tocha.tensor import Tensor, View


def refresh(tensor: Tensor) -> None:
    """Bring `tensor._node` up to date if its base was changed in place since."""
    view = tensor._view
    if view is None or tensor._vc is None or view.version == tensor._vc.value:
        return
    if not view.base._rg or (view.base._node is None and tensor._rg is True and tensor._node is None):
        return
    if view.kind == "custom":
        raise RuntimeError(
            "A view returned by a custom autograd Function is used after the tensor it is a view of was modified inplace: the "
            "view's own backward no longer applies. Clone it in the Function's forward, or before the change."
        )
    mode, state.grad = state.grad, 1
    try:
        again = replay(view.base, view)
    except (RuntimeError, ValueError, IndexError):
        again = None
    finally:
        state.grad = mode
    if again is None or geometry(again._a) != geometry(tensor._a):
        raise RuntimeError(
            "A view is used after the tensor it is a view of took another shape in place (unsqueeze_, transpose_, resize_, …) and "
            "was modified: the view no longer says which elements are its own. Make the view again after the change."
        )
    tensor._node, tensor._nr = again._node, again._nr
    tensor._rg = again._rg
    view.version = tensor._vc.value


def replay(base: Tensor, view: View) -> Tensor:
    """The same view of another tensor of the base's shape."""
    out: Any = base
    for prim, params in view.chain:
        out = prim(out, **params)
    return out
