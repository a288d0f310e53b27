"""Native pointwise kernels give NumPy's results, on any shapes, strides and types."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha.backends import cpu, native
from tocha.dispatch.prim import REGISTRY
from tocha.prims.pointwise import ALL

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# Parameters for rules that have some.
PARAMS: dict[str, dict[str, Any]] = {
    "threshold": {"threshold": 0.25, "value": -3.0}, "hardtanh": {"low": -0.5, "high": 0.75}, "leaky_relu": {"slope": 0.3},
    "elu": {"alpha": 1.5, "scale": 1.1, "speed": 0.7}, "hardshrink": {"lambd": 0.4}, "softshrink": {"lambd": 0.4},
    "softplus": {"beta": 1.5, "threshold": 20.0}, "pow_scalar": {"exponent": 1.7}, "lerp_scalar": {"weight": 0.3},
    "addcmul": {"value": 0.5}, "addcdiv": {"value": 0.5}, "round": {"decimals": 1}, "clamp_scalar": {"min": -0.5, "max": None},
    "nan_to_num": {"nan": 0.0, "posinf": None, "neginf": -1.0}, "logit": {"eps": 0.01},
}  # fmt: skip
PARAMS |= {f"{name}_backward": PARAMS[name] for name in list(PARAMS) if f"{name}_backward" in ALL}


# Left to SciPy or NumPy: no kernel computes them.
REFUSED = frozenset((
    "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "chebyshev_polynomial_t", "chebyshev_polynomial_u", "chebyshev_polynomial_v",
    "chebyshev_polynomial_w", "conj_physical", "digamma", "entr", "erfcx", "erfinv", "hermite_polynomial_h", "hermite_polynomial_he", "i0",
    "i0e", "i1", "i1e", "igamma", "igammac", "laguerre_polynomial_l", "legendre_polynomial_p", "lgamma", "log_ndtr", "modified_bessel_i0",
    "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1", "ndtr", "ndtri", "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1", "shifted_chebyshev_polynomial_t", "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w", "zeta",
))  # fmt: skip


def run(name: str, arrays: list[Any], params: dict[str, Any] | None = None, compute: Any = None, target: Any = None) -> Any:
    rule: Any = REGISTRY[name]
    compute = np.dtype(compute or arrays[0].dtype)
    target = np.dtype(target or ("bool" if rule.output == "bool" else compute))
    return native.pointwise(rule, arrays, compute, target, params or {}, rule.broadcast, "rule")


def expected(name: str, arrays: list[Any], params: dict[str, Any] | None = None, compute: Any = None) -> Any:
    compute = np.dtype(compute or arrays[0].dtype)
    with np.errstate(all="ignore"):
        return REGISTRY[name].impl(
            cpu, *[a.astype(compute) if isinstance(a, np.ndarray) else a for a in arrays], **(params or {})
        )


def close(got: Any, want: Any, ulps: float = 16) -> None:
    """Equal but for rounding of float32 intermediates; NaN, infinities and signs of zero agree."""
    assert got.shape == want.shape
    if got.dtype.kind == "b" or got.dtype.kind in "iu":
        np.testing.assert_array_equal(got, want)
        return
    eps = float(ml_dtypes.finfo(got.dtype).eps)
    want = want.astype(np.float64)
    np.testing.assert_allclose(got.astype(np.float64), want, rtol=ulps * eps, atol=ulps * eps * 1e-2)


def operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype.kind in "iub":
        return rng.integers(0, 2 if dtype.kind == "b" else 50, shape).astype(dtype)
    return (rng.standard_normal(shape) * 2).astype(np.float32).astype(dtype)


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_rule_in_float32_and_float64(name: str) -> None:
    rule = ALL[name]
    if "float" in rule.refuse:
        pytest.skip("for integers only")
    low, high = rule.domain
    rng = np.random.default_rng(0)
    for dtype in (np.float32, np.float64):
        arrays = [rng.uniform(low, high, (3, 37)).astype(dtype) for _ in rule.arguments]
        params = PARAMS.get(name, {})
        if set(params) != set(rule.parameters):
            pytest.skip("no parameters given here")
        got = run(name, arrays, params)
        if got is None:
            assert name in REFUSED or dtype is np.float64
            continue
        scale = 512 if name in ("lgamma", "tan", "fmod", "remainder") else 64
        close(got, np.asarray(expected(name, arrays, params)), scale)


@given(st.data())
@settings(max_examples=60)
def test_broadcasting_strides_and_types(data: st.DataObject) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    full = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    if data.draw(st.booleans()):
        full[-1] = data.draw(st.sampled_from([15, 16, 17, 31, 33, 64, 65, 127, 200]))
    dtype = data.draw(st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.float16, BFLOAT16]))
    name = data.draw(st.sampled_from(["add", "mul", "maximum", "gt", "eq"]))
    arrays = []
    for _ in range(2):
        shape = [n if data.draw(st.booleans()) else 1 for n in full][data.draw(st.integers(0, len(full) - 1)) :]
        a = operand(rng, tuple(n * 2 for n in shape), dtype)
        a = a[tuple(slice(0, n) if data.draw(st.booleans()) else slice(0, 2 * n, 2) for n in shape)]
        axes = data.draw(st.permutations(range(a.ndim)))
        arrays.append(a.transpose(axes).copy().transpose(np.argsort(axes)) if data.draw(st.booleans()) else a)
    compute = np.float32 if np.dtype(dtype) in (np.float16, BFLOAT16) else dtype
    target = np.bool_ if name in ("gt", "eq") else dtype
    got = run(name, arrays, compute=compute, target=target)
    want = np.asarray(expected(name, arrays, compute=compute)).astype(target)
    assert got is not None
    assert got.dtype == np.dtype(target)
    np.testing.assert_array_equal(got, want)


def test_the_result_keeps_the_operands_memory_order() -> None:
    x = np.ones((4, 6, 5), np.float32).transpose(2, 0, 1)
    out = run("exp", [x])
    assert out.strides == np.exp(x).strides
    assert out.base is None
    y = np.ones((2, 3, 4, 5), np.float32).transpose(0, 3, 1, 2)  # channels last
    assert run("add", [y, np.ones((5, 1, 1), np.float32)]).strides == y.strides


def test_a_new_number_needs_no_new_kernel() -> None:
    x = np.linspace(-2, 2, 100, dtype=np.float32)
    before = len(native._kernels)
    for slope in (0.1, 0.2, 0.3):
        got = run("leaky_relu", [x], {"slope": slope})
        np.testing.assert_allclose(got, np.where(x > 0, x, x * np.float32(slope)), rtol=1e-6)
    variants = [v for key, v in native._kernels.items() if key[0] == "leaky_relu" and key[1] == (x.dtype,)]
    assert len(native._kernels) <= before + 1
    assert [len(v) for v in variants] == [1]


def test_numbers_a_rule_branches_on_choose_the_kernel() -> None:
    x = np.linspace(0.5, 2, 50, dtype=np.float32)
    for exponent in (2, 3, 0.5, -1, 1.7, 2.2):
        np.testing.assert_allclose(run("pow_scalar", [x], {"exponent": exponent}), x.astype("d") ** exponent, rtol=1e-6)
    for weight in (0.2, 0.8, 0.4):
        got = run("lerp_scalar", [x, 2 * x], {"weight": weight})
        np.testing.assert_allclose(got, x * (1 + np.float32(weight)), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16])
def test_half_types_round_once(dtype: Any) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = bits.astype(np.float32)
    got = run("mul", [bits, bits], compute=np.float32, target=dtype)
    with np.errstate(all="ignore"):
        want = (wide * wide).astype(dtype)
    np.testing.assert_array_equal(np.isnan(got.astype("f")), np.isnan(want.astype("f")))
    number = ~np.isnan(want.astype("f"))
    np.testing.assert_array_equal(got.view(np.uint16)[number], want.view(np.uint16)[number])


def test_nan_infinity_and_signed_zero() -> None:
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-45], np.float32)
    x, y = (a.ravel() for a in np.meshgrid(special, special))
    for name in (
        "add",
        "sub",
        "mul",
        "true_divide",
        "fmax",
        "fmin",
        "lt",
        "le",
        "eq",
        "ne",
        "copysign",
        "maximum",
        "minimum",
        "floor_divide",
    ):
        np.testing.assert_array_equal(run(name, [x, y]), expected(name, [x, y]), err_msg=name)
    for name in ("isnan", "isinf", "isfinite", "signbit", "sign", "neg", "abs", "sqrt", "relu", "nan_to_num"):
        np.testing.assert_array_equal(
            run(name, [special], PARAMS.get(name)), expected(name, [special], PARAMS.get(name)), err_msg=name
        )
    for name in ("sin", "tanh", "erf", "asin", "sinh", "expm1", "log1p", "atan", "asinh", "atanh", "tan"):
        assert np.signbit(run(name, [special])[1]) and not np.signbit(run(name, [special])[0]), name


@pytest.mark.parametrize("n", [1, 2, 3, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 4097])
def test_no_element_beyond_the_end_is_touched(n: int) -> None:
    x = np.arange(n, dtype=np.float32)
    np.testing.assert_array_equal(run("square", [x]), x * x)
    buffer = np.full(n + 64, 7, np.float32)
    builtin = next(v[0].builtin for key, v in native._kernels.items() if key[0] == "square" and key[1] == (x.dtype,))
    builtin(buffer, x, n)
    np.testing.assert_array_equal(buffer[n:], 7)


def test_elements_beyond_the_polynomial_are_exact() -> None:
    x = np.array([1.0, 1e6, 1e7, -3e20, 3.4e38, 2.0] * 300, np.float32)
    for name, exact in (("sin", np.sin), ("cos", np.cos), ("tan", np.tan)):
        np.testing.assert_allclose(run(name, [x]), exact(x.astype("d")), rtol=2e-7, atol=0)


def test_integers_wrap_and_shift_as_numpy_does() -> None:
    x = np.array([127, -128, 5, -7, 0], np.int8)
    for name in ("add", "sub", "mul", "bitwise_and", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift", "maximum"):
        for y in (x, x[::-1], np.full(5, 9, np.int8)):
            np.testing.assert_array_equal(run(name, [x, y]), expected(name, [x, y]), err_msg=name)
    assert run("remainder", [x, x]) is None  # integers divided by 0 are an error, which NumPy's rule raises


def test_tensors_large_enough_use_kernels() -> None:
    torch.manual_seed(0)
    x = torch.randn(300, 400, requires_grad=True)
    y = torch.nn.functional.gelu(x)
    y.sum().backward()
    a = x.detach().numpy().astype("d")
    from scipy.special import erf

    cdf = 0.5 * (1 + erf(a / np.sqrt(2)))
    np.testing.assert_allclose(y.detach().numpy(), a * cdf, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(x.grad.numpy(), cdf + a * np.exp(-a * a / 2) / np.sqrt(2 * np.pi), rtol=1e-5, atol=1e-6)
    assert any(key[0] == "gelu" for key in native._kernels)


def test_a_rule_without_a_kernel_is_left_to_numpy_and_remembered() -> None:
    x = np.linspace(0.5, 3, 50, dtype=np.float32)
    assert run("lgamma", [x]) is None
    built = native.inductor().service.compiled  # type: ignore[union-attr]
    assert run("lgamma", [x]) is None
    assert native.inductor().service.compiled == built  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["exp", "log10", "tan", "tanh", "sinh", "sqrt", "sigmoid", "erf", "acosh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_functions_in_place_give_the_bits_of_those_that_make_a_new_tensor(name: str, dtype: torch.dtype) -> None:
    x = torch.linspace(-30, 30, 1001, dtype=dtype)
    x[:3] = torch.tensor([float("nan"), float("inf"), -float("inf")])
    for source in (x, torch.stack([x, x]).t()):
        written = source.clone(memory_format=torch.preserve_format)
        assert getattr(written, name + "_")() is written
        assert torch.allclose(written, getattr(source, name)(), rtol=0, atol=0, equal_nan=True)


def test_out_is_written_by_the_kernel_itself_or_as_ever() -> None:
    x, y = torch.linspace(-3, 3, 1000), torch.linspace(1, 2, 1000)
    out = torch.empty(1000)
    place = out.data_ptr()
    assert torch.add(x, y, out=out) is out and torch.equal(out, x + y)
    assert torch.tanh(x, out=out) is out and torch.equal(out, torch.tanh(x))
    assert (out.data_ptr(), out._version) == (place, 2)
    table, row = torch.linspace(-1, 1, 70_000).view(1400, 50), torch.linspace(1, 2, 50)
    wanted, target = table * row, torch.empty(1400, 50)
    torch.cpu.reset_peak_memory_stats()
    assert torch.mul(table, row, out=target) is target
    assert torch.cpu.max_memory_allocated() - torch.cpu.memory_allocated() < target.nbytes and torch.equal(target, wanted)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.mul(table, target[0], out=target)
    both = torch.cat([x, y])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.add(both[:-1], both[1:], out=both[1:])
    assert torch.equal(torch.mul(x, y, out=x), torch.linspace(-3, 3, 1000) * y)
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        torch.add(x, y.requires_grad_(), out=out)


def test_the_largest_operand_decides_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[str] = []
    pointwise = native.pointwise

    def noting(rule: Any, *rest: Any) -> Any:
        got = pointwise(rule, *rest)
        if got is not None:
            served.append(rule.name)
        return got

    monkeypatch.setattr(native, "pointwise", noting)
    x, number = torch.rand(1 << 17), torch.tensor(0.5)
    torch.testing.assert_close(torch.atan2(number, x), torch.atan2(number.expand(1 << 17), x))
    torch.testing.assert_close(torch.lerp(number, x, number), (number + x) / 2)
    half = torch.atan2(number.bfloat16(), x.bfloat16())
    torch.testing.assert_close(half, torch.atan2(number, x.bfloat16().float()).bfloat16())
    assert served.count("atan2") == 4 and "lerp" in served


def test_dimensions_of_one_element_may_have_any_stride() -> None:
    x = torch.rand(64, 40, 64, requires_grad=True)
    of_x = torch.autograd.grad(x.var(), x, torch.tensor(3.0))[0]  # the number's view and x's mean as (1, 1, 1)
    a = x.detach().double()
    torch.testing.assert_close(of_x, (6 * (a - a.mean()) / (a.numel() - 1)).float(), rtol=1e-4, atol=1e-9)
    odd = np.lib.stride_tricks.as_strided(np.array([2.0], np.float32), (1, 1), (3, 1))
    given = np.random.default_rng(0).standard_normal((300, 400)).astype(np.float32)
    np.testing.assert_array_equal(run("mul", [given, odd]), given * 2)


def test_a_call_made_before_gives_the_same_bits_and_order_of_memory() -> None:
    x, row = torch.randn(400, 300).t(), torch.randn(400)
    first, again, other = x * row, x * row, x * (2 * row)
    assert first.stride() == again.stride() == (1, 300) and torch.equal(first, again) and torch.equal(other, 2 * first)
    np.testing.assert_array_equal(again.numpy(), x.numpy() * row.numpy())
    with pytest.raises(RuntimeError, match="must match"):
        x * torch.randn(300)


@pytest.mark.parametrize("size", [3, 100_000])
def test_relu_keeps_the_sign_of_zero(size: int) -> None:
    for compiled in (torch.relu, torch.compile(lambda x: x.relu())):
        assert torch.signbit(compiled(torch.full((size,), -0.0))).all() and torch.isnan(compiled(torch.full((size,), np.nan))).all()


def test_calls_as_made_before_are_told_apart_by_shape_strides_and_type() -> None:
    x = np.arange(12.0)
    given = [x, x.reshape(3, 4), x.reshape(3, 4).T, x[::-1], x.astype(np.float32), np.asfortranarray(x.reshape(3, 4))]
    for _ in range(3):
        for a in given:
            out = run("mul", [a, a])
            assert out.dtype is a.dtype and out.shape == a.shape
            np.testing.assert_array_equal(out, a * a)
            np.testing.assert_array_equal(run("mul", [a, 3.0]), a * 3)
            np.testing.assert_array_equal(run("add", [a, a[:1]]), a + a[:1])
            np.testing.assert_array_equal(run("mul", [a, a], compute=np.float64, target=np.float64), a.astype(np.float64) ** 2)
