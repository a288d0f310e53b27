"""The base of learning-rate schedulers: where rates are read and written, and when a step is due.

Source: torch docs, torch.optim.lr_scheduler.LRScheduler. Attribute names are those that torch's checkpoints
hold.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import tocha

from ..optimizer import Optimizer

EPOCH_DEPRECATION_WARNING = (
    "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where "
    "possible. Please use "
    "`scheduler.step()` to step the scheduler. During the deprecation, if epoch is different from "
    "None, the closed "
    "form is used instead of the new chainable form, where available."
)


def copied(value: Any) -> Any:
    """A tensor's own copy, so that a later in-place change of a rate does not reach it; numbers as they
    are.
    """
    return value.clone() if isinstance(value, tocha.Tensor) else value


def group_values(optimizer: Optimizer, key: str) -> list[Any]:
    """Option `key` of each parameter group."""
    return [copied(group[key]) for group in optimizer.param_groups]


def set_group_value(group: dict[str, Any], key: str, value: Any) -> None:
    """Set an option; a tensor is written in place, because captured graphs and compiled steps hold it."""
    old = group[key]
    if isinstance(old, tocha.Tensor):
        if isinstance(value, tocha.Tensor):
            old.copy_(value.reshape(old.shape))
        else:
            old.fill_(value)
    else:
        group[key] = value


def per_group(name: str, optimizer: Optimizer, value: Any) -> list[Any]:
    """`value` for each parameter group; raises ValueError when a list has another length."""
    groups = len(optimizer.param_groups)
    if not isinstance(value, (list, tuple)):
        return [copied(value) for _ in range(groups)]
    if len(value) != groups:
        raise ValueError(
            f"{name} must have the same length as optimizer.param_groups. "
            f"{name} has {len(value)} values, param_groups has {groups}."
        )
    return [copied(v) for v in value]


class LRScheduler:
    """Base of schedulers: a subclass gives `get_lr` and may give `_get_closed_form_lr`.

    `last_epoch=-1` starts a schedule; any other value resumes one and needs "initial_lr" in each parameter
    group.
    """

    _get_lr_called_within_step: bool = False
    _is_initial: bool = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(optimizer).__name__} is not an Optimizer")
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                group.setdefault("initial_lr", copied(group["lr"]))
            elif "initial_lr" not in group:
                raise KeyError(
                    f"param 'initial_lr' is not specified in param_groups[{i}] when resuming scheduler with "
                    "last_epoch >= 0. Set it, or load the optimizer's state first."
                )
        self.base_lrs = group_values(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        _track_step(optimizer)
        self._initial_step()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch."""
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def state_dict(self) -> dict[str, Any]:
        """All attributes except the optimizer."""
        return {key: value for key, value in self.__dict__.items() if key != "optimizer"}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict()` of the same kind of scheduler returned."""
        self.__dict__.update(state_dict)

    def get_last_lr(self) -> list[Any]:
        """The rates set by the last step."""
        return self._last_lr

    def get_lr(self) -> list[Any]:
        """The rates of `last_epoch`, from those now in the optimizer."""
        raise NotImplementedError(f"{type(self).__name__}.get_lr: a scheduler has to define `get_lr`")

    def _warn_outside_step(self) -> None:
        if not self._get_lr_called_within_step:
            warnings.warn(
                "To get the last learning rate computed by the scheduler, please use `get_last_lr()`.",
                stacklevel=3,
            )

    def _current(self) -> list[Any]:
        return group_values(self.optimizer, "lr")

    def step(self, epoch: int | None = None) -> None:
        """Go to the next epoch, or to `epoch` (deprecated), and set the rates."""
        if self._step_count == 1:
            self._warn_about_order()
        self._step_count += 1
        if epoch is not None:
            warnings.warn(EPOCH_DEPRECATION_WARNING, UserWarning, stacklevel=2)
        self._update_lr(epoch)

    def _warn_about_order(self) -> None:
        if not hasattr(self.optimizer.step, "_wrapped_by_lr_sched"):
            warnings.warn(
                "Seems like `optimizer.step()` has been overridden after learning rate scheduler "
                "initialization. "
                "Please, make sure to call `optimizer.step()` before `lr_scheduler.step()`.",
                UserWarning,
                stacklevel=3,
            )
        elif not getattr(self.optimizer, "_opt_called", False):
            warnings.warn(
                "Detected call of `lr_scheduler.step()` before `optimizer.step()`. You should call "
                "them in the "
                "opposite order: `optimizer.step()` before `lr_scheduler.step()`. Failure to do "
                "this will result in "
                "skipping the first value of the learning rate schedule.",
                UserWarning,
                stacklevel=3,
            )

    def _update_lr(self, epoch: int | None = None) -> None:
        with _within_step(self):
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                closed_form = getattr(self, "_get_closed_form_lr", self.get_lr)
                values = closed_form()
        for group, lr in zip(self.optimizer.param_groups, values):
            set_group_value(group, "lr", lr)
        self._last_lr = self._current()


@contextmanager
def _within_step(scheduler: LRScheduler) -> Iterator[None]:
    scheduler._get_lr_called_within_step = True
    try:
        yield
    finally:
        scheduler._get_lr_called_within_step = False


def _track_step(optimizer: Optimizer) -> None:
    """Let the optimizer remember that it made a step, for the warning about the order of steps."""
    step: Any = optimizer.step
    if hasattr(step, "_wrapped_by_lr_sched"):
        return
    # A strong reference from the optimizer to itself would leave its state to the cycle collector.
    owner = weakref.ref(optimizer)
    function = getattr(step, "__func__", None)

    @functools.wraps(function or step)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        self: Any = owner()
        self._opt_called = True
        return function(self, *args, **kwargs) if function is not None else step(*args, **kwargs)

    wrapper._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
    optimizer.step = wrapper  # type: ignore[method-assign]


def function_state(function: Any) -> dict[str, Any] | None:
    """What a checkpoint keeps of a user's function: the attributes of a callable object, nothing of a
    function.
    """
    import types

    return None if isinstance(function, types.FunctionType) else dict(function.__dict__)
