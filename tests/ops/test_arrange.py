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
def test_rot90_is_a_copy_that_keeps_the_order_of_memory(k):
    y = X.rot90(k)
    assert y._base is None
    assert y.stride() == ((3, 1), (1, 3))[k % 2]


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


def test_flipped_tensors_lie_in_memory_as_their_inputs() -> None:
    x = torch.arange(24.0).reshape(2, 3, 4)
    for y, stride in (
        (x.transpose(0, 2), (1, 4, 12)),
        (x.permute(0, 2, 1), (12, 1, 4)),
        (x[0].expand(5, 3, 4), (12, 4, 1)),
        (x[..., ::2], (6, 2, 1)),
    ):
        flipped = y.flip(0, 2)
        assert flipped.stride() == stride
        assert flipped.tolist() == [[row[::-1] for row in plane] for plane in y.tolist()[::-1]]
    assert torch.rot90(x[0]).stride() == (1, 4)


def test_quarter_turns_and_repeats_of_large_matrices() -> None:
    x = torch.arange(300 * 200).reshape(300, 200)
    assert torch.equal(torch.rot90(x), torch.tensor([list(c) for c in zip(*x.tolist(), strict=True)][::-1]))
    assert torch.equal(x.repeat(2, 3), torch.cat([torch.cat([x] * 3, 1)] * 2))
    assert torch.equal(x.repeat_interleave(3, 1)[:, 1::3], x) and torch.equal(x.repeat_interleave(2, 0)[::2], x)


def test_repeats_of_nothing_and_once_are_copies() -> None:
    x = torch.arange(6).reshape(2, 3)
    y = x.repeat(1, 1)
    assert torch.equal(y, x) and y.data_ptr() != x.data_ptr()
    assert x.repeat(0, 2).shape == (0, 6) and x.repeat(2, 1, 1).shape == (2, 2, 3)
    assert torch.tensor(3).repeat(2, 2).tolist() == [[3, 3], [3, 3]]
