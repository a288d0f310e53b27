"""Winograd's algorithm: shapes that no tile or block fits evenly, its error beside the direct kernel's, and numbers that aren't finite."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from tocha import threads
from tocha.backends import _native_conv as kernels

ONES: Any = {"stride": (1, 1), "dilation": (1, 1), "groups": 1}


STRIDES = pytest.mark.parametrize("stride", [1, 2])


def given(shape: tuple[int, ...], outputs: int, padding: Any, dtype: str = "f", stride: int = 1) -> tuple[Any, ...]:
    rng = np.random.default_rng(sum(shape) + outputs)
    x, bias = rng.standard_normal(shape).astype(dtype), rng.standard_normal(outputs).astype(dtype)
    weight = rng.standard_normal((outputs, shape[1], 3, 3)).astype(dtype)
    sizes = tuple((n + low + high - 3) // stride + 1 for n, (low, high) in zip(shape[2:], padding, strict=True))
    return x, weight, bias, sizes


def directly(x: Any, weight: Any, bias: Any, padding: Any, stride: int = 1) -> Any:
    whole = tuple(n + low + high - 2 for n, (low, high) in zip(x.shape[2:], padding, strict=True))
    return kernels.forward(x, weight, bias, padding=padding, sizes=whole, **ONES)[:, :, ::stride, ::stride]


ONE = ((1, 1), (1, 1))
CASES = [
    ((1, 3, 8, 8), 5, ONE), ((2, 17, 9, 13), 30, ONE), ((3, 70, 7, 7), 50, ONE), ((1, 4, 1, 1), 4, ONE), ((1, 5, 3, 40), 13, ((0, 0), (0, 0))),
    ((2, 8, 33, 70), 12, ((2, 0), (0, 3))), ((1, 6, 2, 3), 7, ((5, 4), (6, 2))), ((5, 12, 14, 1), 24, ONE), ((1, 33, 31, 66), 1, ONE),
    ((40, 1, 5, 5), 9, ONE),
]  # fmt: skip


@STRIDES
@pytest.mark.parametrize("dtype", ["f", "d"])
@pytest.mark.parametrize(("shape", "outputs", "padding"), CASES)
def test_shapes(shape: tuple[int, ...], outputs: int, padding: Any, dtype: str, stride: int) -> None:
    x, weight, bias, sizes = given(shape, outputs, padding, dtype, stride)
    want = directly(x.astype("d"), weight.astype("d"), bias.astype("d"), padding, stride)
    got = kernels.winograd(x, weight, bias, padding=padding, sizes=sizes, stride=stride)
    assert got.shape == want.shape and got.dtype == x.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=np.abs(want).max() * (1e-12 if dtype == "d" else 1e-5))


def test_strides_of_samples_channels_and_rows() -> None:
    x, weight, _, sizes = given((2, 10, 12, 11), 8, ONE)
    wide = np.full((4, 20, 15, 30), np.nan, "f")
    wide[::2, 1::2, 2:-1, 5:16] = x
    seen = wide[::2, 1::2, 2:-1, 5:16]
    assert (
        kernels.winograd(seen, weight, None, padding=ONE, sizes=sizes)
        == kernels.winograd(x, weight, None, padding=ONE, sizes=sizes)
    ).all()


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize(("shape", "outputs", "padding"), CASES)
def test_weights_of_any_strides_as_input_gradients_have(shape: tuple[int, ...], outputs: int, padding: Any, kept: bool) -> None:
    x, weight, bias, sizes = given(shape, outputs, padding)
    want = kernels.winograd(x, weight, bias, padding=padding, sizes=sizes)
    turned = np.ascontiguousarray(weight.transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]).transpose(1, 0, 2, 3)[:, :, ::-1, ::-1]
    spread = np.full((*weight.shape[:3], 7), np.nan, "f")
    spread[..., 1::2] = weight
    for other in (turned, spread[..., 1::2], np.asfortranarray(weight)):
        assert (kernels.winograd(x, other, bias, padding=padding, sizes=sizes, kept={} if kept else None) == want).all()


@STRIDES
@pytest.mark.parametrize("shape", [(2, 64, 28, 28), (1, 256, 14, 14)])
def test_error_is_that_of_direct_sums(shape: tuple[int, ...], stride: int) -> None:
    x, weight, bias, sizes = given(shape, 64, ONE, stride=stride)
    exact = directly(x.astype("d"), weight.astype("d"), bias.astype("d"), ONE, stride)

    def error(found: Any) -> float:
        return float(np.sqrt(((found - exact) ** 2).mean()))

    found = kernels.winograd(x, weight, bias, padding=ONE, sizes=sizes, stride=stride)
    assert error(found) < 2 * error(directly(x, weight, bias, ONE, stride))


@STRIDES
@pytest.mark.parametrize("shape", [(3, 40, 19, 21), (1, 40, 14, 14), (1, 70, 7, 7)])  # the last two transform weights in place
def test_threads_and_packed_weights_give_the_same_bits(
    shape: tuple[int, ...], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight, bias, sizes = given(shape, 130, ONE, stride=stride)
    kept: dict[Any, Any] = {}
    call = functools.partial(kernels.winograd, x, weight, bias, padding=ONE, sizes=sizes, stride=stride)
    one, again, third = (call(kept=k) for k in (None, kept, kept))
    monkeypatch.setattr(threads, "get_num_threads", lambda: 4)
    four = call()
    assert (one == again).all() and (one == third).all() and (one == four).all()


@STRIDES
@pytest.mark.parametrize("shape", [(8, 20, 7, 7), (9, 70, 5, 33), (2, 66, 33, 8), (70, 3, 1, 3), (7, 9, 8, 1)])
def test_odd_maps_are_even_ones_without_a_line_and_column(shape: tuple[int, ...], stride: int) -> None:
    """What odd maps leave out of the matrices changes no bit, whichever blocks of tiles it is left out of."""
    high, wide = shape[2:]
    x, weight, bias, sizes = given((*shape[:2], high * stride, wide * stride), 30, ONE, stride=stride)
    call = functools.partial(kernels.winograd, x, weight, bias, stride=stride)
    more = [(1, 1 + stride) if n % 2 else (1, 1) for n in sizes]
    even = call(padding=tuple(more), sizes=tuple(n + n % 2 for n in sizes))
    assert sizes == (high, wide)
    assert (call(padding=ONE, sizes=sizes) == even[:, :, :high, :wide]).all()


@STRIDES
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [(0, 0, 0, 0), (1, 7, 8, 9), (0, 3, 8, 4)])
def test_sums_that_are_not_finite_are_left_to_others(value: float, place: tuple[int, ...], stride: int) -> None:
    x, weight, bias, sizes = given((2, 8, 9, 10), 6, ONE, stride=stride)
    call = functools.partial(kernels.winograd, padding=ONE, sizes=sizes, stride=stride)
    x[place] = value
    assert call(x, weight, bias) is None
    assert call(x, np.zeros_like(weight), None) is None
    weight[3, 2, 1, 1] = value
    assert call(np.ones_like(x), weight, bias) is None


def test_sums_that_are_finite_but_for_the_transforms() -> None:
    x, weight, _, sizes = given((1, 8, 9, 10), 6, ONE)
    x *= 0
    x[0, 2, 4, 4] = 3e38
    weight /= 2 * np.abs(weight).max()
    assert np.isfinite(directly(x, weight, None, ONE)).all()
    got = kernels.winograd(x, weight, None, padding=ONE, sizes=sizes)
    assert got is None or np.isfinite(got).all()


def test_what_suits() -> None:
    x, weight, _, sizes = given((1, 64, 56, 56), 64, ONE)
    call = dict(ONES, padding=ONE, sizes=sizes)
    assert kernels.takes_winograd(x, weight.shape, **call)
    assert not kernels.takes_winograd(x.astype(np.float16), weight.shape, **call)
    assert not kernels.takes_winograd(x.transpose(0, 1, 3, 2), weight.shape, **call)
    assert not kernels.takes_winograd(x, weight.shape, **{**call, "stride": (1, 2)})
    assert not kernels.takes_winograd(x, weight.shape, **{**call, "dilation": (2, 2)})
    assert kernels.takes_winograd(x, weight.shape, **{**call, "stride": (2, 2), "sizes": (28, 28)})
    assert kernels.gains_by_winograd(x, weight.shape, sizes, False)
    assert kernels.gains_by_winograd(x, weight.shape, (28, 28), False, 2)
    assert not kernels.gains_by_winograd(x[:, :, :4, :4], weight.shape, (4, 4), False)
    eight = np.empty((8, 256, 14, 14), np.float32)
    assert kernels.gains_by_winograd(eight, (512, 256, 3, 3), (7, 7), True, 2)
    assert not kernels.gains_by_winograd(eight[:1], (512, 256, 3, 3), (7, 7), True, 2)  # a vector of tiles for each point
