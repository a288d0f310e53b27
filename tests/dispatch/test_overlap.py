"""out= that shares memory with operands, and memory that can't grow. Which calls raise is torch 2.13's behaviour."""

import numpy as np
import pytest

import tocha as torch


def rows():
    return torch.arange(1.0, 10.0).reshape(3, 3)


REFUSED = [
    lambda b: torch.add(b[:2], b[1:], out=b[:2]),
    lambda b: torch.exp(b[:2], out=b[1:]),
    lambda b: torch.where(b[1:] > 1, b[1:], b[1:], out=b[:2]),
    lambda b: torch.clamp(b[:2], 0, 1, out=b[1:]),
    lambda b: torch.lerp(b[:2], b[:2], 0.5, out=b[1:]),
    lambda b: torch.cumsum(b[:2], 0, out=b[1:]),
    lambda b: torch.gather(b, 0, torch.zeros(3, 3, dtype=torch.int64), out=b),
    lambda b: torch.index_select(b, 0, torch.tensor([0, 1]), out=b[:2]),
    lambda b: torch.take(b, torch.tensor([1, 2]), out=b[0, :2]),
    lambda b: torch.cat([b[:1], b[1:2]], out=b[:2]),
    lambda b: torch.stack([b[0], b[1]], out=b[:2]),
    lambda b: torch.add(b.t(), 1, out=b),
]


@pytest.mark.parametrize("call", REFUSED)
def test_partial_overlap_is_refused_and_changes_nothing(call):
    b = rows()
    with pytest.raises(RuntimeError, match="single memory location"):
        call(b)
    assert torch.equal(b, rows())


def test_whole_overlap_and_gaps_are_fine():
    b = rows()
    assert torch.clamp(b, 0, 1, out=b).sum() == 9
    b = torch.arange(1.0, 7.0)
    assert torch.mul(b[::2], 2, out=b[1::2]).tolist() == [2.0, 6.0, 10.0]
    i = torch.zeros(3, dtype=torch.int64)
    assert torch.gather(torch.tensor([7, 8, 9]), 0, i, out=i).tolist() == [7, 7, 7]


def test_an_empty_input_as_output_of_cat():
    x = torch.zeros(0)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat((x, torch.ones(4)), out=x)


def test_memory_of_a_numpy_array_does_not_grow():
    lent = torch.from_numpy(np.zeros((2, 2)))
    with pytest.raises(RuntimeError, match="not resizable"):
        lent[0].resize_(5)
    with pytest.raises(RuntimeError, match="not resizable"), pytest.warns(UserWarning, match="resized"):
        torch.cat((torch.ones(4, 2), torch.ones(4, 2)), out=lent)
    assert lent.resize_(1).shape == (1,)
    assert lent.clone().resize_(50).shape == (50,)
