"""Samples to batches."""

import collections

import numpy as np
import pytest

import tocha
from tocha.utils.data import default_collate, default_convert
from tocha.utils.data._utils.collate import collate, default_collate_fn_map

Point = collections.namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "batch,values,dtype",
    [
        ([1, 2], [1, 2], tocha.int64),
        ([1.0, 2.5], [1.0, 2.5], tocha.float64),
        ([True, False], [True, False], tocha.bool),
        ([np.float32(1), np.float32(2)], [1.0, 2.0], tocha.float32),
        ([np.int16(3)], [3], tocha.int16),
        ([np.bool_(True)], [True], tocha.bool),
        ([np.zeros(2), np.ones(2)], [[0.0, 0.0], [1.0, 1.0]], tocha.float64),
        ([np.array(1.0)], [1.0], tocha.float64),
    ],
)
def test_numbers_and_arrays(batch, values, dtype):
    out = default_collate(batch)
    assert out.tolist() == values and out.dtype == dtype


def test_tensors_are_stacked():
    out = default_collate([tocha.zeros(2, 3), tocha.ones(2, 3)])
    assert out.shape == (2, 2, 3) and out[1, 1, 2].item() == 1.0
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([tocha.zeros(1), tocha.zeros(2)])


def test_containers_keep_their_type():
    out = default_collate([{"a": [1, {"b": 2.0}], "s": "x"}, {"a": [3, {"b": 4.0}], "s": "y"}])
    assert out["a"][0].tolist() == [1, 3] and out["a"][1]["b"].tolist() == [2.0, 4.0] and out["s"] == ["x", "y"]
    pair = default_collate([Point(1, 2.0), Point(3, 4.0)])
    assert type(pair) is Point and pair.x.tolist() == [1, 3]
    assert type(default_collate([collections.OrderedDict(a=1)])) is collections.OrderedDict
    assert default_collate([collections.defaultdict(int, a=1)]).default_factory is int
    assert [t.tolist() for t in default_collate([(1, 2), (3, 4)])] == [[1, 3], [2, 4]]
    assert default_collate([b"a"]) == [b"a"]


def test_samples_are_not_changed():
    samples = [{"a": 1}, {"a": 2}]
    default_collate(samples)
    assert samples == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize("value", [object(), None, {1}, 1j, np.array("a")])
def test_other_types_are_refused_by_name(value):
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers, dicts or lists"):
        default_collate([value])


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1, 2], [1]])


def test_own_types():
    class Mine:
        def __init__(self, v):
            self.v = v

    def collate_mine(batch, *, collate_fn_map=None):
        return [m.v for m in batch]

    batch = [(Mine(1), 1), (Mine(2), 2)]
    out = collate(batch, collate_fn_map={**default_collate_fn_map, Mine: collate_mine})
    assert out[0] == [1, 2] and out[1].tolist() == [1, 2]


def test_convert():
    out = default_convert([np.zeros(2), {"a": np.float32(3)}, "s", (1, Point(np.ones(1), 2)), np.array(["t"])])
    assert out[0].dtype == tocha.float64 and out[1]["a"].item() == 3.0 and out[2] == "s"
    assert out[3][0] == 1 and out[3][1].x.tolist() == [1.0] and isinstance(out[4], np.ndarray)
