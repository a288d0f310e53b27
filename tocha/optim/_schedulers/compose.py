"""Schedules made of schedules: one after another, or all at once.

Source: torch docs, SequentialLR, ChainedScheduler.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from ..optimizer import Optimizer
from .base import LRScheduler, set_group_value
from .plateau import ReduceLROnPlateau


def _check_members(name: str, schedulers: Sequence[Any], optimizer: Any) -> None:
    """Raise TypeError or ValueError unless all `schedulers` can be stepped without arguments on
    `optimizer`.
    """
    for i, scheduler in enumerate(schedulers):
        if not hasattr(scheduler, "optimizer"):
            raise TypeError(f"{name} at index {i} should have `optimizer` as its attribute.")
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError(
                f"{name} does not support `ReduceLROnPlateau` scheduler as it requires additional "
                "kwargs to be "
                f"specified when calling `step`, but got one at index {i} in the given schedulers sequence."
            )
        if scheduler.optimizer is not optimizer:
            raise ValueError(
                f"{name} expects all schedulers to belong to the same optimizer, but got scheduler "
                f"{type(scheduler).__name__} at index {i} has {scheduler.optimizer}, "
                f"which is different from {type(optimizer).__name__}."
            )


class _Composite(LRScheduler):
    """What both kinds share: members, and state made of theirs."""

    _schedulers: list[Any]

    def state_dict(self) -> dict[str, Any]:
        """All attributes except the optimizer, with the members' states under "_schedulers"."""
        state = {key: value for key, value in self.__dict__.items() if key not in ("optimizer", "_schedulers")}
        state["_schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict()` returned, the members' states included."""
        self.__dict__.update({key: value for key, value in state_dict.items() if key != "_schedulers"})
        for scheduler, state in zip(self._schedulers, state_dict["_schedulers"]):
            scheduler.load_state_dict(state)


class SequentialLR(_Composite):
    """Each scheduler in turn; the one at index i + 1 starts, at its epoch 0, at epoch `milestones[i]`."""

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        if len(schedulers) < 1:
            raise ValueError("SequentialLR expects at least one scheduler, but got no scheduler.")
        _check_members("SequentialLR", schedulers, optimizer)
        if len(milestones) != len(schedulers) - 1:
            raise ValueError(
                "Sequential Schedulers expects number of schedulers provided to be one more than "
                "the number of "
                f"milestone points, but got number of schedulers {len(schedulers)} and the number "
                "of milestones to "
                f"be equal to {len(milestones)}"
            )
        self._schedulers = schedulers
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        self.optimizer = optimizer
        # Each member has set the rates of its own first epoch; only the first one's may stand.
        for group in optimizer.param_groups:
            set_group_value(group, "lr", group["initial_lr"])
        self.recursive_undo()
        schedulers[0]._initial_step()
        self._last_lr = schedulers[0].get_last_lr()

    def recursive_undo(self, sched: Any = None) -> None:
        """Take back the first step of all members, at every depth."""
        scheduler = self if sched is None else sched
        if hasattr(scheduler, "_schedulers"):
            for member in scheduler._schedulers:
                self.recursive_undo(member)
        elif hasattr(scheduler, "last_epoch"):
            scheduler.last_epoch -= 1

    def _initial_step(self) -> None:
        """Set the rates of the first epoch, as a member of another SequentialLR."""
        self._schedulers[0]._initial_step()
        self._last_lr = self._schedulers[0].get_last_lr()

    def _update_lr(self, epoch: int | None = None) -> None:
        """Start at epoch 0, as the next member of another SequentialLR."""
        self.last_epoch = 0
        self._schedulers[0]._update_lr(0)
        self._last_lr = self._schedulers[0].get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Go to the next epoch of the scheduler in charge."""
        self.last_epoch += 1
        index = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[index]
        if index > 0 and self._milestones[index - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


class ChainedScheduler(_Composite):
    """All schedulers, one after the other, at each step."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        if len(schedulers) < 1:
            raise ValueError("ChainedScheduler expects at least one scheduler to be chained, but got no scheduler.")
        optimizer = optimizer or getattr(schedulers[0], "optimizer", None)
        _check_members("ChainedScheduler", schedulers, optimizer)
        self._schedulers = list(schedulers)
        self.optimizer = optimizer  # type: ignore[assignment]
        self._last_lr = self._current()

    def _initial_step(self) -> None:
        """Set the rates of the first epoch, as a member of a SequentialLR."""
        for group in self.optimizer.param_groups:
            set_group_value(group, "lr", group["initial_lr"])
        for scheduler in self._schedulers:
            scheduler._initial_step()
        self._last_lr = self._current()

    def _update_lr(self, epoch: int | None = None) -> None:
        """Start at epoch 0, as the next member of a SequentialLR."""
        self._initial_step()

    def step(self) -> None:  # type: ignore[override]
        """Step every member."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = self._current()
