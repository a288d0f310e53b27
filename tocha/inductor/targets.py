"""Object code for other CPUs: the kernels of a compiled graph, compiled but not run.

    objects(compile_graph(graph), TARGETS["neon"])  ->  {kernel's name: an ELF object file whose function is `entry`}

What differs by CPU is asked of `jit.host`: vector widths, tiles of products, whether x * y + z is rounded once.
"""

from __future__ import annotations

from typing import Any

from tocha.inductor import entry, jit
from tocha.inductor.jit import Target
from tocha.inductor.templates import matmul

_X86, _LINUX = "+sse4.2,+avx,+avx2,+fma,+f16c,+bmi,+bmi2", "unknown-linux-gnu"
TARGETS = {
    "avx2": Target(f"x86_64-{_LINUX}", "haswell", _X86),
    "avx512": Target(f"x86_64-{_LINUX}", "skylake-avx512", f"{_X86},+avx512f,+avx512bw,+avx512dq,+avx512vl"),
    "neon": Target(f"aarch64-{_LINUX}", "neoverse-n1", "+neon"),
}


def objects(runner: Any, target: Target) -> dict[str, bytes]:
    """Object files of a compiled graph's kernels (tocha._inductor.wrapper.Runner), by name; CompileError if LLVM refuses one."""
    with jit.targeting(target):
        return {b.kernel.name: jit.compile_object(entry.source(b.kernel, b.grain)) for b in runner.wrapper.kernels}


def product(spec: matmul.Spec, target: Target) -> bytes:
    """The object file of a matrix product's code."""
    with jit.targeting(target):
        return jit.compile_object(entry.DECLARATIONS + matmul.code(spec), by_hand=True)
