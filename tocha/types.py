"""torch.types: names of types for annotations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from tocha.device import Size
from tocha.device import device as _torch_device
from tocha.device import layout as _torch_layout
from tocha.dtypes import dtype as _torch_dtype
from tocha.storage import UntypedStorage
from tocha.tensor import Tensor

__all__ = ["Device", "FileLike", "Number", "Storage", "Tensor"]

_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_TensorOrTensorsOrGradEdge: TypeAlias = Any
_dtype = _torch_dtype
_device = _torch_device
_layout = _torch_layout
_qscheme: TypeAlias = Any
_size: TypeAlias = Size | list[int] | tuple[int, ...]
_symsize = _size
_dispatchkey: TypeAlias = Any
_int, _float, _bool, _complex = int, float, bool, complex
_StorageT: TypeAlias = Any
Number: TypeAlias = int | float | bool
_Number = (int, float, bool)
Device: TypeAlias = _torch_device | str | int | None
FileLike: TypeAlias = Any
IntLikeType: TypeAlias = int
FloatLikeType: TypeAlias = float
BoolLikeType: TypeAlias = bool
py_sym_types = (int, float, bool)
Storage = UntypedStorage
