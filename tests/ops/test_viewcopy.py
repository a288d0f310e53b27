"""Copies and scatters of views, movedim, unflatten, transposes; views in place."""

import pytest

import tocha as torch

X = torch.arange(6.0).reshape(2, 3)


def test_slice_scatter_gradient():
    x = torch.arange(5.0).requires_grad_()
    y = torch.tensor([10.0, 20.0], requires_grad=True)
    torch.slice_scatter(x, y, dim=0, start=0, end=2).sum().backward()
    assert x.grad.tolist() == [0, 0, 1, 1, 1]
    assert y.grad.tolist() == [1, 1]


def test_scatters_leave_the_input():
    assert torch.select_scatter(X, torch.tensor([7.0, 8.0]), 1, -1).tolist() == [[0, 1, 7], [3, 4, 8]]
    assert torch.diagonal_scatter(X, torch.tensor([7.0, 8.0])).tolist() == [[7, 1, 2], [3, 8, 5]]
    assert torch.as_strided_scatter(X, torch.tensor([9.0, 9.0]), (2,), (3,), 1).tolist() == [[0, 9, 2], [3, 9, 5]]
    assert X.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(RuntimeError, match="expected src to have a size equal"):
        torch.select_scatter(X, torch.tensor([7.0]), 1, 0)


def test_as_strided_scatter_gradient_is_zero_where_overwritten():
    x, src = torch.zeros(4, requires_grad=True), torch.ones(2, requires_grad=True)
    (torch.as_strided_scatter(x, src, (2,), (2,), 1) * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    assert x.grad.tolist() == [1, 0, 3, 0]
    assert src.grad.tolist() == [2, 4]


@pytest.mark.parametrize("name", ["t_copy", "alias_copy", "squeeze_copy", "detach_copy"])
def test_copies_are_new_memory(name):
    y = getattr(torch, name)(X)
    assert y._base is None
    assert y.data_ptr() != X.data_ptr()


def test_movedim_and_unflatten():
    x = torch.empty(2, 3, 4)
    assert x.movedim((0, 1), (-1, 0)).shape == (3, 4, 2)
    assert x.unflatten(-1, (2, -1)).shape == (2, 3, 2, 2)
    assert x.mT.shape == (2, 4, 3)
    assert x.T.shape == (4, 3, 2)
    with pytest.raises(RuntimeError, match="don't multiply up"):
        x.unflatten(1, (2, 2))
    with pytest.raises(RuntimeError, match="repeated dim in `source`"):
        x.movedim((0, 0), (1, 2))


def test_real_and_imag_can_be_assigned():
    c = torch.tensor([1 + 2j, 3 - 4j])
    c.real = torch.tensor([5.0, 6.0])
    c.imag[0] = 0
    assert c.tolist() == [5, 6 - 4j]


def test_views_in_place_keep_memory_and_history():
    x = torch.ones(2, 3, requires_grad=True)
    y = x * torch.arange(6.0).reshape(2, 3)
    pointer = y.data_ptr()
    assert y.t_().unsqueeze_(0).transpose_(0, 1) is y
    assert y.shape == (3, 1, 2)
    assert y.data_ptr() == pointer
    (y * torch.tensor([1.0, 10.0])).sum().backward()
    assert x.grad.tolist() == [[0, 1, 2], [30, 40, 50]]
    with pytest.raises(RuntimeError, match="leaf"):
        x.t_()


def test_as_strided_keeps_its_gradient_when_its_base_changes():
    x = torch.ones(3, 3, requires_grad=True)
    y = x * 1
    s = y.diagonal().as_strided((2,), (1,), 0)  # looks at the storage, not at the diagonal
    y.add_(1)
    s.sum().backward()
    assert x.grad.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]


def test_writing_through_as_strided_of_a_transposed_base():
    x = torch.ones(2, 3, requires_grad=True)
    y = (x * 1).t().clone(memory_format=torch.preserve_format)
    assert y.stride() == (1, 3)
    y.as_strided((2,), (1,), 1).zero_()
    (y * torch.arange(6.0).reshape(3, 2)).sum().backward()
    assert x.grad.tolist() == [[0, 0, 0], [1, 3, 5]]


def test_views_take_their_arguments_in_every_spelling():
    x = torch.arange(6.0).reshape(2, 3)
    assert x.view(3, 2).shape == x.view((3, 2)).shape == x.view(-1, 2).shape == x.view(torch.Size([3, 2])).shape
    assert x.permute(1, 0).shape == x.permute([1, 0]).shape == x.permute(-1, 0).shape == (3, 2)
    assert torch.arange(3).permute([0]).tolist() == [0, 1, 2]
    assert x.transpose(-1, 0).stride() == (1, 3)
    assert torch.arange(0, 6, 2).tolist() == [0, 2, 4]
    with pytest.raises(RuntimeError, match="invalid for input of size 6"):
        x.view(4)
    with pytest.raises(RuntimeError, match="only one dimension can be inferred"):
        x.view(-1, -1)
    with pytest.raises(RuntimeError, match="duplicate dims"):
        x.permute(0, 0)
    with pytest.raises(IndexError, match="Dimension out of range"):
        x.transpose(0, 2)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        x.t().view(6)


def test_as_strided_scatter_writes_to_places_of_the_storage():
    columns = torch.arange(18.0).reshape(3, 6)[:, ::2]
    out = torch.as_strided_scatter(columns, torch.tensor([-1.0, -2.0]), (2,), (2,), 6)
    assert out.tolist() == [[0.0, 2.0, 4.0], [-1.0, -2.0, 10.0], [12.0, 14.0, 16.0]]
    assert columns[1].tolist() == [6.0, 8.0, 10.0]


def test_as_strided_scatter_gradient_leaves_out_what_was_replaced():
    x = torch.zeros(3, 3, requires_grad=True)
    y = torch.zeros(2, 2, requires_grad=True)
    out = torch.as_strided_scatter(x, y, (2, 2), (1, 2), 1)
    out.backward(torch.arange(1.0, 10.0).reshape(3, 3))
    assert x.grad.tolist() == [[1.0, 0.0, 0.0], [0.0, 0.0, 6.0], [7.0, 8.0, 9.0]]
    assert y.grad.tolist() == [[2.0, 4.0], [3.0, 5.0]]


def test_narrow_copy_raises_for_a_dimension_too_large():
    with pytest.raises(RuntimeError, match="narrow_copy"):
        torch.narrow_copy(X, 2, 0, 1)
    with pytest.raises(IndexError):
        torch.narrow_copy(X, -3, 0, 1)
    assert torch.narrow_copy(X, 1, 1, 2).tolist() == [[1.0, 2.0], [4.0, 5.0]]
