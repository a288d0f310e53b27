"""flip, roll, rot90, repeat, repeat_interleave, constant padding."""

import pytest

import tocha as torch

X = torch.arange(6).reshape(2, 3)


def test_values():
    assert X.flip(0, 1).tolist() == [[5, 4, 3], [2, 1, 0]]
    assert X.roll(1).tolist() == [[5, 0, 1], [2, 3, 4]]
    assert X.roll((1, -1), (0, 1)).tolist() == [[4, 5, 3], [1, 2, 0]]
    assert X.rot90().tolist() == [[2, 5], [1, 4], [0, 3]]
    assert X.rot90(-1).tolist() == [[3, 0], [4, 1], [5, 2]]
    assert X.repeat(1, 2).tolist() == [[0, 1, 2, 0, 1, 2], [3, 4, 5, 3, 4, 5]]
    assert X.tile(2).tolist() == X.repeat(1, 2).tolist()
    assert X.repeat_interleave(torch.tensor([1, 0, 2]), 1).tolist() == [[0, 2, 2], [3, 5, 5]]
    assert torch.repeat_interleave(torch.tensor([2, 0, 1])).tolist() == [0, 0, 2]


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_rot90_is_a_contiguous_copy(k):
    y = X.rot90(k)
    assert y._base is None
    assert y.is_contiguous()


def test_constant_pad_crops_where_negative():
    assert torch.constant_pad_nd(X, (1, -1, 0, 1), 9).tolist() == [[9, 0, 1], [9, 3, 4], [9, 9, 9]]
    with pytest.raises(RuntimeError, match="resulted in a negative output size"):
        torch.constant_pad_nd(X, (-2, -2))


def test_gradients():
    x = torch.ones(2, 3, requires_grad=True)
    y = x.repeat(2, 1).flip(1).roll(1, 0)
    (y * torch.arange(12.0).reshape(4, 3)).sum().backward()
    assert x.grad.tolist() == [[16, 14, 12], [10, 8, 6]]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: X.flip(0, 0), RuntimeError), (lambda: X.flip(2), IndexError), (lambda: X.roll((1, 2), 0), RuntimeError),
        (lambda: X[0].rot90(), RuntimeError), (lambda: X.repeat(2), RuntimeError), (lambda: X.repeat_interleave(-1), RuntimeError),
        (lambda: X.repeat_interleave(torch.tensor([1, 2]), 1), RuntimeError),
    ],
)  # fmt: skip
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_repeat_interleave_checks_output_size():
    with pytest.raises(RuntimeError, match="Invalid output_size"):
        X.repeat_interleave(2, 0, output_size=5)
