"""Embedding lookups and their gradients."""

import pytest

import tocha as torch
import tocha.nn.functional as F


def test_repeated_rows_add_their_gradients():
    w = torch.zeros(4, 2, requires_grad=True)
    F.embedding(torch.tensor([[1, 3], [1, 1]]), w).sum().backward()
    assert w.grad.tolist() == [[0.0, 0.0], [3.0, 3.0], [0.0, 0.0], [1.0, 1.0]]


def test_padding_and_frequency():
    w = torch.zeros(3, 1, requires_grad=True)
    F.embedding(torch.tensor([0, 1, 1, 2]), w, padding_idx=-1, scale_grad_by_freq=True).sum().backward()
    assert w.grad.flatten().tolist() == [1.0, 1.0, 0.0]


def test_max_norm_shortens_used_rows_in_place():
    w = torch.tensor([[3.0, 4.0], [3.0, 4.0]])
    F.embedding(torch.tensor([0]), w, max_norm=1.0)
    assert w[0].tolist() == pytest.approx([0.6, 0.8]) and w[1].tolist() == [3.0, 4.0]


def test_indices_are_checked():
    w = torch.zeros(4, 2)
    with pytest.raises(IndexError, match="out of range"):
        F.embedding(torch.tensor([4]), w)
    with pytest.raises(IndexError):
        F.embedding(torch.tensor([-1]), w)
    with pytest.raises(RuntimeError, match="Long, Int"):
        F.embedding(torch.tensor([1.0]), w)
    assert F.embedding(torch.zeros(0, 3, dtype=torch.int64), w).shape == (0, 3, 2)


def test_bags():
    w = torch.tensor([[1.0], [2.0], [4.0]], requires_grad=True)
    index, offsets = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 2, 2])
    assert F.embedding_bag(index, w, offsets, mode="sum").flatten().tolist() == [3.0, 0.0, 8.0]
    assert F.embedding_bag(index, w, offsets).flatten().tolist() == [1.5, 0.0, 4.0]
    out = F.embedding_bag(index, w, offsets, mode="max")
    assert out.flatten().tolist() == [2.0, 0.0, 4.0]
    out.sum().backward()
    assert w.grad.flatten().tolist() == [0.0, 1.0, 1.0]
    weighted = F.embedding_bag(torch.tensor([[0, 2]]), w, per_sample_weights=torch.tensor([[2.0, 0.5]]), mode="sum")
    assert weighted.item() == 4.0


def test_the_maximum_of_bags_sends_its_gradient_to_the_first_row_that_has_it():
    w = torch.tensor([[1.0, 5.0], [2.0, 5.0], [2.0, 0.0], [9.0, 9.0]], requires_grad=True)
    out = F.embedding_bag(torch.tensor([[0, 1, 2], [3, 2, 2]]), w, mode="max", padding_idx=3)
    assert out.tolist() == [[2.0, 5.0], [2.0, 0.0]]
    (out * torch.tensor([[1.0, 2.0], [4.0, 8.0]])).sum().backward()
    assert w.grad.tolist() == [[0.0, 2.0], [1.0, 0.0], [4.0, 8.0], [0.0, 0.0]]
    assert F.embedding_bag(torch.zeros(0, dtype=torch.int64), w, torch.tensor([0, 0]), mode="max").tolist() == [[0.0, 0.0]] * 2
    for option in ("sparse", "scale_grad_by_freq"):
        with pytest.raises(ValueError, match="max mode does not support"):
            F.embedding_bag(torch.tensor([[0]]), w, mode="max", **{option: True})


def test_one_hot():
    assert F.one_hot(torch.tensor([2, 0])).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert F.one_hot(torch.zeros(0, dtype=torch.int64), 3).shape == (0, 3)
    with pytest.raises(RuntimeError, match="smaller than num_classes"):
        F.one_hot(torch.tensor([2]), 2)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bag_refuses_rows_that_are_not_there(mode):
    for index in (3, -1):
        with pytest.raises(RuntimeError, match="out of bounds"):
            F.embedding_bag(torch.tensor([[index]]), torch.zeros(3, 2), mode=mode)
    with pytest.raises(RuntimeError, match="offsets must not fall"):
        F.embedding_bag(torch.tensor([1, 2]), torch.zeros(3, 2), torch.tensor([0, 2, 1]), mode=mode)
