"""Data sets and their combinations."""

import pytest

import tocha
from tocha.utils.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError(i)
        return i * i


class Count(IterableDataset):
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(range(self.n))


def test_tensor_dataset():
    data = TensorDataset(tocha.arange(6).reshape(3, 2), tocha.tensor([7, 8, 9]))
    assert len(data) == 3
    x, y = data[1]
    assert x.tolist() == [2, 3] and y.item() == 8
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(tocha.zeros(2), tocha.zeros(3))


def test_concat():
    data = Squares(3) + Squares(2)
    assert isinstance(data, ConcatDataset) and data.cumulative_sizes == [3, 5]
    assert [data[i] for i in range(5)] == [0, 1, 4, 0, 1] and data[-1] == 1 and data[-5] == 0
    with pytest.raises(ValueError, match="absolute value"):
        data[-6]
    with pytest.raises(IndexError):
        data[5]
    with pytest.raises(AssertionError, match="empty"):
        ConcatDataset([])
    with pytest.raises(AssertionError, match="IterableDataset"):
        ConcatDataset([Count(2)])


def test_concat_of_an_empty_part():
    data = ConcatDataset([Squares(0), Squares(2), Squares(0)])
    assert [data[0], data[1]] == [0, 1]


def test_chain():
    assert list(Count(2) + Count(3)) == [0, 1, 0, 1, 2]
    with pytest.raises(AssertionError, match="only supports"):
        list(ChainDataset([Squares(2)]))
    with pytest.raises(TypeError):
        IterableDataset()


def test_stack():
    pairs, named = StackDataset(Squares(3), [5, 6, 7]), StackDataset(a=Squares(3), b=[5, 6, 7])
    assert pairs[2] == (4, 7) and named[1] == {"a": 1, "b": 6} and len(named) == 3
    assert pairs.__getitems__([0, 2]) == [(0, 5), (4, 7)]
    assert named.__getitems__([1]) == [{"a": 1, "b": 6}]
    for args, kwargs in [((), {}), (([1], [1, 2]), {}), (([1],), {"a": [1]})]:
        with pytest.raises(ValueError):
            StackDataset(*args, **kwargs)


def test_subset():
    part = Subset(Squares(10), [9, 2])
    assert list(part) == [81, 4] and len(part) == 2 and part.__getitems__([1, 0]) == [4, 81]


def test_random_split_is_torchs():
    g = tocha.Generator()
    g.manual_seed(1)
    a, b = random_split(range(10), [3, 7], generator=g)
    assert a.indices == [5, 6, 1] and b.indices == [2, 0, 8, 9, 3, 7, 4]


@pytest.mark.parametrize(
    "n,fractions,sizes",
    [(10, [0.5, 0.3, 0.2], [5, 3, 2]), (10, [0.33, 0.33, 0.34], [4, 3, 3]), (2, [0.1, 0.9], [1, 1])],
)
def test_random_split_by_fractions(n, fractions, sizes):
    parts = random_split(range(n), fractions)
    assert [len(p) for p in parts] == sizes
    assert sorted(v for p in parts for v in p) == list(range(n))


@pytest.mark.parametrize("lengths", [[5, 4], [0.5, 0.6], [1.5, -0.5], [0.25, 0.25]])
def test_random_split_refuses(lengths):
    with pytest.raises(ValueError):
        random_split(range(10), lengths)


def test_base_class_names_what_is_missing():
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]
    with pytest.raises(TypeError):
        len(Dataset())
