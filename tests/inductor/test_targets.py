"""Object code for other CPUs: compiled here, run nowhere."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph
from tocha.aot import runtime
from tocha.inductor import jit, targets
from tocha.inductor.templates import matmul

MACHINES = {"avx2": 62, "avx512": 62, "neon": 183}  # e_machine of ELF


def machine(data: bytes) -> int:
    """The CPU family that an ELF file is for."""
    assert data[:4] == b"\x7fELF"
    return int(struct.unpack_from("<H", data, 18)[0])


def block(x: Any, w: Any) -> list[Any]:
    y = F.gelu(x * w) + x
    return [torch.softmax(y, -1), y.sum(0), torch.where(y > 0, y.exp(), 0 * y).half()]


@pytest.mark.parametrize("name", targets.TARGETS)
def test_kernels_of_a_graph(name: str) -> None:
    x, w = torch.randn(8, 33), torch.randn(33)
    made = runtime.compile(block, [x, w], compile_graph)
    found = targets.objects(made.forward, targets.TARGETS[name])
    assert len(found) == len({b.kernel.name for b in made.forward.wrapper.kernels}) > 0
    assert all(machine(data) == MACHINES[name] and b"entry" in data for data in found.values())
    for got, want in zip(made(x, w), block(x, w), strict=True):  # still this machine's
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", targets.TARGETS)
def test_matrix_products(name: str) -> None:
    here = matmul.code(matmul.Spec("f32", "f32"))
    data = targets.product(matmul.Spec("f32", "f32"), targets.TARGETS[name])
    assert machine(data) == MACHINES[name]
    with jit.targeting(targets.TARGETS[name]):
        width = {"avx2": 8, "avx512": 16, "neon": 4}[name]
        assert f"<{width} x float>" in matmul.code(matmul.Spec("f32", "f32"))
    assert matmul.code(matmul.Spec("f32", "f32")) == here


def test_code_for_another_cpu_is_not_loaded() -> None:
    with jit.targeting(targets.TARGETS["neon"]), pytest.raises(jit.CompileError, match="neoverse-n1 can't run here"):
        jit.load("define i64 @f() {\n  ret i64 1\n}\n", ("f",), {})
    assert jit.load("define i64 @f() {\n  ret i64 1\n}\n", ("f",), {})
