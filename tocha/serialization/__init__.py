"""Saving and loading: `save` and `load` in torch's file formats, and the pickling and copying of tensors.

Files go both ways between torch and tocha. `load` makes tensors and plain data only, unless told otherwise.
Source: torch docs, "torch.serialization" and "Serialization semantics".
"""

from __future__ import annotations

from tocha.serialization._config import (
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from tocha.serialization._load import get_unsafe_globals_in_checkpoint, load
from tocha.serialization._locations import default_restore_location, location_tag, register_package
from tocha.serialization._names import StorageType
from tocha.serialization._safe_globals import (
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    safe_globals,
)
from tocha.serialization._safetensors import SafeTensors, load_safetensors, save_safetensors
from tocha.serialization._save import DEFAULT_PROTOCOL, MAGIC_NUMBER, PROTOCOL_VERSION, save
from tocha.serialization.rebuild import _get_layout, deepcopy_tensor, reduce_tensor, set_tensor_state

__all__ = [
    "save", "load", "save_safetensors", "load_safetensors", "SafeTensors", "LoadEndianness", "StorageType",
    "add_safe_globals", "clear_safe_globals", "get_safe_globals", "safe_globals",
    "get_unsafe_globals_in_checkpoint", "get_crc32_options", "set_crc32_options",
    "get_default_load_endianness", "set_default_load_endianness",
    "get_default_mmap_options", "set_default_mmap_options", "skip_data",
    "register_package", "location_tag", "default_restore_location",
    "DEFAULT_PROTOCOL", "MAGIC_NUMBER", "PROTOCOL_VERSION",
    "reduce_tensor", "deepcopy_tensor", "set_tensor_state",
]  # fmt: skip
