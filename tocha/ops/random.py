"""Random tensors and in-place random fills (torch docs: "Random sampling").

The values are those of torch's CPU kernels for the same generator state, on every device.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd.mode import no_grad, state
from tocha.backends import _native_random
from tocha.device import CPU, Size, get_default_device, preserve_format, strided
from tocha.dispatch.inplace import device_of_out, resize_output
from tocha.dispatch.override import PLAIN
from tocha.dispatch.registry import op
from tocha.dtypes import dtype as DType
from tocha.ops._sampling import (
    INT64_MIN,
    ByKernel,
    Draw,
    check_in_range,
    fill,
    fresh,
    integer_span,
    overwrite,
    refuse,
    require_float,
    straight,
)
from tocha.ops.arguments import check_dtype, check_sizes, check_tensor, shape_of, to_device
from tocha.ops.creation import empty_like, plain_sizes
from tocha.prims.pointwise import broadcast_shapes
from tocha.random import Generator
from tocha.rng import continuous, discrete
from tocha.tensor import Tensor

Shape = tuple[int, ...]
_SEQUENCES, _NUMBERS = (tuple, list, Size), (int, float)

# ---- draws


@functools.lru_cache(256)
def _uniform(dtype: DType, low: float, high: float) -> ByKernel:
    """Check the bounds and return how to draw; complex numbers draw both parts."""
    real = dtype.to_real()
    require_float("check_uniform_bounds", real)
    check_in_range(low, "from", real)
    check_in_range(high, "to", real)
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if high - low > dtypes.finfo(real).max:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{real.name}>::max(), but found to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )
    if dtype.is_complex:
        return ByKernel(lambda e, n, np_dtype, c: continuous.uniform(e, 2 * n, real.np, low, high).view(np_dtype), None)
    return ByKernel(lambda e, n, np_dtype, c: continuous.uniform(e, n, np_dtype, low, high), _native_random.uniform(dtype.np, low, high))


@functools.lru_cache(256)
def _normal(dtype: DType, mean: float, std: float) -> ByKernel:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    real = dtype.to_real()
    require_float("normal_kernel_cpu", real)
    # The variance of a complex number is split between its parts.
    deviation = std / math.sqrt(2) if dtype.is_complex else std
    parts = 2 if dtype.is_complex else 1

    def draw(engine: Any, count: int, np_dtype: Any, contiguous: bool) -> np.ndarray:
        sample = continuous.normal if contiguous else continuous.normal_serial
        return sample(engine, parts * count, real.np, mean, deviation).view(np_dtype)

    return ByKernel(draw, _native_random.normal(dtype.np, mean, std))


@functools.lru_cache(256)
def _integers(dtype: DType, low: int, high: int | None) -> ByKernel:
    first, span = integer_span(low, high, dtype)
    return ByKernel(lambda e, n, np_dtype, c: discrete.integers(e, n, np_dtype, first, span), _native_random.integers(dtype.np, first, span))


# ---- new tensors


def _new(
    name: str, size: Any, dtype: DType, draw: Callable[[DType], Draw], *, generator: Any, out: Any,
    layout: Any, device: Any, requires_grad: bool, given: Any,
) -> Tensor:  # fmt: skip
    if layout not in (None, strided):
        raise RuntimeError(f"{name}: only torch.strided layout is supported, got {layout}")
    shape = check_sizes(shape_of(size, name), name)
    if out is not None:
        device_of_out(name, device, check_tensor(out, name, "out"))
        if given is not None and given is not out.dtype:
            raise RuntimeError(f"{name}: dtype {given} does not match dtype of out parameter ({out.dtype})")
        rule = draw(out.dtype)
        resize_output(name, out, shape)
        return fill(out, generator, name, rule, at_once=True)
    result = fresh(shape, dtype, to_device(device), generator, name, draw(dtype))
    if requires_grad:
        result.requires_grad = True
    return result


def _sizes(size: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    if "size" in kwargs:
        size = (kwargs.pop("size"),)
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    if not size:
        raise TypeError(f"{name}() received an invalid combination of arguments: it needs a size")
    return size


def _unit_factory(name: str, rule: Callable[[DType, float, float], Draw], doc: str) -> Any:
    def make(
        *size: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
        layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
        names: Any = None, **kwargs: Any,
    ) -> Tensor:  # fmt: skip
        given = check_dtype(dtype, name)
        return _new(
            name, _sizes(size, kwargs, name), given or dtypes.get_default_dtype(),
            lambda d: rule(d, 0.0, 1.0), generator=generator, out=out, layout=layout, device=device,
            requires_grad=requires_grad, given=given,
        )  # fmt: skip

    def short(*size: Any) -> Tensor | None:
        shape = size[0] if len(size) == 1 and size[0].__class__ in _SEQUENCES else size
        dtype = dtypes.get_default_dtype()
        return fresh(tuple(shape), dtype, CPU, None, name, rule(dtype, 0.0, 1.0)) if size and plain_sizes(shape) else None

    return op("torch", name=name, short=short, doc=doc)(make)


def _unit_like(name: str, rule: Callable[[DType, float, float], Draw], doc: str) -> Any:
    def make(
        input: Tensor, *, generator: Generator | None = None, dtype: Any = None, layout: Any = None,
        device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
        memory_format: Any = preserve_format,
    ) -> Tensor:  # fmt: skip
        check_tensor(input, name)
        found = check_dtype(dtype, name) or input.dtype
        out = empty_like(input, dtype=found, layout=layout, device=device, memory_format=memory_format)
        out = overwrite(out, generator, name, rule(found, 0.0, 1.0))
        return out.requires_grad_() if requires_grad else out

    def short(input: Any, *more: Any) -> Tensor | None:
        a = input._a if input.__class__ in PLAIN else None
        if more or a.__class__ is not np.ndarray or not a.flags.c_contiguous or a.dtype.char not in "fd":
            return None
        return fresh(a.shape, input.dtype, CPU, None, name, rule(input.dtype, 0.0, 1.0))

    return op("torch", name=name, short=short, doc=doc)(make)


rand = _unit_factory("rand", _uniform, "Uniform on [0, 1) (torch docs: torch.rand).")
randn = _unit_factory("randn", _normal, "Standard normal; complex: of unit variance (torch docs: torch.randn).")
rand_like = _unit_like("rand_like", _uniform, "Uniform on [0, 1), like another tensor (torch docs).")
randn_like = _unit_like("randn_like", _normal, "Standard normal, like another tensor (torch docs).")


def _integer(value: Any, name: str, argument: str) -> int:
    if isinstance(value, float):
        raise TypeError(f"{name}(): argument '{argument}' must be int, not float")
    number = operator.index(value.item() if isinstance(value, Tensor) else value)
    if not INT64_MIN <= number < 1 << 63:
        raise ValueError(f"Overflow when unpacking long long: {name}'s {argument} is {number}")
    return number


def _low_high(args: tuple[Any, ...], kwargs: dict[str, Any], name: str, more: tuple[str, ...]) -> list[Any]:
    """`(high, *more)` or `(low, high, *more)`, by position or name."""
    names = ("low", "high", *more) if len(args) + len(kwargs) == 2 + len(more) else ("high", *more)
    if len(args) > len(names):
        names = ("low", "high", *more)
    if "low" in kwargs:
        names = ("low", "high", *more)
    found = dict(zip([n for n in names if n not in kwargs], args, strict=False)) | kwargs
    if set(found) - {"low"} != {"high", *more}:
        raise TypeError(
            f"{name}() received an invalid combination of arguments: it takes ({', '.join(('high', *more))}) "
            f"or ({', '.join(('low', 'high', *more))})"
        )
    low, high = (_integer(found.get(n, 0), name, n) for n in ("low", "high"))
    return [low, high, *(found[m] for m in more)]


def _short_randint(low: Any, high: Any = None, *size: Any) -> Tensor | None:
    if not size:
        low, high, size = 0, low, (high,)
    if len(size) != 1 or size[0].__class__ not in _SEQUENCES or low.__class__ is not int or high.__class__ is not int:
        return None
    if not INT64_MIN <= low < high < 1 << 63:
        return None
    return fresh(tuple(size[0]), dtypes.int64, CPU, None, "randint", _integers(dtypes.int64, low, high)) if plain_sizes(size[0]) else None


@op("torch", short=_short_randint)
def randint(
    *args: Any, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    **kwargs: Any,
) -> Tensor:  # fmt: skip
    """Integers in [low, high), of type int64 unless dtype says otherwise (torch docs: torch.randint)."""
    low, high, size = _low_high(args, kwargs, "randint", ("size",))
    if not isinstance(size, (tuple, list)):
        raise TypeError(f"randint(): argument 'size' must be tuple of ints, not {type(size).__name__}")
    given = check_dtype(dtype, "randint")
    return _new(
        "randint", (size,), given or dtypes.int64, lambda d: _integers(d, low, high),
        generator=generator, out=out, layout=layout, device=device, requires_grad=requires_grad, given=given,
    )  # fmt: skip


@op("torch")
def randint_like(
    input: Tensor, *args: Any, generator: Generator | None = None, dtype: Any = None, layout: Any = None,
    device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
    memory_format: Any = preserve_format, **kwargs: Any,
) -> Tensor:  # fmt: skip
    """Integers in [low, high) of input's shape and type (torch docs: torch.randint_like)."""
    low, high = _low_high(args, kwargs, "randint_like", ())
    found = check_dtype(dtype, "randint_like") or input.dtype
    draw = _integers(found, low, high)
    out = empty_like(input, dtype=found, layout=layout, device=device, memory_format=memory_format)
    out = overwrite(out, generator, "randint_like", draw)
    return out.requires_grad_() if requires_grad else out


_PERMUTATION = ByKernel(lambda e, size, np_dtype, c: discrete.permutation(e, size, np_dtype), _native_random.permutation)


def _short_randperm(n: Any, *more: Any) -> Tensor | None:
    if more or n.__class__ is not int or n < 0 or get_default_device() is not CPU:
        return None
    return fresh((n,), dtypes.int64, CPU, None, "randperm", _PERMUTATION)


@op("torch", short=_short_randperm)
def randperm(
    n: int, *, generator: Generator | None = None, out: Tensor | None = None, dtype: Any = None,
    layout: Any = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """A random permutation of 0 … n-1 (torch docs: torch.randperm)."""
    count = _integer(n, "randperm", "n")
    given = check_dtype(dtype, "randperm")

    def rule(found: DType) -> Draw:
        if found is dtypes.bool_ or found.is_complex or found in dtypes.FLOAT8:
            refuse("randperm", found)
        if found.is_floating_point:
            limit = (1 << {2: 11 if found is dtypes.float16 else 8, 4: 24, 8: 53}[found.itemsize]) + 1
            if count > limit:
                raise RuntimeError(f"n cannot be greater than {limit} for {found.name} type.")
        elif count > dtypes.iinfo(found).max:
            raise RuntimeError(f"randperm: n={count} cannot be converted to type {found.name} without overflow")
        return _PERMUTATION

    return _new(
        "randperm", ((count,),), given or dtypes.int64, rule, generator=generator, out=out, layout=layout,
        device=device, requires_grad=requires_grad, given=given,
    )  # fmt: skip


# ---- in place


def _float(value: Any) -> float:
    return float(value.item() if isinstance(value, Tensor) else value)


def _from_to(args: tuple[Any, ...], kwargs: dict[str, Any], name: str, default: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments `from` (no Python name can be spelled so) and `to`."""
    given = dict(zip(("from", "to"), args, strict=False)) | kwargs
    if len(args) > 2 or set(given) - {"from", "to"}:
        raise TypeError(f"{name}() received an invalid combination of arguments: it takes from and to")
    return given.get("from", default[0]), given.get("to", default[1])


def _short_fill(name: str, rule: Callable[[DType, float, float], ByKernel], first: float, second: float) -> Any:
    """Of a plain tensor, by two numbers."""

    def short(input: Any, a: Any = first, b: Any = second, *more: Any) -> Tensor | None:
        if more or input.__class__ not in PLAIN or a.__class__ not in _NUMBERS or b.__class__ not in _NUMBERS:
            return None
        return input if straight(input, None, name, rule(input.dtype, a, b)) else None

    return short


@op("method", short=_short_fill("uniform_", _uniform, 0.0, 1.0))
def uniform_(input: Tensor, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Tensor:
    """Fill from the uniform distribution on [from=0, to=1) (torch docs: Tensor.uniform_)."""
    low, high = _from_to(args, kwargs, "uniform_", (0.0, 1.0))
    return fill(input, generator, "uniform_", _uniform(input.dtype, _float(low), _float(high)))


@op("method", short=_short_fill("normal_", _normal, 0.0, 1.0))
def normal_(input: Tensor, mean: Any = 0.0, std: Any = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill from a normal distribution (torch docs: Tensor.normal_)."""
    return fill(input, generator, "normal_", _normal(input.dtype, _float(mean), _float(std)))


@op("method")
def random_(input: Tensor, *args: Any, generator: Generator | None = None, **kwargs: Any) -> Tensor:
    """Fill with integers: over the type's range, or `random_(to)`, or `random_(from, to)` (torch docs)."""
    if len(args) == 1 and "to" not in kwargs:
        args = (0, *args)
    low, high = _from_to(args, kwargs, "random_", (None, None))
    dtype = input.dtype
    if low is None and high is None:
        if dtype.is_complex or dtype in dtypes.FLOAT8 or dtype in dtypes.BAREBONES_UNSIGNED:
            refuse("random_kernel_cpu", dtype)
        draw: Draw = lambda e, n, np_dtype, c: discrete.integers_of_dtype(e, n, np_dtype)  # noqa: E731
    else:
        first = 0 if low is None else _integer(low, "random_", "from")
        draw = _integers(dtype, first, None if high is None else _integer(high, "random_", "to"))
    return fill(input, generator, "random_", draw)


@op("method")
def log_normal_(input: Tensor, mean: Any = 1.0, std: Any = 2.0, *, generator: Generator | None = None) -> Tensor:
    """Fill with exp of normal numbers (torch docs: Tensor.log_normal_)."""
    mean, std = _float(mean), _float(std)
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    require_float("log_normal_cpu", input.dtype)
    return fill(input, generator, "log_normal_", lambda e, n, d, c: continuous.log_normal(e, n, d, mean, std))


def _require_continuous(name: str, dtype: DType) -> None:
    if not dtype.is_floating_point:
        raise RuntimeError(
            f"{name} distribution is a continuous probability distribution. dtype must be a floating point but you specified {dtype}"
        )


@op("method")
def exponential_(input: Tensor, lambd: Any = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill from the exponential distribution of rate `lambd` (torch docs: Tensor.exponential_)."""
    rate = _float(lambd)
    _require_continuous("Exponential", input.dtype)
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    require_float("exponential_cpu", input.dtype)
    return fill(input, generator, "exponential_", lambda e, n, d, c: continuous.exponential(e, n, d, rate))


@op("method")
def cauchy_(input: Tensor, median: Any = 0.0, sigma: Any = 1.0, *, generator: Generator | None = None) -> Tensor:
    """Fill from the Cauchy distribution (torch docs: Tensor.cauchy_)."""
    median, sigma = _float(median), _float(sigma)
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    _require_continuous("Cauchy", input.dtype)
    require_float("cauchy_cpu", input.dtype)
    return fill(input, generator, "cauchy_", lambda e, n, d, c: continuous.cauchy(e, n, d, median, sigma))


@op("method")
def geometric_(input: Tensor, p: Any, *, generator: Generator | None = None) -> Tensor:
    """Fill with the number of trials up to the first success (torch docs: Tensor.geometric_)."""
    chance = _float(p)
    if not 0 < chance < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={chance:g}")
    dtype = input.dtype
    if dtype.category == dtypes.INTEGRAL and dtype not in dtypes.BAREBONES_UNSIGNED:
        # The largest double below 2**63: what a zero uniform gives is undefined in torch.
        def draw(engine: Any, count: int, np_dtype: Any, contiguous: bool) -> np.ndarray:
            trials = np.minimum(discrete.geometric(engine, count, chance), 2.0**63 - 1024)
            return trials.astype(np.int64).astype(np_dtype)

        return fill(input, generator, "geometric_", draw)
    require_float("geometric_cpu", dtype)
    return fill(input, generator, "geometric_", lambda e, n, d, c: continuous.narrow(discrete.geometric(e, n, chance), d))


# ---- normal with tensor parameters


@op("torch")
def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
    out: Tensor | None = None, dtype: Any = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False,
) -> Tensor:  # fmt: skip
    """Normal numbers with a mean and deviation each, or `size` of them (torch docs: torch.normal)."""
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        return _normal_each(mean, std, generator, out)
    if size is None:
        raise TypeError("normal() received an invalid combination of arguments: with two numbers it needs a size")
    given = check_dtype(dtype, "normal")
    return _new(
        "normal", (size,), given or dtypes.get_default_dtype(), lambda d: _normal(d, float(mean), float(std)),
        generator=generator, out=out, layout=layout, device=device, requires_grad=requires_grad, given=given,
    )  # fmt: skip


def _normal_each(mean: Any, std: Any, generator: Generator | None, out: Tensor | None) -> Tensor:
    model = mean if isinstance(mean, Tensor) else std
    if isinstance(std, Tensor) and std.dtype.is_complex:
        raise RuntimeError("normal expects standard deviation to be non-complex")
    sources = [x for x in (mean, std) if isinstance(x, Tensor)]
    shape = broadcast_shapes("normal", *(x._a.shape for x in sources))
    dtype = model.dtype if out is None else check_tensor(out, "normal", "out").dtype
    draw = _normal(dtype, 0.0, 1.0 if isinstance(std, Tensor) else float(std))
    given = (std._a,) if isinstance(std, Tensor) else ()
    with no_grad():
        result = fresh(shape, dtype, model.device, generator, "normal", _after_check(draw), *given)
        if isinstance(std, Tensor):
            result.mul_(std)
        result.add_(mean)
    if out is not None:
        resize_output("normal", out, shape)
        return out.copy_(result)
    return track(result, *sources)


def _after_check(draw: Draw) -> Draw:
    """`draw` of deviation 1 where the deviations that are wanted can be."""

    def checked(engine: Any, count: int, np_dtype: Any, contiguous: bool, *deviations: Any) -> np.ndarray:
        if not all(bool((s >= 0).all()) for s in deviations):
            raise RuntimeError("normal expects all elements of std >= 0.0")
        return draw(engine, count, np_dtype, contiguous)

    return checked


def track(values: Tensor, *sources: Tensor) -> Tensor:
    """`values` drawn with `sources` as parameters: their gradient is zero, but the graph knows them."""
    if state.grad and any(s._rg for s in sources):
        from tocha.prims.random import sampled

        return sampled(values, *sources)
    return values
