"""Schedules that move rate and momentum against each other: cyclic and one-cycle.

Source: torch docs, CyclicLR and OneCycleLR; Smith 2017 (cyclical rates); Smith & Topin 2018
(super-convergence).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import tocha

from ..optimizer import Optimizer
from .base import LRScheduler, function_state, per_group, set_group_value


def _uses_beta1(optimizer: Optimizer) -> bool:
    """Whether "momentum" of the schedule is beta1; raises ValueError for optimizers with neither."""
    if "momentum" not in optimizer.defaults and "betas" not in optimizer.defaults:
        raise ValueError("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
    return "betas" in optimizer.defaults


def _set_momentum(group: dict[str, Any], value: float, use_beta1: bool) -> None:
    if use_beta1:
        group["betas"] = (value, *group["betas"][1:])
    else:
        group["momentum"] = value


class CyclicLR(LRScheduler):
    """The rate goes linearly between `base_lr` and `max_lr` with a period of steps, the momentum the other
    way.

    `mode` scales the amplitude: "triangular" not at all, "triangular2" by half each cycle, "exp_range" by
    `gamma ** iteration`; `scale_fn` (of the cycle or the iteration, by `scale_mode`) overrides it.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        base_lrs = per_group("base_lr", optimizer, base_lr)
        self.max_lrs = per_group("max_lr", optimizer, max_lr)
        if mode not in ("triangular", "triangular2", "exp_range") and scale_fn is None:
            raise ValueError("mode is invalid and scale_fn is None")
        up = float(step_size_up)
        down = float(step_size_down) if step_size_down is not None else up
        self.total_size = up + down
        self.step_ratio = up / self.total_size
        self.mode = mode
        self.gamma = gamma
        self._scale_fn_custom = scale_fn
        if scale_fn is None:
            scale_mode = "iterations" if mode == "exp_range" else "cycle"
        self.scale_mode = scale_mode
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.use_beta1 = _uses_beta1(optimizer)
            self.base_momentums = per_group("base_momentum", optimizer, base_momentum)
            self.max_momentums = per_group("max_momentum", optimizer, max_momentum)
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                set_group_value(group, "lr", base_lrs[i])
                if cycle_momentum:
                    _set_momentum(group, self.max_momentums[i], self.use_beta1)
                    group["max_momentum"] = self.max_momentums[i]
                    group["base_momentum"] = self.base_momentums[i]
        self._given_base_lrs = base_lrs
        super().__init__(optimizer, last_epoch)
        del self._given_base_lrs
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """The amplitude's factor at cycle or iteration `x`."""
        if self._scale_fn_custom is not None:
            return self._scale_fn_custom(x)
        if self.mode == "triangular2":
            return 1 / (2.0 ** (x - 1))
        return self.gamma**x if self.mode == "exp_range" else 1.0

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        cycle = math.floor(1 + self.last_epoch / self.total_size)
        x = 1.0 + self.last_epoch / self.total_size - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        amplitude = self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            for group, low, high in zip(self.optimizer.param_groups, self.base_momentums, self.max_momentums):
                _set_momentum(group, high - (high - low) * height * amplitude, self.use_beta1)
        base_lrs = getattr(self, "_given_base_lrs", self.base_lrs)
        return [base + (top - base) * height * amplitude for base, top in zip(base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        """All attributes except the optimizer; of `scale_fn`, only the attributes of a callable object
        are kept.
        """
        state = super().state_dict()
        custom = state.pop("_scale_fn_custom")
        state["_scale_fn_custom"] = None if custom is None else function_state(custom)
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict()` returned; `scale_fn` stays this scheduler's own."""
        state = dict(state_dict)
        attributes = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if attributes is not None and self._scale_fn_custom is not None:
            self._scale_fn_custom.__dict__.update(attributes)


def _cosine(start: Any, end: Any, share: float) -> Any:
    return end + (start - end) / 2.0 * (math.cos(math.pi * share) + 1)


def _linear(start: Any, end: Any, share: float) -> Any:
    return (end - start) * share + start


_ANNEALING = {"cos": _cosine, "linear": _linear}


def _positive_integer(name: str, value: Any) -> int:
    if not isinstance(value, int) or value <= 0:
        raise ValueError(f"Expected positive integer {name}, but got {value}")
    return value


class OneCycleLR(LRScheduler):
    """One cycle over the whole run: up from `max_lr / div_factor` to `max_lr`, then down to far below the
    start.

    The length is `total_steps` or `epochs * steps_per_epoch`; stepping beyond it raises ValueError.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        if total_steps is not None:
            self.total_steps = _positive_integer("total_steps", total_steps)
        elif epochs is not None and steps_per_epoch is not None:
            self.total_steps = _positive_integer("epochs", epochs)
            self.total_steps *= _positive_integer("steps_per_epoch", steps_per_epoch)
        else:
            raise ValueError("You must define either total_steps OR (epochs AND steps_per_epoch)")
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise ValueError(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in _ANNEALING:
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._schedule_phases = self._phases(pct_start, three_phase)
        self._anneal_func_type = anneal_strategy
        max_lrs = per_group("max_lr", optimizer, max_lr)
        self.cycle_momentum = cycle_momentum
        momenta: list[tuple[float, float]] = []
        if cycle_momentum:
            self.use_beta1 = _uses_beta1(optimizer)
            momenta = list(
                zip(
                    per_group("max_momentum", optimizer, max_momentum),
                    per_group("base_momentum", optimizer, base_momentum),
                )
            )
        if last_epoch == -1:
            for i, group in enumerate(optimizer.param_groups):
                group["initial_lr"] = max_lrs[i] / div_factor
                group["max_lr"] = max_lrs[i]
                group["min_lr"] = group["initial_lr"] / final_div_factor
                if cycle_momentum:
                    group["max_momentum"], group["base_momentum"] = momenta[i]
                    _set_momentum(group, momenta[i][0], self.use_beta1)
        super().__init__(optimizer, last_epoch)

    def _phases(self, pct_start: float, three_phase: bool) -> list[dict[str, Any]]:
        """The phases, each with its last step and the names of what it goes from and to."""

        def phase(end_step: float, rates: str, momenta: str) -> dict[str, Any]:
            (start_lr, end_lr), (start_momentum, end_momentum) = rates.split(), momenta.split()
            return {
                "end_step": end_step,
                "start_lr": start_lr,
                "end_lr": end_lr,
                "start_momentum": start_momentum,
                "end_momentum": end_momentum,
            }

        up_end = float(pct_start * self.total_steps) - 1
        up = phase(up_end, "initial_lr max_lr", "max_momentum base_momentum")
        if not three_phase:
            return [up, phase(self.total_steps - 1, "max_lr min_lr", "base_momentum max_momentum")]
        down_end = float(2 * pct_start * self.total_steps) - 2
        return [
            up,
            phase(down_end, "max_lr initial_lr", "base_momentum max_momentum"),
            phase(self.total_steps - 1, "initial_lr min_lr", "max_momentum max_momentum"),
        ]

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueError(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        anneal = _ANNEALING[self._anneal_func_type]
        start = 0.0
        for phase in self._schedule_phases:
            end = phase["end_step"]
            share = (step - start) / (end - start) if end != start else 1.0
            if step <= end:
                break
            start = end
        rates = []
        for group in self.optimizer.param_groups:
            rates.append(anneal(group[phase["start_lr"]], group[phase["end_lr"]], share))
            if self.cycle_momentum:
                momentum = anneal(group[phase["start_momentum"]], group[phase["end_momentum"]], share)
                _set_momentum(group, momentum, self.use_beta1)
        return [rate.clone() if isinstance(rate, tocha.Tensor) else rate for rate in rates]
