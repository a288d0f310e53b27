"""An LSTM's layer on kernels, forward and backward, against the same primitives on NumPy."""

from typing import Any

import numpy as np
import pytest

from tocha.backends import cpu, native
from tocha.dispatch.prim import REGISTRY


def _layer(kernels: bool, monkeypatch: pytest.MonkeyPatch, sizes: Any, reverse: bool, bias: bool, n: int) -> tuple[Any, ...]:
    monkeypatch.setitem(native.LEAST, "row", 1 if kernels else 1 << 60)
    rng = np.random.default_rng(4)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    rows = sum(sizes)
    gx, w, h0, c0 = normal(rows, 4 * n), normal(4 * n, n) / 4, normal(sizes[0], n), normal(sizes[0], n)
    b = normal(4 * n) if bias else None
    g_out, g_h, g_c = normal(rows, n), normal(sizes[0], n), None
    params = {"sizes": sizes, "reverse": reverse}
    given = [None if a is None else a.copy() for a in (gx, h0, c0)]
    found = REGISTRY["lstm_layer"].impl(cpu, gx, w, b, h0, c0, **params)
    back = REGISTRY["lstm_layer_backward"].impl(cpu, g_out, g_h, g_c, w, h0, c0, found[0], found[3], found[4], **params)
    for before, after in zip(given, (gx, h0, c0), strict=True):
        np.testing.assert_array_equal(before, after)  # operands are left alone
    return (*found, *back)


@pytest.mark.parametrize("sizes", [(5, 5, 5), (7, 4, 4, 1), (1,), (33, 32)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("bias", "n"), [(True, 16), (False, 16), (True, 19), (True, 200)])
def test_layers(monkeypatch: pytest.MonkeyPatch, sizes: Any, reverse: bool, bias: bool, n: int) -> None:
    got = _layer(True, monkeypatch, sizes, reverse, bias, n)
    want = _layer(False, monkeypatch, sizes, reverse, bias, n)
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


def test_nan_and_infinity_go_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(native.LEAST, "row", 1)
    gx = np.zeros((1, 16), np.float32)
    gx[0, 0], gx[0, 5], gx[0, 10], gx[0, 15] = np.nan, np.inf, -np.inf, 200.0
    zeros = np.zeros((1, 4), np.float32)
    with np.errstate(all="ignore"):
        out, _, _, gates, _ = REGISTRY["lstm_layer"].impl(
            cpu, gx, np.zeros((16, 4), np.float32), None, zeros, zeros + 1, sizes=(1,), reverse=False
        )
    assert np.isnan(gates[0, 0]) and gates[0, 5] == 1 and gates[0, 10] == -1 and gates[0, 15] == 1
    assert np.isnan(out[0, 0]) and np.isfinite(out[0, 1:]).all()
