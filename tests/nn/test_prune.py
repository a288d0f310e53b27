"""Pruning; gradients of convolutions."""

from __future__ import annotations

import pickle

import pytest

import tocha as torch
from tocha import nn
from tocha.nn import grad
from tocha.nn.utils import prune


def layer():
    m = nn.Linear(4, 2)
    with torch.no_grad():
        m.weight.copy_(torch.arange(8.0).view(2, 4) - 4)
    return m


def test_masking_the_smallest_entries():
    m = prune.l1_unstructured(layer(), "weight", 3)
    assert sorted(m.state_dict()) == ["bias", "weight_mask", "weight_orig"]
    assert m.weight.tolist() == [[-4, -3, -2, 0], [0, 0, 2, 3]]
    m(torch.ones(1, 4)).sum().backward()
    assert m.weight_orig.grad.tolist() == [[1, 1, 1, 0], [0, 0, 1, 1]]
    other = pickle.loads(pickle.dumps(m))
    assert prune.is_pruned(other) and other.weight.tolist() == m.weight.tolist()


def test_methods_follow_each_other_on_what_is_left():
    m = prune.ln_structured(layer(), "weight", 1, n=2, dim=0)
    assert m.weight_mask.tolist() == [[1, 1, 1, 1], [0, 0, 0, 0]]
    prune.l1_unstructured(m, "weight", 0.5)
    assert m.weight.tolist() == [[-4, -3, 0, 0], [0, 0, 0, 0]]
    (hook,) = m._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2


def test_removal_keeps_the_zeros():
    m = prune.l1_unstructured(layer(), "weight", 3)
    prune.remove(m, "weight")
    assert list(m._parameters) == ["bias", "weight"] and not prune.is_pruned(m)
    assert m.weight.tolist() == [[-4, -3, -2, 0], [0, 0, 2, 3]]
    with pytest.raises(ValueError, match="has to be pruned before pruning can be removed"):
        prune.remove(m, "weight")


def test_global_comparison():
    a, b = layer(), layer()
    with torch.no_grad():
        b.weight.mul_(10)
    prune.global_unstructured([(a, "weight"), (b, "weight")], prune.L1Unstructured, amount=8)
    assert a.weight_mask.sum().item() == 1 and b.weight_mask.sum().item() == 7


@pytest.mark.parametrize(
    "amount, error, message",
    [
        (-1, ValueError, "should either be a float in the range"),
        ("a", TypeError, "Invalid type for amount: a"),
        (9, ValueError, "should be smaller than the number of parameters to prune=8"),
    ],
)
def test_bad_amounts_leave_the_module_alone(amount, error, message):
    m = layer()
    with pytest.raises(error, match=message):
        prune.random_unstructured(m, "weight", amount)
    assert list(m._parameters) == ["weight", "bias"] and not m._forward_pre_hooks


def test_gradients_of_a_convolution():
    x = torch.randn(2, 2, 5, 5, requires_grad=True)
    w = torch.randn(3, 2, 3, 3, requires_grad=True)
    out = nn.functional.conv2d(x, w, stride=2, padding=1)
    g = torch.randn_like(out)
    out.backward(g)
    assert torch.allclose(grad.conv2d_input(x.shape, w, g, stride=2, padding=1), x.grad, atol=1e-5)
    assert torch.allclose(grad.conv2d_weight(x, w.shape, g, stride=2, padding=1), w.grad, atol=1e-5)
