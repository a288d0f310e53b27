"""torch.linalg: linear algebra, as the registry has it."""

from typing import TYPE_CHECKING, Any

from tocha.dispatch.registry import NAMESPACES as _NAMESPACES
from tocha.prims.linalg import LinAlgError  # noqa: F401

globals().update(_NAMESPACES["linalg"])
__all__ = sorted(("LinAlgError", *_NAMESPACES["linalg"]))

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...
