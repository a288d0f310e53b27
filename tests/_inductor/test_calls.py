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


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [(1,), (5,), (16,), (2, 9), (400,)])
def test_products_that_share_their_right_factor_pack_it_once(rows: tuple[int, ...], dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x, w = (torch.from_numpy(rng.standard_normal(s).astype(dtype) / 16).requires_grad_() for s in ((*rows, 160), (160, 160)))

    def steps(x: Any, w: Any) -> list[Any]:
        for _ in range(3):
            x = torch.tanh(F.linear(x, w) + x)
        return [x.sum()]

    call = runtime.compile(steps, [x, w], compile_graph)
    torch.testing.assert_close(grads(call, x, w), grads(steps, x, w))
    forward, backward = call.forward.code, call.backward.made.code  # type: ignore[attr-defined]
    assert (forward.count("= pack("), backward.count("= pack(")) == ((0, 0) if rows == (1,) else (1, 1))
    assert forward.count("packed_x1 = None") == forward.count("= pack(")


def test_a_factor_is_packed_for_each_way_it_is_read() -> None:
    x, w = torch.randn(7, 3 * 160), torch.randn(160, 160) / 13

    def steps(x: Any, w: Any) -> list[Any]:
        h = x[:, :160] @ w + x[:, 160:320] @ w.t() + (x[:, 320:] @ w).cos() + x[:, ::3] @ w.t()
        w = w * 2  # another value, read once
        return [h @ w]

    with torch.no_grad():
        call = runtime.compile(steps, [x, w], compile_graph)
        torch.testing.assert_close(call(x, w), steps(x, w), rtol=1e-4, atol=1e-5)
    assert call.forward.code.count("= pack") == 2  # type: ignore[attr-defined]


def test_short_products_and_threads_share_a_packed_factor() -> None:
    before, short, long, w = torch.get_num_threads(), torch.randn(6, 256), torch.randn(300, 256), torch.randn(256, 256)

    def both(short: Any, long: Any, w: Any) -> list[Any]:
        return [short @ w, (long @ w).relu()]

    with torch.no_grad():
        call, want = runtime.compile(both, [short, long, w], compile_graph), both(short, long, w)
        found = []
        try:
            for threads in (1, 2):
                torch.set_num_threads(threads)
                found.append(call(short, long, w))
        finally:
            torch.set_num_threads(before)
    torch.testing.assert_close(found[0], want)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True)) and call.forward.code.count("= pack") == 1  # type: ignore[attr-defined]


def test_what_is_row_major() -> None:
    from tocha.backends.meta import MetaArray
    from tocha.fx import Graph

    def row_major(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        node = Graph().placeholder("x")
        node.meta["val"] = MetaArray(shape, np.dtype(np.float32), strides)
        return calls.row_major(node)

    assert row_major((2, 3), (12, 4)) and row_major((2, 1), (4, 400)) and row_major((), ())
    assert not row_major((2, 3), (4, 8)) and not row_major((2, 3), (16, 4)) and not row_major((0, 3), (12, 4))
