"""torch.masked: operators over the elements a mask keeps."""

from tocha.dispatch.registry import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["masked"])
__all__ = sorted(_NAMESPACES["masked"])
