"""Memory shared with NumPy and DLPack; NumPy's functions and arrays beside tensors."""

import array

import numpy as np
import pytest

import tocha as torch

X = torch.tensor([1.0, 2.0, 3.0])


def test_numpy_shares_memory_both_ways():
    a = np.arange(6.0)
    x = torch.from_numpy(a)
    a[0], x[1] = 9, 8
    b = x.numpy()
    b[2] = 7
    assert x.tolist() == a.tolist() == [9, 8, 7, 3, 4, 5]
    assert x.view(2, 3).t().numpy().strides == (8, 24)


def test_dlpack_shares_memory_both_ways():
    a = np.arange(6.0).reshape(2, 3).T
    x = torch.from_dlpack(a)
    x[0, 0] = 5
    assert a[0, 0] == 5
    assert np.shares_memory(np.from_dlpack(X), X.numpy())
    y = torch.arange(6.0).view(2, 3).t()
    again = torch.from_dlpack(torch.to_dlpack(y))
    assert again.data_ptr() == y.data_ptr() and again.stride() == (1, 3)
    again[1, 0] = 40  # a capsule's memory may be written to
    assert y[1, 0] == 40
    with pytest.raises(BufferError):
        np.from_dlpack(torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("a", [np.arange(3)[::-1], np.zeros(2, ">i4")])
def test_arrays_that_are_refused(a):
    with pytest.raises(ValueError, match=r"negative|byte order"):
        torch.from_numpy(a)
    with pytest.raises(TypeError, match="only supported types"):
        torch.from_numpy(np.zeros(2, "U1"))


def test_numpy_refuses_what_it_cant_hold():
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.ones(1, requires_grad=True).numpy()
    with pytest.raises(TypeError, match="bfloat16"):
        X.bfloat16().numpy()
    assert torch.ones(1, requires_grad=True).numpy(force=True).tolist() == [1]


def test_numpy_functions_return_tensors():
    assert isinstance(np.sin(X), torch.Tensor)
    assert np.add(X, 1).tolist() == [2, 3, 4]
    assert np.greater(X, 2).dtype is torch.uint8
    assert isinstance(np.concatenate([X, X]), np.ndarray)


def test_arrays_and_numpy_scalars_in_arithmetic():
    assert (X + np.ones(3)).dtype is torch.float64
    assert (np.float64(2) * X).dtype is torch.float32
    assert (X / np.int64(2)).tolist() == [0.5, 1, 1.5]
    assert (np.array([1, 2]) / torch.tensor([1, 2])).dtype is torch.float64
    assert (np.array([1.0, 0.0, 3.0]) == X).tolist() == [True, False, True]
    assert (np.array([5.0, 5.0, 5.0]) - X).tolist() == [4, 3, 2]


def test_tensors_as_python_numbers():
    assert float(torch.tensor(2)) == 2
    assert [10, 20, 30][torch.tensor(1)] == 20
    assert list(range(torch.tensor(2))) == [0, 1]
    assert [int(v) for v in reversed(torch.tensor([1, 2]))] == [2, 1]
    with pytest.raises(ValueError, match="only one element"):
        float(X)


def test_asarray_reads_buffers_as_torch_does():
    data = bytearray(b"abcd")
    x = torch.asarray(data, dtype=torch.uint8)
    x[0] = 1
    assert data[0] == 1 and x.tolist() == [1, 98, 99, 100]
    copy = torch.asarray(data, dtype=torch.uint8, copy=True)
    copy[0] = 7
    assert data[0] == 1
    assert torch.asarray(data, dtype=torch.int16).tolist() == [1 + 98 * 256, 99 + 100 * 256]
    assert torch.asarray(array.array("d", [1, 2]), dtype=torch.float64).tolist() == [1, 2]
    assert torch.asarray(bytearray(8)).dtype is torch.float32
    with pytest.raises(ValueError, match="multiple"):
        torch.asarray(b"abc", dtype=torch.int16)
    with pytest.raises(TypeError):
        torch.as_tensor(b"abcd")


def test_dlpack_refuses_in_torchs_types():
    capsule = torch.to_dlpack(torch.ones(2))
    torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="invalid capsule"):
        torch.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="expected a DLPack capsule"):
        torch.from_dlpack(3)
    nowhere = torch.ones(2, device="meta")
    with pytest.raises(BufferError, match="meta"):
        nowhere.__dlpack__()
    with pytest.raises(ValueError, match="meta"):
        nowhere.__dlpack_device__()
