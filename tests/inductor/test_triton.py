"""Kernels printed for Triton: the text, that it says what the IR says (run on NumPy), that Triton compiles it, and how it is launched.

Triton needs no GPU to compile. Its interpreter takes torch tensors, so a few lines of NumPy stand for `triton.language` here.
"""

import ast
import importlib.util
import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.inductor.test_pointwise import PARAMS, expected
from tocha.backends import native
from tocha.inductor import jit, launch_cuda, layout, lower, pointwise, reduce, rows
from tocha.inductor.codegen_triton import Source, generate
from tocha.inductor.loop_ir import Buffer, Const, Index, Kernel, Loop, Size, Store
from tocha.prims.pointwise import ALL

HAS_TRITON = importlib.util.find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HAS_TRITON, reason="Triton is not installed")


@pytest.fixture(autouse=True)
def _modules() -> None:
    assert native.inductor() is not None  # tells the compiler what bfloat16 is


def made(
    name: str, *types: str, compute: str | None = None, out: str | None = None, dimensions: int = 1, inner: str | None = None
) -> Any:
    compute = compute or types[0]
    inner = inner or "1" * (1 + len(types))
    return pointwise.make(name, ALL[name].impl, types, compute, out or types[0], PARAMS.get(name, {}), dimensions, inner)


# ---- the text


def test_a_pointwise_kernel_reads_as_python() -> None:
    assert generate(made("square", "f32").kernel).text == (
        "import triton\n"
        "import triton.language as tl\n"
        "from triton.language.extra import libdevice\n"
        "\n\n"
        "@triton.jit\n"
        "def square_kernel(out_ptr, x0_ptr, elements, BLOCK: tl.constexpr):\n"
        "    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = element < elements\n"
        "    x0 = tl.load(x0_ptr + element, mask=mask)\n"
        "    tl.store(out_ptr + element, x0 * x0, mask=mask)\n"
    )


def test_strides_and_broadcasting_follow_from_the_number_of_the_element() -> None:
    source = generate(made("add", "f32", "f32", dimensions=2, inner="11n").kernel, wide=True)
    assert source.sizes == ("n1", "s0_0", "s1_0", "s2_0", "s2_1")
    body = source.text.split("BLOCK: tl.constexpr):\n")[1]
    assert body == (
        "    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)\n"
        "    mask = element < elements\n"
        "    unit = element // n1\n"
        "    j = element % n1\n"
        "    x0 = tl.load(x0_ptr + ((unit * s1_0) + j), mask=mask)\n"
        "    x1 = tl.load(x1_ptr + ((unit * s2_0) + (j * s2_1)), mask=mask)\n"
        "    tl.store(out_ptr + ((unit * s0_0) + j), x0 + x1, mask=mask)\n"
    )


def test_rows_stay_in_registers() -> None:
    text = generate(rows.softmax_backward("f32", "f32")).text
    assert text.split("BLOCK: tl.constexpr):\n")[1] == (
        "    unit = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]\n"
        "    here = unit < units\n"
        "    j = tl.arange(0, BLOCK)[None, :]\n"
        "    inside = j < n\n"
        "    mask = here & inside\n"
        "    t1 = (unit * n) + j\n"
        "    g = tl.load(g_ptr + t1, mask=mask)\n"
        "    out = tl.load(out_ptr + t1, mask=mask)\n"
        "    sum0_0_small = tl.reduce(tl.where(mask, g * out, 0.0), 1, add_of, keep_dims=True)\n"
        "    sum0_0 = sum0_0_small.to(tl.float64)\n"
        "    total = sum0_0.to(tl.float32)\n"
        "    tl.store(grad_ptr + t1, out * (g - total), mask=mask)\n"
    )


def test_what_is_stored_and_loaded_again_is_stored_once() -> None:
    text = generate(rows.softmax("f32", "f32")).text
    assert text.count("tl.load(") == text.count("tl.store(") == 1
    looped = generate(rows.softmax("f32", "f32"), looped=True).text
    assert looped.count("for start in range(0, n, BLOCK):") == looped.count("tl.load(") == 3
    assert looped.count("tl.store(") == 1


def test_a_difference_over_a_count_keeps_its_parentheses() -> None:
    assert (
        "((sum1_0 - ((sum1_1 * sum1_1) / t3)) / t3).to(tl.float32)" in generate(rows.layer_norm("f16", "f32", "f32", None)).text
    )


def test_kernels_of_other_shapes_are_refused() -> None:
    columns = reduce.make("sum", ("f32",), "f32", "f32", (True, 1, 1, "11", False))
    split = reduce.make("sum", ("f32",), "f32", "f32", (False, 1, 1, "01", True))
    j, n, zero = Index("j"), Size("n"), Const(0, "index")
    twice = tuple([Store("out", at, Const(0.0, "f32")) for at in (j, j + 1)])

    def row(loop: Loop) -> Kernel:
        return Kernel("k", (Buffer("out", "f32"),), (), (n,), (Loop("unit", Size("lo"), Size("hi"), (loop,)),))

    uneven, part = row(Loop("j", zero, n, twice, "vector")), row(Loop("j", Const(1, "index"), n, twice[:1], "vector"))
    for kernel in (columns, split, uneven, part, made("nextafter", "f64", "f64").kernel):
        with pytest.raises(lower.Unsupported):
            generate(kernel)


# ---- what it computes, on NumPy


class _Array(np.ndarray):
    """What Triton's tensors have and NumPy's arrays don't."""

    def to(self, dtype: Any, bitcast: bool = False) -> Any:
        return (self.view(dtype) if bitcast else self.astype(dtype)).view(_Array)


class _Pointer:
    def __init__(self, a: Any, offset: Any = 0) -> None:
        self.a, self.offset = a, offset

    def __add__(self, offset: Any) -> "_Pointer":
        return _Pointer(self.a, self.offset + offset)


def _array(x: Any, dtype: Any = None) -> Any:
    return np.asarray(x, dtype).view(_Array)


def _language(program: list[int]) -> Any:
    def load(p: _Pointer, mask: Any = True) -> Any:
        offset, mask = np.broadcast_arrays(p.offset, mask)
        return _array(p.a[np.where(mask, offset, 0)])

    def store(p: _Pointer, value: Any, mask: Any = True) -> None:
        offset, value, mask = np.broadcast_arrays(p.offset, value, mask)
        assert np.unique(offset[mask]).size == mask.sum()
        p.a[offset[mask]] = value[mask]

    def where(c: Any, x: Any, y: Any) -> Any:
        dtype = next(v.dtype for v in (x, y) if isinstance(v, np.ndarray))
        return _array(np.where(c, x, y), dtype)

    def fma(x: Any, y: Any, z: Any) -> Any:
        dtype = next(v.dtype for v in (x, y, z) if isinstance(v, np.ndarray))
        wide = np.longdouble if dtype == np.float64 else np.float64
        return _array(np.asarray(x, wide) * np.asarray(y, wide) + np.asarray(z, wide), dtype)

    def reduce_(x: Any, axis: int, combine: Any, keep_dims: bool) -> Any:
        assert axis == 1 and keep_dims
        found = x[:, :1]
        for column in range(1, x.shape[1]):
            found = combine(found, x[:, column : column + 1])
        return found

    names = {
        n: getattr(np, n)
        for n in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
    }
    return SimpleNamespace(
        **names, int1=np.bool_, bfloat16=lower.DTYPES["bf16"], constexpr=int, load=load, store=store, where=where, fma=fma, reduce=reduce_,
        program_id=lambda axis: _array(program[axis], np.int32), arange=lambda a, b: _array(np.arange(a, b, dtype=np.int32)),
        full=lambda shape, value, dtype: _array(np.full(shape, value, dtype)), PropagateNan=SimpleNamespace(ALL=1), max=np.max, abs=np.abs,
        maximum=lambda x, y, propagate_nan=None: np.maximum(x, y), minimum=lambda x, y, propagate_nan=None: np.minimum(x, y),
        div_rn=lambda x, y: _array(np.divide(x, y)), sqrt_rn=np.sqrt, sqrt=np.sqrt, floor=np.floor, ceil=np.ceil,
    )  # fmt: skip


def interpret(
    source: Source, arrays: list[Any], numbers: list[Any], count: int, sizes: dict[str, int], block: int, rows_each: int = 1
) -> None:
    """Run a printed kernel, program by program."""
    program = [0]
    libdevice = SimpleNamespace(sin=np.sin, copysign=lambda x, y: _array(np.copysign(x, y)), rint=np.rint, trunc=np.trunc)
    space: dict[str, Any] = {"triton": SimpleNamespace(jit=lambda f: f), "tl": _language(program), "libdevice": libdevice}
    exec(source.text.split("libdevice\n", 1)[1], space)
    given = [_Pointer(a.reshape(-1)) for a in arrays]
    scalars = [_array(v, lower.DTYPES[t]) for v, (_, t) in zip(numbers, source.params, strict=True)]
    tail = [_array(sizes[n], np.int32) for n in source.sizes] + [count] + ([rows_each] if source.rows else []) + [block]
    with np.errstate(all="ignore"):
        for program[0] in range(-(-count // (rows_each if source.rows else block))):
            space[source.name](*given, *scalars, *tail)


@pytest.mark.parametrize("name", ["gelu", "silu", "elu", "hardtanh", "sin", "mish", "threshold", "round", "sign"])
def test_pointwise_text_computes_the_rule(name: str) -> None:
    x = np.random.default_rng(0).uniform(-4, 4, 300).astype(np.float32)
    x[:6] = 0.0, -0.0, np.inf, -np.inf, np.nan, 3e6
    kernel = made(name, "f32")
    out = np.full(300, 77, np.float32)
    interpret(generate(kernel.kernel), [out, x], [PARAMS[name][n] for n in kernel.params], 300, {}, 64)
    want = expected(name, [x], PARAMS.get(name, {}))
    np.testing.assert_allclose(out, want, rtol=2e-6, atol=6e-7 if name == "gelu" else 1e-7)  # 1 + erf is right to 3e-7


def test_strided_and_mixed_text_computes_the_rule() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((6, 35)).astype(np.float16), rng.standard_normal((1, 70)).astype(np.float64)
    strides = [(35, 1), (35, 1), (0, 2)]
    found = layout.merge((6, 35), strides, (0, 1))
    kernel = made("mul", "f16", "f64", compute="f64", out="f64", dimensions=2, inner=found.inner).kernel
    out = np.zeros((6, 35))
    interpret(generate(kernel), [out, x, y], [], 210, launch_cuda.place_sizes(kernel, found), 64)
    np.testing.assert_array_equal(out, x.astype(np.float64) * y[:, ::2])
    assert launch_cuda.span_of(found) == 210


@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize("n", [1, 37, 64])
def test_row_text_computes_softmax_and_its_kin(n: int, looped: bool) -> None:
    rng = np.random.default_rng(n)
    x = rng.standard_normal((5, n)).astype(np.float32)
    block, rows_each = (16, 1) if looped else (64, 2)
    z = x.astype(np.float64)
    e = np.exp(z - z.max(1, keepdims=True))
    cases = {"softmax": e / e.sum(1, keepdims=True), "log_softmax": z - z.max(1, keepdims=True) - np.log(e.sum(1, keepdims=True))}
    for name, want in cases.items():
        out = np.zeros_like(x)
        interpret(generate(getattr(rows, name)("f32", "f32"), looped), [out, x], [], 5, {"n": n}, block, rows_each)
        np.testing.assert_allclose(out, want, rtol=3e-6, atol=1e-6)


@pytest.mark.parametrize("looped", [False, True])
def test_row_text_computes_layer_norm_and_argmax(looped: bool) -> None:
    rng = np.random.default_rng(1)
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 50), 50, 50))
    x += 3
    block, rows_each = (16, 1) if looped else (64, 2)
    out, mean, var = np.zeros_like(x), np.zeros(5, np.float32), np.zeros(5, np.float32)
    interpret(
        generate(rows.layer_norm("f32", "f32", "f32", "f32"), looped),
        [out, mean, var, x, w, b],
        [1e-5],
        5,
        {"n": 50},
        block,
        rows_each,
    )
    z = x.astype(np.float64)
    want = (z - z.mean(1, keepdims=True)) / np.sqrt(z.var(1, keepdims=True) + 1e-5) * w + b
    np.testing.assert_allclose(out, want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(mean, z.mean(1), rtol=1e-6)
    np.testing.assert_allclose(var, z.var(1), rtol=1e-5)
    x[2, 7] = np.nan
    values, indices = np.zeros(5, np.float32), np.zeros(5, np.int64)
    interpret(generate(rows.argmax("f32", 1), looped), [values, indices, x], [], 5, {"n": 50}, block, rows_each)
    np.testing.assert_array_equal(indices, x.argmax(1))
    np.testing.assert_array_equal(values, x.max(1))


def test_every_rule_that_has_a_kernel_prints() -> None:
    printed = 0
    for name, rule in ALL.items():
        if set(PARAMS.get(name, {})) != set(rule.parameters):
            continue
        try:
            kernel = made(name, *["f32"] * len(rule.arguments), out="bool" if rule.output == "bool" else "f32").kernel
        except (lower.Unsupported, ValueError):
            continue
        if name != "nextafter":
            ast.parse(generate(kernel).text)
            printed += 1
    assert printed > 100


# ---- compiling and launching


def test_shapes_fit_the_rows() -> None:
    assert launch_cuda.row_shape(1) == (launch_cuda.Shape(1, 1024, 1), False)
    assert launch_cuda.row_shape(300) == (launch_cuda.Shape(512, 2, 1), False)
    assert launch_cuda.row_shape(4096) == (launch_cuda.Shape(4096, 1, 4), False)
    assert launch_cuda.row_shape(16384)[1] is False
    assert launch_cuda.row_shape(16385)[1] is True


class _Function:
    launches: list[Any]

    def __init__(self) -> None:
        self.launches = []

    def __call__(self, grid: Any, block: Any, arguments: Any, shared_mem: int) -> None:
        self.launches.append((grid, block, arguments, shared_mem))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> tuple[_Function, list[Any]]:
    """CuPy and Triton replaced by what notes how they are called."""
    function, asked = _Function(), []
    monkeypatch.setattr(
        launch_cuda, "_load", lambda made: launch_cuda._Function(function, made.shared, (np.uint64(0),) * made.extra)
    )

    def compiled(source: Any, wide: bool, shape: Any, divisible: Any, architecture: int) -> Any:
        asked.append((source.name, wide, shape, divisible, architecture))
        return launch_cuda.Binary(b"code", source.name, 64, 2)

    monkeypatch.setattr(launch_cuda, "compiled", compiled)
    cupy = SimpleNamespace(cuda=SimpleNamespace(Device=lambda: SimpleNamespace(compute_capability="90")))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    return function, asked


def _on_device(address: int) -> Any:
    return SimpleNamespace(data=SimpleNamespace(ptr=address), device=SimpleNamespace(id=0))


def test_launches_are_specialised_by_alignment_and_width(device: Any) -> None:
    function, asked = device
    kernel = launch_cuda.CudaKernel(made("add", "f32", "f32").kernel)
    a, b, odd = _on_device(512), _on_device(1024), _on_device(1028)
    assert kernel.elements([a, a, b], [], 1 << 20, {}, 1 << 20)
    assert kernel.elements([a, a, odd], [], 1001, {}, 1001)
    assert kernel.elements([a, a, b], [], 1 << 20, {}, 1 << 20)
    assert kernel.elements([a, a, b], [], 1 << 20, {}, 1 << 31)
    everything = ("out_ptr", "x0_ptr", "x1_ptr", "elements")
    flat = launch_cuda.FLAT
    assert asked == [
        ("add_kernel", False, flat, everything, 90),
        ("add_kernel", False, flat, ("out_ptr", "x0_ptr"), 90),
        ("add_kernel", True, flat, everything, 90),
    ]
    grid, block, arguments, shared = function.launches[1]
    assert (grid, block, shared) == ((math.ceil(1001 / flat.block), 1, 1), (32 * flat.warps, 1, 1), 64)
    assert arguments[:3] == (a, a, odd) and arguments[3:] == (1001, 0, 0)
    assert [type(v) for v in arguments[3:]] == [np.int32, np.uint64, np.uint64]
    assert type(function.launches[3][2][3]) is np.int64


def test_rows_are_launched_by_their_number(device: Any) -> None:
    function, asked = device
    kernel = launch_cuda.CudaKernel(rows.layer_norm("f32", "f32", None, None))
    arrays = [_on_device(512 * i) for i in range(1, 5)]
    assert kernel.rows(arrays, [1e-5], 7, 300)
    assert kernel.rows(arrays, [1e-5], 0, 300)
    assert asked == [("layer_norm_kernel", False, launch_cuda.Shape(512, 2, 1), ("out_ptr", "mean_ptr", "var_ptr", "x_ptr"), 90)]
    (launch,) = function.launches
    assert launch[0] == (4, 1, 1) and launch[2][4:] == (1e-5, 300, 7, 0, 0)


def test_a_missing_triton_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "triton", None)
    source = generate(made("add", "f32", "f32").kernel)
    with pytest.raises(jit.CompileError, match="pip install triton"):
        launch_cuda._compile(source, launch_cuda.signature(source, False), launch_cuda.FLAT, (), 90)


COMPILED = {
    "gelu": (lambda: made("gelu", "f32").kernel, 0), "sin": (lambda: made("sin", "f64", dimensions=3, inner="1n").kernel, 0),
    "elu": (lambda: made("elu", "bf16", compute="f32", dimensions=2).kernel, 0), "compare": (lambda: made("gt", "i32", "i32", out="bool").kernel, 0),
    "softmax": (lambda: rows.softmax("f16", "f32"), 300), "long softmax": (lambda: rows.softmax("f32", "f32"), 20000),
    "layer_norm": (lambda: rows.layer_norm("bf16", "f32", "f32", None), 4096), "argmax": (lambda: rows.argmax("f32", 1), 300),
    "sum": (lambda: reduce.make("sum", ("f32",), "f32", "f32", (False, 2, 1, "01", False)), 300),
}  # fmt: skip


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_triton_compiles_without_torch_or_a_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    make, n = COMPILED[name]
    shape, looped = launch_cuda.row_shape(n) if n else (launch_cuda.FLAT, False)
    for wide in (False, True):
        source = generate(make(), looped, wide)
        pointers = tuple([f"{b}_ptr" for b, _ in source.buffers])
        binary = launch_cuda.compiled(source, wide, shape, pointers, 90)
        assert binary.code[:4] == b"\x7fELF" and binary.name == source.name and binary.extra == 2
        monkeypatch.setattr(launch_cuda, "_compile", None)  # the second time it is in the cache
        assert launch_cuda.compiled(source, wide, shape, pointers, 90) == binary
        monkeypatch.undo()
        monkeypatch.setitem(sys.modules, "torch", None)
