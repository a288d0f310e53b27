"""Views in place: the tensor itself takes another shape and strides over its memory (unsqueeze_, transpose_, …)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.autograd.graph import version_of
from tocha.dispatch.inplace import check_history
from tocha.dispatch.registry import op
from tocha.ops import shape
from tocha.tensor import Tensor


def _inplace_view(name: str, view: Callable[..., Tensor], spellings: str = "method") -> None:
    def change(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_history(input, name, input._rg)
        out = view(input, *args, **kwargs)
        input._a = out._a
        if out._node is not None:
            input._node, input._nr = out._node, out._nr
        if input._view is not None:
            input._view = out._view
        version = version_of(input)
        version.reshaped = True
        version.bump(name)
        return input

    change.__name__ = name
    change.__doc__ = f"`{name[:-1]}` in place (torch docs: Tensor.{name})."
    op(spellings, name=name)(change)


for _name in ("squeeze", "t", "transpose", "unsqueeze"):
    _inplace_view(_name + "_", getattr(shape, _name))
for _name in ("swapaxes_", "swapdims_"):
    _inplace_view(_name, shape.transpose)
_inplace_view("as_strided_", shape.as_strided, "torch method")
