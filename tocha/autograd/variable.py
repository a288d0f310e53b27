"""torch.autograd.variable: Variable, an old name of Tensor."""

from tocha.tensor import Tensor as Variable

__all__ = ["Variable"]
