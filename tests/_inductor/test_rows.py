"""Reductions over rows fused with what is around them: values equal eager's, and known programs take so many kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph
from tocha.aot import runtime

Function = Callable[..., Sequence[Any]]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def run(function: Function, *inputs: Any, rtol: float = 2e-6) -> runtime.Compiled:
    """Compile a function, compare its results with eager's, to 2 ulp of the largest unless said otherwise."""
    with torch.no_grad():
        call = runtime.compile(function, inputs, compile_graph)
        got, want = call(*inputs), function(*inputs)
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        finite = theirs[theirs.isfinite()].abs()
        top = float(finite.max()) if finite.numel() else 1.0
        torch.testing.assert_close(ours, theirs, rtol=rtol, atol=rtol * top, equal_nan=True)
    return call


def kernels(call: runtime.Compiled) -> int:
    return len(call.forward.wrapper.kernels)  # type: ignore[attr-defined]


def softmax(x: Any) -> list[Any]:
    e = (x - x.amax(-1, keepdim=True)).exp()
    return [e / e.sum(-1, keepdim=True)]


def rms_norm(x: Any, weight: Any) -> list[Any]:
    return [x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight]


def residual_norm(x: Any, y: Any, weight: Any, bias: Any) -> list[Any]:
    h = x + y
    apart = h - h.mean(-1, keepdim=True)
    return [h, apart / ((apart * apart).mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias]


def attention_weights(scores: Any, mask: Any) -> list[Any]:
    return [torch.softmax((scores * 0.125).masked_fill(mask, -math.inf), -1)]


@pytest.mark.parametrize("shape", [(64, 100), (7,), (1, 1), (5, 1), (1, 9), (3, 17, 33), (20, 1024), (17, 1025), (16, 5000)])
def test_softmax_by_hand_is_one_kernel(shape: tuple[int, ...]) -> None:
    assert kernels(run(softmax, torch.randn(shape))) == 1


@pytest.mark.parametrize(
    ("function", "inputs", "count"),
    [
        (rms_norm, [(64, 100), (100,)], 1),
        (residual_norm, [(64, 100), (64, 100), (100,), (100,)], 1),
        (lambda x, w, b: [F.layer_norm(x, (24,), w, b)], [(4, 8, 24), (24,), (24,)], 1),
        (lambda x, y, w: [F.rms_norm(x + y, (24,), w)], [(4, 8, 24), (4, 8, 24), (24,)], 1),
        (lambda x, y: [F.softmax(x * 2 + y, -1), F.log_softmax(x, -1)], [(40, 30), (40, 30)], 1),
        (lambda x: [(x - x.mean((-1, -2), keepdim=True)).relu()], [(32, 4, 5, 6)], 1),
        (lambda x: [x.sum(-1), x.mean(-1).exp(), x.amax(-1)], [(30, 40)], 1),
        (lambda x: [F.gelu(x * 2 + 1).tanh() * x], [(30, 40)], 1),
        (lambda x: [softmax(x.t())[0]], [(64, 30)], 4),
        (lambda x: [(x * x).sum()], [(64, 30)], 1),
    ],
)  # fmt: skip
def test_number_of_kernels(function: Function, inputs: list[tuple[int, ...]], count: int) -> None:
    assert kernels(run(function, *[torch.randn(s) for s in inputs])) == count


def test_masked_attention_is_one_kernel() -> None:
    mask = torch.ones(16, 16, dtype=torch.bool).triu(1)
    call = run(attention_weights, torch.randn(2, 4, 16, 16), mask)
    assert kernels(call) == 1


def test_a_row_without_finite_elements_is_nan() -> None:
    x = torch.randn(3, 8)
    x[0] = -math.inf
    x[1, 2], x[2, 5] = math.nan, math.inf
    run(softmax, x)
    run(lambda x: [F.softmax(x, -1), F.log_softmax(x, -1)], x)
    run(lambda x: [x.amax(-1), x.sum(-1), x.mean(-1)], x)


@pytest.mark.parametrize("name", ["float64", "bfloat16", "float16"])
def test_other_types_round_where_eager_rounds(name: str) -> None:
    dtype = getattr(torch, name)
    exact = {"bfloat16": 8e-3, "float16": 1e-3, "float64": 1e-14}[name]  # an ulp, where float32 sums differ in the last digit
    x, y, w, b = (torch.randn(s).to(dtype) for s in ((16, 40), (16, 40), (40,), (40,)))
    run(lambda x: [F.softmax(x * 3, -1)], x, rtol=exact)
    run(lambda x, y, w, b: [F.layer_norm(x + y, (40,), w, b)], x, y, w, b, rtol=exact)
    run(lambda x, y: [(x * y + x).exp() - y], x, y, rtol=exact)
    run(lambda x, y: [x * 1.7 + (x - y) * 0.3], x, y, rtol=0.0)


def test_gradients_of_rows() -> None:
    x, w, b = torch.randn(20, 24, requires_grad=True), torch.rand(24, requires_grad=True), torch.rand(24, requires_grad=True)

    def loss(x: Any, w: Any, b: Any) -> list[Any]:
        return [(F.softmax(F.layer_norm(x, (24,), w, b) * 2, -1) * x).log_softmax(-1).square().mean()]

    call = runtime.compile(loss, [x, w, b], compile_graph)
    got = torch.autograd.grad(call(x, w, b)[0], [x, w, b])
    want = torch.autograd.grad(loss(x, w, b)[0], [x, w, b])
    torch.testing.assert_close(got, want, rtol=2e-5, atol=1e-6)


def test_rows_that_are_few_and_long_are_cut() -> None:
    call = run(lambda x: [x - x.mean(-1, keepdim=True)], torch.randn(2, 40000))
    assert kernels(call) == 2


def test_values_with_an_element_for_each_row() -> None:
    def function(x: Any, scale: Any) -> list[Any]:
        m = x.mean(-1, keepdim=True)
        s = torch.rsqrt(m * m + 1) * scale
        return [s, x * s, (x - m) * s]

    assert kernels(run(function, torch.randn(18, 30), torch.rand(18, 1))) == 1


def test_batch_norm_in_evaluation_is_one_pass() -> None:
    def function(x: Any, y: Any, mean: Any, var: Any, weight: Any, bias: Any) -> list[Any]:
        return [F.relu(F.batch_norm(x, mean, var, weight, bias) + y)]

    vectors = [torch.rand(3) + 0.5 for _ in range(4)]
    assert kernels(run(function, torch.randn(2, 3, 5, 7), torch.randn(2, 3, 5, 7), *vectors)) == 2
    run(lambda x, m, v: [F.batch_norm(x, m, v)], torch.randn(4, 3), *vectors[:2])


@pytest.mark.parametrize("shape", [(4, 20), (3, 1), (40, 2), (2, 1500)])
def test_sums_start_from_zero_so_that_none_is_negative_zero(shape: tuple[int, int]) -> None:
    def function(x: Any) -> list[Any]:
        return [1 / x.sum(-1), (x * 2).mean(-1, keepdim=True) + x, 1 / (x * 2).mean(-1, keepdim=True)]

    sums, _, means = runtime.compile(function, [torch.zeros(shape)], compile_graph)(torch.full(shape, -0.0))
    assert bool((sums == math.inf).all() and (means == math.inf).all())
