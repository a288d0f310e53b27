"""torch.utils.hooks."""

from tocha.autograd.graph import RemovableHandle as RemovableHandle
