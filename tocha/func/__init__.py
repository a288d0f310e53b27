"""torch.func: function transforms (grad, vjp, jvp, jacobians, vmap) that compose."""

from tocha.func._grad import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from tocha.func._vmap import vmap

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "functionalize":
        from tocha.func import _functionalize

        return _functionalize.functionalize
    if name in ("functional_call", "replace_all_batch_norm_modules_", "stack_module_state"):
        from tocha.func import _modules

        return getattr(_modules, name)
    raise AttributeError(f"module 'torch.func' has no attribute {name!r}")
