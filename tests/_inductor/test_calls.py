"""Eager kernels that compiled graphs call straight: products, and cross entropy with what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn
from tocha._inductor import calls, compile_graph
from tocha.aot import runtime


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def grads(call: Any, *inputs: Any) -> list[Any]:
    loss = call(*inputs)[0]
    return [loss, *torch.autograd.grad(loss, [t for t in inputs if t.requires_grad])]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cross_entropy(reduction: str, dtype: str) -> None:
    x = torch.randn(6, 5, dtype=getattr(torch, dtype)).requires_grad_()
    target = torch.tensor([0, 4, 2, 1, 3, 3])

    def loss(x: Any, target: Any) -> list[Any]:
        return [F.cross_entropy(x * 2, target, reduction=reduction).sum()]

    call = runtime.compile(loss, [x, target], compile_graph)
    torch.testing.assert_close(grads(call, x, target), grads(loss, x, target))
    with torch.no_grad():
        without = runtime.compile(loss, [x, target], compile_graph)
        torch.testing.assert_close(without(x, target), loss(x, target))


def test_targets_that_do_not_count_or_are_no_classes() -> None:
    x, target = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 4, 2, 1, 3, 3])

    def loss(x: Any, target: Any) -> list[Any]:
        return [F.cross_entropy(x, target)]

    call = runtime.compile(loss, [x, target], compile_graph)
    ignored = torch.tensor([0, -100, 2, -100, 3, 3])
    torch.testing.assert_close(grads(call, x, ignored), grads(loss, x, ignored))
    for wrong in (5, -1, 1 << 40):
        with pytest.raises(IndexError):
            call(x, torch.tensor([0, 1, 2, 3, 4, wrong]))


def test_backward_checks_targets_again() -> None:
    x, target = torch.randn(6, 5, requires_grad=True), torch.tensor([0, 4, 2, 1, 3, 3])
    call = runtime.compile(lambda x, t: [F.cross_entropy(x, t)], [x, target], compile_graph)
    loss = call(x, target)[0]
    target.numpy()[2] = 1 << 40  # unseen by version counters
    with pytest.raises(IndexError):
        loss.backward()


@pytest.mark.parametrize(("ta", "tb"), [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("size", [(2, 3, 4), (1, 1, 1), (70, 80, 90)])
def test_products(ta: bool, tb: bool, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = torch.randn(*((k, m) if ta else (m, k))), torch.randn(*((n, k) if tb else (k, n)))

    def product(a: Any, b: Any) -> list[Any]:
        return [(a.t() if ta else a) @ (b.t() if tb else b) + 1]

    with torch.no_grad():
        call = runtime.compile(product, [a, b], compile_graph)
        torch.testing.assert_close(call(a, b), product(a, b))


def test_a_small_layer_fuses_its_bias() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    x, parameters = torch.randn(4, 6), list(model.parameters())
    names = [n for n, _ in model.named_parameters()]

    def forward(x: Any, *state: Any) -> list[Any]:
        return [torch.func.functional_call(model, dict(zip(names, state, strict=True)), (x,))]

    with torch.no_grad():
        call = runtime.compile(forward, [x, *parameters], compile_graph)
        torch.testing.assert_close(call(x, *parameters), [model(x)])
    assert call.forward.code.count("finish") == 2 and not call.forward.wrapper.kernels  # type: ignore[attr-defined]


def test_what_is_row_major() -> None:
    from tocha.backends.meta import MetaArray
    from tocha.fx import Graph

    def row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        node = Graph().placeholder("x")
        node.meta["val"] = MetaArray(shape, np.dtype(np.float32), strides)
        return calls.row_major(node)

    assert row_major((2, 3), (12, 4)) and row_major((2, 1), (4, 400)) and row_major((), ())
    assert not row_major((2, 3), (4, 8)) and not row_major((2, 3), (16, 4)) and not row_major((0, 3), (12, 4))
