"""Written tensors that share memory with operands or with themselves, and memory that can't grow. Which calls raise is torch 2.13's behaviour."""

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


IN_STEP = {
    "add_": lambda t, o: t.add_(o),
    "sub_ alpha": lambda t, o: t.sub_(o, alpha=2),
    "mul_": lambda t, o: t.mul_(o),
    "lt_": lambda t, o: t.lt_(o),
    "copy_": lambda t, o: t.copy_(o),
    "clamp_": lambda t, o: t.clamp_(o),
    "lerp_": lambda t, o: t.lerp_(o, 0.5),
    "addcmul_": lambda t, o: t.addcmul_(o, o),
    "foreach": lambda t, o: torch._foreach_mul_([t], [o]),
    "setitem": lambda t, o: t.__setitem__(slice(None), o),
}
APART = {
    "setitem": lambda t, o: t.__setitem__(torch.tensor([0, 1]), o),
    "index_put_": lambda t, o: t.index_put_((torch.tensor([0, 1]),), o),
    "index_copy_": lambda t, o: t.index_copy_(0, torch.tensor([0, 1]), o),
    "index_add_": lambda t, o: t.index_add_(0, torch.tensor([0, 1]), o),
    "scatter_": lambda t, o: t.scatter_(0, torch.zeros(2, 3, dtype=torch.int64), o),
    "scatter_add_": lambda t, o: t.scatter_add_(0, torch.zeros(2, 3, dtype=torch.int64), o),
    "put_": lambda t, o: t.put_(torch.arange(6), o),
}


def flat():
    return torch.arange(1.0, 25.0)


PARTLY = [
    lambda b: (b[:6].view(2, 3), b[3:9].view(2, 3)),
    lambda b: (b[1:7].view(2, 3), b[:6].view(2, 3)),
    lambda b: (b[:6].view(2, 3), b.detach()[3:9].view(2, 3)),
    lambda b: (b[:6].view(2, 3), b.data[3:9].view(2, 3)),
]
WHOLLY = [lambda b: (b[:6].view(2, 3),) * 2, lambda b: (b[:6].view(2, 3), b[:6].view(1, 2, 3)[0])]
FREE = [
    lambda b: (b[:6].view(2, 3), b[6:12].view(2, 3)),
    lambda b: (b[:12:2].view(2, 3), b[1:13:2].view(2, 3)),
    lambda b: (b[:8].view(2, 4)[:, :3], b[:8].view(2, 4)[:, 1:]),  # with gaps between the rows torch doesn't look closer
]


@pytest.mark.parametrize("layout", PARTLY)
@pytest.mark.parametrize("name", IN_STEP)
def test_in_place_over_part_of_an_operand_is_refused(name, layout):
    b = flat()
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        IN_STEP[name](*layout(b))
    assert torch.equal(b, flat())


@pytest.mark.parametrize("layout", WHOLLY + FREE)
@pytest.mark.parametrize("name", IN_STEP)
def test_in_place_over_all_of_an_operand_is_not(name, layout):
    target, operand = layout(flat())
    expected = target.clone()
    IN_STEP[name](expected, operand.clone())
    IN_STEP[name](target, operand)
    assert torch.equal(target, expected)


@pytest.mark.parametrize("layout", PARTLY + WHOLLY)
@pytest.mark.parametrize("name", APART)
def test_indexed_writes_over_an_operand_are_refused(name, layout):
    b = flat()
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        APART[name](*layout(b))
    assert torch.equal(b, flat())


def test_operands_that_broadcast():
    x = rows()
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(x[0])
    with pytest.raises(RuntimeError, match="single memory location"):
        x.add_(x.t())
    x[:] = x[0]  # assignment to slices expands first
    assert x.tolist() == [[1, 2, 3]] * 3
    x[x > 1] = x[0, 0]
    assert x.tolist() == [[1, 1, 1]] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.exp_(), lambda t: t.add_(1), lambda t: t.copy_(torch.ones(2, 3)), lambda t: t.normal_(), lambda t: t.cumsum_(0),
        lambda t: t.scatter_(0, torch.zeros(2, 3, dtype=torch.int64), 1.0), lambda t: torch.add(torch.ones(2, 3), 1, out=t),
        lambda t: torch.mm(torch.ones(2, 2), torch.ones(2, 3), out=t), lambda t: torch.cat([torch.ones(1, 3)] * 2, out=t),
    ],
)  # fmt: skip
def test_elements_that_share_memory_are_not_written_apart(change):
    b = torch.zeros(3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        change(b.expand(2, 3))
    assert b.tolist() == [0, 0, 0]


def test_elements_that_share_memory_may_get_one_value():
    b = torch.zeros(3)
    b.expand(2, 3).masked_fill_(torch.tensor([True, False, True]), 4.0)
    assert b.tolist() == [4, 0, 4]
    b.expand(2, 3)[torch.tensor([0, 1])] = torch.tensor(5.0)
    assert b.tolist() == [5, 5, 5]
