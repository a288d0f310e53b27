"""Selection by condition: types, broadcasting, gradients."""

import pytest

import tocha as torch

X = torch.tensor([[1.0, -2.0, 3.0], [-4.0, 5.0, -6.0]])


def test_where_promotes_its_values_not_the_condition():
    assert torch.where(X > 0, 1, 2).dtype is torch.int64
    assert torch.where(X > 0, 1.5, 2).dtype is torch.float32
    assert torch.where(X > 0, X, torch.tensor(1.0, dtype=torch.float64)).dtype is torch.float32
    assert [i.tolist() for i in torch.where(X > 3)] == [[1], [1]]
    with pytest.raises(RuntimeError, match="boolean tensor"):
        torch.where(X.int(), X, X)
    with pytest.raises(RuntimeError, match="where: The size of tensor"):
        torch.where(X > 0, X, torch.zeros(2))


def test_masked_fill_casts_the_value():
    assert X.int().masked_fill(X > 0, 1.7).tolist() == [[1, -2, 1], [-4, 1, -6]]
    with pytest.raises(RuntimeError):
        X.masked_fill(X > 0, 1j)
    with pytest.raises(RuntimeError, match="0-dimensional value tensor"):
        X.masked_fill(X > 0, torch.zeros(1))
    with pytest.raises(RuntimeError):
        torch.zeros(3).masked_fill_(torch.ones(2, 3, dtype=torch.bool), 1)


def test_masked_select_and_scatter_are_inverse():
    mask = X > 0
    assert X.masked_select(mask).tolist() == [1, 3, 5]
    assert torch.zeros(2, 3).masked_scatter(mask, torch.tensor([7.0, 8.0, 9.0, 10.0])).tolist() == [[7, 0, 8], [0, 9, 0]]
    with pytest.raises(RuntimeError, match="the mask selects 3, source has 2"):
        X.masked_scatter(mask, torch.zeros(2))


def test_nonzero():
    assert (X > 2).nonzero().tolist() == [[0, 2], [1, 1]]
    assert torch.nonzero(torch.tensor(1.0)).shape == (1, 0)
    assert torch.nonzero(torch.tensor(0.0), as_tuple=True)[0].tolist() == []
    assert torch.nonzero_static(X > 2, size=3).tolist() == [[0, 2], [1, 1], [-1, -1]]


@pytest.mark.parametrize("fill", [lambda x, v: x.masked_fill(x == 1, v), lambda x, v: x.index_fill(0, torch.tensor([0]), v)])
def test_a_value_in_a_tensor_is_taken_as_its_number(fill):
    assert fill(torch.tensor([1, 2]), torch.tensor(2.5)).tolist() == [2, 2]
    assert fill(torch.tensor([1.0, 2.0]), torch.tensor(3 + 0j)).tolist() == [3, 2]
    assert fill(torch.tensor([1, 2], dtype=torch.uint8), torch.tensor(-1)).tolist() == [255, 2]
    for dtype, value in ((torch.uint8, 300), (torch.int64, float("inf")), (torch.float16, 1e6), (torch.float32, 1j)):
        with pytest.raises(RuntimeError, match="without overflow"):
            fill(torch.tensor([1, 2], dtype=dtype), torch.tensor(value))
