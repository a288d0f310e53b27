"""Views in place: the tensor itself takes another shape and strides over its memory (unsqueeze_, transpose_, …)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.autograd.graph import Node
from tocha.dispatch.inplace import check_writable
from tocha.dispatch.override import Hollow, elements
from tocha.dispatch.registry import op
from tocha.ops import shape
from tocha.ops.memory import book
from tocha.tensor import Tensor


class Turned(Node):
    """History of a tensor that took another shape while nothing was recorded: its gradient has the new one, and the node that
    made it wants the old."""

    __slots__ = ("shape",)

    def __init__(self, edges: Any, numbers: Any, shape: tuple[int, ...]) -> None:
        super().__init__(edges, numbers)
        self.shape = shape

    def apply(self, grad: Any) -> tuple[Tensor]:
        have, shape = tuple(grad.shape), self.shape
        lead = len(have) - len(shape)
        if lead < 0 or any(w not in (1, h) for w, h in zip(shape, have[lead:], strict=True)):
            raise RuntimeError(
                f"backward got an invalid gradient - got {list(have)} but expected shape compatible with {list(shape)}: a tensor of this "
                "shape was given another in place under no_grad. Do that where gradients are recorded"
            )
        return (grad.sum_to_size(shape),)


def take(input: Tensor, out: Tensor, name: str) -> None:
    """Give a tensor, and those inside it that it stands for, the geometry and history of `out`, a view of it."""
    shape, input._a = input._a.shape, out._a
    if isinstance(input, Hollow):  # the values of all examples; primal and tangent
        for part in input.__dict__.keys() & {"inner", "tangent"}:
            take(getattr(input, part), getattr(out, part), name)
        return
    if out._node is not None:
        input._node, input._nr = out._node, out._nr
    elif input._node is not None and out._a.shape != shape:
        input._node, input._nr = Turned((input._node,), (input._nr,) if input._nr else None, shape), 0
    if input._view is not None:
        kind, input._view = input._view.kind, out._view
        if input._view is not None:
            input._view.kind = kind  # how the view was made, not how it was turned
    book(input, name)


def _inplace_view(name: str, view: Callable[..., Tensor], spellings: str = "method") -> None:
    def change(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(input, name, one_value=True)  # elements that share memory are no matter
        if view is shape.as_strided and elements(input).ndim != input._a.ndim:  # of a batch it is a copy
            raise RuntimeError(f"{name} can't be used inside vmap on a mapped tensor; use as_strided, which returns the result")
        take(input, view(input, *args, **kwargs), name)
        return input

    op(spellings, name=name, doc=f"`{name[:-1]}` in place (torch docs: Tensor.{name}).")(change)


for _name in ("squeeze", "t", "transpose", "unsqueeze", "swapaxes", "swapdims"):
    _inplace_view(_name + "_", getattr(shape, _name, shape.transpose))  # the last two are other names of it
_inplace_view("as_strided_", shape.as_strided, "torch method")
