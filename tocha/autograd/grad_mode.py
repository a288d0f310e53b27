"""torch.autograd.grad_mode: the gradient modes under torch's module path."""

from tocha.autograd.mode import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
