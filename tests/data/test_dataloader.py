"""The loader in the main process: order, batches, options."""

import pytest

import tocha
from tocha.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler


class Count(IterableDataset):
    def __init__(self, n, length=None):
        self.n, self.length = n, n if length is None else length

    def __iter__(self):
        return iter(range(self.n))

    def __len__(self):
        return self.length


def lists(loader):
    return [batch.tolist() for batch in loader]


def test_batches():
    data = list(range(7))
    assert lists(DataLoader(data, batch_size=3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert lists(DataLoader(data, batch_size=3, drop_last=True)) == [[0, 1, 2], [3, 4, 5]]
    assert list(DataLoader(data, batch_size=None)) == data
    assert lists(DataLoader(data, batch_sampler=[[6, 0], [1]])) == [[6, 0], [1]]
    assert lists(DataLoader(data, sampler=[4, 2], batch_size=2)) == [[4, 2]]
    assert list(DataLoader(data, batch_size=3, collate_fn=sum)) == [3, 12, 6]
    assert list(DataLoader([])) == []


def test_lengths():
    assert len(DataLoader(range(7), batch_size=3)) == 3
    assert len(DataLoader(Count(10), batch_size=4)) == 3
    assert len(DataLoader(Count(10), batch_size=4, drop_last=True)) == 2
    assert len(DataLoader(Count(10), batch_size=None)) == 10
    assert lists(DataLoader(Count(10), batch_size=4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with pytest.raises(TypeError):
        len(DataLoader(i for i in range(3)))


def test_shuffle_is_torchs():
    tocha.manual_seed(0)
    loader = DataLoader(list(range(7)), shuffle=True)
    assert [int(x) for x in loader] == [0, 4, 1, 5, 2, 6, 3]
    assert [int(x) for x in loader] == [3, 1, 4, 2, 5, 0, 6]
    assert tocha.rand(1).item() == pytest.approx(0.455627977848053, abs=1e-7)


def test_shuffle_with_a_generator_is_torchs():
    g = tocha.Generator()
    g.manual_seed(3)
    loader = DataLoader(list(range(7)), shuffle=True, generator=g)
    assert [int(x) for x in loader] == [3, 4, 2, 0, 1, 6, 5]
    assert [int(x) for x in loader] == [6, 1, 2, 3, 4, 0, 5]
    assert tocha.rand(1, generator=g).item() == pytest.approx(0.12125527858734131, abs=1e-7)


def test_samples_of_a_batch_at_once():
    class Many(Dataset):
        def __len__(self):
            return 5

        def __getitems__(self, indices):
            return [10 * i for i in indices]

    assert lists(DataLoader(Many(), batch_size=2)) == [[0, 10], [20, 30], [40]]


def test_iterators_are_independent():
    loader = DataLoader(list(range(3)))
    a, b = iter(loader), iter(loader)
    assert [int(next(a)), int(next(a)), int(next(b))] == [0, 1, 0]


def test_iterable_longer_than_it_says_warns():
    loader = DataLoader(Count(4, length=2), batch_size=None)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="reported to be 2"):
        assert list(loader) == [0, 1, 2, 3]


def test_samplers_by_option():
    assert isinstance(DataLoader([1]).sampler, SequentialSampler)
    assert isinstance(DataLoader([1], shuffle=True).sampler, RandomSampler)
    assert DataLoader([1], batch_size=None).batch_sampler is None


def test_pin_memory_without_an_accelerator_changes_nothing():
    assert lists(DataLoader([1, 2], pin_memory=True)) == [[1], [2]]


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"num_workers": 1, "prefetch_factor": -1},
        {"persistent_workers": True},
        {"sampler": [1], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_sampler": [[1]], "shuffle": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"batch_size": 2.5},
        {"drop_last": 2},
        {"multiprocessing_context": "spawn"},
        {"num_workers": 1, "multiprocessing_context": "other"},
    ],
)
def test_options_that_contradict_are_refused(options):
    with pytest.raises(ValueError):
        DataLoader([1], **options)


@pytest.mark.parametrize("options", [{"shuffle": True}, {"sampler": [1]}, {"batch_sampler": [[1]]}])
def test_iterable_data_sets_have_their_own_order(options):
    with pytest.raises(ValueError, match="DataLoader with IterableDataset"):
        DataLoader(Count(3), **options)


def test_attributes_that_samplers_depend_on_are_fixed():
    loader = DataLoader([1, 2])
    for name in ("batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match="should not be set"):
            setattr(loader, name, 3)
    with pytest.raises(TypeError, match="valid context"):
        DataLoader([1], num_workers=1, multiprocessing_context=3)
