"""Stochastic gradient descent with momentum.

Source: torch docs, torch.optim.SGD; Sutskever et al. 2013 (Nesterov).
"""

from __future__ import annotations

from typing import Any, ClassVar

import tocha
from tocha.nn.parameter import gradients

from ._common import (
    RuleOptimizer,
    any_complex,
    check_call,
    check_fused,
    check_lr,
    real_views,
    scalars,
    unscaled_grads,
)
from ._rule import OnTensors, Rule, alike, fused_update
from .optimizer import ParamsT

__all__ = ["SGD", "sgd"]


class SGD(RuleOptimizer):
    """Stochastic gradient descent. State: "momentum_buffer" where momentum is not 0."""

    _late_options: ClassVar[dict[str, Any]] = {
        "nesterov": False,
        "maximize": False,
        "foreach": None,
        "differentiable": False,
        "fused": False,
    }

    def __init__(
        self,
        params: ParamsT,
        lr: Any = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: Any = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        if momentum < 0.0:
            raise ValueError(f"Invalid momentum value: {momentum}")
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)
        check_fused(self, fused, foreach, differentiable)

    def _with_grad(self, group: dict[str, Any]) -> tuple[list[Any], list[Any], list[dict[str, Any]]]:
        if group["momentum"] != 0:
            return super()._with_grad(group)
        # Without momentum there is no state, and no empty entry in checkpoints either.
        rows = [(p, g) for p, g in zip(group["params"], gradients(group["params"])) if g is not None]
        with_grad, grads = [p for p, _ in rows], [g for _, g in rows]
        if any(g.is_sparse for g in grads if g.__class__ is not tocha.Tensor):
            raise RuntimeError("SGD does not support sparse gradients: call .to_dense() on them first")
        return with_grad, grads, [{} for _ in with_grad]

    def _update(self, group: dict[str, Any], params: list[Any], grads: list[Any], states: list[dict[str, Any]]) -> None:
        buffers = [state.get("momentum_buffer") for state in states]
        sgd(
            params,
            grads,
            buffers,
            foreach=group["foreach"],
            fused=group["fused"],
            grad_scale=getattr(self, "grad_scale", None),
            found_inf=getattr(self, "found_inf", None),
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
        )
        if group["momentum"] != 0:
            for state, buffer in zip(states, buffers):
                state["momentum_buffer"] = buffer


def sgd(
    params: list[Any],
    d_p_list: list[Any],
    momentum_buffer_list: list[Any],
    has_sparse_grad: bool = False,
    foreach: bool | None = None,
    fused: bool | None = None,
    grad_scale: Any = None,
    found_inf: Any = None,
    *,
    weight_decay: Any,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
) -> None:
    """The SGD update of each parameter, in place; missing momentum buffers are put into
    `momentum_buffer_list`.
    """
    check_call("sgd", params, foreach=foreach, fused=fused)
    grads = unscaled_grads(d_p_list, grad_scale, found_inf)
    if grads is None:
        return
    (lr,) = scalars(getattr(lr, "requires_grad", False), lr)
    numbers = {
        "weight_decay": weight_decay, "maximize": maximize, "momentum": momentum, "share": 1 - dampening, "nesterov": nesterov, "descent": -lr,
    }  # fmt: skip
    columns = {"param": params, "grad": grads}
    begun = set()
    if momentum != 0:
        begun = _begin(params, grads, momentum_buffer_list, numbers)
        if len(begun) == len(params):
            return
        columns["buffer"] = momentum_buffer_list
    complex_params = any_complex(params)
    operations = OnTensors()
    for i in range(len(params)) if begun else fused_update(_RULE, columns, lambda _: numbers):
        if i in begun:
            continue
        row = [column[i] for column in columns.values()]
        _, *buffer = _RULE.apply(operations, *(real_views(*row) if complex_params else row), **numbers)
        if buffer and momentum_buffer_list[i] is None:
            momentum_buffer_list[i] = _like(buffer[0], params[i])


def _apply(
    o: Any,
    param: Any,
    grad: Any,
    buffer: Any = None,
    *,
    weight_decay: Any,
    maximize: bool,
    momentum: Any,
    share: Any,
    nesterov: bool,
    descent: Any,
) -> tuple[Any, ...]:
    grad = o.regularised(param, grad, weight_decay, maximize)
    if momentum == 0:
        return (o.add_scaled(param, grad, descent),)
    buffer = o.copy(grad) if buffer is None else o.add_scaled(o.scale(buffer, momentum), grad, share)
    direction = o.plus_scaled(grad, buffer, momentum) if nesterov else buffer
    return o.add_scaled(param, direction, descent), buffer


def _begin(params: list[Any], grads: list[Any], buffers: list[Any], numbers: dict[str, Any]) -> set[int]:
    """The first step of parameters without a buffer; returns those that it did."""
    rows = [i for i, buffer in enumerate(buffers) if buffer is None]
    mine = [params[i] for i in rows]
    if not mine or not alike(mine):
        return set()
    fresh = [tocha.empty_like(p) for p in mine]
    columns = {"param": mine, "grad": [grads[i] for i in rows], "buffer": fresh}
    left = set(fused_update(_FIRST, columns, lambda _: numbers))
    done = {i: buffer for k, (i, buffer) in enumerate(zip(rows, fresh)) if k not in left}
    for i, buffer in done.items():
        buffers[i] = buffer
    return set(done)


_RULE = Rule("sgd", _apply, read=("grad",))
_FIRST = Rule("sgd_first", lambda o, param, grad, buffer, **n: _apply(o, param, grad, **n), read=("grad",), new=("buffer",))


def _like(buffer: Any, param: Any) -> Any:
    """A buffer made on the real view of a complex parameter, as complex again."""
    return tocha.view_as_complex(buffer) if param.is_complex() else buffer
