"""Hooks on saved tensors, hooks on several gradients, places on the tape, anomaly mode."""

import math
import warnings
import weakref

import pytest

import tocha as torch
from tocha.autograd.graph import (
    allow_mutation_on_saved_tensors,
    disable_saved_tensors_hooks,
    get_gradient_edge,
    increment_version,
    register_multi_grad_hook,
    save_on_cpu,
    saved_tensors_hooks,
)


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


def test_saved_tensors_go_through_the_hooks():
    log = []

    def pack(x):
        log.append(("pack", tuple(x.shape)))
        return x.detach().numpy().copy()

    def unpack(a):
        log.append("unpack")
        return torch.from_numpy(a)

    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    with saved_tensors_hooks(pack, unpack):
        y = x * w
    assert log == [("pack", (2,))] * 2
    y.sum().backward()
    assert log[2:] == ["unpack"] * 2 and x.grad.tolist() == [3.0, 4.0] and w.grad.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("function", [lambda x: x.exp(), lambda x: (x * x).exp(), lambda x: (x * x).tanh() * x])
@pytest.mark.parametrize("pair", [(lambda t: t, lambda t: t), (lambda t: t.clone(), lambda t: t.clone())])
def test_unpacked_tensors_have_their_history(function, pair):
    def second(x, hooked):
        if hooked:
            with saved_tensors_hooks(*pair):
                y = function(x)
        else:
            y = function(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return torch.autograd.grad(g.sum(), x)[0]

    x = leaf(0.3, -0.7)
    torch.testing.assert_close(second(x, True), second(x, False))


def test_misbehaving_hooks():
    x = leaf(1.0, 2.0)
    with saved_tensors_hooks(lambda t: t, lambda t: 3):
        y = x * x
    with pytest.raises(TypeError, match="unpack_hook expected to be a Tensor but got result of type int"):
        y.sum().backward()
    with saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t), pytest.raises(RuntimeError, match="modifying its input in place"):
        (x * 1) * (x * 1)
    with disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()


def test_ready_made_hooks():
    x = leaf(1.0, 2.0)
    with save_on_cpu():
        y = (x * x).sin()
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach() * (x.detach() ** 2).cos())
    with allow_mutation_on_saved_tensors():
        b = x.clone()
        out = (b**2).sum()
        b.zero_()
    assert torch.autograd.grad(out, x)[0].tolist() == [2.0, 4.0]


def test_hooks_on_several_gradients():
    a, b, log = leaf(1.0), leaf(1.0), []
    handle = register_multi_grad_hook((a, b), lambda gs: log.append([None if g is None else g.item() for g in gs]))
    (a * 2 + b * 3).backward()
    (a * 2).backward()
    (a + b).backward()
    assert log == [[2.0, 3.0], [2.0, None], [1.0, 1.0]]
    handle.remove()
    log.clear()
    register_multi_grad_hook((a, b), lambda g: log.append(g.item()), mode="any")
    (a * 2 + b * 3).backward()
    (b * 4).backward()
    assert len(log) == 2 and log[1] == 4.0
    with pytest.raises(ValueError):
        register_multi_grad_hook((a,), print, mode="some")


def test_places_on_the_tape():
    x = leaf(1.0, 2.0)
    y = x * 2
    edge = get_gradient_edge(y)
    assert edge.node is y.grad_fn and edge.output_nr == 0
    assert torch.autograd.grad((y * 3).sum(), edge)[0].tolist() == [3.0, 3.0]
    assert torch.autograd.grad((x * 4).sum(), get_gradient_edge(x))[0].tolist() == [4.0, 4.0]
    torch.autograd.backward(get_gradient_edge(y), torch.ones(2))
    assert x.grad.tolist() == [2.0, 2.0]
    before = y._version
    increment_version(y)
    assert y._version == before + 1


def test_anomaly_mode_shows_the_forward_line():
    x = leaf(0.0, 1.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autograd.detect_anomaly():
            y = (x * 0).sqrt() * 0  # the guilty line
            with pytest.raises(RuntimeError, match="returned nan values in its 0th output"):
                y.sum().backward()
    assert any("the guilty line" in str(w.message) for w in caught)
    assert not torch.is_anomaly_enabled()
    with torch.autograd.set_detect_anomaly(True, check_nan=False):
        assert torch.is_anomaly_enabled() and not torch.is_anomaly_check_nan_enabled()


def test_gradients_of_batches_of_cotangents():
    x = leaf(1.0, 2.0, 3.0)
    (g,) = torch.autograd.grad(x**2, x, torch.eye(3), is_grads_batched=True)
    assert g.tolist() == [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 6.0]]
    w = torch.arange(6.0).reshape(3, 2)
    (g,) = torch.autograd.grad((x @ w).relu(), x, torch.eye(2), is_grads_batched=True, create_graph=True)
    assert g.tolist() == w.T.tolist()


def _is_kept(make, use):
    """Whether what `use` makes of a temporary keeps that alive."""
    made = make()
    kept = weakref.ref(made)
    result = use(made)
    del made
    return kept() is not None and result is not None


def test_only_what_backward_reads_is_kept():
    logits = torch.randn(8, 10, requires_grad=True)
    matrix = torch.randn(10, 3)
    assert not _is_kept(lambda: logits * 1, lambda x: torch.nn.functional.cross_entropy(x, torch.arange(8)))
    assert not _is_kept(lambda: logits * 1, lambda x: x @ matrix)
    assert not _is_kept(lambda: logits * 1, lambda x: 3 / x)
    assert _is_kept(lambda: logits * 1, lambda x: x @ matrix.clone().requires_grad_())


def test_operands_not_kept_may_change_before_backward():
    x = torch.tensor([[0.5, -1.0], [2.0, 0.0]], requires_grad=True)
    z = x * 1
    loss = torch.nn.functional.cross_entropy(z, torch.tensor([0, 1]))
    with torch.no_grad():
        z.clamp_(0, 1)
    loss.backward()
    p = 1 / (1 + math.exp(1.5)), 1 / (1 + math.exp(-2.0))
    torch.testing.assert_close(x.grad, torch.tensor([[-p[0], p[0]], [p[1], -p[1]]]) / 2)


def test_backward_twice_where_nothing_was_kept():
    x = torch.ones(3, requires_grad=True)
    y = (x + 1).sum()
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2, 2, 2]
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.backward()


def test_one_edge_for_each_operand():
    x = torch.ones(3, requires_grad=True)
    assert [len(f(x).grad_fn.next_functions) for f in (torch.sin, torch.relu, lambda x: x + 1, lambda x: x * x)] == [1, 1, 2, 2]


def test_what_a_node_saved_can_be_read():
    x, y = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0])
    assert (x * y).grad_fn._saved_other.item() == 3 and x.exp().grad_fn._saved_result.item() == x.exp().item()
    assert x.pow(3).grad_fn._saved_exponent == 3
    with pytest.raises(AttributeError, match="_saved_nothing"):
        x.exp().grad_fn._saved_nothing  # noqa: B018
