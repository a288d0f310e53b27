"""Tensors in `pickle`, `copy` and subclasses."""

from __future__ import annotations

import copy
import io
import pickle
import zipfile

import numpy as np
import pytest

import tocha as torch
from tocha.serialization.rebuild import geometry


@pytest.mark.parametrize("protocol", range(2, 6))
def test_plain_pickles_do_not_need_torch(protocol):
    x = torch.arange(6.0).view(2, 3)
    x.note = "n"
    p = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    items = [x, x.t(), p, torch.bfloat16, torch.device("cuda", 1), torch.Size([2]), torch.strided,
             torch.ones(2, device="meta"), torch.contiguous_format]  # fmt: skip
    data = pickle.dumps(items, protocol)
    assert b"ctorch" not in data
    y, turned, q, kind, where, size, layout, meta, order = pickle.loads(data)
    assert y.tolist() == x.tolist() and y.note == "n" and turned.stride() == (1, 3)
    assert type(q) is torch.nn.Parameter and not q.requires_grad and q.tolist() == [1, 1]
    assert kind is torch.bfloat16 and where == torch.device("cuda:1") and layout is torch.strided
    assert size == (2,) and type(size) is torch.Size and order is torch.contiguous_format
    assert meta.device.type == "meta" and meta.shape == (2,)


def test_generators_pickle_and_copy():
    generator = torch.Generator().manual_seed(3)
    torch.rand(2, generator=generator)
    twin, other = pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator)
    expected = torch.rand(2, generator=generator).tolist()
    assert torch.rand(2, generator=twin).tolist() == torch.rand(2, generator=other).tolist() == expected


def test_deepcopy_keeps_sharing_grad_and_attributes():
    x = torch.arange(4.0, requires_grad=True)
    x.grad, x.note = torch.ones(4), [1]
    y = copy.deepcopy(x)
    assert y.requires_grad and y.is_leaf and y.grad.tolist() == [1] * 4 and y.grad is not x.grad
    assert y.note == [1] and y.note is not x.note
    base = torch.arange(4.0)
    a, b, again = copy.deepcopy([base, base[1:3], base])
    a[1] = 9
    assert b.tolist() == [9, 2] and b.storage_offset() == 1 and again is a and base[1] == 1


def test_deepcopy_of_a_non_leaf_is_an_error():
    x = torch.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="graph leaves"):
        copy.deepcopy(x)


def test_copy_copy_shares_memory():
    x = torch.ones(2)
    x.note = 1
    y = copy.copy(x)
    assert y is not x and y.note == 1 and y.data_ptr() == x.data_ptr()


class Tagged(torch.Tensor):
    pass


def test_subclasses_keep_class_and_attributes():
    x = torch.ones(2).as_subclass(Tagged)
    x.tag = 5
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert type(y) is Tagged and y.tag == 5 and y.tolist() == [1, 1]
    buffer = io.BytesIO()
    torch.save(x, buffer)
    buffer.seek(0)
    y = torch.load(buffer, weights_only=False)
    assert type(y) is Tagged and y.tag == 5
    buffer.seek(0)
    with pytest.raises(pickle.UnpicklingError, match="Tagged"):
        torch.load(buffer)
    buffer.seek(0)
    with torch.serialization.safe_globals([Tagged]):
        assert type(torch.load(buffer)) is Tagged


def test_arrays_that_torch_cannot_describe_are_copied():
    class View:
        """A tensor over a reversed and over a misaligned array."""

        def __init__(self, array):
            self._a = array

    backwards = View(np.arange(4.0)[::-1])
    storage, offset, size, stride = geometry(backwards)
    assert (offset, size, stride) == (0, (4,), (1,)) and storage.nbytes() == 32
    record = np.zeros(3, np.dtype([("a", "u1"), ("b", "<f4")]))["b"]
    storage, offset, size, stride = geometry(View(record))
    assert (offset, size, stride) == (0, (3,), (1,))


def test_files_have_the_marks_that_are_set_alone():
    # torch takes a mark that is in a file for set, whatever its value.
    for tensor, mark in ((torch.tensor([1j]).conj(), "conj"), (torch.tensor([1j]).conj().imag, "neg")):
        file = io.BytesIO()
        torch.save(tensor, file)
        record = zipfile.ZipFile(file).read("archive/data.pkl")
        assert [word for word in ("conj", "neg") if word.encode() in record] == [mark]
