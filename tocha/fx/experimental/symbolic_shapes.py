"""torch.fx.experimental.symbolic_shapes: the error about marked dimensions."""

from tocha._dynamo.exc import ConstraintViolationError

__all__ = ["ConstraintViolationError"]
