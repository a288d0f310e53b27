"""Matrix products on kernels against NumPy: sizes around tiles and pieces, every layout, every type, holes, other machines' tiles."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha import threads
from tocha.backends import _native_products as products
from tocha.backends import native
from tocha.inductor import entry, jit
from tocha.inductor.loop_ir import Read, compare, const, convert, select
from tocha.inductor.lower import Unsupported
from tocha.inductor.templates import gemm, matmul
from tocha.inductor.templates.epilogue import Epilogue, Operand

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.float32, np.float64, np.float16, BFLOAT16]
INTEGERS = [np.int8, np.uint8, np.int32, np.int64]
ERROR = {"f": 1e-6, "d": 4e-15, "e": 1e-3, "E": 8e-3}
# Around a tile's 12 rows and 32 columns, a row block, and a piece of 256 steps (512 in pairs).
SIZES = [
    (1, 1, 1),
    (1, 300, 70),
    (3, 77, 40),
    (9, 100, 37),
    (50, 70, 3),
    (4, 1, 16),
    (5, 3, 7),
    (12, 16, 32),
    (13, 17, 33),
    (25, 255, 31),
    (7, 257, 64),
    (37, 513, 65),
    (1, 1030, 40),
    (200, 33, 1),
]


@pytest.fixture(autouse=True)
def _all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "LEAST", dict.fromkeys(products.LEAST, 1))
    monkeypatch.setattr(products, "LEAST_IN_BATCH", 1)
    monkeypatch.setattr(native, "SHORT_PRODUCT", 1)


def factor(rng: Any, rows: int, columns: int, dtype: Any, layout: str, batch: tuple[int, ...] = ()) -> Any:
    """A matrix whose elements lie as `layout` says."""
    shape = {"columns": (columns, rows), "gaps": (rows, 2 * columns), "backwards": (rows, columns), "rows": (rows, columns)}[
        layout
    ]
    x = rng.standard_normal((*batch, *shape)) * (100 if np.dtype(dtype).kind in "iu" else 1)
    x = np.abs(x) if np.dtype(dtype).kind == "u" else x
    x = x.astype(dtype)
    if layout == "columns":
        return x.swapaxes(-1, -2)
    return x[..., ::2] if layout == "gaps" else x[..., ::-1, ::-1] if layout == "backwards" else x


def assert_product(got: Any, a: Any, b: Any, bias: Any = None) -> None:
    assert got is not None and got.dtype == a.dtype
    if a.dtype.kind in "iu":
        np.testing.assert_array_equal(got, np.matmul(a, b) + (0 if bias is None else bias))
        return
    want = np.matmul(a.astype("d"), b.astype("d")) + (0 if bias is None else bias.astype("d"))
    room = ERROR["E" if a.dtype == BFLOAT16 else a.dtype.char] * (math.sqrt(a.shape[-1]) + np.abs(want)) * 2
    assert got.shape == want.shape
    assert (np.abs(got.astype("d") - want) <= room).all()


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
@pytest.mark.parametrize("left", ["rows", "columns", "gaps", "backwards"])
@pytest.mark.parametrize("right", ["rows", "columns", "gaps", "backwards"])
def test_products_of_any_layout(dtype: Any, left: str, right: str) -> None:
    rng = np.random.default_rng(3)
    for m, k, n in SIZES:
        a, b = factor(rng, m, k, dtype, left), factor(rng, k, n, dtype, right)
        assert_product(products.multiply(a, b), a, b)
        bias = factor(rng, 1, n, dtype, "rows")[0]
        assert_product(products.multiply(a, b, bias), a, b, bias)


@settings(max_examples=60)
@given(st.data())
def test_random_products(data: Any) -> None:
    sizes = data.draw(st.tuples(st.integers(1, 130), st.integers(1, 600), st.integers(1, 130)), "m, k, n")
    layouts = st.sampled_from(["rows", "columns", "gaps", "backwards"])
    dtype = data.draw(st.sampled_from([*FLOATS, *INTEGERS]), "dtype")
    left, right = data.draw(layouts, "left"), data.draw(layouts, "right")
    batch = data.draw(st.sampled_from([((), ()), ((3,), (3,)), ((2, 1), (3,)), ((), (2,)), ((4,), (1,))]), "batches")
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    a, b = factor(rng, sizes[0], sizes[1], dtype, left, batch[0]), factor(rng, sizes[1], sizes[2], dtype, right, batch[1])
    assert_product(products.multiply(a, b), a, b)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_vectors(dtype: Any) -> None:
    rng = np.random.default_rng(9)
    a, x = factor(rng, 70, 300, dtype, "rows"), factor(rng, 1, 300, dtype, "rows")[0]
    for matrix in (a, np.asfortranarray(a), a[::-1]):
        got = products.RUNS["mv"]([matrix, x], {})
        assert_product(got[:, None], matrix, x[:, None])


def test_large_products_share_their_packed_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((800, 300)).astype("f"), rng.standard_normal((300, 2100)).astype("f")
    whole = products.multiply(a, b)
    assert_product(whole, a, b)
    for dtype in (np.float64, BFLOAT16, np.int32):
        x, y = ((z * 5 if dtype is np.int32 else z).astype(dtype)[:, :500] for z in (a, b))
        for left, right in ((x, np.asfortranarray(y)), (np.asfortranarray(x), y), (x[:, ::-1], y[::-1])):
            assert_product(products.multiply(left, right), left, right)
    monkeypatch.setattr(products, "MOST_PACKED", 1 << 17)
    monkeypatch.setattr(native, "_remembered", {})
    assert products.multiply(a, b).tobytes() == whole.tobytes()  # a range of columns at a time


def test_what_is_left_to_numpy() -> None:
    x = np.ones((40, 40), "f")
    assert products.multiply(x[:, :0], x[:0]) is None  # nothing to sum
    assert products.multiply(x[:0], x) is None
    assert products.multiply(x, x.astype("d")) is None
    assert products.multiply(x.astype("D"), x.astype("D")) is None
    odd = np.zeros(40 * 40 * 4 + 1, np.uint8)[1:].view("f").reshape(40, 40)
    assert products.multiply(odd, x) is None
    assert (torch.ones(40, 0) @ torch.ones(0, 40)).tolist() == torch.zeros(40, 40).tolist()


def test_broadcast_and_overlapping_factors() -> None:
    rng = np.random.default_rng(1)
    memory = rng.standard_normal(5000).astype("f")
    windows = np.lib.stride_tricks.sliding_window_view(memory, 300)[:50]
    assert_product(products.multiply(windows, windows.T), windows, windows.T)
    row = np.broadcast_to(memory[:300], (64, 300))
    assert_product(products.multiply(row, row.T), row, row.T)


def test_nan_and_infinities_stay_in_their_rows_and_columns() -> None:
    a, b = np.ones((30, 50), "f"), np.ones((50, 70), "f")
    a[29, 49], b[3, 69] = np.inf, np.nan
    for dtype in FLOATS:
        got = products.multiply(a.astype(dtype), b.astype(dtype)).astype("f")
        assert np.isnan(got[:, 69]).all() and np.isinf(got[29, :69]).all() and (got[:29, :69] == 50).all()


def test_results_depend_neither_on_threads_nor_on_the_cut() -> None:
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((450, 700)).astype("f"), rng.standard_normal((700, 333)).astype("f")
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            results.append(products.multiply(a, b))
    finally:
        threads.set_num_threads(before)
    assert len({r.tobytes() for r in results}) == 1
    assert products.multiply(a[:100], b).tobytes() == results[0][:100].tobytes()


def test_half_types_are_rounded_once() -> None:
    a, b = np.full((4, 300), 1, BFLOAT16), np.full((300, 16), 1, BFLOAT16)
    assert (products.multiply(a, b, np.full(16, 3, BFLOAT16)).astype("f") == 304).all()  # 303 to eight bits, not 300 + 3
    long = np.ones((16, 5000), np.float16)
    assert (products.multiply(long, long.T) == 5000).all()  # in float16, sums stop at 2048


def run(spec: matmul.Spec, a: Any, b: Any) -> Any:
    """A kernel of the test's own."""
    main = entry.build_template("mm", matmul.BUFFERS, matmul.SIZES, matmul.code(spec), hole=True)
    m, k, n = *a.shape, b.shape[1]
    steps = [tuple(s // x.itemsize for s in x.strides) for x in (a, b)]
    plan = matmul.plan(spec, 1, m, n, k, steps[0], steps[1], n, 1)
    out = np.empty((m, n), np.float32)
    assert not plan.packed
    main(out, a, b, out, np.zeros(1, np.int64), np.empty(plan.scratch, np.float32), np.zeros(2, np.int64), 0, plan.work)
    return out


@pytest.mark.parametrize("m", [1, 3, 13, 29, 400])
@pytest.mark.parametrize("layout", ["rows", "columns"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16], ids=str)
def test_epilogues_are_fused(m: int, layout: str, dtype: Any) -> None:
    rng = np.random.default_rng(8)
    k, n = 300, 45  # two pieces of the inner dimension, and edges
    a, b = factor(rng, m, k, dtype, "rows"), factor(rng, k, n, dtype, layout)
    name = products.NAMES[np.dtype(dtype)]
    compute = "f64" if name == "f64" else "f32"
    bias, rest, scale = rng.standard_normal(n).astype("f"), rng.standard_normal((m, n)).astype(np.float16), rng.standard_normal(m)
    chosen, half = rng.standard_normal((m, n)) > 0, np.array([0.5])
    operands = (
        Operand("column", "f32"), Operand("full", "f16"), Operand("row", "f64"), Operand("full", "bool"), Operand("scalar", "f64"),
    )  # fmt: skip
    total, read = Read("sum", compute), [x.read(number) for number, x in enumerate(operands)]
    scaled = (convert(total, "f64") + convert(read[0], "f64")) * read[2]
    values = (select(read[3], scaled, convert(read[1], "f64")) * read[4], compare("gt", total, const(0, compute)), total)
    dtypes = (np.dtype("f"), np.dtype("?"), a.dtype)
    end = products.hole(Epilogue(values, ("f32", "bool", name), operands), a.dtype, dtypes)
    got = products.finished(a, b, end, (bias, rest, scale, chosen, half))
    assert got is not None
    exact = a.astype("d") @ b.astype("d")
    want = np.where(chosen, (exact + bias) * scale[:, None], rest) * 0.5
    np.testing.assert_allclose(got[0], want, rtol=1e-5, atol=1e-4)
    assert ((got[1] == (exact > 0)) | (np.abs(exact) < 1e-4)).all()
    assert_product(got[2], a, b)
    assert got[2].tobytes() == products.multiply(a, b).tobytes()


def test_epilogues_of_ranges_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    a, b, bias, rest = (rng.standard_normal(s).astype("f") for s in ((450, 300), (300, 2100), (2100,), (450, 2100)))
    monkeypatch.setattr(products, "MOST_PACKED", 1 << 17)
    monkeypatch.setattr(native, "_remembered", {})
    rule = Epilogue.of(lambda o, s, x, y: o.sub(o.add(s, x), y), "f32", "f32", (Operand("column", "f32"), Operand("full", "f32")))
    got = products.finished(a, b, products.hole(rule, a.dtype, (a.dtype,)), (bias, rest))
    assert got is not None
    np.testing.assert_allclose(got[0], a.astype("d") @ b + bias - rest, atol=1e-4)


def test_prologues_are_applied_while_packing() -> None:
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((20, 70)).astype("f"), rng.standard_normal((70, 40)).astype("f")
    spec = matmul.Spec("f32", "f32", left=lambda o, x: o.maximum(x, 0.0), right=lambda o, x: o.mul(x, 0.5))
    want = np.maximum(a.astype("d"), 0) @ (b * 0.5)
    for x, y in ((a, b), (np.asfortranarray(a), np.asfortranarray(b)), (np.repeat(a, 2, 1)[:, ::2], b)):
        np.testing.assert_allclose(run(spec, x, y), want, atol=1e-4)


def test_epilogues_without_a_vector_form_are_refused() -> None:
    with pytest.raises(Unsupported, match="part of its arguments"):
        Epilogue.of(lambda o, s: o.sin(s), "f32", "f32")
    with pytest.raises(ValueError, match="column"):
        Operand("diagonal", "f32")


@pytest.mark.parametrize("isa", ["avx2", "sse"])
def test_other_machines_tiles(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    """The code for CPUs with smaller vectors, compiled for such a CPU."""
    if "+avx512f" not in jit.host()[2]:
        pytest.skip("this CPU has no more than that")
    monkeypatch.setenv("TOCHA_ISA", isa)
    monkeypatch.setattr(native, "_built", {})
    monkeypatch.setattr(native, "_remembered", {})
    jit._host.cache_clear()
    try:
        assert gemm.geometry("float").lanes == {"avx2": 8, "sse": 4}[isa] and not matmul.pairs_of_bfloat16()
        rng = np.random.default_rng(3)
        for dtype in (np.float32, BFLOAT16, np.int64):
            for left, right in (("rows", "columns"), ("columns", "rows"), ("gaps", "backwards")):
                for m, k, n in ((13, 17, 33), (25, 255, 31), (7, 300, 64)):
                    a, b = factor(rng, m, k, dtype, left), factor(rng, k, n, dtype, right)
                    bias = factor(rng, 1, n, dtype, "rows")[0]
                    assert_product(products.multiply(a, b, bias), a, b, bias)
    finally:
        monkeypatch.undo()
        jit._host.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_operators_take_the_kernels(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    x, w, b = (torch.from_numpy(rng.integers(-3, 4, s)).to(dtype) for s in ((6, 20, 40), (50, 40), (50,)))
    want = x.numpy(force=True).astype("d") if dtype is not torch.bfloat16 else x.float().numpy().astype("d")
    weight, bias = (t.double().numpy() for t in (w, b))
    for got in (torch.nn.functional.linear(x, w, b), torch.addmm(b, x.reshape(120, 40), w.T).reshape(6, 20, 50), x @ w.T + b):
        np.testing.assert_allclose(got.double().numpy(), want @ weight.T + bias, rtol=1e-2)
        assert got.dtype is dtype


def test_gradients_of_linear() -> None:
    rng = np.random.default_rng(4)
    x, w, b = (torch.tensor(rng.standard_normal(s), requires_grad=True) for s in ((9, 20), (30, 20), (30,)))
    assert torch.autograd.gradcheck(torch.nn.functional.linear, (x, w, b))
    assert torch.autograd.gradgradcheck(torch.nn.functional.linear, (x, w, b))
