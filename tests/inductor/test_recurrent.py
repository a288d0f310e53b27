"""Recurrent layers on kernels, forward and backward, against the same primitives on NumPy."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha.backends import _native_recurrent, cpu, native
from tocha.dispatch.prim import REGISTRY

GATES = {"lstm": 4, "gru": 3, "tanh": 1, "relu": 1}


class Case:
    """A direction of a layer with random numbers; `run(forward)` and `run(backward)` on either tier."""

    def __init__(self, mode: str, sizes: tuple[int, ...], n: int, reverse: bool, dtype: Any = np.float32, seed: int = 4) -> None:
        rng = np.random.default_rng(seed)

        def normal(*shape: int) -> Any:
            return rng.standard_normal(shape).astype(dtype)

        rows, first, gates = sum(sizes), sizes[0], GATES[mode]
        self.mode, self.name, self.gx, self.w = (
            mode,
            "rnn" if mode in ("tanh", "relu") else mode,
            normal(rows, gates * n),
            normal(gates * n, n),
        )
        self.w = (self.w / np.sqrt(n)).astype(dtype)
        self.bias, self.h, self.c = normal(gates * n), normal(first, n), normal(first, n)
        self.g_out, self.g_h, self.g_c = normal(rows, n), normal(first, n), normal(first, n)
        self.params: dict[str, Any] = {"sizes": sizes, "reverse": reverse} | (
            {"relu": mode == "relu"} if self.name == "rnn" else {}
        )

    def forward(self, kernels: bool, keep: bool = True, bias: bool = True) -> Any:
        states = {"lstm": [self.h, self.c], "gru": [self.bias if bias else None, self.h]}.get(self.name, [self.h])
        return self._run("_layer", kernels, [self.gx, self.w, *states], {} if self.name == "rnn" else {"keep": keep})

    def backward(self, kernels: bool, found: Any, full: bool = True) -> Any:
        g_out, g_c = (self.g_out, self.g_c) if full else (None, None)
        if self.name == "lstm":
            arrays = [found[3], g_out, self.g_h, g_c, self.w, self.c, found[4]]
        elif self.name == "gru":
            arrays = [found[2], g_out, self.g_h, self.w, self.h, found[0], found[3]]
        else:
            arrays = [found[0], g_out, self.g_h, self.w, self.h]
        return self._run("_layer_backward", kernels, arrays, {})

    def _run(self, part: str, kernels: bool, arrays: list[Any], extra: dict[str, Any]) -> Any:
        name, params, before = self.name + part, self.params | extra, [None if a is None else a.copy() for a in arrays]
        with np.errstate(all="ignore"):
            found = native.prim(name, arrays, params) if kernels else REGISTRY[name].impl(cpu, *arrays, **params)
        assert found is not None
        for x, y in zip(arrays, before, strict=True):
            assert x is None or np.array_equal(x, y, equal_nan=x.dtype != torch.bfloat16)  # operands are left alone
        return found


def close(got: Any, want: Any, tolerance: float = 3e-5) -> None:
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_allclose(x.astype(np.float32), y.astype(np.float32), rtol=tolerance, atol=tolerance)


@st.composite
def lengths(draw: Any) -> tuple[int, ...]:
    """Numbers of sequences that reach each step."""
    if draw(st.booleans()):
        return (draw(st.integers(1, 60)),) * draw(st.integers(1, 5))
    return tuple(sorted(draw(st.lists(st.integers(1, 60), min_size=1, max_size=5)), reverse=True))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(GATES)), lengths(), st.integers(1, 70), st.booleans(), st.booleans(), st.booleans())
def test_layers(mode: str, sizes: Any, n: int, reverse: bool, keep: bool, full: bool) -> None:
    case = Case(mode, sizes, n, reverse)
    want = case.forward(False)
    got = case.forward(True, keep, True)
    if not keep and case.name != "rnn":
        kept = 2 if case.name == "gru" else 3
        assert all(a.shape[0] == 0 for a in got[kept:])
        got, want = (*got[:kept], *want[kept:]), want
    close(got, want)
    close(case.backward(True, want, full), case.backward(False, want, full), 1e-4)


@pytest.mark.parametrize("mode", list(GATES))
@pytest.mark.parametrize("n", [255, 257, 520])
def test_inner_dimensions_of_several_pieces(mode: str, n: int) -> None:
    case = Case(mode, (13, 13, 5), n, False)
    want = case.forward(False)
    close(case.forward(True), want)
    close(case.backward(True, want), case.backward(False, want), 1e-4)


@pytest.mark.parametrize("mode", list(GATES))
def test_many_sequences(mode: str) -> None:
    """More rows than a unit of work has, and than are multiplied together."""
    case = Case(mode, (211, 150, 3), 40, True)
    want = case.forward(False)
    close(case.forward(True, bias=True), want)
    close(case.backward(True, want), case.backward(False, want), 1e-4)


@pytest.mark.parametrize("mode", list(GATES))
def test_bits_do_not_depend_on_threads(mode: str) -> None:
    case, threads = Case(mode, (37, 37, 20, 20), 130, False), torch.get_num_threads()
    found = []
    try:
        for number in (1, 2, 3):
            torch.set_num_threads(number)
            forward = case.forward(True)
            found.append((*forward, *case.backward(True, forward)))
    finally:
        torch.set_num_threads(threads)
    for other in found[1:]:
        for x, y in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("mode", list(GATES))
def test_half_types_are_computed_in_float32_and_rounded_once(mode: str) -> None:
    import ml_dtypes

    half = Case(mode, (6, 6, 4), 24, False, ml_dtypes.bfloat16)
    wide = Case(mode, (6, 6, 4), 24, False)
    for name in ("gx", "w", "bias", "h", "c"):
        setattr(wide, name, getattr(half, name).astype(np.float32))
    for x, y in zip(half.forward(True), wide.forward(True), strict=True):
        np.testing.assert_array_equal(x, y.astype(ml_dtypes.bfloat16))


def test_strided_operands() -> None:
    case = Case("lstm", (5, 5), 32, False)
    want = case.forward(True)
    case.gx, case.w, case.h = case.gx[::-1].copy()[::-1], case.w.T.copy().T, np.repeat(case.h, 2, 1)[:, ::2]
    close(case.forward(True), want, 0.0)


def test_nan_and_infinity_go_through() -> None:
    gx = np.zeros((1, 16), np.float32)
    gx[0, 0], gx[0, 5], gx[0, 10], gx[0, 15], gx[0, 4] = np.nan, np.inf, -np.inf, 200.0, -np.inf
    zeros, w = np.zeros((1, 4), np.float32), np.zeros((16, 4), np.float32)
    out, _, _, gates, _ = _native_recurrent.RUNS["lstm_layer"](
        [gx, w, zeros, zeros + 1], {"sizes": (1,), "reverse": False, "keep": True}
    )
    assert np.isnan(gates[0, 0]) and gates[0, 5] == 1 and gates[0, 10] == -1 and gates[0, 15] == 1 and gates[0, 4] == 0
    assert np.isnan(out[0, 0]) and np.isfinite(out[0, 1:]).all()


def test_gates_are_accurate_everywhere() -> None:
    x = np.concatenate([np.linspace(-12, 12, 800), np.geomspace(1e-30, 20, 400), -np.geomspace(1e-30, 20, 400)]).astype(np.float32)
    zeros, w = np.zeros((1, x.size), np.float32), np.zeros((4 * x.size, x.size), np.float32)
    gates = native.prim("lstm_layer", [np.tile(x, 4)[None], w, zeros, zeros], {"sizes": (1,), "reverse": False, "keep": True})[3]
    i, _, g, _ = gates.reshape(4, -1).astype(np.float64)
    wide = x.astype(np.float64)
    assert np.abs(i - 1 / (1 + np.exp(-wide))).max() < 2e-7 and np.abs(i).max() <= 1
    assert np.abs(g - np.tanh(wide)).max() < 4e-7 and np.abs(g / np.tanh(wide) - 1).max() < 5e-7 and np.abs(g).max() <= 1


@pytest.mark.parametrize("sizes", [(0, 0), (3, 0)])
def test_steps_without_sequences_are_left_to_numpy(sizes: Any) -> None:
    case = Case("gru", sizes, 8, False)
    assert native.prim("gru_layer", [case.gx, case.w, None, case.h], case.params | {"keep": False}) is None


def test_a_layer_uses_the_kernel_and_keeps_nothing_without_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, run = [], _native_recurrent.RUNS["lstm_layer"]

    def watched(arrays: Any, params: Any) -> Any:
        found = run(arrays, params)
        kept.append((params["keep"], found[3].shape[0]))
        return found

    monkeypatch.setitem(native.runs(), "lstm_layer", watched)
    layer, x = torch.nn.LSTM(8, 32), torch.randn(5, 4, 8)
    layer(x)
    with torch.no_grad():
        layer(x)
    assert kept == [(True, 20), (False, 0)]
