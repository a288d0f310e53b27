"""Tensors to pickles and back: the reduce functions, and the functions that saved files name.

Files written by torch call `torch._utils._rebuild_tensor_v2` and its kin; they resolve to the functions here.
"""

from __future__ import annotations

import copyreg
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tocha import dtypes
from tocha.backends import meta, namespace
from tocha.backends.lazy import Lazy, lazy, resolved
from tocha.device import (
    META,
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    preserve_format,
    sparse_coo,
    sparse_csr,
    strided,
)
from tocha.dtypes import dtype
from tocha.storage import STORAGE_NAMES, TypedStorage, UntypedStorage, storage_of, view_bytes
from tocha.tensor import Tensor, wrap, wrap_as


class _Mode(threading.local):
    """`saving` is set while `save` pickles: only then do pickles name torch's functions and classes."""

    saving = False


mode = _Mode()
_LAYOUTS = {
    f"torch.{known.name}": known
    for known in (
        strided,
        sparse_coo,
        sparse_csr,
        contiguous_format,
        preserve_format,
        channels_last,
        channels_last_3d,
    )
}
Geometry = tuple[UntypedStorage, int, tuple[int, ...], tuple[int, ...]]


# ---- taking tensors apart


def geometry(tensor: Tensor) -> Geometry:
    """Storage, offset, size and stride (in elements) of a tensor, from which `view_bytes` makes it again.

    An array that torch can't describe (negative or fractional strides) is copied first.
    """
    array = tensor._a.raw if tensor._a.__class__ is Lazy else tensor._a
    width = array.dtype.itemsize
    size = tuple(array.shape)
    if array.size and any(s < 0 or s % width for n, s in zip(size, array.strides) if n > 1):
        array = array.copy(order="C")
    storage = storage_of(array)
    if isinstance(array, meta.MetaArray):
        start = array.offset
    else:
        start = namespace(array).data_ptr(array) - storage.data_ptr()
    if start % width:
        array, start = array.copy(order="C"), 0
        storage = storage_of(array)
    dense = meta.contiguous_strides(size, width)
    if not array.size:
        start = start if 0 <= start <= len(storage) else 0
        return storage, start // width, size, tuple(s // width for s in dense)
    stride = tuple((s if n > 1 else d) // width for n, s, d in zip(size, array.strides, dense))
    return storage, start // width, size, stride


def reduce_tensor(tensor: Tensor, protocol: int) -> tuple[Any, ...]:
    """`Tensor.__reduce_ex__`: torch's rebuild functions inside `save`, tocha's own in a plain pickle."""
    from tocha.nn.parameter import Parameter

    kind, state = type(tensor), _state_of(tensor)
    if not mode.saving:
        if tensor._a.__class__ is Lazy:
            tensor = _with_values(tensor)
        storage, offset, size, stride = geometry(tensor)
        tag = None if kind is Tensor else "Parameter" if kind is Parameter else kind
        return _restore, (tag, storage, tensor.dtype.name, offset, size, stride, tensor.requires_grad, state)
    if issubclass(kind, Parameter):
        base = wrap(tensor._a)
        if not state:
            return _rebuild_parameter, (base, tensor.requires_grad, OrderedDict())
        return _rebuild_parameter_with_state, (base, tensor.requires_grad, OrderedDict(), state)
    function, arguments = _reduce_plain(tensor)
    if kind is Tensor and not state:
        return function, arguments
    return _rebuild_from_type_v2, (function, kind, arguments, state)


def _with_values(tensor: Tensor) -> Tensor:
    """A leaf with pending conjugation or negation done."""
    out = wrap(resolved(tensor._a))
    out.requires_grad = tensor.requires_grad
    return out


def _state_of(tensor: Tensor) -> Any:
    """Python attributes: a dict, or a pair of dicts where the class has slots of its own."""
    attributes = dict(tensor.__dict__)
    slots = {
        name: getattr(tensor, name)
        for name in copyreg._slotnames(type(tensor))  # type: ignore[attr-defined]
        if name not in Tensor.__slots__ and hasattr(tensor, name)
    }
    return (attributes, slots) if slots else attributes


def _reduce_plain(tensor: Tensor) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    storage, offset, size, stride = geometry(tensor)
    kind = tensor.dtype
    if storage.device == META:
        return _rebuild_meta_tensor_no_storage, (kind, size, stride, tensor.requires_grad)
    if kind in STORAGE_NAMES:
        typed = TypedStorage(wrap_storage=storage, dtype=kind)
        return _rebuild_tensor_v2, (typed, offset, size, stride, tensor.requires_grad, OrderedDict(), *_marks(tensor))
    return _rebuild_tensor_v3, (storage, offset, size, stride, tensor.requires_grad, OrderedDict(), kind, *_marks(tensor))


def _marks(tensor: Tensor) -> tuple[dict[str, bool], ...]:
    """What is pending on a tensor's elements, as torch's files say it: torch takes a mark that is there for set, whatever its
    value. Nothing for almost all."""
    a = tensor._a
    return ({mark: True for mark in ("conj", "neg") if getattr(a, mark)},) if a.__class__ is Lazy else ()


# ---- putting them together (names and argument order are torch's file format)


def _rebuild_tensor(storage: Any, storage_offset: int, size: Any, stride: Any) -> Tensor:
    return wrap(view_bytes(_untyped(storage), storage.dtype, storage_offset, size, stride))


def _rebuild_tensor_v2(
    storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:  # fmt: skip
    return _finish(_rebuild_tensor(storage, storage_offset, size, stride), requires_grad, metadata)


def _rebuild_tensor_v3(
    storage: Any, storage_offset: int, size: Any, stride: Any, requires_grad: bool, backward_hooks: Any,
    dtype: dtype, metadata: Any = None,
) -> Tensor:  # fmt: skip
    array = view_bytes(_untyped(storage), dtype, storage_offset, size, stride)
    return _finish(wrap(array), requires_grad, metadata)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Any:
    from tocha.nn.parameter import Parameter

    out = wrap_as(Parameter, _tensor(data)._a)
    out.requires_grad = bool(requires_grad)
    return out


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    out = _rebuild_parameter(data, requires_grad, backward_hooks)
    _set_state(out, state)
    return out


def _rebuild_from_type_v2(func: Callable[..., Any], new_type: type, args: tuple[Any, ...], state: Any) -> Any:
    out = func(*args)
    if type(out) is not new_type:
        requires_grad = out.requires_grad
        out = wrap_as(new_type, _tensor(out)._a)
        out.requires_grad = requires_grad
    if getattr(new_type, "__setstate__", Tensor.__setstate__) is not Tensor.__setstate__:
        out.__setstate__(state)
    else:
        _set_state(out, state)
    return out


def _rebuild_meta_tensor_no_storage(dtype: dtype, size: Any, stride: Any, requires_grad: bool) -> Tensor:
    width = dtype.itemsize
    reach = sum((n - 1) * s for n, s in zip(size, stride)) + 1 if 0 not in size else 0
    storage = UntypedStorage(max(reach, 0) * width, device=META)
    return _finish(wrap(view_bytes(storage, dtype, 0, size, stride)), requires_grad, None)


def _refuse(what: str) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise RuntimeError(f"the file holds a {what}, which tocha has no type for; convert it to a dense tensor before saving")

    return refuse


REFUSED = {
    "_rebuild_sparse_tensor": _refuse("sparse tensor"),
    "_rebuild_qtensor": _refuse("quantized tensor"),
    "_rebuild_nested_tensor": _refuse("nested tensor"),
    "_rebuild_wrapper_subclass": _refuse("tensor subclass without storage"),
    "_rebuild_device_tensor_from_numpy": _refuse("tensor of another accelerator"),
    "_rebuild_device_tensor_from_cpu_tensor": _refuse("tensor of another accelerator"),
}


def _get_layout(name: str) -> layout:
    found = _LAYOUTS.get(name)
    if found is None:
        raise RuntimeError(f"the file names a layout {name!r} that tocha does not have")
    return found


def _untyped(storage: Any) -> UntypedStorage:
    if not isinstance(storage, (TypedStorage, UntypedStorage)):
        raise TypeError(f"a tensor needs a storage, got {type(storage).__name__}")
    return storage.untyped()


def _tensor(value: Any) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"expected a tensor, got {type(value).__name__}")
    return value


def _finish(tensor: Tensor, requires_grad: bool, metadata: Any) -> Tensor:
    for mark, present in (metadata or {}).items():
        if mark not in ("conj", "neg"):
            raise RuntimeError(f"the file marks a tensor as {mark!r}, which tocha does not know")
        if present:
            tensor = wrap(lazy(tensor._a, **{mark: True}))
    if requires_grad:
        tensor.requires_grad = True
    return tensor


def _set_state(target: Any, state: Any) -> None:
    attributes, slots = state if isinstance(state, tuple) else (state, {})
    target.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def set_tensor_state(tensor: Tensor, state: Any) -> None:
    """`Tensor.__setstate__`: attributes, or the (storage, offset, size, stride) of the oldest files."""
    if isinstance(state, tuple) and len(state) == 4:
        tensor._a = _rebuild_tensor(*state)._a
        return
    if isinstance(state, tuple) and len(state) == 5:
        data, requires_grad, _ = state[0], state[3], state[4]
        tensor._a = _tensor(data)._a
        tensor.requires_grad = bool(requires_grad)
        return
    _set_state(tensor, state)


# ---- plain pickles (pickle.dumps, multiprocessing)


def _restore(tag: Any, storage: Any, kind: str, offset: int, size: Any, stride: Any, requires_grad: bool, state: Any) -> Any:
    array = view_bytes(storage, dtypes.BY_NAME[kind], offset, size, stride)
    if tag == "Parameter":
        from tocha.nn.parameter import Parameter as tag
    out = wrap(array) if tag is None else wrap_as(tag, array)
    if requires_grad:
        out.requires_grad = True
    if state:
        out.__setstate__(state)
    return out


def _load_from_bytes(data: bytes) -> Any:
    """What a tensor pickled by torch itself calls: its storage is a file of its own."""
    import io

    from tocha.serialization._load import load

    return load(io.BytesIO(data), weights_only=False)


# ---- copying


def _deepcopy_wrapper(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A wrapper subclass clones what it wraps; its attributes are copied."""
    import copy

    out = tensor.detach().clone()
    if type(out) is not type(tensor):
        raise RuntimeError(
            f"deepcopy of {type(tensor).__name__}: its clone() must return a {type(tensor).__name__}, not a {type(out).__name__}"
        )
    memo[id(tensor)] = out
    out.__dict__.update(copy.deepcopy({k: v for k, v in tensor.__dict__.items() if k not in out.__dict__}, memo))
    if tensor.requires_grad:
        out.requires_grad = True
    if tensor._grad is not None:
        out._grad = copy.deepcopy(tensor._grad, memo)
    return out


def deepcopy_tensor(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """`Tensor.__deepcopy__`: a leaf with its gradient and attributes; tensors that shared memory still do."""
    import copy

    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at "
            f"the moment: this tensor of shape {list(tensor.shape)} was made by {tensor.grad_fn}. Use "
            "detach() or clone() first"
        )
    if id(tensor) in memo:
        known: Tensor = memo[id(tensor)]
        return known
    if hasattr(type(tensor), "__torch_dispatch__") and isinstance(tensor._a, meta.WrapperArray):
        return _deepcopy_wrapper(tensor, memo)
    storage, offset, size, stride = geometry(_with_values(tensor) if tensor._a.__class__ is Lazy else tensor)
    array = view_bytes(storage.__deepcopy__(memo), tensor.dtype, offset, size, stride)
    out = wrap(array) if type(tensor) is Tensor else wrap_as(type(tensor), array)
    memo[id(tensor)] = out
    if tensor.requires_grad:
        out.requires_grad = True
    if tensor._grad is not None:
        out._grad = copy.deepcopy(tensor._grad, memo)
    _set_state(out, copy.deepcopy(_state_of(tensor), memo))
    return out
