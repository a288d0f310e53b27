"""Full backward hooks of a module: identity nodes around its inputs and outputs that report gradients."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import tocha
from tocha.autograd import Function


class BackwardHookFunction(Function):  # type: ignore[misc]
    """Identity whose backward first lets `report` see and replace the gradients."""

    @staticmethod
    def forward(ctx: Any, report: Callable[..., Any], materialize: bool, *tensors: Any) -> Any:
        ctx.report = report
        ctx.set_materialize_grads(materialize)
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return (None, None, *ctx.report(grads))


class BackwardHook:
    """Calls `user_hooks(module, grad_input, grad_output)` and `user_pre_hooks(module, grad_output)`."""

    def __init__(self, module: Any, user_hooks: list[Callable[..., Any]], user_pre_hooks: list[Callable[..., Any]]) -> None:
        self.module = module
        self.user_hooks = user_hooks
        self.user_pre_hooks = user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.n_inputs = -1
        self.input_index: list[int] | None = None

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Wrap the tensors of `args`; without one that needs a gradient the hooks fire at the output."""
        wrapped, self.input_index = self._wrap(args, self._on_inputs, True)
        self.n_inputs = len(args)
        return wrapped

    def setup_output_hook(self, result: Any) -> Any:
        """Wrap the tensors of a module's result (a tensor or a tuple)."""
        single = not isinstance(result, tuple)
        outputs = (result,) if single else result
        n = len(outputs)
        index: list[int] = []

        def report(grads: tuple[Any, ...]) -> tuple[Any, ...]:
            return self._on_outputs(grads, index, n)

        wrapped, found = self._wrap(outputs, report, False)
        index.extend(found or ())
        if single:
            return wrapped[0]
        return type(result)(*wrapped) if hasattr(result, "_fields") else wrapped

    def _wrap(
        self, values: tuple[Any, ...], report: Callable[..., Any], materialize: bool
    ) -> tuple[tuple[Any, ...], list[int] | None]:
        index = [i for i, v in enumerate(values) if isinstance(v, tocha.Tensor)]
        if not (tocha.is_grad_enabled() and any(values[i].requires_grad for i in index)):
            return values, None
        wrapped = list(values)
        for i, t in zip(index, BackwardHookFunction.apply(report, materialize, *[values[i] for i in index])):
            wrapped[i] = t
        return tuple(wrapped), index

    def _on_outputs(self, grads: tuple[Any, ...], index: list[int], n: int) -> tuple[Any, ...]:
        full: tuple[Any, ...] = _scatter(grads, index, n)
        for hook in self.user_pre_hooks:
            new = hook(self.module, full)
            if new is not None:
                full = _checked(new, n, "Backward pre hook", "grad_output")
        self.grad_outputs = full
        if self.input_index is None:
            if self.user_hooks:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to module "
                    "outputs since "
                    "no inputs require gradients. See torch.nn.Module.register_full_backward_hook for more "
                    "details.",
                    stacklevel=5,
                )
            for hook in self.user_hooks:
                new = hook(self.module, (None,) * max(self.n_inputs, 0), full)
                if new is not None and not (isinstance(new, tuple) and all(g is None for g in new)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return "
                        "None "
                        "or None for all gradients."
                    )
        return tuple(full[i] for i in index)

    def _on_inputs(self, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        assert self.input_index is not None
        if self.grad_outputs is None:  # this backward did not pass through the module's output
            return grads
        full: tuple[Any, ...] = _scatter(grads, self.input_index, self.n_inputs)
        for hook in self.user_hooks:
            new = hook(self.module, full, self.grad_outputs)
            if new is not None:
                full = _checked(new, self.n_inputs, "Backward hook", "grad_input")
        self.grad_outputs = None
        return tuple(full[i] for i in self.input_index)


def _scatter(values: tuple[Any, ...], index: list[int], n: int) -> tuple[Any, ...]:
    full = [None] * n
    for i, v in zip(index, values):
        full[i] = v
    return tuple(full)


def _checked(new: Any, n: int, who: str, what: str) -> tuple[Any, ...]:
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != n:
        raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(new)}, but expected {n}")
    return new
