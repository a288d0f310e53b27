"""Samplers: torch's draws, and refusals."""

import pytest

import tocha
from tocha.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)


def seeded(seed=3):
    g = tocha.Generator()
    g.manual_seed(seed)
    return g


@pytest.mark.parametrize(
    "options,expected",
    [
        ({}, [5, 3, 4, 6, 0, 2, 1]),
        ({"num_samples": 5}, [5, 3, 4, 6, 0]),
        ({"num_samples": 17}, [5, 3, 4, 6, 0, 2, 1, 2, 6, 3, 1, 5, 0, 4, 0, 6, 3]),
        (
            {"replacement": True, "num_samples": 40},
            [5, 3, 3, 4, 0, 6, 2, 4, 5, 0, 6, 6, 0, 6, 6, 2, 6, 5, 6, 5, 6, 6, 5, 0, 2, 2, 4, 5, 5, 2, 4, 1]
            + [2, 5, 3, 5, 6, 2, 4, 4],
        ),
    ],
)
def test_random_sampler_draws_as_torch(options, expected):
    sampler = RandomSampler(range(7), generator=seeded(), **options)
    assert list(sampler) == expected and len(sampler) == len(expected)


def test_generator_moves_on_as_in_torch():
    g = seeded()
    list(RandomSampler(range(7), generator=g))
    assert tocha.rand(1, generator=g).item() == pytest.approx(0.14984089136123657, abs=1e-7)


def test_subset_and_weighted_draw_as_torch():
    g = seeded()
    assert list(SubsetRandomSampler([5, 6, 7], g)) == [6, 5, 7]
    assert list(WeightedRandomSampler([0.1, 0.5, 0.4], 5, generator=g)) == [1, 2, 1, 2, 2]


def test_default_generator_gives_one_seed_per_pass():
    tocha.manual_seed(0)
    sampler = RandomSampler(range(20))
    first, second = list(sampler), list(sampler)
    tocha.manual_seed(0)
    assert list(sampler) == first != second


def test_sequential_and_batch():
    s = SequentialSampler(range(7))
    assert list(BatchSampler(s, 3, False)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(BatchSampler(s, 3, True)) == [[0, 1, 2], [3, 4, 5]]
    assert len(BatchSampler(s, 3, False)) == 3 and len(BatchSampler(s, 3, True)) == 2
    assert list(BatchSampler(iter("ab"), 5, False)) == [["a", "b"]]


def test_distributed_parts():
    def part(rank, **options):
        return list(DistributedSampler(range(10), 3, rank, **options))

    assert [part(r, shuffle=False) for r in range(3)] == [[0, 3, 6, 9], [1, 4, 7, 0], [2, 5, 8, 1]]
    assert [part(r, shuffle=False, drop_last=True) for r in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    assert part(1) == [1, 3, 8, 4]
    assert list(DistributedSampler([1], 4, 3)) == [0]


def test_distributed_epoch_changes_the_order():
    sampler = DistributedSampler(range(50), 2, 0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first


@pytest.mark.parametrize(
    "make,error",
    [
        (lambda: RandomSampler([]), ValueError),
        (lambda: RandomSampler([1], num_samples=0), ValueError),
        (lambda: RandomSampler([1], num_samples=2.5), ValueError),
        (lambda: RandomSampler([1], replacement=1), TypeError),
        (lambda: WeightedRandomSampler([1.0], True), ValueError),
        (lambda: WeightedRandomSampler([[1.0]], 1), ValueError),
        (lambda: BatchSampler([1], 0, False), ValueError),
        (lambda: BatchSampler([1], True, False), ValueError),
        (lambda: BatchSampler([1], 2, 1), ValueError),
        (lambda: DistributedSampler([1], 3, 3), ValueError),
        (lambda: iter(Sampler()), NotImplementedError),
    ],
)
def test_refusals(make, error):
    with pytest.raises(error):
        make()
