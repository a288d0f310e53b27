"""Von Mises distribution on the circle; samples by rejection (Best & Fisher 1979)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import tocha
from tocha.distributions import constraints
from tocha.distributions._elementary import Elementary
from tocha.distributions.utils import lazy_property

__all__ = ["VonMises"]


def _log_bessel(x: Any, order: int) -> Any:
    """log I_order(x) for positive x and order 0 or 1."""
    scaled = tocha.special.i0e(x) if order == 0 else tocha.special.i1e(x)
    return scaled.log() + x


class VonMises(Elementary):
    """Angles around `loc`, density proportional to exp(concentration cos(x - loc))
    (torch docs: torch.distributions.von_mises.VonMises)."""

    arg_constraints: ClassVar[Any] = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False
    loc: Any
    concentration: Any

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._start(validate_args, loc=loc, concentration=concentration)

    def log_prob(self, value: Any) -> Any:
        if self._validate_args:
            self._validate_sample(value)
        log_prob = self.concentration * tocha.cos(value - self.loc)
        return log_prob - math.log(2 * math.pi) - _log_bessel(self.concentration, 0)

    @lazy_property
    def _proposal_r(self) -> Any:
        """The parameter of the wrapped Cauchy envelope, in double precision; its Taylor expansion where that fails."""
        kappa = self.concentration.to(tocha.double)
        tau = 1 + (1 + 4 * kappa**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * kappa)
        return tocha.where(kappa < 1e-5, 1 / kappa + kappa, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = ()) -> Any:
        with tocha.no_grad():
            shape = self._extended_shape(sample_shape)
            loc, kappa = self.loc.to(tocha.double), self.concentration.to(tocha.double)
            r = self._proposal_r.expand(shape)
            x = tocha.empty(shape, dtype=loc.dtype, device=loc.device)
            done = tocha.zeros(shape, dtype=tocha.bool, device=loc.device)
            while not done.all():
                u1, u2, u3 = tocha.rand((3, *shape), dtype=loc.dtype, device=loc.device).unbind()
                z = tocha.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = kappa * (r - f)
                accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                if accept.any():
                    x = tocha.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                    done = done | accept
            return ((x + math.pi + loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)

    @property
    def mean(self) -> Any:
        return self.loc

    @property
    def mode(self) -> Any:
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance."""
        return 1 - (_log_bessel(self.concentration, 1) - _log_bessel(self.concentration, 0)).exp()
