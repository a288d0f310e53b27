"""Random programs (`programs`), compiled against eager: values, gradients, what inputs become, which results share memory.

`python -m tests._inductor.test_programs FIRST LAST` runs as many as wanted and prints those that differ. Every program comes in two kinds, of
which the second has matrix products, all on kernels of our own, and what they may compute with their sums.
"""

from __future__ import annotations

import linecache
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tests._inductor import programs
from tocha._inductor import compile_graph, epilogues
from tocha.aot import joint, runtime
from tocha.aot.trace import DataDependent
from tocha.backends import _native_products, native

PROGRAMS, WITH_PRODUCTS = 220, 80
CHUNK = 20


def function_of(seed: int, products: bool = False) -> tuple[Callable[..., Any], str, list[tuple[int, ...]]]:
    """A random program, its source, and shapes for it."""
    source, shapes = programs.program(seed, products)
    name = f"<program {seed}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope: dict[str, Any] = {**vars(programs), "F": torch.nn.functional}
    exec(compile(source, name, "exec"), scope)
    return scope["function"], source, shapes


def inputs_of(seed: int, shapes: list[tuple[int, ...]], shift: float = 0) -> tuple[list[Any], list[Any]]:
    """Leaves and what a program is given: row-major or not, with gradients or none, leaves or results that it may write to."""
    rng = np.random.default_rng(seed)
    arrays = [np.asarray(rng.standard_normal(s), np.float32) for s in shapes]
    arrays = [np.asarray(a * (1 + shift * rng.standard_normal(a.shape)), np.float32) for a in arrays]
    if seed % 3 == 1:
        arrays = [np.asfortranarray(a) for a in arrays]
    leaves = [torch.from_numpy(a).requires_grad_(seed % 5 != 4) for a in arrays]
    return leaves, [x * 1 for x in leaves] if seed % 2 else leaves


def loss(o: Any) -> Any:
    """A sum that tells elements apart."""
    parts = torch.view_as_real(o) if o.is_complex() else o
    return (parts.float() * torch.linspace(0.5, 1.5, parts.numel()).reshape(parts.shape)).sum()


def results(function: Callable[..., Any], seed: int, shapes: list[tuple[int, ...]], shift: float = 0) -> list[Any]:
    """Values, gradients of the leaves, inputs afterwards, and values once the first was written to."""
    leaves, given = inputs_of(seed, shapes, shift)
    outs = function(*given)
    values = [o.detach().clone() for o in outs]
    flags = [o.requires_grad for o in outs]
    wanted = [o for o in outs if o.requires_grad]
    grads = torch.autograd.grad([loss(o) for o in wanted], leaves, allow_unused=True) if wanted else [None] * 3
    inputs = [x.detach().clone() for x in given]
    try:
        with torch.no_grad():
            outs[0].detach().fill_(1)
    except RuntimeError:  # elements that coincide
        return [*values, flags, *grads, *inputs]
    return [*values, flags, *grads, *inputs, *[o.detach().clone() for o in outs], *[x.detach().clone() for x in given]]


def compare(got: Any, want: Any, loose: bool) -> None:
    """Equal but for rounding, which is relative to the largest element: sums cancel."""
    if want is None and got is not None:  # of a result that backward doesn't start from, in a graph of its own
        assert not got.any()
        return
    assert type(got) is type(want)
    if not isinstance(want, torch.Tensor):
        assert got == want
        return
    assert got.dtype == want.dtype and got.shape == want.shape
    parts = [(torch.view_as_real(t) if t.is_complex() else t).double() for t in (got, want)]
    finite = parts[1][parts[1].isfinite()]
    scale = max(1.0, float(finite.abs().max())) if finite.numel() else 1.0
    rtol, atol = (0.05, 0.02 * scale) if loose else (1e-4, 2e-5 * scale)
    torch.testing.assert_close(parts[0], parts[1], rtol=rtol, atol=atol, equal_nan=True)


def unstable(function: Callable[..., Any], seed: int, shapes: list[tuple[int, ...]], want: list[Any]) -> bool:
    """Whether rounding alone changes what the program gives: eager's own results differ when the inputs move by some ulps."""
    for shift in (1e-7, 1e-6, 1e-5):
        try:
            for moved, value in zip(results(function, seed, shapes, shift), want, strict=True):
                compare(moved, value, False)
        except AssertionError:
            return True
    return False


def check(seed: int, products: bool = False) -> str:
    """Compare a program with itself compiled. "ok", or why there is nothing to compare."""
    function, source, shapes = function_of(seed, products)
    try:
        want = results(function, seed, shapes)
    except (RuntimeError, IndexError):  # a program that eager refuses too, for instance one that changes what backward needs
        return "refused"
    try:
        if seed % 4 and "torch.cond" not in source:
            _, given = inputs_of(seed, shapes)
            made: Any = runtime.compile(function, given, compile_graph)
        else:
            torch._dynamo.reset()
            made = torch.compile(function)
    except (joint.Unsupported, DataDependent):
        return "unsupported"
    try:
        got = results(made, seed, shapes)
        assert len(got) == len(want)
        for ours, theirs in zip(got, want, strict=True):
            compare(ours, theirs, "float16" in source)
    except Exception as error:
        if isinstance(error, AssertionError) and unstable(function, seed, shapes, want):
            return "unstable"
        raise AssertionError(f"program {seed}: {type(error).__name__}: {error}\n{source}{shapes}") from error
    return "ok"


@pytest.mark.parametrize("first", range(0, PROGRAMS, CHUNK))
def test_programs(first: int) -> None:
    outcomes = [check(seed) for seed in range(first, first + CHUNK)]
    assert outcomes.count("ok") > CHUNK * 3 // 4


def joined_twice(a: Any, b: Any, c: Any) -> list[Any]:
    t3 = torch.cat([a, a], 0)
    t6 = torch.cat([t3, t3], 0)
    return [(b - c).sum() / t6, t3, t6]


@pytest.mark.parametrize("seed", range(4))
def test_stores_of_loops_that_hold_one_reduction(seed: int) -> None:
    shapes = [(33, 17), (33, 17), (17,)]
    want = results(joined_twice, seed, shapes)
    made = runtime.compile(joined_twice, inputs_of(seed, shapes)[1], compile_graph)
    for got, expected in zip(results(made, seed, shapes), want, strict=True):
        compare(got, expected, False)


def no_product_is_small(put: Callable[[Any, str, Any], None]) -> None:
    """Leave no product to BLAS."""
    put(_native_products, "LEAST", dict.fromkeys(_native_products.LEAST, 1))
    put(_native_products, "LEAST_IN_BATCH", 1)
    put(native, "SHORT_PRODUCT", 1)
    put(epilogues, "_SHORTEST", 1)


@pytest.mark.parametrize("first", range(0, WITH_PRODUCTS, CHUNK))
def test_programs_with_products(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    no_product_is_small(monkeypatch.setattr)
    outcomes = [check(seed, True) for seed in range(first, first + CHUNK)]
    assert outcomes.count("ok") > CHUNK * 3 // 4


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    counts: dict[str, int] = {}
    for products in (False, True):
        if products:
            no_product_is_small(setattr)
        for number in range(int(sys.argv[1]), int(sys.argv[2])):
            try:
                outcome = check(number, products)
            except Exception as error:
                outcome = "differs"
                print(number, products, str(error)[:3000], flush=True)
            counts[outcome] = counts.get(outcome, 0) + 1
    print(counts)
