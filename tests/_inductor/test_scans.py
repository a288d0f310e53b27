"""Scans with what is around them in one kernel: results are eager's to the bit, and known programs make no array in between.

(Eager calls on few elements take NumPy's exponential, so these have none.)"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
from tocha._inductor import compile_graph
from tocha.aot import runtime

SCANS = {"cumsum": torch.cumsum, "cumprod": torch.cumprod}


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def same(ours: Any, theirs: Any) -> bool:
    bits = [(x if x.dtype == torch.int64 else x.double()).contiguous().numpy().tobytes() for x in (ours, theirs)]
    return bool(ours.dtype == theirs.dtype and ours.shape == theirs.shape and ours.stride() == theirs.stride() and bits[0] == bits[1])


def run(function: Callable[..., list[Any]], *inputs: Any) -> Any:
    """Compile a function and compare its results with eager's; the wrapper."""
    with torch.no_grad():
        call = runtime.compile(function, inputs, compile_graph)
        got, want = call(*inputs), function(*inputs)
    assert all(map(same, got, want))
    return call.forward.wrapper  # type: ignore[attr-defined]


def arrays(wrapper: Any) -> int:
    """How many arrays a wrapper makes itself or has eager kernels make."""
    return sum(" = new(" in line or " = call_" in line for line in wrapper.source.splitlines())


@pytest.mark.parametrize("name", SCANS)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((5,), 0), ((600,), 0), ((19, 3), 1), ((4, 255), 1), ((6, 257), 1), ((17, 513), 1), ((3, 5, 300), 1), ((33, 17, 2), 1), ((40, 70), 0),
     ((2, 9, 2100), 1)],
)  # fmt: skip
def test_prologue_and_epilogue(name: str, shape: tuple[int, ...], dim: int) -> None:
    scan, x, w = SCANS[name], torch.rand(shape) + 0.5, torch.randn(shape[-1])
    wrapper = run(lambda x, w: [scan((x * w).relu() + 0.6, dim) / 3 + x], x, w)
    assert arrays(wrapper) == len(wrapper.kernels) == 1


@pytest.mark.parametrize("dim", [0, 1])
def test_functions(dim: int) -> None:
    wrapper = run(lambda x, w: [(x.sigmoid() * w).cumsum(dim)], torch.randn(130, 520), torch.randn(130, 520))
    assert arrays(wrapper) == len(wrapper.kernels) == 1


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_types(dtype: Any, dim: int) -> None:
    x, y = torch.randn(21, 300).to(dtype), torch.randn(21, 300).to(dtype)
    assert arrays(run(lambda x, y: [(x * y).cumsum(dim) * y], x, y)) == 1


@pytest.mark.parametrize("dim", [0, 1])
def test_integers(dim: int) -> None:
    x = torch.randint(-(2**62), 2**62, (21, 300))
    assert arrays(run(lambda x: [(x * 3).cumprod(dim), ((x > 0).cumsum(dim) - 1) * 7], x)) == 2


def test_views_and_picked_elements() -> None:
    x, index = torch.randn(300, 40), torch.randint(0, 300, (50,))
    wrapper = run(lambda x, index: [(x.t().flip(1) * 2).cumsum(1), (x[index, 3:] - 1).cumsum(1), (x[:, ::2] + 1).cumsum(0) * 2], x, index)
    assert len(wrapper.kernels) == 3


def test_operand_wanted_elsewhere() -> None:
    x, y = torch.randn(30, 300), torch.randn(30, 300)

    def both(x: Any, y: Any) -> list[Any]:
        z = (x * y).abs().sqrt()
        total = z.cumsum(1)
        return [z, total, total / 2 + z, total[:, -1:] - x]

    run(both, x, y)


def test_result_in_the_operands_place() -> None:
    x, w = torch.randn(37, 400), torch.randn(400, 400)
    for dim in (0, 1):
        source = run(lambda x, w, dim=dim: [((x @ w).abs().sqrt().cumsum(dim) + 1).relu().cumsum(dim) * 2], x, w).source
        assert "mul = cumsum" in source


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (0, 3), (1,), (1, 1)])
def test_nothing_or_one(shape: tuple[int, ...]) -> None:
    run(lambda x: [(x * 2).cumsum(0) + 1, (x * 2).cumprod(-1)], torch.randn(shape))


def test_alone_is_for_the_eager_kernel() -> None:
    x = torch.randn(30, 300)
    assert not run(lambda x: [x.cumsum(1), x.t().cumsum(0)], x).kernels


def test_few_long_rows_leave_their_operand_to_all_threads() -> None:
    assert arrays(run(lambda x: [(x * 2).cumsum(1)], torch.randn(2, 20000))) == 2


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", SCANS)
def test_gradients(name: str, dim: int) -> None:
    scan, x, w, g = SCANS[name], torch.rand(20, 270), torch.rand(270) + 0.4, torch.randn(20, 270)

    def weighed(x: Any, w: Any) -> Any:
        return scan((x - 0.5).relu() + w, dim) / 3

    found = []
    for function in (weighed, torch.compile(weighed)):
        a, b = x.clone().requires_grad_(), w.clone().requires_grad_()
        out = function(a, b)
        out.backward(g)
        found.append((out.detach(), a.grad, b.grad))
    assert same(found[1][0], found[0][0])
    for ours, theirs in zip(found[1][1:], found[0][1:], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert name != "cumsum" or same(found[1][1], found[0][1])


def test_a_second_process_finds_the_kernel() -> None:
    from tocha._inductor import described

    x = torch.randn(24, 310)
    run(lambda x: [(x * 5).cumsum(1) * 3], x)
    known = set(described._made)
    run(lambda x: [(x * 5).cumsum(1) * 3], x)
    assert known and known == set(described._made)
    run(lambda x: [(x * 5).cumsum(0) * 3], x)
    assert known != set(described._made)
