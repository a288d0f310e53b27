"""arange, linspace, logspace: types and rounding."""

import math

import pytest

import tocha as torch


def test_arange_types_and_lengths():
    assert torch.arange(3).dtype is torch.int64
    assert torch.arange(3.0).dtype is torch.float32
    assert torch.arange(0, 1, 0.1).shape == (10,)
    assert torch.arange(5, 0, -2).tolist() == [5, 3, 1]
    assert torch.arange(0.0, -8.000001, -4.0, dtype=torch.int64).tolist() == [0, -4]  # made of whole numbers
    assert torch.arange(0, 3, out=torch.empty(0, dtype=torch.float64)).dtype is torch.float64


@pytest.mark.parametrize(
    ("args", "error"),
    [((0, 3, 0), RuntimeError), ((0, -3, 1), RuntimeError), ((0, math.inf), RuntimeError), ((), TypeError)],
)
def test_arange_errors(args, error):
    with pytest.raises(error):
        torch.arange(*args)


def test_arange_refuses_bool_and_steps_that_vanish():
    with pytest.raises(NotImplementedError):
        torch.arange(3, dtype=torch.bool)
    with pytest.raises(ValueError, match="nonzero"):
        torch.arange(0, 3, 0.5, dtype=torch.int64)


def test_spaces():
    assert torch.linspace(0, 10, 5, dtype=torch.int64).tolist() == [0, 2, 5, 7, 10]
    assert torch.logspace(1.7, 9.2, 4, base=2, dtype=torch.int64).tolist() == [2, 12, 80, 512]
    assert torch.linspace(3, 7, 1).tolist() == [3]
    assert torch.eye(2, 3).tolist() == [[1, 0, 0], [0, 1, 0]]
