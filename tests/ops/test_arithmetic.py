"""Arithmetic, comparison, rounding and logic at their edges: zero, NaN, infinities, wrap-around, promotion. Values from torch 2.13."""

from __future__ import annotations

from typing import Any

import pytest

import tocha
from tests.ops.values import check, inf, nan
from tocha import tensor

VALUES: list[Any] = [
    (lambda: tocha.round(tensor([0.5, 1.5, 2.5, -0.5])), "float32", [0.0, 2.0, 2.0, -0.0]),
    (lambda: tensor([2]) ** tensor([-1]), "int64", [0]),
    (lambda: 2 ** tensor([-1]), "int64", [0]),
    (lambda: tensor([-1, 1, -2, 0]) ** tensor([-3, -2, -5, -1]), "int64", [-1, 1, 0, 0]),
    (lambda: 1 ** tensor([-1]), "int64", [1]),
    (lambda: tensor([True]) ** 2, "int64", [1]),
    (lambda: tensor([2], dtype=tocha.uint8) ** tensor([-1], dtype=tocha.int8), "int16", [0]),
    (lambda: tocha.pow(tensor([-8.0]), 1 / 3), "float32", [nan]),
    (lambda: tocha.pow(0.0, tensor([0.0])), "float32", [1.0]),
    (lambda: tensor(2.0) ** tensor([2]), "float32", [4.0]),
    (lambda: tensor([2]) ** 2.5, "float32", [5.656854]),
    (lambda: 2 ** tensor([1.5], dtype=tocha.bfloat16), "bfloat16", [2.828125]),
    (lambda: tensor([1 + 1j]) ** 2, "complex64", [2j]),
    (lambda: tensor([0j]) ** 0, "complex64", [(1+0j)]),
    (lambda: tensor([0j]) ** tensor([0.5]), "complex64", [-0j]),
    (lambda: tensor([3]) ** 0, "int64", [1]),
    (lambda: tensor([3.0]) ** 0, "float32", [1.0]),
    (lambda: tensor([0.0]) ** (-1), "float32", [inf]),
    (lambda: tocha.pow(tensor(3), 2), "int64", 9),
    (lambda: tensor([1.0, -1.0, 0.0]) // tensor([0.0, 0.0, 0.0]), "float32", [inf, -inf, nan]),
    (lambda: tensor([7, -7]) // 2, "int64", [3, -4]),
    (lambda: tensor([7, -7]) // -2, "int64", [-4, 3]),
    (lambda: tensor([7, -7]) % tensor([-3]), "int64", [-2, -1]),
    (lambda: tocha.fmod(tensor([7, -7]), -3), "int64", [1, -1]),
    (lambda: tocha.div(tensor([7, -7]), 2, rounding_mode="trunc"), "int64", [3, -3]),
    (lambda: tensor([5], dtype=tocha.uint8) - tensor([6], dtype=tocha.uint8), "uint8", [255]),
    (lambda: -tensor([5], dtype=tocha.uint8), "uint8", [251]),
    (lambda: tensor([200], dtype=tocha.uint8) + 100, "uint8", [44]),
    (lambda: tensor([200], dtype=tocha.uint8) * 2.5, "float32", [500.0]),
    (lambda: tensor([1], dtype=tocha.int8) + tensor(300), "int8", [45]),
    (lambda: tocha.add(tensor([1]), tensor([2]), alpha=3), "int64", [7]),
    (lambda: tocha.add(tensor([True]), tensor([True])), "bool", [True]),
    (lambda: tocha.mul(tensor([True]), tensor([False])), "bool", [False]),
    (lambda: tensor([1.0, nan]) > tensor([nan, nan]), "bool", [False, False]),
    (lambda: tensor([1], dtype=tocha.int8) < 200, "bool", [False]),
    (lambda: tocha.eq(tensor([1]), tensor([1.0])), "bool", [True]),
    (lambda: tocha.clamp(tensor([1.0, nan]), nan, 2.0), "float32", [nan, nan]),
    (lambda: tocha.clamp(tensor([1.0, 5.0]), 3.0, 2.0), "float32", [2.0, 2.0]),
    (lambda: tocha.clamp(tensor([1]), 0.5), "float32", [1.0]),
    (lambda: tocha.clamp(tensor([5]), max=tensor([3.5])), "float32", [3.5]),
    (lambda: tocha.maximum(tensor([1.0, nan]), tensor([nan, 1.0])), "float32", [nan, nan]),
    (lambda: tocha.fmax(tensor([1.0, nan]), tensor([nan, nan])), "float32", [1.0, nan]),
    (lambda: tocha.maximum(tensor([1]), tensor([2.5])), "float32", [2.5]),
    (lambda: tocha.lerp(tensor([1.0]), tensor([3.0]), 0.5), "float32", [2.0]),
    (lambda: tocha.addcmul(tensor([1]), tensor([2]), tensor([3]), value=2), "int64", [13]),
    (lambda: tocha.addcmul(tensor([1]), tensor([2]), tensor([3]), value=0.5), "int64", [1]),
    (lambda: tocha.atan2(tensor([1]), tensor([2])), "float32", [0.4636476]),
    (lambda: tocha.copysign(tensor([1]), tensor([-0.0])), "float32", [-1.0]),
    (lambda: tocha.heaviside(tensor([nan, -1, 0, 2.0]), tensor([5.0])), "float32", [0.0, 0.0, 5.0, 1.0]),
    (lambda: tocha.nan_to_num(tensor([nan, inf, -inf])), "float32", [0.0, 3.402823e+38, -3.402823e+38]),
    (lambda: tocha.nan_to_num(tensor([nan, inf], dtype=tocha.float16)), "float16", [0.0, 65504.0]),
    (lambda: tocha.logaddexp(tensor([inf, -inf, 1.0]), tensor([inf, -inf, -inf])), "float32", [inf, -inf, 1.0]),
    (lambda: tocha.sign(tensor([nan, -0.0, 3])), "float32", [0.0, 0.0, 1.0]),
    (lambda: tocha.sgn(tensor([3 + 4j, 0j])), "complex64", [(0.6000000238418579+0.800000011920929j), 0j]),
    (lambda: tocha.angle(tensor([-1.0, 1.0, nan, -0.0])), "float32", [3.141593, 0.0, nan, 0.0]),
    (lambda: tocha.abs(tensor([-2 ** 63])), "int64", [-9223372036854775808]),
    (lambda: tocha.isclose(tensor([1.0, inf, nan]), tensor([1.0 + 1e-09, inf, nan]), equal_nan=True), "bool", [True, True, True]),
    (lambda: tocha.allclose(tensor([1.0]), tensor([1.1])), "bool", False),
    (lambda: tocha.equal(tensor([1, 2]), tensor([1.0, 2])), "bool", True),
    (lambda: tocha.equal(tensor([nan]), tensor([nan])), "bool", False),
    (lambda: tocha.frexp(tensor([8.0, 0.3, 0.0])), "float32 int32", ([0.5, 0.6, 0.0], [4, -1, 0],)),
    (lambda: tocha.ldexp(tensor([1.0, 2]), tensor([3, 4])), "float32", [8.0, 32.0]),
    (lambda: tocha.float_power(tensor([2, 3]), 2), "float64", [4.0, 9.0]),
    (lambda: tocha.gcd(tensor([0, -4, 6]), tensor([0, 6, -9])), "int64", [0, 2, 3]),
    (lambda: tocha.lcm(tensor([0, -4, 6]), tensor([0, 6, -9])), "int64", [0, 12, 18]),
    (lambda: tensor([1]) << tensor([64]), "int64", [0]),
    (lambda: tensor([-1]) >> tensor([100]), "int64", [-1]),
    (lambda: tensor([1, 2, 3]) >> 1, "int64", [0, 1, 1]),
    (lambda: 1 << tensor([3]), "int64", [8]),
    (lambda: ~tensor([1, 0]), "int64", [-2, -1]),
    (lambda: ~tensor([True]), "bool", [False]),
    (lambda: tensor([True]) & True, "bool", [True]),
    (lambda: tensor([6]) | 1, "int64", [7]),
    (lambda: tocha.logical_and(tensor([1.0, 0]), tensor([2, 3])), "bool", [True, False]),
    (lambda: tocha.logical_not(tensor([2.0, 0])), "bool", [False, True]),
    (lambda: tensor([1.0, 2]).remainder(tensor([0.3, -0.7])), "float32", [0.09999996, -0.09999996]),
    (lambda: 5 // tensor([3, -3]), "int64", [1, -2]),
    (lambda: 5 / tensor([2]), "float32", [2.5]),
    (lambda: tocha.signbit(tensor([-0.0, nan, -1])), "bool", [True, False, True]),
    (lambda: tocha.isposinf(tensor([inf, 1])), "bool", [True, False]),
    (lambda: tocha.isreal(tensor([1 + 1j, 2])), "bool", [False, True]),
    (lambda: tocha.hypot(tensor([3.0]), tensor([4.0])), "float32", [5.0]),
    (lambda: tocha.nextafter(tensor([0.0, 1]), tensor([1.0, 0])), "float32", [1.401298e-45, 0.9999999]),
    (lambda: tensor([1.0, 2]).add_(tensor([1, 2])), "float32", [2.0, 4.0]),
    (lambda: tensor([1.0, 2]).mul_(2), "float32", [2.0, 4.0]),
    (lambda: tensor([3.0, 1]).clamp_(0, 2), "float32", [2.0, 1.0]),
    (lambda: tensor([1, 2]).pow_(2), "int64", [1, 4]),
    (lambda: tensor([1, 2]).eq_(2), "int64", [0, 1]),
    (lambda: tensor([1.0, 2]).lt_(2), "float32", [1.0, 0.0]),
    (lambda: tensor([True]).logical_not_(), "bool", [False]),
    (lambda: tensor([1.5]).floor_divide_(1), "float32", [1.0]),
    (lambda: tocha.square(tensor([True])), "int64", [1]),
    (lambda: tensor(3.0) + tensor([1], dtype=tocha.int32), "float32", [4.0]),
    (lambda: tensor([1], dtype=tocha.float16) + tensor(10000000000.0), "float16", [inf]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "dtypes", "expected"), VALUES)
def test_values(call: Any, dtypes: str, expected: Any) -> None:
    check(call(), dtypes, expected)


ERRORS: list[Any] = [
    (lambda: tensor([2]) ** (-1), RuntimeError),
    (lambda: tensor([True]) ** tensor([True]), (RuntimeError, NotImplementedError)),
    (lambda: tensor([1]) // tensor([0]), RuntimeError),
    (lambda: tocha.div(tensor([7, -7]), 2, rounding_mode="bad"), RuntimeError),
    (lambda: tocha.add(tensor([1]), 2, alpha=0.5), RuntimeError),
    (lambda: tocha.sub(tensor([True]), tensor([True])), RuntimeError),
    (lambda: tocha.clamp(tensor([1])), RuntimeError),
    (lambda: tocha.clamp(tensor([1.0]), tensor([1.0]), 3), TypeError),
    (lambda: tocha.lerp(tensor([1.0]), tensor([3.0], dtype=tocha.float64), 0.5), RuntimeError),
    (lambda: tocha.addcdiv(tensor([1]), tensor([2]), tensor([3])), RuntimeError),
    (lambda: tocha.allclose(tensor([1.0]), tensor([1])), RuntimeError),
    (lambda: tensor([1.0]) & tensor([1]), (RuntimeError, NotImplementedError)),
    (lambda: tocha.positive(tensor([True])), RuntimeError),
    (lambda: tensor([1, 2]).add_(tensor([1.0, 2])), RuntimeError),
    (lambda: tensor([1, 2]).div_(2), RuntimeError),
    (lambda: tensor([1.0]).add_(tensor([1.0, 2])), RuntimeError),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error"), ERRORS)
def test_errors(call: Any, error: Any) -> None:
    with pytest.raises(error):
        call()


def _grads(f: Any, *values: Any) -> list[Any]:
    xs = [tensor(v, requires_grad=True) for v in values]
    f(*xs).sum().backward()
    return [x.grad.tolist() for x in xs]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("f", "values", "expected"),
    [
        (tocha.maximum, ([1.0, 2.0, nan], [1.0, 3.0, 1.0]), ([0.5, 0.0, 1.0], [0.5, 1.0, 1.0])),
        (tocha.fmax, ([1.0, nan], [1.0, 2.0]), ([1.0, 0.0], [0.0, 1.0])),
        (lambda x: x.clamp(1, 2), ([1.0, 2.0, 0.0, 3.0],), ([1.0, 1.0, 0.0, 0.0],)),
        (lambda x, y: x.clamp(min=y), ([1.0, 0.0], [1.0, 1.0]), ([1.0, 0.0], [0.0, 1.0])),
        (lambda x: x.abs(), ([0.0, -1.0],), ([0.0, -1.0],)),
        (lambda x: x**0, ([0.0, 2.0],), ([0.0, 0.0],)),
        (lambda x: x**2, ([0.0, 3.0],), ([0.0, 6.0],)),
        (lambda x, y: x**y, ([0.0, 2.0], [2.0, 0.0]), ([0.0, 0.0], [0.0, 0.6931472])),
        (tocha.atan2, ([0.0], [0.0]), ([0.0], [0.0])),
        (tocha.hypot, ([0.0], [0.0]), ([0.0], [0.0])),
        (lambda x: x.frac(), ([1.5],), ([1.0],)),
    ],
)
def test_gradients_at_corners(f: Any, values: Any, expected: Any) -> None:
    for got, want in zip(_grads(f, *values), expected, strict=True):
        assert got == pytest.approx(want)


def test_integer_division_is_exact_above_2_to_the_53() -> None:
    big = tensor([2**62 + 1])
    assert (big // 1).item() == 2**62 + 1
    assert tocha.div(tensor([110]), 55, rounding_mode="floor").item() == 2


def test_broadcast_errors_name_operator_and_shapes() -> None:
    with pytest.raises(RuntimeError, match=r"add: The size of tensor a \(3\) must match the size of tensor b \(2\)"):
        tocha.ones(3) + tocha.ones(2)


def test_in_place_forms_write_into_views_and_count_versions() -> None:
    x = tocha.zeros(2, 3)
    version = x._version
    x[1].add_(1).clamp_(max=0.5)
    x.mul_(2)
    assert x.tolist() == [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
    assert x._version == version + 3


def test_in_place_over_a_part_of_an_operand_is_refused() -> None:
    x = tocha.arange(5)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        x[1:].add_(x[:-1])
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_float_power_in_place_needs_double_precision() -> None:
    with pytest.raises(RuntimeError, match="the base given to float_power_"):
        tocha.ones(2).float_power_(2)
    assert tensor([3.0], dtype=tocha.float64).float_power_(2).tolist() == [9.0]


def test_real_and_imag_are_views() -> None:
    x = tensor([1 + 2j])
    x.real.mul_(3)
    x.imag.zero_()
    assert x.tolist() == [3 + 0j]


def test_comparison_with_what_is_no_number_is_pythons() -> None:
    x = tocha.ones(2)
    assert ((x == [1, 2]), (x != (1,)), (x == "a")) == (False, True, False)
    with pytest.raises(TypeError):
        _ = x < [1]


def test_invert_of_floats_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="integer and Boolean"):
        ~tocha.ones(2)


def test_integers_beyond_64_bits() -> None:
    for operand in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(OverflowError):
            tocha.ones(2) + operand
        with pytest.raises(OverflowError):
            _ = tocha.ones(2, dtype=tocha.int64) > operand


def test_subtraction_takes_no_bool_on_either_side() -> None:
    for operand in (True, tensor(True)):
        with pytest.raises(RuntimeError, match="bool"):
            tocha.ones(2) - operand
        with pytest.raises(RuntimeError, match="bool"):
            tocha.rsub(tocha.ones(2), operand)


def test_integers_are_rounded_to_the_half_type_they_meet() -> None:
    check(tocha.fmod(tensor([2**31 - 1]), tensor([1.0]).half()), "float16", [nan])


def test_ldexp_keeps_the_floating_type_and_its_range() -> None:
    check(tocha.ldexp(tensor([1.0]).half(), tensor([20, -24, 5])), "float16", [inf, 2.0**-24, 32.0])
    check(tocha.ldexp(tensor([1e-30]), tensor([200])), "float32", [1.6069380e30])


def test_zero_dim_complex_keeps_the_width_of_the_floats_it_meets() -> None:
    assert (tocha.ones(2) + tensor(1j, dtype=tocha.complex128)).dtype == tocha.complex64
    assert (tocha.ones(2, dtype=tocha.int64) + tensor(1j, dtype=tocha.complex128)).dtype == tocha.complex128


def test_bounds_of_unsigned_clamp_wrap_around() -> None:
    assert tocha.tensor([0, 200], dtype=tocha.uint8).clamp(-1, 1).tolist() == [1, 1]


@pytest.mark.parametrize("name", ["hypot", "nextafter", "logaddexp2"])
def test_functions_of_floats_only_refuse_integers_of_any_width(name: str) -> None:
    for dtype in (tocha.int8, tocha.int64):
        x = tocha.ones(2, dtype=dtype)
        with pytest.raises(NotImplementedError):
            getattr(tocha, name)(x, x)


def test_results_keep_the_order_of_strides() -> None:
    """Of transposed integers for tests of value, of expanded halves for functions."""
    x = tocha.ones(3, 2, dtype=tocha.int32).t()
    for found in (x.isfinite(), x.isnan(), x.isneginf(), x.isreal(), x.ceil()):
        assert found.stride() == (1, 2)
    assert tocha.ones(1, 3).half().expand(2, 3).exp().stride() == (3, 1)


@pytest.mark.parametrize("operand", [0.1, tensor(0.1), tensor(0.1, dtype=tocha.float64)])
def test_numbers_are_rounded_to_the_half_type_they_meet(operand: Any) -> None:
    """Except as a factor or divisor."""
    x = tensor([0.1, 2.0]).bfloat16()
    assert (x == operand).tolist() == [True, False]
    assert (x - operand).tolist() == [0, 1.8984375]
    assert (operand - x).tolist() == [0, -1.8984375]
    assert x.clone().sub_(operand).tolist() == [0, 1.8984375]
    check(tocha.fmod(x, operand), "bfloat16", [0, 0.09814453125])
    assert (tensor([1001.0]).bfloat16() * 300.7).tolist() == [301056]  # 299008 if rounded


def test_exponents_are_rounded_to_the_half_type() -> None:
    check(tensor([-3.3, 2.0]).half() ** 1e-8, "float16", [1, 1])
    with pytest.raises(RuntimeError, match="without overflow"):
        tocha.ones(2).half() ** 1e10
    with pytest.raises(RuntimeError, match="without overflow"):
        tocha.ones(2, dtype=tocha.int32) ** (1 << 40)


def test_clamp_takes_a_zero_dim_tensor_beside_a_number() -> None:
    assert tensor([-3.0, 3.0]).clamp(-1, tensor(2.0)).tolist() == [-1, 2]
    with pytest.raises(TypeError):
        tensor([-3.0, 3.0]).clamp(-1, tensor([2.0]))


def test_nan_is_real() -> None:
    assert tensor([nan, 1.0]).isreal().tolist() == [True, True]


def test_bools_to_powers() -> None:
    b = tensor([True, False])
    assert (b**True).tolist() == [True, False] and (b**False).tolist() == [True, True]
    assert (b**0).tolist() == [1, 1] and (b**1.0).dtype is tocha.float32
    assert b.clone().pow_(False).tolist() == [True, True]


def test_sums_of_bools_stay_bools_whatever_alpha():
    x, y = tensor([True, False]), tensor([True, True])
    assert tocha.add(x, y, alpha=2).tolist() == [True, True]
    assert tocha.add(x, y, alpha=0).tolist() == [True, False]


def test_plus_before_a_bool_is_refused():
    with pytest.raises(RuntimeError, match="bool tensor is not supported"):
        +tensor([True])
    x = tensor([1, -1])
    assert (+x).tolist() == [1, -1]


@pytest.mark.parametrize("repeat", [1, 20_000])
def test_a_zero_remainder_has_the_dividends_sign(repeat):
    x = tensor([4.0, -4.0, 0.0, -0.0] * repeat)
    for divisor in (2.0, -2.0, inf):
        got = x % divisor
        zero = got == 0
        assert zero[2:4].all() and (got.signbit() == x.signbit())[zero].all()


def test_addcmul_of_bools_into_what_they_promote_to():
    got = tocha.addcmul(tensor([True, False]), tensor([1.0, 2.0]), tensor([True, True]), value=2)
    assert got.dtype is tocha.float32 and got.tolist() == [3, 4]
    with pytest.raises(NotImplementedError, match="Bool"):
        tocha.addcmul(*[tensor([True])] * 3)
