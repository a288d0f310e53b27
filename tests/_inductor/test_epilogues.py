"""What products do with their sums, and which arrays share memory: compiled functions beside eager ones, and what their code says."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tests._inductor.test_programs import no_product_is_small
from tocha._inductor import compile_graph
from tocha.aot import runtime
from tocha.backends import _native_products
from tocha.nn import functional as F


@pytest.fixture(autouse=True)
def _all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    no_product_is_small(monkeypatch.setattr)


def tensors(*shapes: tuple[int, ...], grad: bool = False, dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(len(shapes))
    return [torch.from_numpy(rng.standard_normal(s).astype(dtype)).requires_grad_(grad) for s in shapes]


def compiled(function: Callable[..., Any], inputs: list[Any]) -> Any:
    """The function compiled, after its values and gradients were compared with its own."""
    made = runtime.compile(function, inputs, compile_graph)
    got, want = made(*inputs), function(*inputs)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
    if want[0].requires_grad:
        weights = [torch.from_numpy(np.cos(np.arange(o.numel())).reshape(o.shape)).to(o.dtype) for o in want]
        grads = [torch.autograd.grad(outs, inputs, weights, allow_unused=True) for outs in (got, want)]
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    return made


def fused(made: Any) -> list[str]:
    """The lines of code where a product writes what follows it."""
    return [line.strip() for line in made.forward.code.splitlines() if "call_mm" in line and re.search(r"finish|\), \(", line)]


PATTERNS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], int]] = {
    "bias and gelu": (lambda x, w, b: [F.gelu(F.linear(x, w, b))], [(3, 7, 70), (40, 70), (40,)], 1),
    "no bias": (lambda x, w: [F.relu(F.linear(x, w))], [(20, 70), (40, 70)], 1),
    "residual used twice": (lambda x, w, r: [(x @ w + r) * r.sigmoid()], [(20, 70), (70, 40), (20, 40)], 1),
    "a factor is the residual": (lambda x, w: [x @ w + x], [(20, 40), (40, 40)], 1),
    "one element for each row": (lambda x, w, r: [(x @ w) * r], [(2, 20, 70), (70, 40), (2, 20, 1)], 1),
    "one element for each row of a matrix in a batch": (lambda x, w, r: [(x @ w) * r], [(2, 20, 70), (70, 40), (20, 1)], 0),
    "one element": (lambda x, w, s: [(x @ w) * s], [(20, 70), (70, 40), ()], 1),
    "batches": (lambda x, w, r: [(x @ w).exp() - r], [(3, 20, 70), (3, 70, 40), (3, 20, 40)], 1),
    "transposed factors": (lambda x, w: [(x.transpose(0, 1) @ w.transpose(0, 1)).tanh()], [(70, 20), (40, 70)], 1),
    "a transposed operand": (lambda x, w, r: [x @ w + r.T], [(20, 70), (70, 40), (40, 20)], 0),
    "two results": (lambda x, w: (lambda h: [h + 1, h.relu()])(x @ w), [(20, 70), (70, 40)], 1),
    "the product is wanted too": (lambda x, w: (lambda h: [h, h.relu()])(x @ w), [(20, 70), (70, 40)], 0),
    "gated": (lambda x, w, v: [F.silu(x @ w) * (x @ v)], [(20, 70), (70, 40), (70, 40)], 1),
    "another shape": (lambda x, w, r: [(x @ w).view(4, 5, 40) + r], [(20, 70), (70, 40), (4, 5, 40)], 1),
    "another type": (lambda x, w: [(x @ w).to(torch.bfloat16), (x @ w) > 0.5, (x @ w).double() * 2], [(20, 70), (70, 40)], 1),
    "a row": (lambda x, w, b: [F.gelu(F.linear(x, w, b))], [(1, 70), (40, 70), (40,)], 1),
    "few columns": (lambda x, w: [(x @ w).relu()], [(20, 70), (70, 3)], 0),
    "no vector form": (lambda x, w: [(x @ w).sin()], [(20, 70), (70, 40)], 0),
    "rows of its sums": (lambda x, w: [(x @ w).softmax(-1)], [(20, 70), (70, 40)], 0),
    "a window of its sums": (lambda x, w: [(x @ w)[:, 1:].relu()], [(20, 70), (70, 40)], 0),
}  # fmt: skip


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    function, shapes, count = PATTERNS[name]
    assert len(fused(compiled(function, tensors(*shapes)))) == count
    if name != "another type":
        compiled(function, tensors(*shapes, grad=True))
        compiled(function, tensors(*shapes, dtype=np.float64))


def test_chosen_elements_are_zeroed_by_the_product() -> None:
    keep = torch.from_numpy(np.random.default_rng(0).standard_normal((20, 40)) > 0)

    def dropped(x: Any, w: Any, keep: Any) -> Any:
        return [torch.where(keep, x @ w * 2, 0.0)]

    assert len(fused(compiled(dropped, [*tensors((20, 70), (70, 40)), keep]))) == 1


def test_products_that_the_kernel_refuses_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from tocha.backends import _native_products

    x, w, r = tensors((20, 70), (70, 40), (20, 40))
    made = compiled(lambda x, w, r: [(x @ w + r).exp(), (x @ w) * r], [x, w, r])
    want = made(x, w, r)
    monkeypatch.setattr(_native_products, "worth", lambda *_: False)
    for a, b in zip(made(x, w, r), want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_values_go_where_an_operand_was_read_for_the_last_time() -> None:
    def function(x: Any, w: Any) -> Any:
        h = x @ w
        g = h.exp() + h.sum(0)  # h has memory, and is read here for the last time
        return [g.cumsum(0), g.softmax(0) * g]

    compiled(function, tensors((20, 70), (70, 40), grad=True))
    assert "add = mm\n" in compiled(function, tensors((20, 70), (70, 40))).forward.code


def test_what_a_shifted_reader_still_wants_is_not_overwritten() -> None:
    def function(x: Any, w: Any, r: Any) -> Any:
        h = x @ w
        return [h.cumsum(0), (h + r) * h.flip(1) + h.roll(1, 0)]

    compiled(function, tensors((40, 40), (40, 40), (40, 40), grad=True))


def test_results_own_their_memory() -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        h = x @ w
        a = h + 1
        b = a.cumsum(0) * a
        return [a, b, (b @ v).relu() + b, h.sum()]

    inputs = tensors((20, 40), (40, 40), (40, 40))
    made = compiled(function, inputs)
    first = made(*inputs)
    kept = [t.clone() for t in first]
    for t in made(*inputs):
        t.zero_()
    assert len({t.untyped_storage().data_ptr() for t in [*first, *inputs]}) == len(first) + len(inputs)
    for a, b in zip(first, kept, strict=True):
        torch.testing.assert_close(a, b)


def test_memory_that_a_view_of_another_type_shows_is_not_overwritten() -> None:
    def function(x: Any, w: Any) -> Any:
        h = x @ w
        bits = h.view(torch.int32)
        first = torch.sort(bits, 0)[0]
        y = h * 2 + 1
        return [first, y.cumsum(0), torch.sort(bits, 1)[0]]

    compiled(function, tensors((20, 70), (70, 40)))


def test_calls_may_overlap() -> None:
    def function(x: Any, w: Any, v: Any) -> Any:
        return [F.gelu(x @ w) @ v + x]

    x, w, v = tensors((9, 40), (40, 300), (300, 40))
    made = runtime.compile(function, [x, w, v], compile_graph)
    inputs = [x + i for i in range(8)]
    want = [made(y, w, v)[0].numpy() for y in inputs]
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(50):
            if not np.array_equal(made(inputs[number], w, v)[0].numpy(), want[number]):
                wrong.append(number)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_convolutions_that_the_kernel_refuses_after_all(monkeypatch: pytest.MonkeyPatch) -> None:
    from tocha._inductor import calls

    monkeypatch.setattr(calls, "convolution", lambda node: lambda *given: None)
    x, w, b, r = tensors((2, 16, 19, 17), (24, 16, 3, 3), (24, 1, 1), (2, 24, 17, 15))
    made = compiled(lambda x, w, b, r: [F.relu(F.conv2d(x, w) * b + r)], [x, w, b, r])
    assert "), (" in next(line for line in made.forward.code.splitlines() if "call_conv" in line)


HALVES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "bias and gelu": (lambda x, w, b: [F.gelu(F.linear(x, w, b))], [(48, 96), (80, 96), (80,)]),
    "bias and a residual of rows": (lambda x, w, b, r: [F.relu(F.linear(x, w, b) + r)], [(4, 32, 96), (80, 96), (80,), (4, 32, 80)]),
    "no bias": (lambda x, w: [F.linear(x, w).tanh()], [(64, 96), (80, 96)]),
    "a residual used twice": (lambda x, w, r: [(x @ w) * r + r], [(64, 96), (96, 80), (64, 80)]),
    "batches": (lambda x, w, r: [(x @ w).sigmoid() * r], [(3, 64, 96), (3, 96, 80), (3, 64, 80)]),
    "results of two types": (lambda x, w, b: (lambda h: [h.float() * 2, h.relu()])(F.linear(x, w, b)), [(64, 96), (80, 96), (80,)]),
    "convolution, norm, residual": (
        lambda x, w, b, g, r: [F.relu(F.batch_norm(F.conv2d(x, w, b, 1, 1), g, g.abs() + 1, g, b) + r)],
        [(2, 16, 20, 20), (24, 16, 3, 3), (24,), (24,), (2, 24, 20, 20)],
    ),
    "strided convolution": (lambda x, w, b: [F.silu(F.conv2d(x, w, b, 2, 1))], [(2, 15, 20, 20), (24, 15, 3, 3), (24,)]),
}


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_rounded_as_eager_calls_round(name: str, dtype: Any) -> None:
    function, shapes = HALVES[name]
    inputs = [(x / 4).to(dtype) for x in tensors(*shapes)]
    with torch.no_grad():
        made = runtime.compile(function, inputs, compile_graph)
        for got, want in zip(made(*inputs), function(*inputs), strict=True):
            assert torch.equal(got, want)
    assert re.search(r"call_(linear|mm|conv)_\w+\(.*\), \(", made.forward.code) and "kernel_relu" not in made.forward.code


def test_half_products_whose_kernel_can_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = [x.to(torch.bfloat16) for x in tensors((48, 96), (80, 96), (80,))]
    call = lambda x, w, b: [F.gelu(F.linear(x, w, b))]  # noqa: E731
    want = call(*inputs)
    made = runtime.compile(call, inputs, compile_graph)
    monkeypatch.setattr(_native_products, "kernel_of", lambda *_: None)
    torch.testing.assert_close(made(*inputs), want)
