"""Elementary functions in float32: the error in units in the last place, over all kinds of arguments."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special as special

from tests.inductor.test_pointwise import run

EDGES = np.array(
    [0, 1, 2, 0.5, 1e-45, 1e-38, 1.1754944e-38, 3.4028235e38, np.inf, 88.72284, 89, 87.33655, 103.97, 104.1, 128, 149, 150, 151, 1e6, 1e10],
    "f",
)  # fmt: skip
UNARY: dict[str, tuple[Callable[..., Any], float]] = {
    "exp": (np.exp, 1.0), "exp2": (np.exp2, 1.0), "log": (np.log, 1.0), "tanh": (np.tanh, 1.5), "erf": (special.erf, 1.5),
    "expm1": (np.expm1, 1.5), "log1p": (np.log1p, 1.5), "log2": (np.log2, 0.6), "log10": (np.log10, 0.6), "sin": (np.sin, 0.6),
    "cos": (np.cos, 0.6), "tan": (np.tan, 1.0), "asin": (np.arcsin, 0.6), "acos": (np.arccos, 0.6), "atan": (np.arctan, 0.6),
    "sinh": (np.sinh, 0.6), "cosh": (np.cosh, 0.6),
    "asinh": (np.arcsinh, 0.6), "acosh": (np.arccosh, 0.6), "atanh": (np.arctanh, 0.6), "erfc": (special.erfc, 0.6),
}  # fmt: skip
BINARY: dict[str, tuple[Callable[..., Any], float]] = {
    "pow": (np.power, 0.6),
    "atan2": (np.arctan2, 0.6),
    "hypot": (np.hypot, 0.6),
    "logaddexp": (np.logaddexp, 0.6),
}


def _ulps(got: Any, exact: Any) -> Any:
    """Distance in float32 units; infinite where one is NaN and the other not."""
    rounded = exact.astype(np.float32)
    same = (np.isnan(got) & np.isnan(exact)) | (got == rounded)
    unit = np.maximum(np.spacing(np.abs(rounded)), 2.0**-149).astype(np.float64)
    unit[~np.isfinite(unit)] = 2.0**104
    distance = np.where(same, 0.0, np.abs(got.astype(np.float64) - exact) / unit)
    return np.where(np.isnan(got) != np.isnan(exact), np.inf, distance)


def _arguments(count: int) -> Any:
    rng = np.random.default_rng(7)
    anything = rng.integers(0, 2**32, count, np.uint64).astype(np.uint32).view(np.float32)
    common = (rng.standard_normal(count) * 4).astype(np.float32)
    unit = rng.uniform(-1, 1, count).astype(np.float32)
    anything[np.isnan(anything)] = np.nan  # quiet ones: converting others would warn
    return np.concatenate([anything, common, unit, unit * np.float32(1e-4), EDGES, -EDGES, np.array([np.nan], np.float32)])


@pytest.mark.parametrize("name", UNARY)
def test_one_argument(name: str) -> None:
    exact, limit = UNARY[name]
    x = _arguments(20_000)
    with np.errstate(all="ignore"):
        want, got = exact(x.astype(np.float64)), run(name, [x])
        worst = _ulps(got, want)
    at = int(np.argmax(worst))
    assert worst[at] <= limit, (x[at], got[at], want[at])
    zero = (want == 0) & (got == 0)
    assert (np.signbit(got[zero]) == np.signbit(want[zero])).all()


@pytest.mark.parametrize("name", BINARY)
def test_two_arguments(name: str) -> None:
    exact, limit = BINARY[name]
    x, y = _arguments(20_000), np.random.default_rng(8).permutation(_arguments(20_000))
    edges = np.concatenate([EDGES, -EDGES, np.array([np.nan], np.float32)])
    pairs = [a.ravel() for a in np.meshgrid(edges, edges)]
    x, y = np.concatenate([x, pairs[0]]), np.concatenate([y, pairs[1]])
    with np.errstate(all="ignore"):
        want, got = exact(x.astype(np.float64), y.astype(np.float64)), run(name, [x, y])
        worst = _ulps(got, want)
    at = int(np.argmax(worst))
    assert worst[at] <= limit, (x[at], y[at], got[at], want[at])


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("exp", -745, 709), ("exp2", -1074, 1023), ("log", 0, 1e300), ("sin", -9e5, 9e5), ("cos", -9e5, 9e5), ("tan", -9e5, 9e5)],
)
def test_float64_polynomials_agree_with_the_c_library(name: str, low: float, high: float) -> None:
    rng = np.random.default_rng(3)
    x = np.concatenate(
        [rng.uniform(low, high, 20_000), rng.uniform(0 if name == "log" else -2, 2, 20_000), [1e-310, 5e-324, 1.0, 0.5]]
    )
    with np.errstate(all="ignore"):
        want = getattr(np, name)(x)
    got = run(name, [x])
    worst = np.abs(got - want) / np.spacing(np.abs(want))
    assert worst.max() <= (4 if name == "tan" else 2), (x[worst.argmax()], got[worst.argmax()], want[worst.argmax()])


def test_float64_edges() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 710.0, -746.0, 1e300, -1e300])
    for name in ("exp", "exp2", "log", "sin", "cos", "tan", "tanh", "erf", "log1p", "expm1", "atan"):
        with np.errstate(all="ignore"):
            want = {"erf": special.erf, "atan": np.arctan}.get(name, getattr(np, name, None))(x)
        np.testing.assert_allclose(run(name, [x]), want, rtol=1e-15, err_msg=name)


@pytest.mark.parametrize("dtype", ["f", "d"])
def test_one_more_than_a_power(dtype: str) -> None:
    x = np.concatenate([np.linspace(-800, 800, 16_001), EDGES, -EDGES, [np.nan]]).astype(dtype)
    with np.errstate(all="ignore"):
        want = 1 / (1 + np.exp(-x.astype(np.float64)))
    want = np.where(x < -88.7228, 0.0, want) if dtype == "f" else want
    got = run("sigmoid", [x])
    np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps, atol=2.0 * np.finfo(dtype).smallest_subnormal)
