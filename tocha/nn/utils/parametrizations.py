"""Weight normalisation, spectral normalisation and orthogonality as parametrisations (torch docs:
torch.nn.utils.parametrizations)."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

import tocha
from tocha.nn import functional as F
from tocha.nn.modules.conv import ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tocha.nn.modules.module import Module
from tocha.nn.utils import parametrize

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def _tensor_of(module: Module, name: str) -> Any:
    weight = getattr(module, name, None)
    if not isinstance(weight, tocha.Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return weight


def _householder_q(a: Any, tau: Any) -> Any:
    return tocha.linalg.householder_product(a, tau)


def _is_orthogonal(q: Any) -> bool:
    n, k = q.size(-2), q.size(-1)
    eye = tocha.eye(k, dtype=q.dtype, device=q.device)
    return bool(tocha.allclose(q.mH @ q, eye, atol=10 * n * tocha.finfo(q.dtype).eps))


def _make_orthogonal(a: Any) -> Any:
    """The orthogonal factor of `a`, columns signed so that an orthogonal `a` is kept (Mezzadri 2007)."""
    x, tau = tocha.geqrf(a)
    q = _householder_q(x, tau)
    return q * x.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _OrthMaps(Enum):
    matrix_exp = auto()
    cayley = auto()
    householder = auto()


class _Orthogonal(Module):
    """A matrix with orthonormal rows or columns, around `base` if trivialised (Lezcano-Casado 2019)."""

    base: Any

    def __init__(self, weight: Any, orthogonal_map: _OrthMaps, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map is _OrthMaps.householder:
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def _skew(self, x: Any) -> Any:
        """The square skew-Hermitian matrix whose lower triangle begins with that of `x`."""
        n, k = x.size(-2), x.size(-1)
        x = x.tril()
        if n != k:
            x = tocha.cat([x, x.new_zeros(n, n - k).expand(*x.shape[:-2], -1, -1)], dim=-1)
        return x - x.mH

    def forward(self, x: Any) -> Any:
        """The orthogonal matrix for `x`, of its shape."""
        transposed = x.size(-2) < x.size(-1)
        if transposed:
            x = x.mT
        n, k = x.size(-2), x.size(-1)
        if self.orthogonal_map is _OrthMaps.householder:
            a = x.tril(diagonal=-1)
            q = _householder_q(a, 2.0 / (1.0 + (a * a).sum(dim=-2)))
            q = q * x.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            a = self._skew(x)
            if self.orthogonal_map is _OrthMaps.matrix_exp:
                q = tocha.matrix_exp(a)
            else:
                eye = tocha.eye(n, dtype=a.dtype, device=a.device)
                q = tocha.linalg.solve(tocha.add(eye, a, alpha=-0.5), tocha.add(eye, a, alpha=0.5))
            if n != k:
                q = q[..., :k]
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if transposed else q

    def right_inverse(self, q: Any) -> Any:
        """The parameter that yields (the orthogonal matrix nearest in this construction to) `q`."""
        if q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {q.shape}.")
        given = q
        transposed = q.size(-2) < q.size(-1)
        if transposed:
            q = q.mT
        if not hasattr(self, "base"):
            if self.orthogonal_map is not _OrthMaps.householder:
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations "
                    "when "
                    "use_trivialization=False."
                )
            return self._reflectors(q, transposed)
        n, k = q.size(-2), q.size(-1)
        if n == k:
            q = q.clone() if _is_orthogonal(q) else _make_orthogonal(q)
        else:
            filler = tocha.randn(*q.shape[:-2], n, n - k, dtype=q.dtype, device=q.device)
            q = _make_orthogonal(tocha.cat([q, filler], dim=-1))
        self.base = q
        # every map takes −1 on the diagonal (and nothing below it) to the identity
        start = tocha.zeros_like(given)
        start.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
        return start

    @staticmethod
    def _reflectors(q: Any, transposed: bool) -> Any:
        a, tau = tocha.geqrf(q)
        diagonal = a.diagonal(dim1=-2, dim2=-1)
        diagonal.sign_()
        # a reflector that does nothing (tau 0) is stored as a true one here, so its sign flips
        diagonal[tau == 0.0] *= -1
        return a.mT if transposed else a


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix (or batch of them) orthogonal, or semi-orthogonal where it isn't square.

    `orthogonal_map` is matrix_exp (the default for square ones), cayley or householder (the default
    otherwise).
    """
    weight = _tensor_of(module, name)
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        square = weight.size(-2) == weight.size(-1) or weight.is_complex()
        orthogonal_map = "matrix_exp" if square else "householder"
    kind = _OrthMaps.__members__.get(orthogonal_map)
    if kind is None:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    parametrization = _Orthogonal(weight, kind, use_trivialization=use_trivialization)
    return parametrize.register_parametrization(module, name, parametrization, unsafe=True)


def _weight_norm(v: Any, g: Any, dim: int) -> Any:
    return v * (g / tocha.norm_except_dim(v, 2, dim))


class _WeightNorm(Module):
    """Direction times magnitude."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Any, weight_v: Any) -> Any:
        """`weight_v · weight_g / ‖weight_v‖`."""
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Any) -> tuple[Any, Any]:
        """Magnitudes and `weight` itself as the direction."""
        return tocha.norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Split a weight into magnitude `original0` and direction `original1` along `dim`, over all if None.

    Salimans and Kingma 2016. Loads state dictionaries of the older :func:`torch.nn.utils.weight_norm` too.
    """
    parametrize.register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def rename_old(state_dict: Any, prefix: str, *unused: Any) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state_dict for key in old):
            for i, key in enumerate(old):
                state_dict[f"{prefix}parametrizations.{name}.original{i}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(rename_old)
    return module


class _SpectralNorm(Module):
    """A weight divided by its largest singular value, found by power iteration."""

    def __init__(self, weight: Any, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if dim >= ndim or dim < -ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim if dim >= 0 else dim + ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._as_matrix(weight)
            u = matrix.new_empty(matrix.size(0)).normal_(0, 1)
            v = matrix.new_empty(matrix.size(1)).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=self.eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=self.eps))
            self._power_method(matrix, 15)

    def _as_matrix(self, weight: Any) -> Any:
        if self.dim != 0:
            weight = weight.permute(self.dim, *(d for d in range(weight.dim()) if d != self.dim))
        return weight.flatten(1)

    def _power_method(self, matrix: Any, n_power_iterations: int) -> None:
        with tocha.no_grad():
            for _ in range(n_power_iterations):
                self._u.copy_(F.normalize(tocha.mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(F.normalize(tocha.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Any) -> Any:
        """The weight with spectral norm 1; in training after a step of power iteration."""
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._as_matrix(weight)
        if self.training:
            self._power_method(matrix, self.n_power_iterations)
        # copies, since the buffers change in place before the backward pass
        u = self._u.clone(memory_format=tocha.contiguous_format)
        v = self._v.clone(memory_format=tocha.contiguous_format)
        return weight / tocha.vdot(u, tocha.mv(matrix, v))

    def right_inverse(self, value: Any) -> Any:
        """The value itself: it is assumed to have spectral norm 1."""
        return value


def _output_dim(module: Module) -> int:
    return 1 if isinstance(module, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)) else 0


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its largest singular value (Miyato et al. 2018); `dim` holds the outputs."""
    weight = _tensor_of(module, name)
    dim = _output_dim(module) if dim is None else dim
    parametrization = _SpectralNorm(weight, n_power_iterations, dim, eps)
    return parametrize.register_parametrization(module, name, parametrization)
