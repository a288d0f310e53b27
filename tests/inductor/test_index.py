"""Kernels that read and write at indices, against NumPy's indexing on random shapes, strides and types."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha.backends import _native_index as kernels
from tocha.backends import native

TYPES = [np.float32, np.float64, np.int8, np.int64, np.uint8, np.bool_, np.float16]
OPS = {"put": None, "add": np.add, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


@pytest.fixture(autouse=True)
def _every_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(native.LEAST, "index", 1)


def _array(rng: Any, shape: Any, dtype: Any, steps: int) -> Any:
    """Random values in an array that is a slice of a larger one: every `steps`-th element, backwards if negative, dimensions swapped if 3."""
    axes = list(range(len(shape)))[:: -1 if steps == 3 else 1]
    big = [shape[a] * abs(steps) for a in axes]
    x = (rng.standard_normal(big) * 50).astype(dtype)[tuple([slice(None, None, steps)] * len(shape))]
    return x.transpose(axes)


@st.composite
def _cases(draw: Any) -> Any:
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 7)) for _ in range(rank)]
    dim = draw(st.integers(0, rank - 1))
    index_shape = [draw(st.integers(1, 9)) if d == dim else draw(st.integers(1, n)) for d, n in enumerate(shape)]
    return (
        shape,
        dim,
        index_shape,
        draw(st.sampled_from(TYPES)),
        draw(st.sampled_from([1, 2, -1, 3])),
        draw(st.integers(0, 2**32)),
    )


def _grid(index: Any, dim: int) -> Any:
    grid = list(np.indices(index.shape, sparse=True))
    grid[dim] = index
    return tuple(grid)


@settings(max_examples=120)
@given(_cases())
def test_gather_and_scatter_are_numpys(case: Any) -> None:
    shape, dim, index_shape, dtype, steps, seed = case
    rng = np.random.default_rng(seed)
    x = _array(rng, shape, dtype, steps)
    index = rng.integers(-shape[dim], shape[dim], index_shape).astype(rng.choice([np.int32, np.int64]))
    got = kernels.gather([x, index], {"dim": dim})
    assert got is not None and got.dtype == x.dtype
    np.testing.assert_array_equal(got, x[_grid(index, dim)])
    values = _array(rng, index_shape, dtype, steps)
    for name, ufunc in OPS.items():
        target, want = x.copy("C"), x.copy("C")
        done = kernels.combine_along(name, target, index, dim, values)
        if ufunc is None:
            want[_grid(index, dim)] = values
        elif dtype in (np.bool_, np.float16):
            assert done is None
            continue
        else:
            with np.errstate(all="ignore"):
                ufunc.at(want, _grid(index, dim), values)
        assert done
        np.testing.assert_array_equal(target, want)


@settings(max_examples=120)
@given(st.integers(1, 4), st.integers(0, 2**32))
def test_index_tensors_of_several_dimensions(rank: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 7, rank).tolist()
    dims = tuple(np.flatnonzero(rng.random(rank) < 0.6).tolist()) or (int(rng.integers(rank)),)
    spread = rng.integers(1, 5, int(rng.integers(1, 3))).tolist()
    indices = []
    for d in dims:
        own = [1 if rng.random() < 0.3 else n for n in spread]
        indices.append(rng.integers(-shape[d], shape[d], own))
    key: list[Any] = [slice(None)] * rank
    for d, i in zip(dims, indices, strict=True):
        key[d] = i
    x = _array(rng, shape, np.float32, int(rng.choice([1, 2, -1, 3])))
    want = x[tuple(key)]
    got = kernels.index([x, *indices], {"dims": dims})
    assert got is not None
    np.testing.assert_array_equal(got, want)
    values = rng.standard_normal(want.shape).astype(np.float32)
    for name in ("put", "add"):
        target, expected = x.copy("C"), x.copy("C")
        assert kernels.combine_indexed(name, target, indices, dims, values)
        if name == "put":
            expected[tuple(key)] = values
        else:
            np.add.at(expected, tuple(key), values)
        np.testing.assert_array_equal(target, expected)


def test_indices_out_of_bounds_change_nothing() -> None:
    x, values = np.zeros((4, 5), np.float32), np.ones((4, 5), np.float32)
    for wrong in (4, -5):
        index = np.zeros((4, 5), np.int64)
        index[-1, -1] = wrong
        assert kernels.combine_along("add", x, index, 0, values) is None and not x.any()
        assert kernels.gather([x, index], {"dim": 0}) is None
        assert kernels.combine_indexed("put", x, [np.array([0, wrong])], (0,), values[:2]) is None and not x.any()


def test_memory_that_overlaps_is_left_to_numpy() -> None:
    x = np.arange(20.0).reshape(4, 5)
    assert kernels.combine_indexed("put", x, [np.array([0, 1])], (0,), x[2:]) is None


def test_rows_with_large_blocks() -> None:
    rng = np.random.default_rng(1)
    indices = rng.integers(0, 50, 3000)
    out, want = np.zeros((50, 3, 4)), np.zeros((50, 3, 4))
    rows = rng.standard_normal((3000, 3, 4))
    assert kernels.add_rows(out, indices, rows)
    np.add.at(want, indices, rows)
    np.testing.assert_array_equal(out, want)


def test_the_number_of_threads_changes_nothing() -> None:
    import tocha as torch

    rng = np.random.default_rng(2)
    index, values = rng.integers(0, 300, (400, 500)), rng.standard_normal((400, 500)).astype(np.float32)
    found = []
    before = torch.get_num_threads()
    for count in (1, 2, 4):
        torch.set_num_threads(count)
        for dim in (0, 1):
            target = np.zeros((500, 500), np.float32)
            assert kernels.combine_along("add", target, index, dim, values)
            found.append((dim, target))
    torch.set_num_threads(before)
    for dim, target in found:
        np.testing.assert_array_equal(target, found[dim][1])


def test_few_short_indices_read_many_times() -> None:
    x, index = torch.randn(300, 90), torch.tensor([5, 89, 0, 5], dtype=torch.int32)
    for dim in (0, 1):
        wanted = x.numpy().take(index.numpy(), dim)
        assert (torch.index_select(x, dim, index).numpy() == wanted).all()
        assert (torch.index_select(x.repeat(4, 4), dim, index).numpy() == x.repeat(4, 4).numpy().take(index.numpy(), dim)).all()
