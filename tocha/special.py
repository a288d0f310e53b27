"""torch.special: special functions, as the registry has them."""

from typing import TYPE_CHECKING, Any

from tocha.dispatch.registry import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["special"])
__all__ = sorted(_NAMESPACES["special"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
