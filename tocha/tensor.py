"""Tensor: a backend array with a place on the tape.

Operators are not written here: `tocha.ops` attaches them as methods from their records. This file holds what a tensor
*is*: its array, its gradient bookkeeping and its attributes.

Slots: `_a` the array (NumPy, CuPy or MetaArray; a strided view where the tensor is one), `_rg` whether it requires grad
(a bool, or the View of a tensor whose base may come to require grad: its truth is asked then), `_grad`, `_node` and
`_nr` the tape node that made it and which of its outputs it is, `_vc` the version counter (made when first needed),
`_view` how it is a view of another tensor, `_extra` the rarely used rest.
"""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tocha import dtypes
from tocha.autograd.graph import LOOSE, UNCOUNTED, Hooks, HookTable, Node, RemovableHandle, Uncounted, Version, version_of
from tocha.autograd.mode import INFERENCE, state
from tocha.backends import device_of
from tocha.backends.lazy import Lazy
from tocha.device import CPU, Size, device, layout, strided
from tocha.dtypes import FROM_NP, dtype

_ndarray, _new = np.ndarray, object.__new__


class Extra:
    """What few tensors have: the leaf's accumulator, leaf hooks."""

    __slots__ = ("accumulate", "backward_hooks", "first_use", "post_accumulate", "retains_grad")

    def __init__(self) -> None:
        self.accumulate: weakref.ref[Any] | None = None
        self.backward_hooks: HookTable | None = None
        self.post_accumulate: HookTable | None = None
        self.retains_grad = False
        self.first_use: int | None = None  # order of the leaf's first use on the current tape (if post_accumulate)


class View:
    """How a tensor is a view: `base` (never itself a view), the `chain` of (primitive, parameters) that leads from it,
    the version of the base at which the view's `_node` was right, and the `kind` of its creation: 'normal', 'no_grad'
    (made while recording was off), 'inference' (made in inference mode), 'multi' (one of several outputs, as from unbind),
    'custom' (made by a custom Function)."""

    __slots__ = ("base", "chain", "kind", "version")

    def __init__(self, base: Tensor, chain: tuple[Any, ...], version: int, kind: str) -> None:
        self.base = base
        self.chain = chain
        self.version = version
        self.kind = kind

    def __bool__(self) -> bool:
        return bool(self.base._rg)


if TYPE_CHECKING:
    from tocha._operators import Operators as _Operators
else:
    _Operators = object


class Tensor(_Operators):
    """A strided multi-dimensional array that records gradients (torch docs: torch.Tensor)."""

    __slots__ = ("__dict__", "__weakref__", "_a", "_extra", "_grad", "_node", "_nr", "_rg", "_vc", "_view")
    _a: Any
    _rg: Any
    _grad: Tensor | None
    _node: Node | None
    _nr: int
    _vc: Version | None
    _view: View | None
    _extra: Extra | None
    __array_priority__ = 1000  # numpy_array * tensor asks the tensor first

    def __new__(cls, *args: Any, **kwargs: Any) -> Tensor:
        from tocha.ops.creation import legacy_tensor

        return legacy_tensor(cls, *args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        from tocha.dispatch.override import classify

        classify(cls)

    # ---- geometry and type

    @property
    def shape(self) -> Size:
        return Size(self._a.shape)

    @property
    def dtype(self) -> dtype:
        return FROM_NP[self._a.dtype]

    @property
    def device(self) -> device:
        return CPU if self._a.__class__ is _ndarray else device_of(self._a)

    @property
    def layout(self) -> layout:
        return strided

    ndim: Any = property(operator.attrgetter("_a.ndim"))

    @property
    def itemsize(self) -> int:
        return int(self._a.dtype.itemsize)

    @property
    def nbytes(self) -> int:
        return int(self._a.size) * int(self._a.dtype.itemsize)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    @property
    def is_meta(self) -> bool:
        return self.device.type == "meta"

    is_sparse = is_sparse_csr = is_quantized = is_nested = is_mkldnn = False
    is_mps = is_xpu = is_xla = is_vulkan = is_ipu = is_maia = is_mtia = False
    names: Any = property(lambda self: (None,) * self._a.ndim)
    name: Any = None
    volatile = False

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        return bool(self._rg)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._allow_grad(value)

    def _allow_grad(self, value: bool) -> None:
        if not value and self._node is not None:
            raise RuntimeError(
                "you can only change requires_grad flags of leaf variables. If you want to use a computed variable in a "
                "subgraph that doesn't require differentiation use var_no_grad = var.detach()."
            )
        if value and self._a.dtype not in dtypes.DIFFERENTIABLE_NP:
            raise RuntimeError(
                f"only Tensors of floating point and complex dtype can require gradients (this one is {self.dtype})"
            )
        if value and isinstance(self._vc, Uncounted) and not (state.inference or state.lenient):
            raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
        self._rg = bool(value) or self._rg_when_off()

    def _rg_when_off(self) -> Any:
        return self._view if self._view is not None and self._a.dtype.kind not in "biu" else False

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Change whether gradients are recorded for this tensor, in place."""
        self.requires_grad = requires_grad
        return self

    @property
    def grad(self) -> Tensor | None:
        if self._grad is None and self._node is not None and not (self._extra and self._extra.retains_grad):
            _warn_non_leaf_grad()
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            mine, its = self._a, value._a
            if its.dtype is not mine.dtype and value.dtype is not self.dtype:
                raise RuntimeError(
                    f"attempting to assign a gradient with dtype '{value.dtype}' to a tensor with dtype '{self.dtype}'. "
                    "Please ensure that the gradient and the tensor have the same dtype"
                )
            if its.shape != mine.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                    f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size"
                )
            where, there = device_of(mine), device_of(its)
            if there is not where and value.device != self.device:
                raise RuntimeError(
                    f"attempting to assign a gradient with device type '{value.device}' to a tensor with device type "
                    f"'{self.device}'. Please ensure that the gradient and the tensor are on the same device"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def is_leaf(self) -> bool:
        return self.grad_fn is None

    @property
    def grad_fn(self) -> Node | None:
        from tocha.autograd.names import shown
        from tocha.autograd.views import refresh

        if self._view is not None and self._rg:
            refresh(self)
        return None if self._node is None else shown(self._node)

    @property
    def output_nr(self) -> int:
        return self._nr

    @property
    def _base(self) -> Tensor | None:
        return None if self._view is None else self._view.base

    def _is_view(self) -> bool:
        return self._view is not None

    @property
    def _version(self) -> int:
        if self._vc is UNCOUNTED:
            raise RuntimeError("Inference tensors do not track version counter.")
        return 0 if self._vc is None else self._vc.value

    def is_inference(self) -> bool:
        """Whether it was made in `inference_mode`."""
        return isinstance(self._vc, Uncounted)

    @property
    def retains_grad(self) -> bool:
        return self._extra is not None and self._extra.retains_grad

    @property
    def _backward_hooks(self) -> HookTable | None:
        return None if self._extra is None else self._extra.backward_hooks

    @_backward_hooks.setter
    def _backward_hooks(self, table: Any) -> None:
        if table is not None or self._extra is not None:
            extra_of(self).backward_hooks = None if table is None else HookTable(table)

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> RemovableHandle:
        """Call `hook(grad)` when the gradient of this tensor is known; it may return another (torch docs)."""
        if not self._rg:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        node = self.grad_fn
        if node is not None:
            if node.hooks is None:
                node.hooks = Hooks()
            return node.hooks.add("tensor", hook, self._nr)
        extra = extra_of(self)
        if extra.backward_hooks is None:
            extra.backward_hooks = HookTable()
        return RemovableHandle(extra.backward_hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Call `hook(tensor)` after its `.grad` was written; leaves only."""
        if not self._rg:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.grad_fn is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        extra = extra_of(self)
        if extra.post_accumulate is None:
            extra.post_accumulate = HookTable()
        return RemovableHandle(extra.post_accumulate, hook)

    def retain_grad(self) -> None:
        """Keep `.grad` of this non-leaf tensor after backward; nothing to do on leaves."""
        if not self._rg:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        node = self.grad_fn
        if node is None:
            return
        extra_of(self).retains_grad = True
        if node.hooks is None:
            node.hooks = Hooks()
        node.hooks.retain[self._nr] = weakref.ref(self)

    # ---- sharing

    def detach(self) -> Tensor:
        """The same memory without history; in-place changes are seen (and counted) by both."""
        out = wrap(self._a)
        out._vc = version_of(self)
        if out._vc is UNCOUNTED and not state.inference:
            out._vc = LOOSE
        return out if self.__class__ is Tensor else _detached(self, out)

    @property
    def data(self) -> Tensor:
        if hasattr(self.__class__, "__torch_dispatch__"):
            return self.detach()
        out = wrap(self._a)
        out._vc = None if not isinstance(self._vc, Uncounted) else self._vc if state.inference else LOOSE
        return out

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if self._rg is True and value._a.dtype not in dtypes.DIFFERENTIABLE_NP:
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        self._a = value._a
        if self._vc is not None:
            self._vc.reshaped = True
        if isinstance(value._vc, Uncounted) or isinstance(self._vc, Uncounted):
            self._vc = value._vc if isinstance(value._vc, Uncounted) else None

    def data_ptr(self) -> int:
        """The address of the first element (0 for empty and meta tensors)."""
        from tocha.backends import namespace

        a = self._a.raw if self._a.__class__ is Lazy else self._a
        return namespace(a).data_ptr(a) if a.size else 0

    def is_shared(self) -> bool:
        """Whether the memory is shared between processes."""
        from tocha import sharing

        return sharing.is_shared(self)

    def __setstate__(self, state: Any) -> None:
        from tocha.serialization import set_tensor_state

        set_tensor_state(self, state)

    def __reduce_ex__(self, protocol: Any) -> Any:
        from tocha.serialization import reduce_tensor

        return reduce_tensor(self, protocol)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        from tocha.serialization import deepcopy_tensor

        return deepcopy_tensor(self, memo)

    __hash__ = object.__hash__

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        from tocha.dispatch.override import default_torch_function

        return default_torch_function(cls, func, types, args, kwargs or {})

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, *unused: Any) -> Any:
        """`data`'s memory as an instance of the subclass `cls`, without history."""
        check_subclass(cls, "_make_subclass")
        out = wrap_as(cls, data._a)
        out._vc = version_of(data)
        if require_grad:
            out._allow_grad(True)
        return out

    @staticmethod
    def _make_wrapper_subclass(
        cls: type, size: Any, *, strides: Any = None, storage_offset: Any = None, memory_format: Any = None, dtype: Any = None,
        layout: Any = strided, device: Any = None, pin_memory: bool = False, requires_grad: bool = False, **policies: Any,
    ) -> Any:  # fmt: skip
        """An instance of `cls` that claims this shape, type and device and holds no data: its __torch_dispatch__ does
        everything with the tensors it wraps."""
        from tocha.dispatch.override import wrapper

        return wrapper(cls, tuple(size), strides, storage_offset or 0, dtype, device, requires_grad)

    def as_subclass(self, cls: type) -> Any:
        """This tensor, history included, as an instance of the subclass `cls`."""
        from tocha.dispatch.override import alias_as

        check_subclass(cls, "as_subclass")
        version_of(self)
        return alias_as(cls, self)


Tensor.__module__ = "torch"


def wrap(array: Any) -> Tensor:
    """A tensor without history on an array."""
    out = _new(Tensor)
    out._a = array
    out._rg = False
    out._grad = out._node = out._vc = out._view = out._extra = None
    out._nr = 0
    if INFERENCE:
        mark(out)
    return out


def mark(tensor: Tensor) -> None:
    """Note on a tensor just made that this thread is in inference mode, if it is."""
    if state.inference:
        tensor._vc = UNCOUNTED


def wrap_as(cls: type, array: Any) -> Any:
    """`wrap` for a subclass."""
    out: Any = _new(cls)
    out._a = array
    out._rg = False
    out._grad = out._node = out._vc = out._view = out._extra = None
    out._nr = 0
    if INFERENCE:
        mark(out)
    return out


def check_subclass(cls: Any, name: str) -> None:
    """TypeError unless `cls` is a subclass of Tensor."""
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError(f"{name}: cls must be a subclass of Tensor, but got {cls!r}")


def extra_of(tensor: Tensor) -> Extra:
    """The tensor's rarely used fields, made when first wanted."""
    if tensor._extra is None:
        tensor._extra = Extra()
    return tensor._extra


def _detached(source: Tensor, out: Tensor) -> Tensor:
    from tocha.dispatch.override import detach_subclass

    return detach_subclass(source, out)


def _warn_non_leaf_grad() -> None:
    import warnings

    warnings.warn(
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
        "populated during autograd.backward(). If you indeed want the .grad field to be populated for a non-leaf Tensor, "
        "use .retain_grad() on the non-leaf Tensor.",
        UserWarning,
        stacklevel=3,
    )
