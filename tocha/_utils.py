"""The names that torch keeps in `torch._utils` and that saved files and libraries use."""

from __future__ import annotations

from tocha.serialization.rebuild import (
    _rebuild_meta_tensor_no_storage as _rebuild_meta_tensor_no_storage,
)
from tocha.serialization.rebuild import _rebuild_parameter as _rebuild_parameter
from tocha.serialization.rebuild import _rebuild_parameter_with_state as _rebuild_parameter_with_state
from tocha.serialization.rebuild import _rebuild_tensor as _rebuild_tensor
from tocha.serialization.rebuild import _rebuild_tensor_v2 as _rebuild_tensor_v2
from tocha.serialization.rebuild import _rebuild_tensor_v3 as _rebuild_tensor_v3
