"""The tape and the engine."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

import tocha as torch


def test_a_long_chain_neither_overflows_going_back_nor_when_freed() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y * 1.0
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]
    z = x
    for _ in range(20_000):
        z = z + 1
    del z, y


def test_gradients_accumulate_and_do_not_share_memory() -> None:
    a = torch.ones(3, requires_grad=True)
    b = torch.ones(3, requires_grad=True)
    (a + b).sum().backward()
    a.grad.mul_(5)
    assert b.grad.tolist() == [1.0, 1.0, 1.0]
    (a + b).sum().backward()
    assert a.grad.tolist() == [6.0] * 3
    assert b.grad.tolist() == [2.0] * 3


def test_grad_given_by_the_user_is_not_adopted() -> None:
    a = torch.ones(2, requires_grad=True)
    g = torch.ones(2)
    (a * 1).backward(g)
    a.grad.zero_()
    assert g.tolist() == [1.0, 1.0]
    b = torch.ones(2, requires_grad=True)
    b.backward(g)
    b.grad.zero_()
    assert g.tolist() == [1.0, 1.0]


def test_second_backward_needs_retain_graph() -> None:
    x = torch.ones(2, requires_grad=True)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_saved_tensors_are_freed_by_backward() -> None:
    x = torch.ones(2, requires_grad=True)
    middle = x * 2
    alive = weakref.ref(middle)
    y = (middle * middle).sum()
    del middle
    assert alive() is not None
    y.backward()
    assert alive() is None


def test_dropping_the_output_frees_the_graph_without_the_cycle_collector() -> None:
    gc.disable()
    try:
        x = torch.ones(2, requires_grad=True)
        middle = x.exp()
        alive = weakref.ref(middle)
        y = middle * 2
        del middle
        del y
        assert alive() is None
    finally:
        gc.enable()


def test_unused_inputs() -> None:
    x = torch.ones(2, requires_grad=True)
    z = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad((x * 2).sum(), [x, z])
    gx, gz = torch.autograd.grad((x * 2).sum(), [x, z], allow_unused=True)
    assert gx.tolist() == [2.0, 2.0]
    assert gz is None
    _, gz = torch.autograd.grad((x * 2).sum(), [x, z], materialize_grads=True)
    assert gz.tolist() == [0.0, 0.0]


def test_grad_leaves_dot_grad_alone_and_stops_at_inputs() -> None:
    x = torch.ones(2, requires_grad=True)
    middle = x * 3
    y = (middle * middle).sum()
    (g,) = torch.autograd.grad(y, middle)
    assert g.tolist() == [6.0, 6.0]
    assert x.grad is None


def test_grads_batched_equals_one_by_one() -> None:
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = x * x
    (g,) = torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True)
    assert g.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]


def test_backward_with_inputs_touches_only_them() -> None:
    a = torch.ones(2, requires_grad=True)
    b = torch.ones(2, requires_grad=True)
    (a * b * 3).sum().backward(inputs=[b])
    assert a.grad is None
    assert b.grad.tolist() == [3.0, 3.0]


def test_double_backward_accumulates_through_create_graph() -> None:
    x = torch.tensor(3.0, requires_grad=True)
    (x * x * x).backward(create_graph=True)
    first = x.grad
    assert first.item() == 27.0
    x.grad = None
    first.backward()
    assert x.grad.item() == 18.0


def test_implicit_gradient_needs_a_scalar() -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (x * 2).backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(torch.ones(2))


def test_hooks_run_in_torchs_order_and_may_replace_gradients() -> None:
    seen: list[str] = []
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    y.register_hook(lambda g: seen.append("tensor") or g * 2)
    y.retain_grad()
    y.grad_fn.register_prehook(lambda gs: seen.append("pre"))
    y.grad_fn.register_hook(lambda gi, go: seen.append("post"))
    x.register_hook(lambda g: seen.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: seen.append("accumulated"))
    y.sum().backward()
    assert seen == ["tensor", "pre", "post", "leaf", "accumulated"]
    assert y.grad.tolist() == [2.0, 2.0]
    assert x.grad.tolist() == [6.0, 6.0]


def test_a_removed_hook_does_not_run() -> None:
    x = torch.ones(2, requires_grad=True)
    with x.register_hook(lambda g: g * 10):
        pass
    (x * 1).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_post_accumulate_hook_may_free_the_gradient_before_older_nodes_run() -> None:
    order: list[str] = []
    first = torch.ones(2, requires_grad=True)
    last = torch.ones(2, requires_grad=True)
    middle = first * 2
    middle.register_hook(lambda g: order.append("older"))
    out = middle * last

    def free(t: torch.Tensor) -> None:
        order.append("freed")
        t.grad = None

    last.register_post_accumulate_grad_hook(free)
    # registered after use: the gradient is known at the end. On the next pass it is known at once.
    out.sum().backward()
    order.clear()
    middle = first * 2
    middle.register_hook(lambda g: order.append("older"))
    middle2 = middle * 1
    (middle2 * last).sum().backward()
    assert order == ["freed", "older"]


def test_accumulate_grad_node_can_be_reached_and_hooked() -> None:
    x = torch.ones(2, requires_grad=True)
    node = (x * 1).grad_fn.next_functions[0][0]
    assert node.variable is x
    seen = []
    node.register_hook(lambda *unused: seen.append(True))
    (x * 2).sum().backward()
    assert seen == [True]


def test_modes_nest_and_are_per_thread() -> None:
    states = []
    with torch.no_grad():
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            assert torch.is_grad_enabled()
        thread = threading.Thread(target=lambda: states.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert states == [True]

    @torch.no_grad()
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert not f(torch.ones(1, requires_grad=True)).requires_grad
    assert f(torch.ones(1)).tolist() == [2.0]


def test_backward_from_several_threads() -> None:
    x = torch.ones(100, requires_grad=True)
    results = []

    def work() -> None:
        y = (x.detach().clone().requires_grad_() * 2).sum()
        (g,) = torch.autograd.grad(y, [t for t in [y] if t.requires_grad], allow_unused=True)
        results.append(g.item())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [1.0] * 4


def test_a_fresh_gradient_becomes_dot_grad_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_copy(self: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the gradient was copied")

    x = torch.ones(4, requires_grad=True)
    y = (x * torch.ones(4)).exp()
    monkeypatch.setattr(torch.Tensor, "clone", no_copy)
    y.backward(torch.ones(4))
    assert x.grad is not None


def test_grad_outputs_take_the_outputs_type():
    x = torch.ones(2, requires_grad=True)
    (g,) = torch.autograd.grad(x * 2, x, torch.ones(2, dtype=torch.float64))
    assert (g.dtype, g.tolist()) == (torch.float32, [2, 2])
    with pytest.raises(RuntimeError, match="non-empty inputs"):
        torch.autograd.grad(x.sum(), [])


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_lies_in_memory_as_its_leaf_does(create_graph: bool) -> None:
    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    w = torch.arange(6.0).reshape(3, 2)
    (x.t() * x.t() * w).sum().backward(create_graph=create_graph)
    assert x.grad.stride() == (3, 1)
    assert x.grad.view(-1).tolist() == [0.0, 4.0, 16.0, 6.0, 24.0, 50.0]
    if create_graph:
        (second,) = torch.autograd.grad(x.grad.sum(), x)
        assert second.tolist() == [[0.0, 4.0, 8.0], [2.0, 6.0, 10.0]]
    turned = torch.ones(3, 2).t().requires_grad_()
    (turned * 2).sum().backward(create_graph=create_graph)
    assert turned.grad.stride() == (1, 2)
    gaps = torch.ones(4, 6)[:, ::2].requires_grad_()
    gaps.t().backward(torch.ones(4, 3).t().contiguous(), create_graph=create_graph)
    assert gaps.grad.stride() == (3, 1)


@pytest.mark.parametrize("leaf", [True, False])
def test_a_hook_may_not_change_the_type_of_a_gradient(leaf: bool) -> None:
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    (x if leaf else y).register_hook(lambda g: g.double())
    with pytest.raises(RuntimeError, match="hook has changed the type of value"):
        y.sum().backward()
    assert x.grad is None


def test_gradients_that_nobody_asked_for_are_not_computed() -> None:
    x, w, b = (torch.randn(*shape, requires_grad=True) for shape in ((3, 4), (5, 4), (5,)))
    seen: list[tuple[bool, ...]] = []

    y = torch.nn.functional.linear(x, w, b)
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(tuple(g is not None for g in inputs)))
    product = x * x.detach().requires_grad_()
    product.grad_fn.register_hook(lambda inputs, outputs: seen.append(tuple(g is not None for g in inputs)))
    (got,) = torch.autograd.grad(y.sum(), b, retain_graph=True)
    torch.testing.assert_close(got, torch.full((5,), 3.0))
    torch.autograd.grad(product.sum(), x)
    y.sum().backward()
    assert seen == [(False, False, True), (True, False), (True, True, True)]
