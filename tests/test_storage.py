"""Storages: sharing, bounds, conversions, files."""

from __future__ import annotations

import copy
import pickle

import pytest

import tocha as torch
from tocha.storage import storage_of, view_bytes


def test_views_share_one_storage_object():
    x = torch.arange(12.0)
    assert x.view(3, 4).untyped_storage() is x.untyped_storage()
    assert x[5:].untyped_storage().data_ptr() == x.data_ptr()
    assert x.clone().untyped_storage().data_ptr() != x.data_ptr()
    assert x.untyped_storage().nbytes() == 48


def test_storage_of_a_transposed_result_is_dense():
    x = torch.arange(6).view(2, 3).t().clone(memory_format=torch.preserve_format)
    assert x.storage().tolist() == [0, 1, 2, 3, 4, 5]


def test_writing_through_a_storage_reaches_the_tensor():
    x = torch.zeros(3, dtype=torch.int16)
    x.untyped_storage()[2] = 7
    assert x.tolist() == [0, 7, 0]
    x.storage()[0] = 5
    assert x.tolist() == [5, 7, 0]
    x.untyped_storage().fill_(0)
    assert x.tolist() == [0, 0, 0]


def test_slices_share_and_clone_does_not():
    s = torch.UntypedStorage([1, 2, 3, 4])
    part = s[1:3]
    part[0] = 9
    assert s.tolist() == [1, 9, 3, 4]
    s.clone()[0] = 0
    assert s[0] == 1 and s[-1] == 4
    with pytest.raises(IndexError):
        s[4]
    with pytest.raises(RuntimeError, match="step"):
        s[::2]


@pytest.mark.parametrize(
    "offset, size, stride, message",
    [
        (0, (13,), (1,), "out of bounds for storage of size 48"),
        (11, (2,), (1,), "out of bounds"),
        (0, (2, 2), (11, 1), "out of bounds"),
        (-1, (1,), (1,), "must not be negative"),
        (0, (-1,), (1,), "must not be negative"),
        (5, (2,), (-1,), "must not be negative"),
        (0, (2,), (1, 1), "mismatch in length"),
        (0, (2**61,), (1,), "out of bounds"),
        (0, (1,) * 65, (0,) * 65, "setStorage"),
        (0, (2**40, 2**40), (0, 0), "setStorage"),
    ],
)
def test_view_bytes_refuses_what_lies_outside(offset, size, stride, message):
    storage = torch.arange(12.0).untyped_storage()
    with pytest.raises(RuntimeError, match=message):
        view_bytes(storage, torch.float32, offset, size, stride)


def test_view_bytes_accepts_what_touches_the_end():
    storage = torch.arange(12.0).untyped_storage()
    assert view_bytes(storage, torch.float32, 3, (3, 3), (3, 1)).tolist() == [
        [3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
    ]
    assert view_bytes(storage, torch.float32, 12, (0, 4), (4, 1)).shape == (0, 4)
    assert view_bytes(storage, torch.float32, 11, (2**50,), (0,)).shape == (2**50,)


def test_a_tensor_made_on_a_storage_keeps_it():
    storage = torch.UntypedStorage(16)
    array = view_bytes(storage, torch.int32, 1, (3,), (1,))
    assert storage_of(array) is storage


def test_resize_keeps_leading_bytes_and_refuses_under_tensors():
    s = torch.UntypedStorage([1, 2, 3])
    s.resize_(5)
    assert len(s) == 5 and s.tolist()[:3] == [1, 2, 3]
    x = torch.zeros(4)
    assert len(x.untyped_storage().resize_(16)) == 16
    with pytest.raises(RuntimeError, match="a tensor uses this storage"):
        x.untyped_storage().resize_(0)


def test_typed_storage():
    s = torch.FloatStorage([1, 2.5])
    assert isinstance(s, torch.FloatStorage) and not isinstance(s, torch.LongStorage)
    assert s.tolist() == [1.0, 2.5] and s.dtype is torch.float32 and s.element_size() == 4 and s.nbytes() == 8
    assert s.double().dtype is torch.float64 and s.long().tolist() == [1, 2]
    assert s.type() == "torch.FloatStorage" and s.pickle_storage_type() == "FloatStorage"
    assert len(torch.DoubleStorage(3)) == 3
    with pytest.raises(RuntimeError, match="slices are only supported"):
        s[0:1]
    with pytest.raises(TypeError, match="UntypedStorage"):
        torch.TypedStorage(wrap_storage=s, dtype=torch.float32)


def test_copy_checks_lengths():
    s = torch.UntypedStorage([1, 2])
    s.copy_(torch.UntypedStorage([3, 4]))
    assert s.tolist() == [3, 4]
    with pytest.raises(RuntimeError, match="2 and 3 bytes"):
        s.copy_(torch.UntypedStorage(3))


def test_meta_storage_has_a_size_and_no_data():
    s = torch.UntypedStorage(1 << 50, device="meta")
    assert s.nbytes() == 1 << 50 and s.device.type == "meta" and s.data_ptr() == 0


def test_from_file(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(bytes(range(8)))
    private = torch.UntypedStorage.from_file(path, shared=False, nbytes=8)
    private[0] = 9
    assert path.read_bytes()[0] == 0
    shared = torch.UntypedStorage.from_file(path, shared=True, nbytes=12)
    shared[0] = 9
    assert path.read_bytes() == bytes([9, *range(1, 8), 0, 0, 0, 0]) and shared.is_shared()
    with pytest.raises(RuntimeError, match="12 bytes, 99 were asked"):
        torch.UntypedStorage.from_file(path, nbytes=99)
    assert torch.ShortStorage.from_file(str(path), size=2).tolist() == [265, 770]


def test_copies_and_pickles():
    x = torch.arange(3.0)
    a, b = copy.deepcopy([x.untyped_storage(), x.storage()])
    assert b.untyped() is a and a is not x.untyped_storage() and b.tolist() == [0, 1, 2]
    assert pickle.loads(pickle.dumps(x.storage())).tolist() == [0.0, 1.0, 2.0]
    assert copy.copy(a).tolist() == a.tolist()
