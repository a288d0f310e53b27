"""`autocast` and the functions around it (torch docs: Automatic Mixed Precision package)."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from tocha import dtypes
from tocha.device import device
from tocha.dispatch.autocast import TABLE, current, eligible
from tocha.dtypes import dtype as DType
from tocha.tensor import Tensor

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast exists for a device type: cpu and cuda."""
    return device(device_type).type in TABLE


def autocast_decorator(autocast_instance: autocast, func: Callable[..., Any]) -> Callable[..., Any]:
    """`func` run under the context each time."""

    @functools.wraps(func)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast_instance:
            return func(*args, **kwargs)

    decorated.__script_unsupported = "@autocast() decorator is not supported in script mode"  # type: ignore[attr-defined]
    return decorated


class autocast:
    """Inside, products run in `dtype` and operators that need the range in float32 (torch docs: torch.autocast).
    Also a decorator. `dtype` is float16 on cuda and bfloat16 on cpu by default."""

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        self.device = device_type
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        state = current()
        self.fast_dtype = state.dtypes[device_type] if dtype is None else dtype
        self._cache_enabled = state.cache_enabled if cache_enabled is None else cache_enabled
        self._enabled = enabled and self._usable()
        self._held: list[tuple[bool, DType, bool]] = []

    def _usable(self) -> bool:
        if self.device == "cuda":
            from tocha.backends import cuda

            if cuda.device_count() == 0:
                warnings.warn("CUDA is not available or torch_xla is imported. Disabling autocast.", stacklevel=3)
                return False
            if self.fast_dtype not in (dtypes.float16, dtypes.bfloat16):
                warnings.warn(_UNSUPPORTED.format("CUDA", "torch.float16, torch.bfloat16"), stacklevel=3)
                return False
        elif self.fast_dtype not in (dtypes.float16, dtypes.bfloat16):
            warnings.warn(_UNSUPPORTED.format("CPU", "torch.bfloat16, torch.float16"), stacklevel=3)
            return False
        return True

    def __enter__(self) -> autocast:
        state = current()
        self._held.append((state.enabled[self.device], state.dtypes[self.device], state.cache_enabled))
        state.enabled[self.device], state.dtypes[self.device] = self._enabled, self.fast_dtype
        state.cache_enabled = self._cache_enabled
        state.nesting += 1
        state.mark()
        return self

    def __exit__(self, *exc: object) -> None:
        state = current()
        state.nesting -= 1
        if state.nesting == 0:
            state.cache.clear()
        state.enabled[self.device], state.dtypes[self.device], state.cache_enabled = self._held.pop()
        state.mark()

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        return autocast_decorator(self, func)


_UNSUPPORTED = (
    "In {0} autocast, but the target dtype is not supported. Disabling autocast.\n{0} Autocast only supports dtypes of {1} "
    "currently."
)


# ---- asking and setting


def _kind(device_type: str) -> str:
    return device(device_type).type


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a device type (torch docs: torch.is_autocast_enabled)."""
    return current().enabled.get(_kind(device_type), False)


def set_autocast_enabled(*args: Any) -> None:
    """`set_autocast_enabled(device_type, enabled)`; with one argument for cuda."""
    kind, enabled = args if len(args) == 2 else ("cuda", *args)
    state = current()
    state.enabled[_supported(kind)] = bool(enabled)
    state.mark()


def _supported(device_type: str) -> str:
    kind = _kind(device_type)
    if kind not in TABLE:
        raise RuntimeError(f"unknown device type for autocast in set_autocast_enabled: {kind}")
    return kind


def get_autocast_dtype(device_type: str) -> DType:
    """The type products run in (torch docs: torch.get_autocast_dtype)."""
    found = current().dtypes.get(_kind(device_type))
    if found is None:
        raise RuntimeError(f"unknown device type for autocast in get_autocast_dtype: {device_type}")
    return found


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the type products run in."""
    current().dtypes[_supported(device_type)] = dtype


def is_autocast_cpu_enabled() -> bool:
    """`is_autocast_enabled('cpu')`."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """`set_autocast_enabled('cpu', enabled)`."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> DType:
    """`get_autocast_dtype('cpu')`."""
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    """`get_autocast_dtype('cuda')`."""
    return get_autocast_dtype("cuda")


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype('cpu', dtype)`."""
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """`set_autocast_dtype('cuda', dtype)`."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are kept while autocast lasts."""
    return current().cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of parameters while autocast lasts, or not."""
    current().cache_enabled = bool(enabled)


def clear_autocast_cache() -> None:
    """Drop the casts kept."""
    current().cache.clear()


def autocast_increment_nesting() -> int:
    """Count one more level of autocast; the new depth."""
    current().nesting += 1
    return current().nesting


def autocast_decrement_nesting() -> int:
    """Count one level less; the new depth."""
    current().nesting -= 1
    return current().nesting


def _enter_autocast(*values: Any) -> autocast:
    mode = autocast(*values)
    mode.__enter__()
    return mode


def _exit_autocast(mode: autocast) -> None:
    mode.__exit__(None, None, None)


# ---- custom autograd functions


def _cast(value: Any, device_type: str, dtype: DType) -> Any:
    """Floating-point tensors (not float64) on the device cast, in tuples, lists and dicts too."""
    if isinstance(value, Tensor):
        return value.to(dtype) if eligible(value, device_type) else value
    if isinstance(value, dict):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return type(value)(_cast(v, device_type, dtype) for v in value)
    return value


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """Decorate the forward of an autograd.Function: with `cast_inputs` it runs with autocast off on inputs of that type
    (torch docs: torch.amp.custom_fwd)."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        args[0]._dtype = get_autocast_dtype(device_type)
        enabled = is_autocast_enabled(device_type)
        if cast_inputs is None or not enabled:
            args[0]._fwd_used_autocast = enabled if cast_inputs is None else False
            return fwd(*args, **kwargs)
        args[0]._fwd_used_autocast = False
        with autocast(device_type=device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Decorate the backward of an autograd.Function: it runs with autocast as the forward did (torch docs:
    torch.amp.custom_bwd)."""
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        with autocast(device_type=device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated
