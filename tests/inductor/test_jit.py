"""Linking of machine code."""

import ctypes
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tocha.dispatch.prim import REGISTRY
from tocha.inductor import entry, jit, pointwise

ROOT = Path(__file__).parents[2]
FULL = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    def taken(size):
        return libc.mmap(None, size, 0, 0x4022, -1, 0)  # private, anonymous, without memory behind it
    import tocha as torch
    x = torch.linspace(-1, 1, 100_000)
    torch.exp(x)
    below = taken(8 << 30)
    while (page := taken(4096)) > below:  # every hole above
        last = page
    for function in (torch.nn.functional.gelu, torch.tanh, torch.sin, torch.log1p):
        libc.munmap(last, 4096)
        function(x)
        taken(4096)
    print("linked")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="fills a process's address space as Linux lays it out")
def test_kernels_link_where_one_page_is_free_and_the_next_gigabytes_away() -> None:
    got = subprocess.run([sys.executable, "-c", textwrap.dedent(FULL)], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (got.stdout, got.returncode) == ("linked\n", 0), got.stderr


def test_whole_vectors_wherever_the_cpu_has_them(monkeypatch):
    """LLVM's taste for half vectors on Intel's CPUs is overruled, unless TOCHA_ISA does without them anyway."""
    for isa in ("", "avx2"):
        monkeypatch.setenv("TOCHA_ISA", isa)
        features = jit._host.__wrapped__()[2].split(",")
        assert ("-prefer-256-bit" in features) == ("+avx512f" in features)


def test_elements_are_moved_in_half_vectors_where_those_are_faster(monkeypatch):
    def kernels(cpu):
        monkeypatch.setattr(jit, "_host", lambda: ("x86_64-unknown-linux-gnu", cpu, "+avx512f,+fma"))
        made = [pointwise.make(n, REGISTRY[n].impl, ("f32", "f32")[:k], "f32", "f32", {}, 1, "1" * (k + 1)) for n, k in rules]
        return [entry.source(m.kernel, m.grain).count('"prefer-vector-width"="256"') for m in made]

    rules = (("add", 2), ("relu", 1), ("exp", 1))
    assert kernels("znver4") == [1, 1, 0]
    assert kernels("sapphirerapids") == [0, 0, 0]


def test_code_written_by_hand_is_inlined_where_it_says_so_and_computes_the_same() -> None:
    text = """
define internal i64 @square(i64 %x) alwaysinline {
  %slot = alloca i64
  store i64 %x, ptr %slot
  %y = load i64, ptr %slot
  %z = mul i64 %y, %x
  ret i64 %z
}
define i64 @sum_of_squares(i64 %x, i64 %y) {
  %a = call i64 @square(i64 %x)
  %b = call i64 @square(i64 %y)
  %c = add i64 %a, %b
  ret i64 %c
}
"""
    for by_hand in (False, True):
        (address,) = jit.load(text, ("sum_of_squares",), {}, by_hand)
        assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(address)(3, -4) == 25
        assert b"square\0" not in jit.compile_object(text.replace("sum_of_squares", "sums"), by_hand)
