"""Averages of a model's weights, and the schedule that goes with them.

Source: torch docs, torch.optim.swa_utils; Izmailov et al. 2018 (stochastic weight averaging); Polyak &
Juditsky 1992 (EMA).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any, Literal

import tocha
from tocha.nn import Module

from ._schedulers.base import LRScheduler, per_group
from .optimizer import Optimizer

__all__ = [
    "AveragedModel",
    "SWALR",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def _floating(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())


def get_ema_multi_avg_fn(decay: float = 0.999) -> Callable[..., None]:
    """An exponential moving average over lists of tensors, in place: `ema * decay + current * (1 -
    decay)`.
    """
    _check_decay(decay)

    def ema_update(ema_param_list: list[Any], current_param_list: list[Any], _: Any) -> None:
        with tocha.no_grad():
            for ema, current in zip(ema_param_list, current_param_list):
                if _floating(ema):
                    ema.lerp_(current.to(ema.dtype), 1 - decay)
                else:
                    ema.copy_(ema * decay + current * (1 - decay))

    return ema_update


def get_swa_multi_avg_fn() -> Callable[..., None]:
    """The equal average over lists of tensors, in place, for the given number of averaged models."""

    def swa_update(averaged_param_list: list[Any], current_param_list: list[Any], num_averaged: Any) -> None:
        with tocha.no_grad():
            count = float(num_averaged)
            for average, current in zip(averaged_param_list, current_param_list):
                if _floating(average):
                    average.lerp_(current.to(average.dtype), 1 / (count + 1))
                else:
                    average.copy_(average + (current - average) / (count + 1))

    return swa_update


def get_ema_avg_fn(decay: float = 0.999) -> Callable[..., Any]:
    """An exponential moving average of one tensor: `ema * decay + current * (1 - decay)`."""
    _check_decay(decay)

    def ema_update(ema_param: Any, current_param: Any, num_averaged: Any) -> Any:
        with tocha.no_grad():
            return decay * ema_param + (1 - decay) * current_param

    return ema_update


def get_swa_avg_fn() -> Callable[..., Any]:
    """The equal average of one tensor, for the given number of averaged models."""

    def swa_update(averaged_param: Any, current_param: Any, num_averaged: Any) -> Any:
        with tocha.no_grad():
            return averaged_param + (current_param - averaged_param) / (num_averaged + 1)

    return swa_update


class AveragedModel(Module):
    """A copy of `model` whose parameters (and buffers, with `use_buffers`) are running averages of the
    model's.

    `avg_fn(average, current, n)` returns a new average, `multi_avg_fn(averages, currents, n)` updates lists
    in place; the default is the equal average. The wrapped copy is `module`, the count the buffer
    `n_averaged`.
    """

    n_averaged: Any

    def __init__(
        self,
        model: Any,
        device: Any = None,
        avg_fn: Callable[..., Any] | None = None,
        multi_avg_fn: Callable[..., None] | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tocha.zeros((), dtype=tocha.long, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The averaged model's output."""
        return self.module(*args, **kwargs)

    def _averaged(self, model: Any) -> list[Any]:
        if self.use_buffers:
            return list(itertools.chain(model.parameters(), model.buffers()))
        return list(model.parameters())

    def update_parameters(self, model: Any) -> None:
        """Take the weights of `model` into the average; without `use_buffers`, its buffers are copied."""
        averages = [t.detach() for t in self._averaged(self.module)]
        currents = [t.detach().to(a.device) for t, a in zip(self._averaged(model), averages)]
        if self.n_averaged == 0:
            for average, current in zip(averages, currents):
                average.copy_(current)
        elif self.avg_fn is not None:
            for average, current in zip(averages, currents):
                average.copy_(self.avg_fn(average, current, self.n_averaged.to(average.device)))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())(averages, currents, self.n_averaged)
        if not self.use_buffers:
            for own, other in zip(self.module.buffers(), model.buffers()):
                own.detach().copy_(other.detach().to(own.device))
        self.n_averaged += 1


def update_bn(loader: Iterable[Any], model: Any, device: Any = None) -> None:
    """Recompute the running statistics of the batch norms in `model` over one pass of `loader`.

    A batch that is a list or tuple gives its first element to the model.
    """
    from tocha.nn.modules.batchnorm import _BatchNorm

    norms = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not norms:
        return
    momenta = [module.momentum for module in norms]
    was_training = model.training
    with tocha.no_grad():
        for module in norms:
            if module.running_mean is not None:
                module.running_mean.zero_()
            if module.running_var is not None:
                module.running_var.fill_(1)
        model.train()
        try:
            for module in norms:
                # None: cumulative average, so that all batches count alike.
                module.momentum = None
                if module.num_batches_tracked is not None:
                    module.num_batches_tracked.zero_()
            for batch in loader:
                inputs = batch[0] if isinstance(batch, (list, tuple)) else batch
                model(inputs.to(device) if device is not None else inputs)
        finally:
            for module, momentum in zip(norms, momenta):
                module.momentum = momentum
            model.train(was_training)


class SWALR(LRScheduler):
    """Anneal the rate of each group to `swa_lr` in `anneal_epochs` epochs, then keep it."""

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: float | list[float],
        anneal_epochs: int = 10,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        last_epoch: int = -1,
    ) -> None:
        for group, rate in zip(optimizer.param_groups, per_group("swa_lr", optimizer, swa_lr)):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must by one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """How far, from 0 to 1, the annealing is at `step`."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return (1 - math.cos(math.pi * t)) / 2 if self._anneal_strategy == "cos" else t

    def get_lr(self) -> list[Any]:
        self._warn_outside_step()
        # `step` counts this epoch already, except right after construction.
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(max(0, step - 1)), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, swa_lr = group["lr"], group["swa_lr"]
            # The group holds a mixture of the initial rate and swa_lr: recover the initial rate, then mix
            # anew.
            initial = swa_lr if before == 1 else (lr - before * swa_lr) / (1 - before)
            rates.append(swa_lr * now + initial * (1 - now))
        return rates
