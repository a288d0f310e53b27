"""torch.signal.windows, as the registry has them."""

from typing import TYPE_CHECKING, Any

from tocha.dispatch.registry import NAMESPACES as _NAMESPACES

globals().update(_NAMESPACES["windows"])
__all__ = sorted(_NAMESPACES["windows"])

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
