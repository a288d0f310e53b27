"""torch._custom_ops: the older path of torch.library's functions."""

from tocha.library import custom_op, impl, impl_abstract

__all__ = ["custom_op", "impl", "impl_abstract"]
