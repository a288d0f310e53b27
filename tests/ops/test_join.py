"""Joining, splitting and common shapes."""

import pytest

import tocha as torch


def test_cat_promotes_and_skips_legacy_empties():
    out = torch.cat([torch.ones(2, 3), torch.zeros(0), torch.ones(1, 3, dtype=torch.float64)])
    assert out.shape == (3, 3)
    assert out.dtype is torch.float64


@pytest.mark.parametrize(
    ("tensors", "dim", "error"),
    [
        ([], 0, ValueError), (torch.ones(2), 0, TypeError), ([torch.ones(2), 3], 0, TypeError),
        ([torch.tensor(1.0)], 0, RuntimeError), ([torch.ones(2, 3), torch.ones(2, 4)], 0, RuntimeError),
        ([torch.ones(2), torch.ones(2, 2)], 0, RuntimeError), ([torch.ones(2)], 1, IndexError),
    ],
)  # fmt: skip
def test_cat_errors(tensors, dim, error):
    with pytest.raises(error):
        torch.cat(tensors, dim)


def test_stack_gradient():
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    (torch.stack([a, b], 1) * torch.arange(4.0).reshape(2, 2)).sum().backward()
    assert a.grad.tolist() == [0, 2]
    assert b.grad.tolist() == [1, 3]


def test_meshgrid_orders():
    x, y = torch.arange(2), torch.arange(3)
    a, b = torch.meshgrid(x, y, indexing="xy")
    assert a.tolist() == [[0, 1]] * 3
    assert b.tolist() == [[0, 0], [1, 1], [2, 2]]
    with pytest.warns(UserWarning, match="indexing argument"):
        assert torch.meshgrid(x, y)[0].shape == (2, 3)


def test_tensor_split_takes_counts_and_cuts():
    x = torch.arange(7)
    assert [p.tolist() for p in x.tensor_split(3)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert [p.tolist() for p in x.tensor_split((1, -2))] == [[0], [1, 2, 3, 4], [5, 6]]


def test_pieces_of_split_refuse_in_place_changes_and_unsafe_ones_dont():
    x = torch.ones(4, requires_grad=True) * 1
    with pytest.raises(RuntimeError, match="returns multiple views"):
        x.split(2)[0].mul_(2)
    y = torch.ones(4, requires_grad=True) * 1
    y.unsafe_split(2)[0].mul_(2)
    assert y.tolist() == [2, 2, 1, 1]


def test_a_lone_piece_has_a_gradient():
    x = torch.ones(3, requires_grad=True)
    x.split(3)[0].sum().backward()
    x.unsqueeze(0).unbind()[0].sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_gradient_through_a_narrowed_piece_of_unbind():
    root = torch.arange(9.0).reshape(3, 3).requires_grad_()
    row = root.clone().unbind(0)[0].narrow(0, 0, 2)
    with pytest.raises(RuntimeError, match="returns multiple views"):
        row.mul_(2)


def test_combinations_and_products():
    x = torch.tensor([1, 2, 3])
    assert torch.combinations(x).tolist() == [[1, 2], [1, 3], [2, 3]]
    assert torch.combinations(x, 2, True).shape == (6, 2)
    assert torch.cartesian_prod(x[:2], x[1:]).tolist() == [[1, 2], [1, 3], [2, 2], [2, 3]]
    assert torch.block_diag(torch.ones(1, 2), torch.tensor(3.0)).tolist() == [[1, 1, 0], [0, 0, 3]]


def test_broadcast_errors_name_the_operator():
    with pytest.raises(RuntimeError, match="broadcast_tensors: The size of tensor a"):
        torch.broadcast_tensors(torch.ones(2), torch.ones(3))
    assert torch.broadcast_shapes((2, 1), 3, (1, 3)) == torch.Size([2, 3])
