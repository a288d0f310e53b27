"""Tensors over other objects' memory."""

import numpy as np
import pytest

import tocha


def test_frombuffer_shares_memory():
    memory = bytearray(range(12))
    x = tocha.frombuffer(memory, dtype=tocha.int32)
    assert x.tolist() == [50462976, 117835012, 185207048]
    x[0] = 1
    assert memory[:4] == b"\x01\0\0\0"
    assert tocha.frombuffer(memory, dtype=tocha.uint8, count=2, offset=8).tolist() == [8, 9]
    assert tocha.frombuffer(memory, dtype=tocha.float32, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    "options",
    [{"offset": 2}, {"count": 4}, {"offset": 12}, {"offset": -1}, {"count": 0}],
)
def test_frombuffer_refuses_what_does_not_fit(options):
    with pytest.raises(ValueError):
        tocha.frombuffer(bytearray(12), dtype=tocha.int32, **options)


def test_frombuffer_of_other_objects():
    with pytest.raises(ValueError, match="buffer protocol"):
        tocha.frombuffer(3, dtype=tocha.uint8)
    with pytest.raises(RuntimeError, match="contiguous"):
        tocha.frombuffer(memoryview(bytearray(8))[::2], dtype=tocha.uint8)
    with pytest.warns(UserWarning, match="not writable"):
        x = tocha.frombuffer(b"abc", dtype=tocha.uint8)
    assert x.tolist() == [97, 98, 99]


def test_the_array_interface_shares_memory_both_ways() -> None:
    x = tocha.arange(6.0).reshape(2, 3).t()
    interface = x.__array_interface__
    assert interface["shape"] == (3, 2)
    view = np.asarray(x)
    view[0, 1] = 50
    assert x[0, 1].item() == 50

    class Exporter:
        __array_interface__ = view.__array_interface__
        owner = view

    shared = tocha.as_tensor(Exporter())
    shared[2, 0] = -1
    assert x[2, 0].item() == -1
    with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
        np.asarray(tocha.ones(2, requires_grad=True))
    kept = np.asarray(tocha.full((100,), 3.0))  # its tensor is gone
    assert kept.sum() == 300
