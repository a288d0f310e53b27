"""Saving from and loading to a GPU; skipped without one."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest

import tocha as torch
from tocha.backends import cuda
from tocha.storage import storage_of
from tocha.tensor import wrap

pytestmark = pytest.mark.skipif(not cuda.device_count(), reason="needs a CUDA device and CuPy")


def on_gpu(n):
    return wrap(cuda.from_host(np.arange(n, dtype=np.float32)))


def host(tensor):
    return cuda.to_host(tensor._a).tolist()


@pytest.mark.parametrize("legacy", [False, True])
def test_views_share_on_the_gpu_and_move_to_the_cpu(legacy):
    x = on_gpu(12)
    sliced, strided = wrap(x._a[2:5]), wrap(cuda.restride(x._a, (3, 2), (8, 4), 4))
    assert storage_of(sliced._a) is storage_of(strided._a) is storage_of(x._a)
    assert x.untyped_storage().nbytes() == 48
    buffer = io.BytesIO()
    torch.save([x, sliced, strided], buffer, _use_new_zipfile_serialization=not legacy)
    buffer.seek(0)
    a, b, c = torch.load(buffer)
    assert a.device == torch.device("cuda", 0) and host(c) == [[1, 2], [3, 4], [5, 6]]
    a._a[2] = 99
    assert host(b) == [99, 3, 4] and host(c) == [[1, 99], [3, 4], [5, 6]]
    buffer.seek(0)
    a, b, c = torch.load(buffer, map_location="cpu")
    assert c.device.type == "cpu" and c.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert b.untyped_storage() is a.untyped_storage()


def test_to_the_gpu_and_copies():
    buffer = io.BytesIO()
    torch.save(torch.arange(4.0), buffer)
    buffer.seek(0)
    assert host(torch.load(buffer, map_location="cuda")) == [0, 1, 2, 3]
    buffer.seek(0)
    with pytest.raises(RuntimeError, match="map_location"):
        torch.load(buffer, map_location="cuda:4000")
    x = on_gpu(4)
    a, b = copy.deepcopy([x, wrap(x._a[1:3])])
    a._a[1] = 9
    assert host(b) == [9, 2] and host(x) == [0, 1, 2, 3]
