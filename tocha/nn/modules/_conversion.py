"""Moving and casting the tensors of a module: `to`, `cuda`, `half`, `to_empty` and their common `_apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import tocha
from tocha.nn.parameter import Parameter, is_lazy


def _can_set_data(old: Any, new: Any) -> bool:
    """Whether `old.data = new` is possible: not across the meta device or tensor classes."""
    if is_lazy(old):
        return True
    plain = (tocha.Tensor, Parameter)
    return type(old) in plain and type(new) in plain and old.is_meta == new.is_meta


class ConvertibleModule:
    """The part of `Module` that changes dtype, device or memory format of all its tensors in place."""

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        """Replace parameters, their gradients and buffers by `fn` of them; parameters keep their identity."""
        if recurse:
            for child in self.children():  # type: ignore[attr-defined]
                child._apply(fn)
        for name, param in self._parameters.items():  # type: ignore[attr-defined]
            if param is not None:
                self._apply_to_parameter(name, param, fn)
        for name, buf in self._buffers.items():  # type: ignore[attr-defined]
            if buf is not None:
                self._buffers[name] = fn(buf)  # type: ignore[attr-defined]
        return self

    def _apply_to_parameter(self, name: str, param: Any, fn: Callable[[Any], Any]) -> None:
        with tocha.no_grad():
            new = fn(param)
        grad = param.grad
        if _can_set_data(param, new):
            param.data = new
            target = param
        else:
            target = Parameter(new, requires_grad=param.requires_grad)
            self._parameters[name] = target  # type: ignore[attr-defined]
        if grad is None:
            return
        with tocha.no_grad():
            new_grad = fn(grad)
        if target is param and _can_set_data(grad, new_grad):
            # the dtype of `.grad` must follow its parameter, so it is detached while it changes
            param.grad = None
            grad.data = new_grad
            param.grad = grad
        else:
            target.grad = new_grad.requires_grad_(grad.requires_grad)

    def cuda(self, device: Any = None) -> Self:
        """Move all parameters and buffers to the GPU."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self) -> Self:
        """Move all parameters and buffers to the CPU."""
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type: Any) -> Self:
        """Cast all parameters and buffers to `dst_type`."""
        return self._apply(lambda t: t.type(dst_type))

    def _cast_floating(self, dtype: Any) -> Self:
        return self._apply(lambda t: t.to(dtype) if t.is_floating_point() else t)

    def float(self) -> Self:
        """Cast floating-point parameters and buffers to float32."""
        return self._cast_floating(tocha.float32)

    def double(self) -> Self:
        """Cast floating-point parameters and buffers to float64."""
        return self._cast_floating(tocha.float64)

    def half(self) -> Self:
        """Cast floating-point parameters and buffers to float16."""
        return self._cast_floating(tocha.float16)

    def bfloat16(self) -> Self:
        """Cast floating-point parameters and buffers to bfloat16."""
        return self._cast_floating(tocha.bfloat16)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Move to `device` without copying values: uninitialised tensors of the same shapes."""
        return self._apply(lambda t: tocha.empty_like(t, device=device), recurse=recurse)

    def share_memory(self) -> Self:
        """Put all parameters and buffers into shared memory (`Tensor.share_memory_`)."""
        return self._apply(lambda t: t.share_memory_())

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move or cast in place: `to(device, dtype, non_blocking)`, `to(dtype)`, `to(tensor)`,
        `to(memory_format=)`.

        Only floating-point and complex tensors are cast. Raises TypeError for another `dtype`.
        """
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")

        def convert(t: Any) -> Any:
            cast = dtype if t.is_floating_point() or t.is_complex() else None
            if t.is_meta and device is not None and device.type != "meta":
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use torch.nn.Module.to_empty() instead "
                    "of "
                    "torch.nn.Module.to() when moving module from meta to a different device."
                )
            if memory_format is not None and t.dim() in (4, 5):
                return t.to(device, cast, non_blocking, memory_format=memory_format)
            return t.to(device, cast, non_blocking)

        return self._apply(convert)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the overloads of `Tensor.to` without `copy`."""
    device, dtype, tensor = kwargs.pop("device", None), kwargs.pop("dtype", None), kwargs.pop("tensor", None)
    non_blocking = kwargs.pop("non_blocking", False)
    memory_format = kwargs.pop("memory_format", None)
    rest = list(args)
    if rest and isinstance(rest[0], tocha.Tensor):
        tensor = rest.pop(0)
    elif rest and isinstance(rest[0], tocha.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], tocha.dtype)):
            dtype = rest.pop(0)
    if rest and isinstance(rest[0], bool):
        non_blocking = rest.pop(0)
    if rest or kwargs:
        got = ", ".join(type(a).__name__ for a in args)
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({got}), but expected one of:\n"
            " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, "
            "*, torch.memory_format memory_format = None)\n"
            " * (torch.dtype dtype, bool non_blocking = False, *, torch.memory_format memory_format = None)\n"
            " * (Tensor tensor, bool non_blocking = False, *, torch.memory_format memory_format = None)"
        )
    if tensor is not None:
        device, dtype = tensor.device, tensor.dtype
    if device is not None and not isinstance(device, tocha.device):
        device = tocha.device(device)
    return device, dtype, non_blocking, memory_format
