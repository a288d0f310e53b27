"""Conversions to and from float8 as kernels: every byte, and floats of every kind, as the table of the format has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha.backends import _native_prims, cpu
from tocha.inductor import float8

TYPES = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
FLOAT32 = np.dtype(np.float32)


def converted(x: Any, dtype: Any) -> Any:
    found = _native_prims._cast([x], {"dtype": dtype})
    assert found is not None
    return found


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_every_byte_is_the_number_it_stands_for(type: Any) -> None:
    codes = np.tile(np.arange(256, dtype=np.uint8), 1024).view(type.np)
    for target in (FLOAT32, np.dtype(np.float64), torch.bfloat16.np):
        got, expected = converted(codes, target), codes.astype(np.float32).astype(target)
        np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    exact = codes.astype(np.float32)
    signs = np.signbit(converted(codes, FLOAT32)) == np.signbit(exact)
    assert (signs | np.isnan(exact)).all()


@pytest.mark.parametrize("type", TYPES, ids=str)
def test_floats_become_the_nearest_number(type: Any) -> None:
    rng = np.random.default_rng(0)
    bits = [rng.integers(0, 1 << 32, 1 << 17), rng.integers(0x3A000000, 0x47800000, 1 << 17), rng.integers(0, 1 << 16, 1 << 15) << 16,
            np.arange(0, 1 << 24, 257), [0x7F800000, 0xFF800000, 0x7FC00000, 0, 1 << 31, 0x00400000, 0x00400001]]  # fmt: skip
    x = np.concatenate(bits).astype(np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        expected = cpu.cast(x, type.np)
    got = converted(x, type.np)
    plain = ~np.isnan(x)
    np.testing.assert_array_equal(got.view(np.uint8)[plain], expected.view(np.uint8)[plain])
    assert np.isnan(got[~plain].astype(np.float32)).all()


def test_what_is_known_of_the_formats() -> None:
    x = torch.tensor([448.0, 464.0, 1e9, float("inf"), 2.0**-10, 3 * 2.0**-10, -0.0, float("nan")]).repeat(1 << 15)
    table = {
        torch.float8_e4m3fn: [0x7E, 0x7E, 0x7E, 0x7E, 0x00, 0x02, 0x80, 0x7F], torch.float8_e5m2: [0x5F, 0x5F, 0x7C, 0x7C, 0x14, 0x1A, 0x80, 0x7F],
        torch.float8_e4m3fnuz: [0x80, 0x80, 0x80, 0x80, 0x01, 0x03, 0x00, 0x80],
        torch.float8_e5m2fnuz: [0x63, 0x63, 0x80, 0x80, 0x18, 0x1E, 0x00, 0x80],
        torch.float8_e8m0fnu: [0x88, 0x88, 0x9D, 0xFF, 0x75, 0x77, 0x00, 0xFF],
    }  # fmt: skip
    for type, codes in table.items():
        assert x.to(type).view(torch.uint8)[-8:].tolist() == codes
        assert x.bfloat16().to(type).view(torch.uint8)[-8:].tolist()[3:] == codes[3:]


def test_strided_and_empty_ones() -> None:
    x = torch.arange(1 << 18, dtype=torch.float32).view(512, 512) / 1024
    for view in (x.t(), x[::2, 1::3], x[:, :0], x.flip(0)):
        got = view.to(torch.float8_e5m2)
        assert torch.equal(got.float(), view.contiguous().to(torch.float8_e5m2).float())
        assert torch.equal(got.t().to(torch.float32), got.float().t())
    assert set(float8.FORMATS) == {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"}
