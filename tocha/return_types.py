"""torch.return_types: the named tuples of operators with several results."""

from tocha.ops.results import TYPES as _TYPES

globals().update(_TYPES)
__all__ = sorted(_TYPES)
