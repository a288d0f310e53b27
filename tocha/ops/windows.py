"""Window functions: torch.signal.windows and the older torch.hann_window and kin.

A window of M points is sampled from one of N = M points (symmetric) or N = M + 1 (periodic: its last point left out).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_dtype
from tocha.ops.creation import from_host, with_grad
from tocha.tensor import Tensor


def _cosines(i: Any, span: float, a: Iterable[float]) -> Any:
    terms = [(-1) ** k * c * np.cos(2 * np.pi * k * i / span) for k, c in enumerate(a)]
    return np.sum(terms, axis=0)


def _bartlett(i: Any, n: int) -> Any:
    return 1 - np.abs(2 * i / (n - 1) - 1)


def _cosine(i: Any, n: int) -> Any:
    return np.sin(np.pi * (i + 0.5) / n)


def _exponential(i: Any, n: int, center: float | None, tau: float) -> Any:
    return np.exp(-np.abs(i - ((n - 1) / 2 if center is None else center)) / tau)


def _gaussian(i: Any, n: int, std: float) -> Any:
    return np.exp(-(((i - (n - 1) / 2) / std) ** 2) / 2)


def _kaiser(i: Any, n: int, beta: float) -> Any:
    half = (n - 1) / 2
    return np.i0(beta * np.sqrt(np.maximum(1 - ((i - half) / half) ** 2, 0))) / np.i0(beta)


def _sample(rule: Callable[[Any, int], Any], m: int, symmetric: bool) -> Any:
    if m <= 1:
        return np.ones(m)
    return rule(np.arange(m, dtype=np.float64), m if symmetric else m + 1)


def _window(
    name: str, rule: Callable[[Any, int], Any], m: Any, sym: bool, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    found = check_dtype(dtype, name) or dtypes.get_default_dtype()
    if not hasattr(m, "__index__"):
        raise TypeError(f"{name}(): argument 'M' must be int, not {type(m).__name__}")
    if m < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={m}")
    if found not in (dtypes.float32, dtypes.float64):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {found}")
    return with_grad(from_host(_sample(rule, m, sym), found, device), requires_grad)


def _simple(name: str, rule: Callable[[Any, int], Any], doc: str) -> None:
    def window(
        M: int, *, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
    ) -> Tensor:
        return _window(name, rule, M, sym, dtype, device, requires_grad)

    op("windows", name=name, doc=f"{doc} (torch docs: torch.signal.windows.{name}).")(window)


def _cosine_sum(*a: float) -> Callable[[Any, int], Any]:
    return lambda i, n: _cosines(i, n - 1, a)


_simple("bartlett", _bartlett, "A triangle, zero at both ends")
_simple("blackman", _cosine_sum(0.42, 0.5, 0.08), "Blackman's sum of three cosines")
_simple("cosine", _cosine, "Half a period of a sine")
_simple("hann", _cosine_sum(0.5, 0.5), "A raised cosine, zero at both ends")
_simple("nuttall", _cosine_sum(0.3635819, 0.4891775, 0.1365995, 0.0106411), "Nuttall's minimum 4-term cosine sum")


@op("windows")
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """e^(-|i - center| / tau) (torch docs: torch.signal.windows.exponential)."""
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    return _window("exponential", lambda i, n: _exponential(i, n, center, tau), M, sym, dtype, device, requires_grad)


@op("windows")
def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """A bell of standard deviation `std` (torch docs: torch.signal.windows.gaussian)."""
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window("gaussian", lambda i, n: _gaussian(i, n, std), M, sym, dtype, device, requires_grad)


@op("windows")
def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window (torch docs: torch.signal.windows.kaiser)."""
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", lambda i, n: _kaiser(i, n, beta), M, sym, dtype, device, requires_grad)


@op("windows")
def general_cosine(
    M: int, *, a: Any, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A sum of cosines with coefficients of alternating sign (torch docs: torch.signal.windows.general_cosine)."""
    if not isinstance(a, Iterable):
        raise TypeError("Coefficients must be a list/tuple")
    coefficients = tuple(a)
    if not coefficients:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", _cosine_sum(*coefficients), M, sym, dtype, device, requires_grad)


def _hamming(name: str, default: float) -> None:
    def window(
        M: int, *, alpha: float = default, sym: bool = True, dtype: Any = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        return _window(name, _cosine_sum(alpha, 1 - alpha), M, sym, dtype, device, requires_grad)

    op("windows", name=name, doc=f"alpha - (1 - alpha) cos (torch docs: torch.signal.windows.{name}).")(window)


_hamming("general_hamming", 0.54)
_hamming("hamming", 0.54)


# ---- the older spellings


def _legacy(
    name: str, rule: Callable[[Any, int], Any], length: Any, periodic: bool, dtype: Any, device: Any, requires_grad: bool
) -> Tensor:
    found = check_dtype(dtype, name) or dtypes.get_default_dtype()
    if not hasattr(length, "__index__"):
        raise TypeError(f"{name}(): argument 'window_length' (position 1) must be int, not {type(length).__name__}")
    if not found.is_floating_point:
        raise RuntimeError(f"{name} expects floating point dtypes, got: {found}")
    if length < 0:
        raise RuntimeError(f"{name} requires non-negative window_length, got window_length={length}")
    return with_grad(from_host(_sample(rule, length, not periodic), found, device), requires_grad)


def _legacy_simple(name: str, rule: Callable[[Any, int], Any]) -> None:
    def window(
        window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: bool = False, requires_grad: bool = False,
    ) -> Tensor:  # fmt: skip
        return _legacy(name, rule, window_length, periodic, dtype, device, requires_grad)

    op("torch", name=name, doc=f"A window function (torch docs: torch.{name}).")(window)


_legacy_simple("hann_window", _cosine_sum(0.5, 0.5))
_legacy_simple("blackman_window", _cosine_sum(0.42, 0.5, 0.08))
_legacy_simple("bartlett_window", _bartlett)


@op("torch")
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta cos (torch docs: torch.hamming_window)."""
    return _legacy("hamming_window", _cosine_sum(alpha, beta), window_length, periodic, dtype, device, requires_grad)


@op("torch")
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, layout: Any = None,
    device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Kaiser's window (torch docs: torch.kaiser_window)."""
    rule = lambda i, n: _kaiser(i, n, beta)  # noqa: E731
    return _legacy("kaiser_window", rule, window_length, periodic, dtype, device, requires_grad)
