"""Samples with tensors as parameters: bernoulli, multinomial, poisson, binomial, gamma, Dirichlet."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocha import dtypes
from tocha.backends import _native_random, cpu, namespace
from tocha.device import CPU, contiguous_format
from tocha.dispatch.inplace import resize_output
from tocha.dispatch.override import INTERPRETERS, PLAIN, in_memory
from tocha.dispatch.registry import op
from tocha.ops._sampling import ByKernel, fill, fresh, overwrite, refuse, require_float, straight
from tocha.ops.arguments import check_tensor
from tocha.ops.creation import empty_like
from tocha.ops.random import rand_like, track
from tocha.prims.pointwise import broadcast_shapes
from tocha.random import Generator, engine_for
from tocha.rng import continuous, discrete, rejection
from tocha.rng.mt19937 import MT19937
from tocha.tensor import Tensor, wrap

_BERNOULLI = frozenset(d for d in dtypes.ALL if not d.is_complex and d not in dtypes.FLOAT8 | dtypes.BAREBONES_UNSIGNED)


def _host(a: Any) -> np.ndarray:
    """The values in C order, flat, on the host."""
    return np.ascontiguousarray(namespace(a).to_host(a)).ravel()


# ---- bernoulli


def _bernoulli_scalar(target: Tensor, p: float) -> Any:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if target.dtype not in _BERNOULLI:
        refuse("bernoulli_scalar_cpu_", target.dtype)
    return ByKernel(lambda e, n, np_dtype, c: discrete.bernoulli(e, n, p).astype(np_dtype), _native_random.bernoulli(target._a.dtype, p))


def _bernoulli_tensor(target: Tensor, p: Tensor) -> Any:
    if target.dtype not in _BERNOULLI:
        refuse("bernoulli_tensor_cpu_self_", target.dtype)
    require_float("bernoulli_tensor_cpu_p_", p.dtype)
    shape, order = target._a.shape, None
    if not target._a.flags.c_contiguous:  # the draws follow the target's memory
        order = sorted(range(len(shape)), key=lambda i: -target._a.strides[i])

    def draw(engine: MT19937, n: int, np_dtype: Any, contiguous: bool, p: Any) -> np.ndarray:
        chances = np.broadcast_to(namespace(p).to_host(p), shape)
        if not ((chances >= 0) & (chances <= 1)).all():
            raise RuntimeError("bernoulli: expected every probability p to be in [0, 1] (Expected p_in >= 0 && p_in <= 1)")
        flat = _host(chances if order is None else chances.transpose(order))
        return discrete.bernoulli_each(engine, flat).astype(np_dtype)

    return draw


def _short_bernoulli(input: Any, p: Any = 0.5, *more: Any) -> Tensor | None:
    """Of a plain tensor, by a number."""
    if more or input.__class__ not in PLAIN or p.__class__ is not float:
        return None
    return input if straight(input, None, "bernoulli_", _bernoulli_scalar(input, p)) else None


@op("method", short=_short_bernoulli)
def bernoulli_(input: Tensor, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 0 and 1; `p` is the chance of 1, a number or a tensor (torch docs: Tensor.bernoulli_)."""
    if isinstance(p, Tensor):
        if p._a.shape != input._a.shape:
            p = p.expand(input._a.shape)
        return fill(input, generator, "bernoulli_", _bernoulli_tensor(input, p), at_once=True, given=(p._a,))
    return fill(input, generator, "bernoulli_", _bernoulli_scalar(input, float(p)))


def _short_bernoulli_each(input: Any, *more: Any) -> Tensor | None:
    """By a dense tensor of floats on the CPU."""
    if more or input.__class__ is not Tensor or INTERPRETERS:
        return None
    p = input._a
    if p.__class__ is not np.ndarray or p.dtype.char not in "fd" or not p.flags.c_contiguous or not p.size:
        return None
    if not (p.min() >= 0 and p.max() <= 1):
        return None
    kept = discrete.bernoulli_each(engine_for(None, CPU, "bernoulli"), p.reshape(-1))
    return track(wrap(kept.astype(p.dtype).reshape(p.shape)), input)


@op("torch method", short=_short_bernoulli_each)
def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None, out: Tensor | None = None) -> Tensor:
    """0 or 1 for each element, which is the chance of 1 (torch docs: torch.bernoulli)."""
    check_tensor(input, "bernoulli")
    if out is not None:
        resize_output("bernoulli", out, input._a.shape)
        return bernoulli_(out, input, generator=generator)
    if p is None and not in_memory(input):
        return (rand_like(input.detach()) < input).to(input.dtype)
    result = empty_like(input.detach(), memory_format=contiguous_format)
    rule = _bernoulli_tensor(result, input) if p is None else _bernoulli_scalar(result, float(p))
    given = (input._a,) if p is None else ()
    result = overwrite(result, generator, "bernoulli", rule, at_once=p is None, given=given)
    return track(result, input)


# ---- multinomial


@op("torch method")
def multinomial(
    input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """`num_samples` indices from each row, by the row's weights (torch docs: torch.multinomial)."""
    check_tensor(input, "multinomial")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"multinomial: prob_dist must be 1 or 2 dim, got {input.ndim}")
    if not input.dtype.is_floating_point:
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {input.dtype}")
    if out is not None and out.dtype is not dtypes.int64:
        raise RuntimeError(f"multinomial expects Long tensor out, got: {out.dtype}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    categories = input._a.shape[-1]
    if not replacement and num_samples > categories:
        raise RuntimeError(
            f"cannot sample n_sample > prob_dist.size(-1) samples without replacement ({num_samples} > {categories})"
        )
    if categories > 1 << 24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    shape = (*input._a.shape[:-1], num_samples)
    if input.is_meta or 0 in shape:
        result = fresh(shape, dtypes.int64, input.device, None, "multinomial", lambda e, n, d, c: np.empty(n, d))
    else:
        result = _pick(input.detach(), num_samples, replacement, shape, generator)
    if out is None:
        return result
    resize_output("multinomial", out, shape)
    return out.copy_(result)


def _pick(input: Tensor, count: int, replacement: bool, shape: Any, generator: Generator | None) -> Tensor:
    def draw(engine: MT19937, n: int, np_dtype: Any, contiguous: bool, a: Any) -> np.ndarray:
        weights = namespace(a).to_host(a)
        if replacement and count > 1:
            return discrete.categorical(engine, weights if weights.ndim == 2 else weights[None], count).ravel()
        _check_weights(weights)
        # The largest of weight / exponential sample wins, which draws without replacement (the Gumbel trick).
        race = np.empty_like(weights)
        cpu.overwrite(race, False, lambda n, dtype, dense: continuous.exponential(engine, n, dtype))
        with np.errstate(all="ignore"):
            scores = weights / race
        if count == 1:
            return scores.argmax(-1).ravel()
        return np.argsort(-scores.astype(np.float64), axis=-1, kind="stable")[..., :count].ravel()

    return fresh(shape, dtypes.int64, input.device, generator, "multinomial", draw, input._a)


def _check_weights(weights: np.ndarray) -> None:
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    if (weights == 0).all(-1).any():
        raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")


# ---- counts


@op("torch")
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """A Poisson count for each rate (torch docs: torch.poisson)."""
    check_tensor(input, "poisson")
    require_float("poisson_cpu", input.dtype)
    values = fresh(
        input._a.shape, input.dtype, input.device, generator, "poisson",
        lambda e, n, d, c, rates: rejection.poisson(e, _host(rates)), input._a,
    )  # fmt: skip
    return track(values, input)


@op("torch")
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """Successes in `count` trials of chance `prob` (torch docs: torch.binomial)."""
    check_tensor(count, "binomial", "count")
    check_tensor(prob, "binomial", "prob", 2)
    for name, x in (("count", count), ("prob", prob)):
        if not x.dtype.is_floating_point:
            raise ValueError(f"binomial only supports floating-point dtypes for {name}, got: {x.dtype}")
    if prob.dtype is not count.dtype:
        raise RuntimeError(f"binomial: Found dtype {prob.dtype} for prob but expected {count.dtype} as for count")
    if count.dtype not in (dtypes.float32, dtypes.float64):
        refuse("binomial_cpu", count.dtype)
    shape = broadcast_shapes("binomial", count._a.shape, prob._a.shape)
    trials, chances = (x.detach().expand(shape) for x in (count, prob))
    values = fresh(
        shape, count.dtype, count.device, generator, "binomial",
        lambda e, n, d, c, t, p: rejection.binomial(e, _host(t), _host(p)), trials._a, chances._a,
    )  # fmt: skip
    return track(values, count, prob)


# ---- gamma and Dirichlet


@op("torch")
def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """A gamma sample of unit scale for each concentration, with the implicit gradient."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        refuse("gamma_cpu", input.dtype)
    values = fresh(
        input._a.shape, input.dtype, input.device, generator, "_standard_gamma",
        lambda e, n, d, c, shapes: rejection.standard_gamma(e, _host(shapes)), input._a,
    )  # fmt: skip
    return _reparametrised("gamma_sample", values, input)


@op("torch")
def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Dirichlet samples over the last dimension, with the implicit gradient."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        refuse("dirichlet", input.dtype)
    values = fresh(
        input._a.shape, input.dtype, input.device, generator, "_sample_dirichlet",
        lambda e, n, d, c, a: rejection.dirichlet(e, _host(a).reshape(a.shape)).ravel(), input._a,
    )  # fmt: skip
    return _reparametrised("dirichlet_sample", values, input)


def _reparametrised(name: str, values: Tensor, input: Tensor) -> Tensor:
    from tocha.autograd.mode import state

    if not (state.grad and input._rg):
        return values
    from tocha.prims import random as prims

    return getattr(prims, name)(values, input)


@op("torch")
def _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor:
    """d output / d input for output = _standard_gamma(input)."""
    from tocha.prims.random import gamma_grad

    return gamma_grad(input, output)


@op("torch")
def _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor:
    """d x / d alpha over 1 - x for x drawn from beta(alpha, total - alpha)."""
    from tocha.prims.random import dirichlet_grad

    return dirichlet_grad(x, alpha, total)
