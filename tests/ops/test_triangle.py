"""Triangles and diagonals."""

import pytest

import tocha as torch

X = torch.arange(1.0, 7.0).reshape(2, 3)


def test_triangles():
    assert X.tril().tolist() == [[1, 0, 0], [4, 5, 0]]
    assert X.triu(1).tolist() == [[0, 2, 3], [0, 0, 6]]
    assert torch.full((2, 2), float("nan")).tril()[0, 1].item() == 0  # chosen, not multiplied
    assert torch.tril_indices(3, 3, -1).tolist() == [[1, 2, 2], [0, 0, 1]]
    assert torch.triu_indices(2, 2).dtype is torch.int64
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        torch.ones(3).triu()


def test_diagonals():
    assert torch.diag(torch.tensor([1, 2]), 1).tolist() == [[0, 1, 0], [0, 0, 2], [0, 0, 0]]
    assert torch.diag(X, -1).tolist() == [4]
    assert torch.diag_embed(X, 0, 0, 2).shape == (3, 2, 3)
    x = X.clone().requires_grad_()
    (torch.diag_embed(x) * torch.arange(18.0).reshape(2, 3, 3)).sum().backward()
    assert x.grad.tolist() == [[0, 4, 8], [9, 13, 17]]


def test_fill_diagonal():
    assert torch.zeros(5, 2, dtype=torch.int64).fill_diagonal_(1, wrap=True).tolist() == [[1, 0], [0, 1], [0, 0], [1, 0], [0, 1]]
    assert torch.zeros(2, 2, 2).fill_diagonal_(1).sum().item() == 2
    with pytest.raises(RuntimeError, match="equal length"):
        torch.zeros(2, 3, 2).fill_diagonal_(1)


def test_vander():
    assert torch.vander(torch.tensor([1, 2, 3])).tolist() == [[1, 1, 1], [4, 2, 1], [9, 3, 1]]


def test_one_value_may_be_written_where_elements_share_memory():
    x = torch.ones(3, 1).expand(3, 3)
    assert x.tril_().tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, 1]]
    assert torch.ones(3).expand(2, 3).triu_(1).tolist() == [[0, 0, 1], [0, 0, 1]]
    with pytest.warns(UserWarning, match="index_fill_"):
        assert torch.zeros(1).expand(3).index_fill_(0, torch.tensor([0]), 1).tolist() == [1, 1, 1]
    assert torch.full((3,), 2.0, out=torch.ones(1).expand(3)).tolist() == [2, 2, 2]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.sum(torch.ones(3, 3), 0, out=torch.zeros(1).expand(3))


def test_triangles_in_place_are_recorded():
    x = torch.ones(2, 2, requires_grad=True)
    y = x * 2
    y.tril_()
    y.sum().backward()
    assert x.grad.tolist() == [[2, 0], [2, 2]]
