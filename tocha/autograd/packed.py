"""A saved tensor under saved-tensor hooks: what the pack hook made of it, and the history to give back on unpacking."""

from __future__ import annotations

from tocha.autograd.graph import Node
from tocha.autograd.mode import state
from tocha.dispatch.override import user_code
from tocha.tensor import Tensor, wrap


class Packed:
    """One saved tensor. `number` is its place among the node's outputs, None for an input."""

    __slots__ = ("edge", "number", "packed", "requires_grad", "unpack_hook")

    def __init__(self, tensor: Tensor, number: int | None) -> None:
        from tocha.autograd.views import edge_of

        pack, self.unpack_hook = state.saved_hooks[-1]
        self.requires_grad = bool(tensor._rg) if number is None else tensor._a.dtype.kind not in "biu"
        self.number = number if number is not None else tensor._nr
        # An output leads to the node that saved it, which is given on unpacking: holding it here would be a cycle.
        self.edge = edge_of(tensor) if number is None and self.requires_grad else None
        if number is None and self.edge is None:
            self.requires_grad = False
        given = tensor if number is None else tensor.detach()
        version = 0 if given._vc is None else given._vc.value
        mode, state.grad = state.grad, 0  # pack hooks see values, not history
        try:
            with user_code():
                self.packed = pack(given)
        finally:
            state.grad = mode
        if (0 if given._vc is None else given._vc.value) != version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as input to pack hook can not be "
                "modified by in-place operations as this can lead to unexpected side-effects. Please open an issue if you need to "
                "perform in-place operations on the input to a pack hook."
            )

    def unpack(self, node: Node) -> Tensor:
        """The tensor, with its history: differentiated again, it leads where the saved one did."""
        with user_code():
            tensor = self.unpack_hook(self.packed)
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"Output of saved tensor unpack_hook expected to be a Tensor but got result of type {type(tensor).__name__}"
            )
        if not self.requires_grad or tensor is self.edge:
            return tensor
        from tocha.dispatch.inplace import CopyBackwards

        edge = node if self.edge is None else self.edge
        out = wrap(tensor._a) if type(tensor) is Tensor else tensor.detach()
        out._rg, out._vc = True, tensor._vc
        out._node, out._nr = (edge, self.number) if isinstance(edge, Node) else (CopyBackwards((edge,), None), 0)
        return out
