"""Convolution kernels and their gradients against the column method in NumPy, on shapes that no tile, box or piece fits evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha
from tocha import threads
from tocha.backends import _native_conv as kernels
from tocha.backends import cpu, native
from tocha.inductor.templates import borders, conv, gemm
from tocha.prims import convolution
from tocha.prims.windows import out_sizes

TOLERANCE = {"f": 2e-5, "d": 1e-12}


def arranged(a: Any, layout: str) -> Any:
    """The same values, channels last or with gaps between elements."""
    if layout == "channels_last":
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1)
    return np.repeat(a, 2, axis=-1)[..., ::2] if layout == "gaps" else a


def assert_close(got: Any, want: Any) -> None:
    assert got is not None
    assert got.shape == want.shape and got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE[want.dtype.char] * max(1.0, float(np.abs(want).max())))


def reference(monkeypatch: pytest.MonkeyPatch, prim: Any, *arrays: Any, **params: Any) -> Any:
    with monkeypatch.context() as patch:
        patch.setitem(native.LEAST, "conv", 1 << 60)
        return prim.impl(cpu, *arrays, **params)


def check(
    monkeypatch: pytest.MonkeyPatch, rng: Any, n: int, c: int, o: int, size: Any, kernel: Any, stride: Any = None, padding: Any = None,
    dilation: Any = None, groups: int = 1, dtype: str = "f", layout: str = "dense",
) -> None:  # fmt: skip
    ones = (1,) * len(size)
    stride, dilation, padding = stride or ones, dilation or ones, padding or ((0, 0),) * len(size)
    params = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    sizes = out_sizes(size, kernel, stride, dilation, padding)
    x = arranged(rng.standard_normal((n, c, *size)).astype(dtype), layout)
    weight = rng.standard_normal((o, c // groups, *kernel)).astype(dtype)
    gradient = arranged(rng.standard_normal((n, o, *sizes)).astype(dtype), layout)
    bias, back = rng.standard_normal(o).astype(dtype), rng.standard_normal(c).astype(dtype)
    assert_close(
        kernels.forward(x, weight, bias, sizes=sizes, **params),
        reference(monkeypatch, convolution.conv, x, weight, bias, **params),
    )
    assert_close(
        kernels.input_gradient(gradient, weight, back, size=size, **params),
        reference(monkeypatch, convolution.conv_input, gradient, weight, back, size=size, **params),
    )
    assert_close(
        kernels.weight_gradient(gradient, x, kernel=kernel, **params),
        reference(monkeypatch, convolution.conv_weight, gradient, x, kernel=kernel, **params),
    )


CASES = {
    "3x3": {"n": 2, "c": 5, "o": 13, "size": (11, 19), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    "7x7 of an image": {"n": 1, "c": 3, "o": 17, "size": (41, 43), "kernel": (7, 7), "stride": (2, 2), "padding": ((3, 3), (3, 3))},
    "1x1": {"n": 3, "c": 18, "o": 7, "size": (9, 5), "kernel": (1, 1)},
    "1x1 strided": {"n": 2, "c": 6, "o": 30, "size": (9, 14), "kernel": (1, 1), "stride": (2, 3)},
    "padding larger than kernel": {"n": 1, "c": 4, "o": 6, "size": (3, 2), "kernel": (2, 2), "padding": ((5, 0), (3, 4))},
    "dilation and stride": {"n": 2, "c": 4, "o": 9, "size": (23, 30),
     "kernel": (3, 4), "stride": (3, 2), "dilation": (2, 3), "padding": ((2, 1), (0, 4))},
    "stride past the kernel": {"n": 1, "c": 3, "o": 4, "size": (17, 20), "kernel": (2, 1), "stride": (5, 3)},
    "groups": {"n": 2, "c": 12, "o": 18, "size": (8, 10), "kernel": (3, 3), "groups": 3, "padding": ((1, 1), (1, 1))},
    "many groups of few": {"n": 2, "c": 32, "o": 32, "size": (9, 17), "kernel": (3, 3), "groups": 16, "padding": ((1, 1), (1, 1))},
    "small maps of many channels": {"n": 5, "c": 70, "o": 140, "size": (7, 7), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    "borders apart": {"n": 8, "c": 90, "o": 150, "size": (7, 7), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    "borders of a side": {"n": 6, "c": 20, "o": 130, "size": (6, 9), "kernel": (5, 3), "padding": ((3, 0), (0, 1)), "dilation": (1, 2)},
    "all border": {"n": 9, "c": 20, "o": 70, "size": (3, 2), "kernel": (3, 3), "padding": ((4, 3), (5, 1))},
    "a column past a vector": {"n": 1, "c": 700, "o": 20, "size": (7, 7), "kernel": (1, 1)},
    "blocks of channels": {"n": 1, "c": 700, "o": 14, "size": (4, 5), "kernel": (3, 3)},
    "weights packed inside": {"n": 2, "c": 150, "o": 180, "size": (5, 6), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    "blocks of weights packed inside": {"n": 1, "c": 300, "o": 70, "size": (20, 20), "kernel": (3, 3), "padding": ((1, 1), (1, 1))},
    "weights of groups packed inside": {"n": 2, "c": 270, "o": 300, "size": (7, 4), "kernel": (3, 3), "stride": (2, 1), "groups": 2},
    "1-d": {"n": 3, "c": 9, "o": 25, "size": (701,), "kernel": (5,), "stride": (2,), "padding": ((2, 1),)},
    "3-d": {"n": 2, "c": 5, "o": 7, "size": (6, 9, 11),
     "kernel": (2, 3, 3), "stride": (1, 2, 1), "dilation": (2, 1, 1), "padding": ((1, 1), (0, 2), (1, 1))},
    "one element": {"n": 1, "c": 1, "o": 1, "size": (1,), "kernel": (1,)},
    "depthwise 3x3": {"n": 2, "c": 10, "o": 10, "size": (15, 37), "kernel": (3, 3), "groups": 10, "padding": ((1, 1), (1, 1))},
    "depthwise 5x5 strided": {"n": 1, "c": 8, "o": 8, "size": (21, 18), "kernel": (5, 5), "groups": 8, "stride": (2, 2), "padding": ((2, 2), (2, 2))},
    "depthwise 7x7": {"n": 1, "c": 9, "o": 9, "size": (18, 35), "kernel": (7, 7), "groups": 9, "padding": ((3, 3), (3, 3))},
    "depthwise dilated": {"n": 1, "c": 9, "o": 9, "size": (19, 40), "kernel": (3, 3), "groups": 9, "dilation": (2, 3)},
    "depthwise with a multiplier": {"n": 2, "c": 8, "o": 16, "size": (9, 9), "kernel": (3, 2), "groups": 8},
    "depthwise 1-d": {"n": 2, "c": 16, "o": 16, "size": (100,), "kernel": (31,), "groups": 16, "padding": ((15, 15),)},
    "depthwise 3-d": {"n": 1, "c": 8, "o": 8, "size": (5, 7, 9), "kernel": (3, 3, 3), "groups": 8, "padding": ((1, 1), (1, 1), (1, 1))},
}  # fmt: skip


@pytest.mark.parametrize("layout", ["dense", "channels_last", "gaps"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_agree_with_the_column_method(monkeypatch: pytest.MonkeyPatch, name: str, layout: str) -> None:
    for dtype in "fd":
        check(monkeypatch, np.random.default_rng(7), **CASES[name], dtype=dtype, layout=layout)


def test_random_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(20)
    done = 0
    while done < 60:
        dims = int(rng.integers(1, 4))
        size, kernel, stride, dilation = (
            tuple(map(int, rng.integers(1, high, dims))) for high in ({1: 150, 2: 25, 3: 8}[dims], 5, 4, 4)
        )
        padding = tuple((int(a), int(b)) for a, b in rng.integers(0, 6, (dims, 2)))
        groups = int(rng.choice([1, 1, 2, 3, 11]))
        if min(out_sizes(size, kernel, stride, dilation, padding)) <= 0:
            continue
        each = 3 if groups == 11 else 16
        c, o = groups * int(rng.integers(1, each)), groups * int(rng.integers(1, each + 10 * (groups < 11)))
        layout = str(rng.choice(["dense", "channels_last", "gaps"]))
        check(
            monkeypatch,
            rng,
            int(rng.integers(1, 4)),
            c,
            o,
            size,
            kernel,
            stride,
            padding,
            dilation,
            groups,
            "fd"[done % 2],
            layout,
        )
        done += 1


@pytest.mark.parametrize("shape", [(12, 2, 16), (6, 2, 32), (6, 2, 16)])
def test_other_machines_tiles(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int, int]) -> None:
    """The code for AVX2, NEON and plain SSE, which any CPU can run."""
    rows, granule, size = shape
    monkeypatch.setattr(
        gemm,
        "geometry",
        lambda scalar: gemm.Geometry(scalar, size // gemm.ITEM[scalar], rows, granule if rows == 6 else 4, False),
    )
    monkeypatch.setattr(native, "_built", {})
    monkeypatch.setattr(native, "_remembered", {})
    names = ("3x3", "small maps of many channels", "a column past a vector", "borders apart", "weights packed inside")
    for name in (*names, "depthwise 3x3", "dilation and stride"):
        check(monkeypatch, np.random.default_rng(3), **CASES[name])


def test_borders_leave_out_taps_of_padding_where_that_pays() -> None:
    g = gemm.Geometry("float", 16, 12, 4, True)

    def taps(size: int, samples: int, outputs: int) -> list[tuple[int, ...]]:
        lines = [conv.forward_line(n, k, 1, 1, k // 2, n) for n, k in ((1, 1), (size, 3), (size, 3))]
        whole = borders.Part.of(0, [tuple(line.phases[0] for line in lines)], 0)
        parts = borders.trimmed(lines, whole, [samples, 1, size, size], None, outputs, g)
        return [(len(part.taps), *part.start[1:], *part.outputs[1:]) for part in parts]

    assert taps(7, 8, 512) == [(9, 1, 1, 5, 5), (6, 0, 0, 1, 6), (6, 0, 6, 6, 1), (6, 6, 1, 1, 6), (6, 1, 0, 6, 1)]
    assert taps(7, 1, 512) == taps(56, 1, 512) == []


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(5)
    x, weight = rng.standard_normal((3, 24, 30, 31)).astype("f"), rng.standard_normal((40, 24, 3, 3)).astype("f")
    deep = rng.standard_normal((24, 1, 3, 3)).astype("f")
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            params = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
            out = kernels.forward(x, weight, None, sizes=(30, 31), groups=1, **params)
            narrow = kernels.forward(x, deep, None, sizes=(30, 31), groups=24, **params)
            results.append([
                out, narrow, kernels.input_gradient(out, weight, None, size=(30, 31), groups=1, **params),
                kernels.weight_gradient(out, x, kernel=(3, 3), groups=1, **params),
                kernels.weight_gradient(narrow, x, kernel=(3, 3), groups=24, **params),
            ])  # fmt: skip
    finally:
        threads.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


def test_infinities_beside_a_row_stay_there() -> None:
    """Columns past an output row's end are computed and dropped, whatever is in them."""
    x = np.ones((1, 8, 5, 21), "f")
    x[0, :, 2, 20] = np.inf
    gradient = np.ones((1, 8, 5, 21), "f")
    params = {"stride": (1, 1), "padding": ((1, 1), (1, 1)), "dilation": (1, 1)}
    for groups, per in ((1, 8), (8, 1)):
        out = kernels.forward(x, np.ones((8, per, 3, 3), "f"), None, sizes=(5, 21), groups=groups, **params)
        assert np.isinf(out).sum() == 8 * 3 * 2 and not np.isnan(out).any()
        got = kernels.weight_gradient(gradient, x, kernel=(3, 3), groups=groups, **params)
        assert not np.isnan(got).any()
        assert np.isinf(got[..., 1:]).all() and np.isinf(got[..., 0]).sum() == 0


def test_empty_batches_and_other_types_are_left_to_numpy() -> None:
    params = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1}
    weight = np.ones((2, 3, 2), "f")
    assert kernels.forward(np.ones((0, 3, 5), "f"), weight, None, sizes=(4,), **params) is None
    assert kernels.forward(np.ones((1, 3, 5), "D"), weight.astype("D"), None, sizes=(4,), **params) is None
    assert tuple(tocha.nn.functional.conv1d(tocha.ones(0, 3, 5), tocha.from_numpy(weight)).shape) == (0, 2, 4)


def test_half_types_accumulate_in_float32() -> None:
    x, weight = tocha.ones(1, 300, 6, 6, dtype=tocha.bfloat16), tocha.ones(4, 300, 3, 3, dtype=tocha.bfloat16)
    out = tocha.nn.functional.conv2d(x, weight)
    assert out.dtype == tocha.bfloat16
    assert out.flatten().tolist() == [2704.0] * 64  # 2700 rounded to eight bits


def test_gradients_of_gradients() -> None:
    rng = np.random.default_rng(1)
    x = tocha.tensor(rng.standard_normal((2, 3, 7, 6)), requires_grad=True)
    weight = tocha.tensor(rng.standard_normal((4, 3, 3, 2)), requires_grad=True)
    conv = tocha.nn.functional.conv2d
    assert tocha.autograd.gradgradcheck(lambda a, b: conv(a, b, stride=2, padding=1), (x, weight))


def check_half(monkeypatch: pytest.MonkeyPatch, case: dict[str, Any], dtype: Any, layout: str) -> None:
    """Within half a unit in the last place of the type, and the sums' own error."""
    rng = np.random.default_rng(9)
    half = tocha.zeros(1, dtype=dtype)._a.dtype
    size, kernel, ones = case["size"], case["kernel"], (1,) * len(case["size"])
    params = {
        "stride": case.get("stride", ones),
        "padding": case.get("padding", ((0, 0),) * len(size)),
        "dilation": case.get("dilation", ones),
    }
    params["groups"] = case.get("groups", 1)
    sizes = out_sizes(size, kernel, params["stride"], params["dilation"], params["padding"])
    x, g = (
        arranged(rng.standard_normal((case["n"], *s)).astype(half), layout) for s in ((case["c"], *size), (case["o"], *sizes))
    )
    weight, bias = (rng.standard_normal(s).astype(half) for s in ((case["o"], case["c"] // params["groups"], *kernel), case["o"]))
    wide = [a.astype("f") for a in (x, g, weight, bias)]
    for got, want in (
        (
            kernels.RUNS["conv"]([x, weight, bias], params),
            reference(monkeypatch, convolution.conv, wide[0], wide[2], wide[3], **params),
        ),
        (
            kernels.RUNS["conv_input"]([g, weight, None], {"size": size, **params}),
            reference(monkeypatch, convolution.conv_input, wide[1], wide[2], None, size=size, **params),
        ),
    ):
        assert got is not None and got.dtype == half and got.shape == want.shape
        error = np.abs(got.astype("f") - want)
        assert (error <= 2.0 ** (-8 if dtype is tocha.bfloat16 else -11) * np.abs(want) + 2e-5 * np.abs(want).max()).all()


@pytest.mark.parametrize("dtype", [tocha.bfloat16, tocha.float16])
@pytest.mark.parametrize("pairs", [False, True])
def test_half_types_are_converted_as_they_are_packed(monkeypatch: pytest.MonkeyPatch, dtype: Any, pairs: bool) -> None:
    if pairs and (dtype is tocha.float16 or not kernels._multiplies_bfloat16()):
        pytest.skip("only for bfloat16 on a CPU that multiplies it")
    monkeypatch.setattr(kernels, "_multiplies_bfloat16", lambda: pairs)
    monkeypatch.setattr(native, "_remembered", {})
    for name in (
        "3x3",
        "7x7 of an image",
        "dilation and stride",
        "groups",
        "blocks of channels",
        "weights packed inside",
        "1-d",
        "3-d",
        "1x1",
    ):
        for layout in ("dense", "channels_last", "gaps"):
            check_half(monkeypatch, CASES[name], dtype, layout)


def test_half_types_on_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "geometry", lambda scalar: gemm.Geometry(scalar, 8, 6, 2, False))
    monkeypatch.setattr(kernels, "_multiplies_bfloat16", lambda: False)
    monkeypatch.setattr(native, "_built", {})
    monkeypatch.setattr(native, "_remembered", {})
    for dtype in (tocha.bfloat16, tocha.float16):
        for name in ("3x3", "dilation and stride"):
            check_half(monkeypatch, CASES[name], dtype, "dense")


def test_taps_that_meet_padding_alone() -> None:
    x, w = tocha.ones(1, 64, 1, 7, requires_grad=True), tocha.ones(64, 64, 1, 1, requires_grad=True)
    out = tocha.nn.functional.conv2d(x, w, tocha.arange(64.0), 2, [1, 0])
    assert (out == tocha.arange(64.0)[:, None, None]).all() and out.shape == (1, 64, 2, 4)
    out.sum().backward()
    assert not x.grad.any() and not w.grad.any()
    x, w = tocha.ones(1, 32, 1, 3, 3, requires_grad=True), tocha.ones(32, 32, 1, 1, 1, requires_grad=True)
    tocha.nn.functional.conv3d(x, w, None, 2, [1, 0, 0]).sum().backward()
    assert not x.grad.any() and not w.grad.any()
    out = tocha.nn.functional.conv_transpose2d(
        tocha.ones(1, 16, 3, 7), tocha.ones(16, 17, 2, 4), tocha.ones(34), [2, 3], [3, 0], 0, 2, [2, 3]
    )
    assert out.shape == (1, 34, 1, 28) and (out == 1).all()
