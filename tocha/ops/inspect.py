"""Questions about tensors: how many elements, which kind of type, is it one of several kinds, is it
shared."""

from __future__ import annotations

from typing import Any

from tocha import dtypes
from tocha.autograd.graph import Uncounted
from tocha.backends.lazy import Lazy
from tocha.dispatch.override import PLAIN
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.storage import TypedStorage, UntypedStorage
from tocha.tensor import Tensor


@op("method torch", alias=("nelement",), short=lambda x, *more: x._a.size if x.__class__ in PLAIN and not more else None)
def numel(input: Tensor) -> int:
    """The number of elements."""
    return int(check_tensor(input, "numel")._a.size)


@op("method", alias=("ndimension",), short=lambda x, *more: x._a.ndim if x.__class__ in PLAIN and not more else None)
def dim(input: Tensor) -> int:
    """The number of dimensions."""
    return int(input._a.ndim)


@op("method")
def element_size(input: Tensor) -> int:
    """Bytes of one element."""
    return int(input._a.dtype.itemsize)


@op("method torch")
def is_floating_point(input: Tensor) -> bool:
    """Whether the type is a floating-point one."""
    return check_tensor(input, "is_floating_point").dtype.is_floating_point


@op("method torch")
def is_complex(input: Tensor) -> bool:
    """Whether the type is complex."""
    return bool(check_tensor(input, "is_complex")._a.dtype.kind == "c")


@op("method torch")
def is_signed(input: Tensor) -> bool:
    """Whether the type has negative values."""
    return check_tensor(input, "is_signed").dtype.is_signed


@op("method torch")
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element isn't zero; RuntimeError unless there is exactly one."""
    return bool(check_tensor(input, "is_nonzero"))


@op("method torch")
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have one shape."""
    return bool(input._a.shape == other._a.shape)


@op("method torch")
def is_conj(input: Tensor) -> bool:
    """Whether conjugation is pending (torch docs: torch.is_conj)."""
    return input._a.__class__ is Lazy and bool(input._a.conj)


@op("method torch")
def is_neg(input: Tensor) -> bool:
    """Whether negation is pending (torch docs: Tensor.is_neg)."""
    return input._a.__class__ is Lazy and bool(input._a.neg)


@op("method torch")
def resolve_conj(input: Tensor) -> Tensor:
    """A copy with pending conjugation done, or itself (torch docs: torch.resolve_conj)."""
    return input.clone() if is_conj(input) else input


@op("method torch")
def resolve_neg(input: Tensor) -> Tensor:
    """A copy with pending negation done, or itself (torch docs: torch.resolve_neg)."""
    return input.clone() if is_neg(input) else input


@op("method torch")
def is_distributed(input: Tensor) -> bool:
    """Whether the elements are spread over processes: no for a plain tensor."""
    return False


@op("method torch")
def is_inference(input: Tensor) -> bool:
    """Whether it was made in `inference_mode`."""
    return isinstance(input._vc, Uncounted)


@op("method")
def dim_order(input: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost (torch docs: Tensor.dim_order)."""
    strides = input.stride()
    return tuple(sorted(range(input.ndim), key=lambda d: -strides[d]))


@op("bare")
def is_tensor(obj: Any) -> bool:
    """Whether the object is a tensor."""
    return isinstance(obj, Tensor)


@op("bare")
def is_storage(obj: Any) -> bool:
    """Whether the object is a storage."""
    return isinstance(obj, (TypedStorage, UntypedStorage))


@op("torch")
def result_type(tensor1: Any, tensor2: Any) -> dtypes.dtype:
    """The type both promote to (torch docs: torch.result_type)."""
    from tocha.dispatch import promote

    return promote.result_type((tensor1, tensor2))


@op("torch")
def can_cast(from_: dtypes.dtype, to: dtypes.dtype) -> bool:
    """Whether a result of one type may be written into another (torch docs: torch.can_cast)."""
    return dtypes.can_cast(from_, to)


@op("torch")
def typename(obj: Any, /) -> str:
    """The name of a tensor's legacy type, or the qualified name of anything else's class (torch docs:
    torch.typename)."""
    if isinstance(obj, Tensor):
        return str(obj.type())
    named = obj if hasattr(obj, "__qualname__") else obj.__class__
    module = getattr(named, "__module__", None) or ""
    return named.__qualname__ if module in ("", "builtins") else f"{module}.{named.__qualname__}"
