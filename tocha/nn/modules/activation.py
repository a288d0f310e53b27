"""Activations and multi-head attention (torch docs: torch.nn, non-linear activations)."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar

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


class _Overwriting(Module):
    """An activation that may take its input's memory; its repr has the attributes `_shown`, then `inplace=True` if set."""

    __constants__ = ["inplace"]
    _shown: ClassVar[tuple[str, ...]] = ()

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        parts = [f"{name}={getattr(self, name)}" for name in self._shown]
        return ", ".join([*parts, "inplace=True"] if self.inplace else parts)


class Threshold(_Overwriting):
    """`x` where `x > threshold`, else `value`."""

    __constants__ = ["threshold", "value", "inplace"]
    _shown = ("threshold", "value")

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.threshold = threshold
        self.value = value

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.threshold(input, self.threshold, self.value, self.inplace)


class ReLU(_Overwriting):
    """`max(x, 0)`."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.relu(input, inplace=True) if self.inplace else F.relu(input)


class RReLU(_Overwriting):
    """Leaky ReLU with a slope drawn from [lower, upper] in training, else their mean (Xu et al. 2015)."""

    __constants__ = ["lower", "upper", "inplace"]
    _shown = ("lower", "upper")

    def __init__(self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.lower = lower
        self.upper = upper

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(_Overwriting):
    """`x` limited to [min_val, max_val]."""

    __constants__ = ["min_val", "max_val", "inplace"]
    _shown: ClassVar[tuple[str, ...]] = ("min_val", "max_val")

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__(inplace)
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
        if self.max_val <= self.min_val:
            raise AssertionError(f"max_val ({self.max_val}) must be greater than min_val ({self.min_val})")

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """`min(max(x, 0), 6)`."""

    _shown = ()

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


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


class SiLU(_Overwriting):
    """`x · sigmoid(x)`, also known as swish."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.silu(input, inplace=self.inplace)


class Mish(_Overwriting):
    """`x · tanh(softplus(x))` (Misra 2019)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.mish(input, inplace=self.inplace)


class Hardswish(Module):
    """`x · relu6(x + 3) / 6` (Howard et al. 2019)."""

    __constants__ = ["inplace"]

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.hardswish(input, self.inplace)


class ELU(_Overwriting):
    """`x` where positive, else `alpha·(exp(x) − 1)` (Clevert et al. 2015)."""

    __constants__ = ["alpha", "inplace"]
    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Overwriting):
    """`max(0, x) + min(0, alpha·(exp(x/alpha) − 1))` (Barron 2017)."""

    __constants__ = ["alpha", "inplace"]
    _shown = ("alpha",)

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.celu(input, self.alpha, self.inplace)


class SELU(_Overwriting):
    """Self-normalising ELU with fixed constants (Klambauer et al. 2017)."""

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.selu(input, self.inplace)


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


class LeakyReLU(_Overwriting):
    """`x` where positive, else `negative_slope · x`."""

    __constants__ = ["negative_slope", "inplace"]
    _shown = ("negative_slope",)

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input: Any) -> Any:
        """Same shape as the input."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)


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
