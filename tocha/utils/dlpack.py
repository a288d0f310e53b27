"""torch.utils.dlpack: sharing memory with other libraries."""

from tocha.ops.convert import from_dlpack, to_dlpack

__all__ = ["from_dlpack", "to_dlpack"]
