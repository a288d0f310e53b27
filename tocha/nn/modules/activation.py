"""Activations and multi-head attention (torch docs: torch.nn, non-linear activations)."""

from __future__ import annotations

import warnings
from typing import Any

import tocha
from tocha.nn import functional as F
from tocha.nn import init
from tocha.nn.modules._attention import MultiheadAttention
from tocha.nn.modules.module import Module
from tocha.nn.parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "MultiheadAttention",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SELU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


def _inplace(module: Module, *shown: str) -> str:
    """Arguments for a repr: the attributes `shown`, then `inplace=True` if set."""
    parts = [f"{name}={getattr(module, name)}" for name in shown]
    if module.inplace:
        parts.append("inplace=True")
    return ", ".join(parts)


class Threshold(Module):
    """`x` where `x > threshold`, else `value`."""

    __constants__ = ["threshold", "value", "inplace"]

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self, "threshold", "value")


class ReLU(Module):
    """`max(x, 0)`."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.relu(input, inplace=True) if self.inplace else F.relu(input)

    def extra_repr(self) -> str:
        return _inplace(self)


class RReLU(Module):
    """Leaky ReLU with a slope drawn from [lower, upper] in training, else their mean (Xu et al. 2015)."""

    __constants__ = ["lower", "upper", "inplace"]

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self, "lower", "upper")


class Hardtanh(Module):
    """`x` limited to [min_val, max_val]."""

    __constants__ = ["min_val", "max_val", "inplace"]

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            warnings.warn(
                "keyword argument `min_value` is deprecated and rename to `min_val`",
                FutureWarning,
                stacklevel=2,
            )
            min_val = min_value
        if max_value is not None:
            warnings.warn(
                "keyword argument `max_value` is deprecated and rename to `max_val`",
                FutureWarning,
                stacklevel=2,
            )
            max_val = max_value
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self, "min_val", "max_val")


class ReLU6(Hardtanh):
    """`min(max(x, 0), 6)`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return _inplace(self)


class Sigmoid(Module):
    """`1 / (1 + exp(-x))`."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return tocha.sigmoid(input)


class Hardsigmoid(Module):
    """`relu6(x + 3) / 6`."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.hardsigmoid(input, self.inplace)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return tocha.tanh(input)


class SiLU(Module):
    """`x · sigmoid(x)`, also known as swish."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.silu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self)


class Mish(Module):
    """`x · tanh(softplus(x))` (Misra 2019)."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.mish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self)


class Hardswish(Module):
    """`x · relu6(x + 3) / 6` (Howard et al. 2019)."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.hardswish(input, self.inplace)


class ELU(Module):
    """`x` where positive, else `alpha·(exp(x) − 1)` (Clevert et al. 2015)."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self, "alpha")


class CELU(Module):
    """`max(0, x) + min(0, alpha·(exp(x/alpha) − 1))` (Barron 2017)."""

    __constants__ = ["alpha", "inplace"]

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self, "alpha")


class SELU(Module):
    """Self-normalising ELU with fixed constants (Klambauer et al. 2017)."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.selu(input, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self)


class GLU(Module):
    """`a · sigmoid(b)` for the halves `a`, `b` of `dim`."""

    __constants__ = ["dim"]

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Half the size along `dim`."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class GELU(Module):
    """`x · Φ(x)`, exact or with `approximate="tanh"` (Hendrycks and Gimpel 2016)."""

    __constants__ = ["approximate"]

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Hardshrink(Module):
    """`x` where `|x| > lambd`, else 0."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class LeakyReLU(Module):
    """`x` where positive, else `negative_slope · x`."""

    __constants__ = ["negative_slope", "inplace"]

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return _inplace(self, "negative_slope")


class LogSigmoid(Module):
    """`log(sigmoid(x))`."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.logsigmoid(input)


class Softplus(Module):
    """`log(1 + exp(beta·x)) / beta`, linear where `beta·x > threshold`."""

    __constants__ = ["beta", "threshold"]

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """`x` moved towards 0 by `lambd`, 0 within it."""

    __constants__ = ["lambd"]

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        return f"{self.lambd}"


class PReLU(Module):
    """Leaky ReLU with a learned slope, one or one a channel (He et al. 2015); weight (num_parameters,)."""

    __constants__ = ["num_parameters"]

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None) -> None:
        self.num_parameters = num_parameters
        super().__init__()
        self.init = init
        self.weight = Parameter(tocha.empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set every slope to `init`."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class Softsign(Module):
    """`x / (1 + |x|)`."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.softsign(input)


class Tanhshrink(Module):
    """`x − tanh(x)`."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.tanhshrink(input)


class Softmin(Module):
    """Softmax of the negated input along `dim`."""

    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.softmin(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmax(Module):
    """`exp(x) / Σ exp(x)` along `dim`."""

    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)


class Softmax2d(Module):
    """Softmax over the channels of (N, C, H, W) or (C, H, W)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        if input.dim() not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {input.dim()}D instead")
        return F.softmax(input, -3, _stacklevel=5)


class LogSoftmax(Module):
    """`log(softmax(x))` along `dim`."""

    __constants__ = ["dim"]

    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.log_softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.__dict__.setdefault("dim", None)
