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
    """A direction of a layer with random numbers; `forward` and `backward` on either tier."""

    def __init__(
        self, mode: str, sizes: tuple[int, ...], n: int, reverse: bool, inner: int = 24, dtype: Any = np.float32
    ) -> None:
        rng = np.random.default_rng(4)

        def normal(*shape: int) -> Any:
            return (rng.standard_normal(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 1)).astype(dtype)

        rows, first, gates = sum(sizes), sizes[0], GATES[mode] * n
        self.mode, self.name = mode, "rnn" if mode in ("tanh", "relu") else mode
        self.x, self.w_ih, self.w, self.bias, self.b_hh = (
            normal(rows, inner) * 3,
            normal(gates, inner),
            normal(gates, n),
            normal(gates),
            normal(gates),
        )
        self.x = self.x.astype(dtype)
        self.h, self.c = normal(first, n), normal(first, n)
        self.g_out, self.g_h, self.g_c = normal(rows, n), normal(first, n), normal(first, n)
        self.params: dict[str, Any] = {"sizes": sizes, "reverse": reverse} | (
            {"relu": mode == "relu"} if self.name == "rnn" else {}
        )

    def forward(self, kernels: bool, keep: bool = True, bias: bool = True) -> Any:
        states = {"lstm": [self.h, self.c], "gru": [self.b_hh if bias else None, self.h]}.get(self.name, [self.h])
        given = [self.x, self.w_ih, self.w, self.bias if bias else None, *states]
        return self._run("_layer", kernels, given, {} if self.name == "rnn" else {"keep": keep})

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
@given(st.sampled_from(list(GATES)), lengths(), *[st.integers(1, 70)] * 2, *[st.booleans()] * 4)
def test_layers(mode: str, sizes: Any, n: int, inner: int, reverse: bool, keep: bool, bias: bool, full: bool) -> None:
    case = Case(mode, sizes, n, reverse, inner)
    want = case.forward(False, True, bias)
    got = case.forward(True, keep, bias)
    if not keep and case.name != "rnn":
        kept = 2 if case.name == "gru" else 3
        assert all(a.shape[0] == 0 for a in got[kept:])
        got, want = (*got[:kept], *want[kept:]), want
    close(got, want)
    close(case.backward(True, want, full), case.backward(False, want, full), 1e-4)


@pytest.mark.parametrize("mode", list(GATES))
@pytest.mark.parametrize(("n", "inner"), [(255, 257), (257, 511), (520, 2000)])
def test_inner_dimensions_of_several_pieces(mode: str, n: int, inner: int) -> None:
    case = Case(mode, (13, 13, 11), n, False, inner)
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

    half = Case(mode, (6, 6, 4), 24, False, dtype=ml_dtypes.bfloat16)
    wide = Case(mode, (6, 6, 4), 24, False)
    for name in ("x", "w_ih", "w", "bias", "b_hh", "h", "c"):
        setattr(wide, name, getattr(half, name).astype(np.float32))
    for x, y in zip(half.forward(True), wide.forward(True), strict=True):
        np.testing.assert_array_equal(x, y.astype(ml_dtypes.bfloat16))


def test_strided_operands() -> None:
    case = Case("lstm", (5, 5), 32, False)
    want = case.forward(True)
    case.x, case.w, case.h = case.x[::-1].copy()[::-1], case.w.T.copy().T, np.repeat(case.h, 2, 1)[:, ::2]
    close(case.forward(True), want, 0.0)


def gates_at(z: Any) -> tuple[Any, ...]:
    """The outputs of an LSTM's step whose gates' arguments (4 n) are z."""
    n = z.size // 4
    zeros, one = np.zeros((1, n), np.float32), np.zeros((1, 1), np.float32)
    arrays = [one, np.zeros((4 * n, 1), np.float32), np.zeros((4 * n, n), np.float32), z, zeros, zeros]
    return _native_recurrent.RUNS["lstm_layer"](arrays, {"sizes": (1,), "reverse": False, "keep": True})


def test_nan_and_infinity_go_through() -> None:
    z = np.zeros(16, np.float32)
    z[0], z[5], z[10], z[15], z[4] = np.nan, np.inf, -np.inf, 200.0, -np.inf
    out, _, _, gates, _ = gates_at(z)
    assert np.isnan(gates[0, 0]) and gates[0, 5] == 1 and gates[0, 10] == -1 and gates[0, 15] == 1 and gates[0, 4] == 0
    assert np.isnan(out[0, 0]) and np.isfinite(out[0, 1:]).all()


def test_gates_are_accurate_everywhere() -> None:
    x = np.concatenate([np.linspace(-12, 12, 800), np.geomspace(1e-30, 20, 400), -np.geomspace(1e-30, 20, 400)]).astype(
        np.float32
    )
    i, _, g, _ = gates_at(np.tile(x, 4))[3].reshape(4, -1).astype(np.float64)
    wide = x.astype(np.float64)
    assert np.abs(i - 1 / (1 + np.exp(-wide))).max() < 2e-7 and np.abs(i).max() <= 1
    assert np.abs(g - np.tanh(wide)).max() < 4e-7 and np.abs(g / np.tanh(wide) - 1).max() < 5e-7 and np.abs(g).max() <= 1


@pytest.mark.parametrize("sizes", [(0, 0), (3, 0)])
def test_steps_without_sequences_are_left_to_numpy(sizes: Any) -> None:
    case = Case("gru", sizes, 8, False)
    assert native.prim("gru_layer", [case.x, case.w_ih, case.w, None, None, case.h], case.params | {"keep": False}) is None


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
