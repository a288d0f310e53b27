"""Sums on the CPU: values, and that infinities and NaN stay in the row or column they are in."""

import numpy as np
import pytest

from tocha.backends.cpu import total


@pytest.mark.parametrize("shape", [(8, 10), (10,), (1, 1), (40, 30), (3, 600), (0, 4), (4, 0), (2, 3, 4), ()])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.complex64])
def test_any_axis(shape, dtype):
    x = (np.arange(np.prod(shape)).reshape(shape) % 7 - 3).astype(dtype)
    for axis in range(len(shape)):
        for keepdim in (False, True):
            for view in (x, np.asfortranarray(x), x[::-1]):
                got = np.asarray(total(view, (axis,), keepdim))
                want = view.sum(axis, keepdims=keepdim, dtype=dtype)
                assert got.shape == want.shape and got.dtype == want.dtype
                np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("size", [6, 60])
def test_what_is_not_finite_stays_in_its_row_and_column(size):
    x = np.ones((size, size), np.float32)
    x[1, 2], x[2, 3] = np.nan, -np.inf
    rows, columns = total(x, (1,), False), total(x, (0,), False)
    assert np.isnan(rows[1]) and rows[2] == -np.inf and (np.delete(rows, [1, 2]) == size).all()
    assert np.isnan(columns[2]) and columns[3] == -np.inf and (np.delete(columns, [2, 3]) == size).all()
