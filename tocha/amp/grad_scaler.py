"""`GradScaler`: gradients of a scaled loss stay in half precision's range (Micikevicius et al. 2018, "Mixed Precision
Training"; torch docs: torch.amp.GradScaler)."""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable
from enum import Enum
from typing import Any

import tocha
from tocha.nn.parameter import gradients
from tocha.prims.native_rows import SCALE, alike, fused_update, reduced
from tocha.tensor import Tensor

__all__ = ["GradScaler", "OptState"]


class OptState(Enum):
    """Where an optimizer is within one step."""

    READY = 0
    UNSCALED = 1
    STEPPED = 2


def _fresh_state() -> dict[str, Any]:
    return {"stage": OptState.READY, "found_inf_per_device": {}}


def _columns(tensors: list[Tensor]) -> list[list[Tensor]]:
    """The tensors by device and dtype, float16 first: it may be refused, before anything is changed."""
    if alike(tensors):
        return [tensors]
    found: dict[Any, list[Tensor]] = {}
    for t in tensors:
        found.setdefault((t.dtype is not tocha.float16, t.device, t.dtype), []).append(t)
    return [found[key] for key in sorted(found, key=lambda key: key[0])]


def _scale(tensors: list[Tensor], factor: Tensor) -> None:
    numbers = {"factor": factor.item() if factor.is_cpu else factor}
    for i in fused_update(SCALE, {"grad": tensors}, lambda _: numbers):
        tensors[i].mul_(factor)


def _not_finite(tensors: list[Tensor]) -> Tensor:
    """1.0 if an element of tensors on one device is infinite or NaN, else 0.0."""
    sums = reduced("not_finite", tensors)
    if sums is not None:
        return tocha.tensor(float(sums.any()))  # type: ignore[operator]
    return tocha.stack([(~t.isfinite()).any() for t in tensors]).any().to(tocha.float32)


class GradScaler:
    """Scales losses by a factor that grows while gradients are finite and shrinks when they aren't; steps with infinite
    or NaN gradients are skipped."""

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self._device = device
        self._enabled = enabled
        if device == "cuda" and enabled and not tocha.cuda.is_available():
            warnings.warn("torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.", stacklevel=2)
            self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise AssertionError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise AssertionError("The backoff factor must be < 1.0.")
        self._init_scale, self._growth_factor, self._backoff_factor = init_scale, growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._init_growth_tracker = 0
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._per_optimizer_states: dict[int, dict[str, Any]] = defaultdict(_fresh_state)

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self._enabled

    # ---- scaling

    def _lazy_init_scale_growth_tracker(self, dev: Any) -> None:
        if self._growth_tracker is not None:
            raise AssertionError("_growth_tracker initialized before _scale")
        self._scale = tocha.full((), self._init_scale, dtype=tocha.float32, device=dev)
        self._growth_tracker = tocha.full((), self._init_growth_tracker, dtype=tocha.int32, device=dev)

    def scale(self, outputs: Any) -> Any:
        """A tensor, or an iterable of tensors, times the factor."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            assert self._scale is not None
            return outputs * self._scale.to(device=outputs.device)
        if isinstance(outputs, Iterable):
            scaled = [self.scale(o) for o in outputs]
            return type(outputs)(scaled) if isinstance(outputs, (list, tuple)) else iter(scaled)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    def _state_of(self, optimizer: Any, where: str) -> dict[str, Any]:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {where} but _scale is None.  This may indicate your script did not use scaler.scale(loss "
                "or outputs) earlier in the iteration."
            )
        return self._per_optimizer_states[id(optimizer)]

    def _unscale_grads_(self, optimizer: Any, inv_scale: Any, found_inf: Any, allow_fp16: bool) -> dict[Any, Tensor]:
        """Multiply all gradients by `inv_scale` in place; for each device whether one isn't finite (1.0 or 0.0)."""
        grads = [g for group in optimizer.param_groups for g in gradients(group["params"]) if g is not None]
        found: dict[Any, Tensor] = {}
        with tocha.no_grad():
            for column in _columns(grads):
                where, dtype = column[0].device, column[0].dtype
                if not allow_fp16 and dtype is tocha.float16:
                    raise ValueError("Attempting to unscale FP16 gradients.")
                bad = _not_finite(column)
                found[where] = bad if where not in found else tocha.maximum(found[where], bad)
                own = dtype is inv_scale.dtype and where == inv_scale.device
                _scale(column, inv_scale if own else inv_scale.to(device=where, dtype=dtype))
        return found

    def unscale_(self, optimizer: Any) -> None:
        """Divide the optimizer's gradients by the factor, once between `update`s: before clipping, say."""
        if not self._enabled:
            return
        state = self._state_of(optimizer, "unscale_")
        if state["stage"] is OptState.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        assert self._scale is not None
        inverse = self._scale.double().reciprocal().float()
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, inverse, None, False)
        state["stage"] = OptState.UNSCALED

    # ---- stepping

    def _maybe_opt_step(self, optimizer: Any, state: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        if not any(bad.item() for bad in state["found_inf_per_device"].values()):
            return optimizer.step(*args, **kwargs)
        return None

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(...)` on unscaled gradients, unless one isn't finite."""
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        state = self._state_of(optimizer, "step")
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        if not state["found_inf_per_device"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        got = self._maybe_opt_step(optimizer, state, *args, **kwargs)
        state["stage"] = OptState.STEPPED
        return got

    def update(self, new_scale: Any = None) -> None:
        """Shrink the factor if a gradient wasn't finite, grow it after `growth_interval` steps in a row where all were; or
        set it."""
        if not self._enabled:
            return
        if self._scale is None or self._growth_tracker is None:
            raise AssertionError(
                "Attempted update but _scale is None.  This may indicate your script did not use scaler.scale(loss "
                "or outputs) earlier in the iteration."
            )
        if new_scale is not None:
            if isinstance(new_scale, Tensor) and (new_scale.numel() != 1 or new_scale.requires_grad):
                raise AssertionError(
                    "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
                    "requires_grad=False."
                )
            self._scale.fill_(new_scale)
        else:
            found = [bad for s in self._per_optimizer_states.values() for bad in s["found_inf_per_device"].values()]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            self._follow(any(bad.item() for bad in found))
        self._per_optimizer_states = defaultdict(_fresh_state)

    def _follow(self, overflow: bool) -> None:
        assert self._scale is not None and self._growth_tracker is not None
        if overflow:
            self._scale.mul_(self._backoff_factor)
            self._growth_tracker.fill_(0)
            return
        steps = int(self._growth_tracker.item()) + 1
        if steps == self._growth_interval:
            grown = float(self._scale.item()) * self._growth_factor
            if grown <= tocha.finfo(tocha.float32).max:
                self._scale.fill_(grown)
            steps = 0
        self._growth_tracker.fill_(steps)

    # ---- numbers and saving

    def _get_scale_async(self) -> Tensor | None:
        return self._scale

    def _get_growth_tracker(self) -> int:
        if not self._enabled:
            return 0
        return self._init_growth_tracker if self._growth_tracker is None else int(self._growth_tracker.item())

    def get_scale(self) -> float:
        """The factor now; 1.0 when disabled. Waits for the device."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor, "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval, "_growth_tracker": self._get_growth_tracker(),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state; RuntimeError for that of a disabled scaler."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError("The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.")  # fmt: skip
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(self._init_scale)
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._init_growth_tracker = state_dict["_growth_tracker"]
        if self._growth_tracker is not None:
            self._growth_tracker.fill_(self._init_growth_tracker)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._enabled:
            if self._per_optimizer_states:
                raise AssertionError(
                    "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                    "scaler.update()."
                )
            state["_init_scale"], state["_init_growth_tracker"] = self.get_scale(), self._get_growth_tracker()
            state["_scale"] = state["_growth_tracker"] = None
        return state

    def _check_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        state = self._state_of(optimizer, "_check_inf_per_device")
        one = tocha.full((), 1.0, dtype=tocha.float32, device=self._scale.device)  # type: ignore[union-attr]
        state["found_inf_per_device"] = self._unscale_grads_(optimizer, one, None, True)
        return state["found_inf_per_device"]

    def _found_inf_per_device(self, optimizer: Any) -> dict[Any, Tensor]:
        return self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
