"""Switches of torch's that are about speed or reproducibility, and names for symbolic sizes, of which there are none.

Every algorithm here is deterministic on the CPU, so the deterministic mode only remembers what it was told.
"""

from __future__ import annotations

import math
import operator
import warnings
from typing import Any

from tocha import dtypes

_deterministic = [False, False]  # whether on; whether only a warning
_precision = ["highest"]
_warn_always = [False]


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms (torch docs: torch.use_deterministic_algorithms)."""
    _deterministic[:] = bool(mode), bool(mode and warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` is on."""
    return _deterministic[0]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it was asked only to warn."""
    return _deterministic[1]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or 'default': off; 1 or 'warn'; 2 or 'error'."""
    names = {"default": 0, "warn": 1, "error": 2}
    level = names.get(debug_mode, debug_mode) if isinstance(debug_mode, str) else debug_mode
    if level not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, 2 or `default`, `warn`, `error`, but got {debug_mode}")
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode() -> int:
    """What `set_deterministic_debug_mode` set, as a number."""
    return 0 if not _deterministic[0] else 1 if _deterministic[1] else 2


def set_float32_matmul_precision(precision: str) -> None:
    """'highest', 'high' or 'medium': how exact float32 products must be. CPU products are always exact to float32."""
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', and 'medium'; the current precision stays {_precision[0]}",
            stacklevel=2,
        )
        return
    _precision[0] = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` set."""
    return _precision[0]


def set_warn_always(b: bool, /) -> None:
    """Whether warnings repeat."""
    _warn_always[0] = bool(b)
    if b:
        warnings.simplefilter("always", UserWarning)


def is_warn_always_enabled() -> bool:
    """Whether `set_warn_always` is on."""
    return _warn_always[0]


def set_flush_denormal(mode: bool) -> bool:
    """False: the processor's treatment of denormal numbers can't be changed from here."""
    return False


def set_default_tensor_type(t: Any, /) -> None:
    """Make the type of `torch.DoubleTensor` and its kind the default of new floating-point tensors."""
    from tocha.device import set_default_device

    name = t if isinstance(t, str) else f"torch.{'cuda.' if 'cuda' in str(t) else ''}{getattr(t, '__name__', t)}"
    kind = name.rpartition(".")[2].removesuffix("Tensor").lower()
    found = {"float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16}.get(kind)
    if found is None:
        raise TypeError(f"only floating-point types are supported as the default type, got {name}")
    dtypes.set_default_dtype(found)
    if ".cuda." in name:
        set_default_device("cuda")


def compiled_with_cxx11_abi() -> bool:
    """True, as everywhere by now; nothing here is compiled C++."""
    return True


def is_vulkan_available() -> bool:
    """False."""
    return False


def get_device_module(device: Any = None) -> Any:
    """The module `torch.cuda`, `torch.cpu`, … of a device (default: the accelerator's, else the CPU's)."""
    import tocha

    if device is None:
        device = tocha.accelerator.current_accelerator() or "cpu"
    kind = tocha.device(device).type
    found = getattr(tocha, kind, None)
    if found is None:
        raise RuntimeError(f"Device '{kind}' does not have a corresponding module registered as 'torch.{kind}'.")
    return found


def _assert(condition: Any, message: str) -> None:
    """`assert`, as a function."""
    assert condition, message


class SymInt:
    """The type of symbolic sizes. Sizes are ints here: nothing is an instance."""

    def __init__(self, *args: Any) -> None:
        raise RuntimeError("there are no symbolic sizes here")


class SymFloat(SymInt):
    """The type of symbolic floats; as SymInt."""


class SymBool(SymInt):
    """The type of symbolic truth values; as SymInt."""


def sym_max(a: Any, b: Any) -> Any:
    """max(a, b), a float if one of them is."""
    return float(max(a, b)) if isinstance(a, float) or isinstance(b, float) else max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    """min(a, b), a float if one of them is."""
    return float(min(a, b)) if isinstance(a, float) or isinstance(b, float) else min(a, b)


sym_int, sym_float, sym_not, sym_sqrt, sym_sum = int, float, operator.not_, math.sqrt, sum


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    """t if b else f."""
    return t if b else f
