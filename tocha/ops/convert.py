"""Between types, devices, memory orders and other libraries: to, clone, contiguous, copy_, item, numpy, DLPack."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import UNCOUNTED, version_of
from tocha.autograd.mode import state
from tocha.backends import device_of, for_device, namespace
from tocha.backends.lazy import Lazy
from tocha.backends.lent import lend
from tocha.device import channels_last, channels_last_3d, contiguous_format, preserve_format
from tocha.device import device as Device
from tocha.dispatch.inplace import assign, check_writable, store
from tocha.dispatch.overlap import check_in_place, has_history, one_memory
from tocha.dispatch.override import INTERPRETERS, PLAIN
from tocha.dispatch.prim import prim, record
from tocha.dispatch.registry import op
from tocha.dtypes import BY_NAME
from tocha.dtypes import dtype as DType
from tocha.ops.arguments import check_array, check_dtype, settle
from tocha.prims import move
from tocha.tensor import Tensor, wrap


@prim("to_device", "move", vjp=lambda g, *, source: _back(g, source), half="native", infer=lambda input, *, device, source: input)
def to_device(xp: Any, input: Any, *, device: Device, source: Device) -> Any:
    """A copy on another device, through the host."""
    target = for_device(device)
    if xp is target:
        return target.to_device(input, device.index)
    return target.from_host(xp.to_host(input), device.index)


def _back(g: Tensor, source: Device) -> Tensor:
    return to_device(g, device=source, source=g.device)


def _move(input: Tensor, device: Device) -> Tensor:
    here = input.device
    if here.type == device.type == "cuda" and device.index is None:
        device = namespace(input._a).current()
    if device.type == here.type and (device.type != "cuda" or device.index is None or device.index == here.index):
        return input
    if here.type == "meta":
        raise NotImplementedError("Cannot copy out of meta tensor; no data!")
    if device.type == "meta":
        return wrap(for_device(device).from_host(input._a))
    return to_device(input, device=device, source=here)


def _short_to(input: Any, to: Any = None, *more: Any) -> Tensor | None:
    """A plain tensor in CPU memory to a type, or the device that it has."""
    if more or input.__class__ not in PLAIN or input._a.__class__ is not np.ndarray:
        return None
    if to.__class__ is Tensor and to._a.__class__ is np.ndarray:
        return input if to._a.dtype is input._a.dtype else None
    if to.__class__ is DType:
        return input if to.np is input._a.dtype else settle(move.cast(input, dtype=to.np), input)
    return input if to.__class__ is str and to == "cpu" else None


@op("method", short=_short_to)
def to(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Another dtype and/or device; the tensor itself if nothing changes (torch docs: Tensor.to)."""
    dtype, device, copy, order = _read_to(args, kwargs)
    out = input
    if device is not None:
        out = _move(out, device)
    if dtype is not None and dtype.np is not out._a.dtype:
        out = settle(move.cast(out, dtype=dtype.np), out)
    if order is not None and order is not preserve_format:
        out = contiguous(out, memory_format=order)
    return clone(input) if copy and out is input else out


def _read_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[DType | None, Device | None, bool, Any]:
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    flags = []
    for a in args:
        if isinstance(a, DType) or a is float or a is int or a is bool or a is complex:
            dtype = a
        elif isinstance(a, (str, Device)) or (isinstance(a, int) and not isinstance(a, bool)):
            device = a
        elif isinstance(a, Tensor):
            dtype, device = a.dtype, a.device
        elif isinstance(a, bool):
            flags.append(a)
        elif a is not None:
            raise TypeError(f"to() received an invalid combination of arguments - got {type(a).__name__}")
    other = kwargs.get("other")
    if other is not None:
        dtype, device = other.dtype, other.device
    unknown = kwargs.keys() - {"dtype", "device", "copy", "non_blocking", "memory_format", "other"}
    if unknown:
        raise TypeError(f"to() got an unexpected keyword argument '{min(unknown)}'")
    copy = kwargs.get("copy", flags[1] if len(flags) > 1 else False)
    return check_dtype(dtype, "to"), None if device is None else Device(device), copy, kwargs.get("memory_format")


def _copied(input: Any, order: str) -> Tensor:
    """`move.clone` of few elements of a plain tensor."""
    out = wrap(input._a.copy(order))
    if input._rg and state.grad:
        record(move.clone, (input,), (out,), {"order": order})
    return out


def _short_clone(input: Any, *more: Any) -> Tensor | None:
    a = input._a if input.__class__ is Tensor and not more and not INTERPRETERS else None
    return _copied(input, "K") if a.__class__ is np.ndarray and a.flags.c_contiguous and a.size < 512 else None


@op("torch method", short=_short_clone)
def clone(input: Tensor, *, memory_format: Any = preserve_format) -> Tensor:
    """A copy, differentiable (torch docs: torch.clone)."""
    if memory_format in (channels_last, channels_last_3d):
        return _ordered(move.clone(input, order="C"), memory_format)
    dense = memory_format is preserve_format and 0 not in input._a.strides
    return settle(move.clone(input, order="K"), input) if dense else move.clone(input, order="C")


def _short_contiguous(input: Any, *order: Any) -> Tensor | None:
    if order or input.__class__ not in PLAIN or input._a.__class__ is not np.ndarray:
        return None
    if input._a.flags.c_contiguous:
        return input
    return _copied(input, "C") if input._a.size < 512 and input.__class__ is Tensor and not INTERPRETERS else None


@op("method", short=_short_contiguous)
def contiguous(input: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself if its strides are row-major (or channels-last if asked), else a copy that has them."""
    if is_contiguous(input, memory_format):
        return input
    if memory_format in (channels_last, channels_last_3d):
        return _ordered(input, memory_format)
    return move.clone(input, order="C")


def _ordered(input: Tensor, memory_format: Any) -> Tensor:
    """A copy with channels innermost in memory."""
    n = 4 if memory_format is channels_last else 5
    if input.ndim != n:
        raise RuntimeError(f"required rank {n} tensor to use {memory_format.name} format")
    last = (0, *range(2, n), 1)
    return move.clone(input.permute(last), order="C").permute(0, n - 1, *range(1, n - 1))


@op("method")
def is_contiguous(input: Tensor, memory_format: Any = contiguous_format) -> bool:
    """Whether memory order is row-major (or channels-last)."""
    a = input._a
    shape, strides = a.shape, a.strides
    if memory_format in (channels_last, channels_last_3d):
        n = 4 if memory_format is channels_last else 5
        if len(shape) != n:
            return False
        order = (0, *range(2, n), 1)
        shape, strides = tuple(shape[i] for i in order), tuple(strides[i] for i in order)
    if 0 in shape:
        return True
    step = a.dtype.itemsize
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if s != step:
                return False
            step *= n
    return True


def _short_copy(input: Any, src: Any = None, *more: Any) -> Tensor | None:
    """Between plain tensors of one type and shape, nothing recorded."""
    if more or input.__class__ not in PLAIN or src.__class__ not in PLAIN or INTERPRETERS or input._vc is UNCOUNTED:
        return None
    a, b = input._a, src._a
    if not a.__class__ is b.__class__ is np.ndarray or a.dtype is not b.dtype or a.shape != b.shape or not a.flags.writeable:
        return None
    if (state.grad and (src._rg or has_history(input))) or one_memory(a, b) or 0 in a.strides:
        return None
    store(a, b)
    version_of(input).bump("copy_")
    return input


@op("method", short=_short_copy)
def copy_(input: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Copy src's values, broadcast and cast, into this tensor (torch docs: Tensor.copy_)."""
    check_writable(input, "copy_")
    if not isinstance(src, Tensor):
        from tocha.ops.creation import tensor

        src = tensor(src)
    check_in_place("copy_", input, (src,))
    value = _move(src, input.device) if input.device.type != "meta" else input.new_empty(src.shape)
    value = value if value._a.dtype is input._a.dtype else to(value, input.dtype)
    if value._a.shape != input._a.shape:
        value = value.expand(input.shape)
    return assign(input, value, "copy_")


def _cast_method(name: str, dtype: DType | None) -> None:
    def method(input: Tensor, memory_format: Any = preserve_format) -> Tensor:
        return to(input, dtype)

    short = lambda x, *more: None if more else _short_to(x, dtype)  # noqa: E731
    op("method", name=name, short=short, doc=f"`to(torch.{dtype.name})`." if dtype else "")(method)


for _alias, _dtype in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "long": dtypes.int64, "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool_, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
}.items():  # fmt: skip
    _cast_method(_alias, _dtype)


@op("method", short=_short_to)
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """`to` the dtype and device of `other`."""
    return to(input, other)


_LEGACY_TYPES = {
    "FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64, "HalfTensor": dtypes.float16,
    "BFloat16Tensor": dtypes.bfloat16, "LongTensor": dtypes.int64, "IntTensor": dtypes.int32, "ShortTensor": dtypes.int16,
    "CharTensor": dtypes.int8, "ByteTensor": dtypes.uint8, "BoolTensor": dtypes.bool_,
}  # fmt: skip


@op("method")
def type(input: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The legacy type's name, or the tensor cast to a dtype (or legacy type) (torch docs: Tensor.type)."""
    if dtype is None:
        name = next((k for k, v in _LEGACY_TYPES.items() if v is input.dtype), f"{input.dtype.name}Tensor")
        return f"torch.{'cuda.' if input.is_cuda else ''}{name}"
    if isinstance(dtype, str):
        name = dtype.rpartition(".")[2]
        if (found := _LEGACY_TYPES.get(name) or BY_NAME.get(name)) is None:
            raise ValueError(f"invalid type: {dtype!r}")
        dtype = found
    return to(input, getattr(dtype, "dtype", dtype))


@op("method")
def cpu(input: Tensor, memory_format: Any = preserve_format) -> Tensor:
    """A copy in CPU memory (itself if there already)."""
    return _move(input, Device("cpu"))


@op("method")
def cuda(input: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = preserve_format) -> Tensor:
    """A copy in GPU memory (itself if there already)."""
    return _move(input, Device("cuda") if device is None else Device(device))


# ---- to Python and NumPy


def _short_item(input: Any, *more: Any) -> Any:
    if more or input.__class__ not in PLAIN:
        return None
    a = input._a
    return a.item() if a.__class__ is np.ndarray and a.size == 1 and a.dtype.char in "fdl?" else None


@op("method", short=_short_item)
def item(input: Tensor) -> Any:
    """The value of a one-element tensor as a Python number (torch docs: Tensor.item)."""
    a = input._a
    if a.size != 1:
        raise RuntimeError(f"a Tensor with {a.size} elements cannot be converted to Scalar")
    value = namespace(a).to_host(a).item()
    return float(value) if not isinstance(value, (bool, int, float, complex)) else value


@op("method")
def tolist(input: Tensor) -> Any:
    """Nested lists of Python numbers; a number for a 0-d tensor."""
    a = namespace(input._a).to_host(input._a)
    return (a.astype(np.float32) if a.dtype in dtypes.HALF_NP else a).tolist()


@op("method")
def numpy(input: Tensor, *, force: bool = False) -> Any:
    """A NumPy array sharing the memory (torch docs: Tensor.numpy)."""
    if force:
        return namespace(input._a).to_host(input.detach()._a)
    if state.grad and input._rg:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    if device_of(input._a).type != "cpu":
        raise TypeError(
            f"can't convert {input.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
        )
    if input._a.__class__ is Lazy:
        mark, short = ("conjugate", "conj") if input._a.conj else ("negative", "neg")
        raise RuntimeError(f"Can't call numpy() on Tensor that has {mark} bit set. Use tensor.resolve_{short}().numpy() instead.")
    if input._a.dtype in dtypes.HALF_NP and input.dtype is not dtypes.float16:
        raise TypeError(f"Got unsupported ScalarType {input.dtype.name}")
    return namespace(input._a).to_host(input._a)


@op("method")
def __array__(input: Tensor, dtype: Any = None, copy: bool | None = None) -> Any:
    """NumPy's conversion protocol."""
    a = numpy(input)
    if dtype is not None and np.dtype(dtype) != a.dtype:
        return a.astype(dtype)
    return a.copy() if copy else a


@op("property")
def __array_interface__(input: Tensor) -> Any:
    """NumPy's array interface: consumers share the memory. Refused where `numpy()` is."""
    return numpy(input).__array_interface__


@op("method")
def __array_wrap__(input: Tensor, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What NumPy's functions on tensors return: tensors on the arrays they computed."""
    array = np.asarray(array)
    return from_numpy(array.view(np.uint8) if array.dtype.kind == "b" else array)  # bools become uint8, as in torch


def _cuda_array_interface(input: Tensor) -> dict[str, Any]:
    """The protocol by which CUDA libraries see each other's arrays; AttributeError elsewhere, as in torch."""
    if device_of(input._a).type != "cuda":
        raise AttributeError(
            f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {input.type()} If CUDA data is required use tensor.cuda() "
            "to copy tensor to device memory."
        )
    if input._rg:
        raise RuntimeError(
            "Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, use var.detach() to get "
            "Variable that doesn't require grad."
        )
    return input._a.__cuda_array_interface__


Tensor.__cuda_array_interface__ = property(_cuda_array_interface)  # type: ignore[attr-defined]


@op("method")
def __dlpack_device__(input: Tensor) -> tuple[int, int]:
    """DLPack's device pair (1 CPU, 2 CUDA)."""
    if input.is_meta:
        raise ValueError("__dlpack_device__: DLPack has no device type for meta tensors")
    return input._a.__dlpack_device__()


@op("method")
def __dlpack__(input: Tensor, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
    """A DLPack capsule on the tensor's memory; tensors that require grad are refused, as in torch."""
    if input._rg:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if input._a.__class__ is Lazy:
        raise BufferError("Can't export tensors with the conjugate or negative bit set, use tensor.resolve_conj().resolve_neg()")
    if input.is_meta:
        raise BufferError("__dlpack__: can't export a meta tensor, which has no data")
    options = {k: v for k, v in (("max_version", max_version), ("dl_device", dl_device), ("copy", copy)) if v is not None}
    if device_of(input._a).type == "cuda":
        return input._a.__dlpack__(stream=stream, **options)
    return input._a.__dlpack__(**options)


def from_numpy(array: Any) -> Tensor:
    """A tensor sharing the NumPy array's memory (torch docs: torch.from_numpy)."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {array.__class__.__name__})")
    check_array(array)
    dtype = dtypes.from_numpy(array.dtype)
    if array.dtype is not dtype.np:
        array = array.view(dtype.np)
    if array.__class__ is not np.ndarray:
        array = array.view(np.ndarray)
    lend(array)
    return wrap(array)


op("torch")(from_numpy)


@op("torch")
def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor sharing memory with any object that speaks DLPack (torch docs: torch.from_dlpack)."""
    if isinstance(ext_tensor, Tensor):
        return ext_tensor.detach()
    if ext_tensor.__class__.__name__ == "PyCapsule":
        ext_tensor = _Capsule(ext_tensor)
        if not ext_tensor.name.startswith(('<capsule object "dltensor', '<capsule object "dltensor_versioned')):
            raise RuntimeError(
                "from_dlpack received an invalid capsule: a DLTensor capsule can be consumed only once, and a tensor may have been "
                "made from this one already"
            )
    if not hasattr(ext_tensor, "__dlpack_device__"):
        raise RuntimeError(
            f"from_dlpack expected a DLPack capsule or an object with __dlpack__, got {ext_tensor.__class__.__name__}"
        )
    if ext_tensor.__dlpack_device__()[0] == 1:
        array = np.from_dlpack(ext_tensor)
        if not array.flags.writeable and isinstance(ext_tensor, _Capsule) and '"dltensor"' in ext_tensor.name:
            array = np.asarray(_Writable(array))
        return wrap(array) if array.flags.writeable else from_numpy(array)
    from tocha.backends import cuda

    return wrap(cuda.from_dlpack(ext_tensor))


@op("torch")
def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor sharing the memory of an object with the buffer protocol (torch docs: torch.frombuffer)."""
    kind = check_dtype(dtype, "frombuffer") or dtypes.get_default_dtype()
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    if not view.c_contiguous:
        raise RuntimeError("could not retrieve buffer from object: its elements are not contiguous")
    length, size = view.nbytes, kind.itemsize
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} bytes) minus 1"
        )
    if count < 0:
        if (length - offset) % size:
            raise ValueError(
                f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a multiple of "
                f"element size ({size})"
            )
        count = (length - offset) // size
    elif offset + count * size > length:
        raise ValueError(
            f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be greater "
            f"than actual buffer length ({length} bytes)"
        )
    if view.readonly:
        warnings.warn(
            "The given buffer is not writable: writing into the tensor will fail. Copy the buffer first if the tensor "
            "has to be changed.",
            stacklevel=2,
        )
    tensor = wrap(np.frombuffer(buffer, dtype=kind.np, count=count, offset=offset))
    return tensor.requires_grad_() if requires_grad else tensor


class _Capsule:
    """A bare DLPack capsule of CPU memory, dressed as an object that speaks the protocol."""

    def __init__(self, capsule: Any) -> None:
        self.capsule, self.name = capsule, repr(capsule)  # using it renames it

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **unused: Any) -> Any:
        return self.capsule


class _Writable:
    """The memory of an array that NumPy locks: capsules from before DLPack 1.0 cannot say that they may be written to."""

    def __init__(self, array: Any) -> None:
        have = array.__array_interface__
        self.array, self.__array_interface__ = array, {**have, "data": (have["data"][0], False)}


@op("torch")
def to_dlpack(tensor: Tensor) -> Any:
    """A DLPack capsule on the tensor's memory (torch docs: torch.utils.dlpack.to_dlpack)."""
    return tensor.__dlpack__()


def set_values(target: Tensor, array: Any) -> None:
    """Overwrite a tensor's values from a NumPy array of its shape (no history; random numbers use it)."""
    values = array.astype(target._a.dtype, copy=False)
    store(target._a, namespace(target._a).from_host(values, target.device.index))
