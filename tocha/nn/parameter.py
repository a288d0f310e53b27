"""Parameters and buffers of modules, also ones without a shape yet (torch docs: torch.nn.parameter)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tocha
from tocha.dispatch.override import FUNCTION_MODES, DisableTorchFunctionSubclass, disabled_torch_function
from tocha.tensor import Tensor

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class _ParameterMeta(type):
    """Makes instances of tensor subclasses that were wrapped by `Parameter` count as parameters."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that, assigned as an attribute of a module, is registered as one of its parameters.

    Shares the memory of `data`. A `data` of a tensor subclass keeps its class. RuntimeError if gradients
    are asked of an integer tensor.
    """

    __slots__ = ()
    __torch_function__ = disabled_torch_function  # type: ignore[assignment]

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Any:
        if data is None:
            data = tocha.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter: data must be a Tensor, but got {type(data).__name__}")
        param = data.detach().requires_grad_(requires_grad)
        if type(param) is not type(data):
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that "
                "detach() returns "
                f"an instance of the same type, but return type {type(param).__name__} was found instead. "
                "To use the "
                "type as a Parameter, please correct the detach() semantics defined by its "
                "__torch_dispatch__() "
                "implementation."
            )
        param._is_param = True  # type: ignore[attr-defined]
        return param

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copy = type(self)(self.data.clone(memory_format=tocha.preserve_format), self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return "Parameter containing:\n" + super().__repr__()


#: Tensor methods that an uninitialised parameter allows: they need no shape.
_WITHOUT_SHAPE = frozenset(
    "__hash__ copy_ is_complex is_floating_point half float double bfloat16 char short int long cuda cpu to "
    "type "
    "get_device requires_grad_ share_memory_ is_shared empty_like detach __repr__".split()
)


def gradients(params: Iterable[Any]) -> list[Any]:
    """`grad` of each tensor."""
    if FUNCTION_MODES:
        return [p.grad for p in params]
    return [p._grad if p.__class__ is Parameter and p._node is None else p.grad for p in params]


def zero_gradients(params: Iterable[Any], set_to_none: bool) -> None:
    """Drop the gradients of tensors, or fill them with zeros in place and forget their history."""
    params, kept = list(params), []
    for p, grad in zip(params, gradients(params), strict=True):
        if grad is None:
            continue
        if set_to_none:
            if p.__class__ is Parameter and not FUNCTION_MODES:
                p._grad = None
            else:
                p.grad = None
            continue
        if grad.__class__ is not tocha.Tensor or grad._rg or grad._node is not None:  # asking properties takes long
            if grad.grad_fn is not None:
                grad.detach_()
            elif grad.requires_grad:
                grad.requires_grad_(False)
        kept.append(grad)
    if kept:
        tocha._foreach_zero_(kept)


class UninitializedTensorMixin:
    """A tensor with dtype and device but no shape, until :meth:`materialize` gives it one."""

    __slots__ = ()
    cls_to_become: type

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Get uninitialised memory of `shape`; dtype and device as they were unless given."""
        data = self.data  # type: ignore[has-type]
        self.data = tocha.empty(shape, device=device or data.device, dtype=dtype or data.dtype)  # type: ignore[misc]
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call "
            "`forward` to initialize the parameters before accessing their attributes."
        )

    def share_memory_(self) -> Any:
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the "
            "parameters "
            "before calling `module.share_memory()`."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, proto: Any) -> Any:
        return type(self), (self.requires_grad, self.data.device, self.data.dtype)  # type: ignore[attr-defined]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in _WITHOUT_SHAPE or name in ("__get__", "__set__", "__delete__"):
            with DisableTorchFunctionSubclass():
                return func(*(args if name.startswith("__") else map(_plain, args)), **(kwargs or {}))
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. This error happens when you are using a "
            "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. "
            "When using "
            "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling "
            "torch functions"
        )


def _plain(value: Any) -> Any:
    return value.data if is_lazy(value) else value


def is_lazy(value: Any) -> bool:
    """Whether `value` is a parameter or buffer without a shape."""
    return isinstance(value, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter whose shape is not known yet."""

    cls_to_become = Parameter
    __slots__ = ()

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        data = tocha.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        copy = type(self)(self.requires_grad, self.data.device, self.data.dtype)
        memo[id(self)] = copy
        return copy


class _BufferMeta(type):
    """Makes tensors marked by `Buffer` count as its instances."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A tensor that a module registers as a buffer, persistent or not, when it is assigned to it."""

    __slots__ = ()

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = tocha.empty(0)
        buffer = data.detach().requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer


class UninitializedBuffer(UninitializedTensorMixin, Tensor):  # type: ignore[misc]
    """A buffer whose shape is not known yet."""

    cls_to_become = Tensor
    __slots__ = ()

    def __new__(cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True) -> Any:
        data = tocha.empty(0, device=device, dtype=dtype)
        buffer = Tensor._make_subclass(cls, data, requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer
