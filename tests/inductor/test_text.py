"""The loop IR prints as text that parses to the same kernel, and refuses what makes no sense."""

from typing import Any

import pytest

from tocha.dispatch.prim import REGISTRY
from tocha.inductor import pointwise, reduce, rows
from tocha.inductor.codegen_llvm import generate
from tocha.inductor.loop_ir import (
    Binary,
    Buffer,
    Compare,
    Const,
    Index,
    IRError,
    Kernel,
    Load,
    Loop,
    Param,
    Read,
    Select,
    Size,
    Store,
    const,
    verify,
)  # fmt: skip
from tocha.inductor.lower import trace
from tocha.inductor.text import parse, show

KERNELS: dict[str, Any] = {
    "gelu": lambda: pointwise.make("gelu", REGISTRY["gelu"].impl, ("f32",), "f32", "f32", {}, 1, "11").kernel,
    "sin strided": lambda: pointwise.make("sin", REGISTRY["sin"].impl, ("f64",), "f64", "f64", {}, 3, "1n").kernel,
    "elu bf16": lambda: pointwise.make(
        "elu", REGISTRY["elu"].impl, ("bf16",), "f32", "bf16", {"alpha": 1.0, "scale": 1.0, "speed": 1.0}, 2, "11"
    ).kernel,
    "compare": lambda: pointwise.make("gt", REGISTRY["gt"].impl, ("i32", "number"), "i32", "bool", {}, 1, "11").kernel,
    "sum of rows": lambda: reduce.make("sum", ("f32",), "f32", "f32", (False, 2, 1, "01", True)),
    "sum of short rows": lambda: reduce.make("sum", ("bf16",), "f32", "bf16", (False, 1, 1, "01", False, True)),
    "mean of columns": lambda: reduce.make("mean", ("bf16",), "f32", "bf16", (True, 1, 2, "11", True)),
    "softmax": lambda: rows.softmax("f32", "f32"), "layer_norm": lambda: rows.layer_norm("f16", "f32", "f32", None),
    "argmax": lambda: rows.argmax("f32", 1),
}  # fmt: skip


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_survive_being_printed(name: str) -> None:
    kernel = KERNELS[name]()
    verify(kernel)
    text = show(kernel)
    assert parse(text) is kernel
    assert generate(parse(text)) == generate(kernel)


def test_the_text_reads_as_python() -> None:
    square = pointwise.make("square", REGISTRY["square"].impl, ("f32",), "f32", "f32", {}, 1, "11").kernel
    assert show(square) == (
        'def square(out: buffer("f32"), x0: buffer("f32")):\n'
        "    for j in vector(lo, hi):\n"
        '        t1 = load("x0", j, "f32")\n'
        '        store("out", j, mul_(t1, t1))\n'
    )


def test_equal_nodes_are_one() -> None:
    x = Param("x", "f32")
    assert x + 1 is x + 1.0
    assert Const(0.0, "f32") is not Const(-0.0, "f32")
    assert Const(float("nan"), "f32") is Const(float("nan"), "f32")
    assert Const(True, "bool") is not Const(1, "i32")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Binary("add", Param("x", "f32"), Param("y", "f64")), lambda: Binary("mod", Param("x", "f32"), Param("y", "f32")),
        lambda: Const(300, "u8"), lambda: Const(1, "f32"), lambda: Const(1.0, "bf16"), lambda: Load("x", Param("i", "i64"), "f32"),
        lambda: Select(Param("c", "i8"), const(1, "f32"), const(2, "f32")), lambda: Compare("lt", Param("x", "f32"), Param("y", "i32")),
    ],
)  # fmt: skip
def test_constructors_check_types(make: Any) -> None:
    with pytest.raises(IRError):
        make()


def _kernel(*body: Any) -> Kernel:
    return Kernel("k", (Buffer("out", "f32"), Buffer("x", "f32")), (), (Size("n"),), body)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (_kernel(Store("out", Index("i"), const(0, "f32"))), "i is not in scope"),
        (_kernel(Loop("i", Size("lo"), Size("m"), ())), "m is not in scope"),
        (_kernel(Store("out", Size("n"), const(0, "f64"))), "store of f64"),
        (_kernel(Store("y", Size("n"), const(0, "f32"))), "store of f32 to y"),
        (_kernel(Store("out", Size("n"), Load("x", Size("n"), "f64"))), "load of f64"),
        (_kernel(Store("out", Size("n"), Read("s", "f32"))), "s is not in scope"),
        (_kernel(Loop("i", Size("lo"), Size("hi"), ()), Loop("i", Size("lo"), Size("n"), ())), "two loops"),
    ],
)
def test_verify_names_what_is_wrong(kernel: Kernel, message: str) -> None:
    with pytest.raises(IRError, match=message):
        verify(kernel)


def test_parse_refuses_what_it_does_not_know() -> None:
    for text in (
        "def k():\n    while True: pass\n",
        "def k():\n    frobnicate(1)\n",
        'def k():\n    store("out", nowhere, nowhere)\n',
    ):
        with pytest.raises(IRError):
            parse(text)


def test_guards_remember_how_a_rule_branched() -> None:
    _, run = trace(REGISTRY["lerp_scalar"].impl, [Param("x", "f32"), Param("y", "f32")], {"weight": 0.25})
    assert [(name, number, outcome) for name, _, number, outcome in run.guards] == [("|weight", 0.5, True)]
    _, run = trace(REGISTRY["pow_scalar"].impl, [Param("x", "f32")], {"exponent": 1.5})
    assert ("exponent", 1.5, True) in [(name, number, outcome) for name, _, number, outcome in run.guards]
