"""Storage, resize_, set_ and the questions about memory."""

import pytest

import tocha as torch


def test_resize_keeps_elements_and_memory_where_it_can():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    pointer = x.data_ptr()
    assert x.resize_(2, 2).tolist() == [[1, 2], [3, 4]]
    assert x.resize_(0).shape == (0,)
    assert x.resize_(2).tolist() == [1, 2]
    assert x.data_ptr() == pointer
    assert x.resize_(3, 3).reshape(-1)[:4].tolist() == [1, 2, 3, 4]


def test_resize_of_a_view_grows_within_the_storage():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert x[1:3].resize_(3).tolist() == [2, 3, 4]
    with pytest.raises(RuntimeError, match="require grad"):
        torch.zeros(2, requires_grad=True).resize_(3)
    with pytest.raises(RuntimeError, match="negative dimension"):
        x.resize_(-1)


def test_set_looks_at_other_memory():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    y = torch.empty(0)
    y.set_(x.untyped_storage(), 1, (2,), (2,))
    y[0] = 9
    assert x.tolist() == [1, 9, 3, 4]
    assert y.is_set_to(x.as_strided((2,), (2,), 1))
    with pytest.raises(RuntimeError, match="out of bounds"):
        y.set_(x.untyped_storage(), 3, (2,), (1,))


def test_views_share_one_storage_object():
    x = torch.zeros(3, 4)
    assert x[1:].t().untyped_storage() is x.untyped_storage()
    assert x[1:, 2:].storage_offset() == 6
    assert x.untyped_storage().nbytes() == 48


def test_share_memory_keeps_values():
    x = torch.arange(4.0).reshape(2, 2).t()
    assert not x.is_shared()
    assert x.share_memory_().is_shared()
    assert x.tolist() == [[0, 2], [1, 3]]


def test_detach_in_place_and_apply():
    y = torch.ones(2, requires_grad=True) * 2
    assert not y.detach_().requires_grad
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        (torch.ones(2, requires_grad=True) * 2)[0].detach_()
    assert torch.tensor([1, 2]).apply_(lambda v: v * 3).tolist() == [3, 6]
    assert torch.tensor([1, 2]).map_(torch.tensor([5, 6]), lambda a, b: a - b).tolist() == [-4, -4]


def test_set_refuses_a_leaf_that_requires_grad():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        x.set_(torch.ones(3))
    assert x.tolist() == [1, 1]
