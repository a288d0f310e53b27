"""What the update rules share: checks of options, the step over parameter groups, and small arithmetic."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import tocha
from tocha.nn.parameter import gradients

from .optimizer import Optimizer, _use_grad_for_differentiable

#: Device types on which a step may be captured into a graph.
CAPTURABLE_DEVICES = ("cuda", "xpu", "hpu", "privateuseone", "xla")


# --- options --------------------------------------------------------------------------------------


def check_lr(lr: Any, message: str = "Invalid learning rate: {}") -> None:
    """Raise ValueError unless `lr` is at least 0 and, as a tensor, has one element."""
    if isinstance(lr, tocha.Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(message.format(lr))


def check_non_negative(**options: Any) -> None:
    """Raise ValueError for the first of `options` that is negative or NaN."""
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {'epsilon' if name == 'eps' else name} value: {value}")


def check_betas(betas: Sequence[Any]) -> None:
    """Raise ValueError unless both moving-average factors lie in [0, 1)."""
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {beta}")


def check_fused(optimizer: Optimizer, fused: bool | None, foreach: bool | None, differentiable: bool) -> None:
    """Raise RuntimeError where `fused=True` excludes another option or a parameter's dtype."""
    if not fused:
        return
    if differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    for group in optimizer.param_groups:
        for p in group["params"]:
            if not tocha.is_floating_point(p):
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of supported devices, "
                    f"but got a parameter of dtype {p.dtype}"
                )


def check_call(
    name: str,
    params: Sequence[Any],
    state_steps: Sequence[Any] = (),
    *,
    foreach: bool | None = None,
    fused: bool | None = None,
    capturable: bool = False,
    differentiable: bool = False,
) -> None:
    """The checks that every functional form makes before it changes anything."""
    for step in state_steps:
        if not isinstance(step, tocha.Tensor):
            raise RuntimeError(f"{name}: API has changed, `state_steps` argument must contain a list of singleton tensors")
    if foreach and differentiable:
        raise AssertionError("_foreach ops don't support autograd")
    if fused and foreach:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    if capturable:
        for p, step in zip(params, state_steps):
            if p.device.type not in CAPTURABLE_DEVICES or step.device.type != p.device.type:
                raise AssertionError(
                    "If capturable=True, params and state_steps must be on supported devices: "
                    f"{list(CAPTURABLE_DEVICES)}; got {p.device.type} and {step.device.type}. "
                    "Leave capturable=False on the CPU."
                )


# --- arithmetic -----------------------------------------------------------------------------------


def as_number(x: Any) -> Any:
    """The Python number in a one-element tensor; anything else as it is."""
    return x.item() if isinstance(x, tocha.Tensor) else x


def as_scalar(x: Any) -> Any:
    """A one-element tensor as a 0-d tensor, so that it takes part in promotion like a number."""
    return x.reshape(()) if isinstance(x, tocha.Tensor) and x.dim() else x


def scalars(keep_tensors: bool, *values: Any) -> tuple[Any, ...]:
    """`values` as Python numbers, or as 0-d tensors where gradients or graph capture need them as tensors."""
    return tuple((as_scalar if keep_tensors else as_number)(v) for v in values)


def square_root(x: Any) -> Any:
    """Square root of a number or a tensor."""
    return x.sqrt() if isinstance(x, tocha.Tensor) else x**0.5


def real_view(tensor: Any) -> Any:
    """A complex tensor as pairs of real numbers (sharing memory); real tensors and None as they are."""
    return tocha.view_as_real(tensor) if tensor is not None and tensor.is_complex() else tensor


def real_views(*tensors: Any) -> tuple[Any, ...]:
    """`real_view` of each."""
    return tuple(map(real_view, tensors))


def snapshot(tensor: Any, differentiable: bool) -> Any:
    """`tensor`, or a copy that later in-place updates leave alone, for what a differentiable step saves."""
    return tensor.clone() if differentiable else tensor


def scale_(tensor: Any, factor: Any) -> None:
    """`tensor *= factor`, where a tensor `factor` may require grad."""
    if isinstance(factor, tocha.Tensor) and factor.requires_grad:
        tensor.copy_(tensor.clone() * factor)
    else:
        tensor.mul_(factor)


def add_scaled_(param: Any, direction: Any, size: Any) -> None:
    """`param += size * direction`."""
    if isinstance(size, tocha.Tensor):
        param.add_(direction * size)
    else:
        param.add_(direction, alpha=size)


def add_quotient_(param: Any, numerator: Any, denominator: Any, size: Any) -> None:
    """`param += size * numerator / denominator`."""
    if isinstance(size, tocha.Tensor):
        param.add_(numerator / denominator * size)
    else:
        param.addcdiv_(numerator, denominator, value=size)


def regularised(param: Any, grad: Any, weight_decay: Any, maximize: bool) -> Any:
    """The gradient of the objective to descend: negated when maximising, with the L2 penalty's gradient
    added.
    """
    if maximize:
        grad = grad.neg()
    if isinstance(weight_decay, tocha.Tensor):
        return grad.addcmul(param, weight_decay)
    return grad.add(param, alpha=weight_decay) if weight_decay != 0 else grad


def unscaled_grads(grads: list[Any], grad_scale: Any, found_inf: Any) -> list[Any] | None:
    """Gradients divided by the loss scale, in place; None when an overflow was found and the step has to
    be left out.
    """
    if found_inf is not None and found_inf.item():
        return None
    if grad_scale is not None:
        for grad in grads:
            grad.div_(grad_scale.to(grad.device))
    return grads


# --- the step over groups -------------------------------------------------------------------------


def step_dtype(fused: bool | None = None) -> Any:
    """The dtype of a step counter: float32, or float64 where that is the default dtype."""
    double = not fused and tocha.get_default_dtype() == tocha.float64
    return tocha.float64 if double else tocha.float32


def new_step(p: Any, group: dict[str, Any]) -> Any:
    """A step counter at zero: on the CPU, or beside the parameter where a kernel or a captured graph
    reads it.
    """
    if group.get("capturable") or group.get("fused"):
        return tocha.zeros((), dtype=step_dtype(group.get("fused")), device=p.device)
    return tocha.zeros((), dtype=step_dtype())


def zeros_like(p: Any) -> Any:
    """Zeros laid out as the parameter is."""
    return tocha.zeros_like(p, memory_format=tocha.preserve_format)


@functools.cache
def _options_of(functional: Callable[..., None]) -> tuple[str, ...]:
    """The names of a function's optional and keyword arguments."""
    given = inspect.signature(functional).parameters.values()
    return tuple(p.name for p in given if p.kind is p.KEYWORD_ONLY or p.default is not p.empty)


class RuleOptimizer(Optimizer):
    """An optimizer whose step is one functional update per parameter group.

    A subclass gives `_new_state`, `_functional` (the update, whose options have the names of a group's) and `_columns`.
    """

    #: Options that checkpoints of older versions lack.
    _late_options: ClassVar[dict[str, Any]] = {}
    _sparse_advice: ClassVar[str] = ""

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self._late_options.items():
                group.setdefault(name, value)
            for p in group["params"]:
                own = self.state.get(p)
                if own and "step" in own and not isinstance(own["step"], tocha.Tensor):
                    own["step"] = new_step(p, group) + float(own["step"])

    def _new_state(self, p: Any, group: dict[str, Any]) -> dict[str, Any]:
        """The state of a parameter at its first step."""
        return {}

    def _functional(self) -> Callable[..., None]:
        raise NotImplementedError

    def _columns(self, group: dict[str, Any]) -> Sequence[str | None]:
        """The entries of a state in the order in which `_functional` takes their lists; None for one that is not in use."""
        raise NotImplementedError

    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        """Options of a group that `_functional` takes under other names."""
        return {}

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        lists = [[] if key is None else column(states, key) for key in self._columns(group)]
        known = {**group, **self._numbers(group), "has_complex": any_complex(params)}
        for name in ("grad_scale", "found_inf"):  # of a GradScaler
            known[name] = getattr(self, name, None)
        functional = self._functional()
        functional(params, grads, *lists, **{name: known[name] for name in _options_of(functional) if name in known})

    def _with_grad(self, group: dict[str, Any]) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
        """Parameters of `group` that have a gradient, their gradients and states."""
        params, grads, states = [], [], []
        all_states = self.state
        for p, grad in zip(group["params"], gradients(group["params"])):
            if grad is None:
                continue
            if grad.__class__ is not tocha.Tensor and grad.is_sparse:
                raise RuntimeError(f"{self._sparse_name()} does not support sparse gradients{self._sparse_advice}")
            state = all_states[p]
            if not state:
                state.update(self._new_state(p, group))
            params.append(p)
            grads.append(grad)
            states.append(state)
        return params, grads, states

    def _sparse_name(self) -> str:
        return type(self).__name__

    @_use_grad_for_differentiable
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update of all parameters that have a gradient; returns the loss of `closure`, if given."""
        loss = None
        if closure is not None:
            with tocha.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params, grads, states = self._with_grad(group)
            if params:
                self._update(group, params, grads, states)
        return loss


def column(states: list[dict[str, Any]], key: str) -> list[Any]:
    """The entry `key` of each state."""
    return [state[key] for state in states]


def any_complex(params: Sequence[Any]) -> bool:
    """Whether a parameter is complex."""
    return any(dtype.kind == "c" for dtype in {p._a.dtype for p in params})
