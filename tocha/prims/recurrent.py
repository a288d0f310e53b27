"""One direction of one recurrent layer over all its steps: LSTM, GRU and Elman network, each with one fused
gradient.

`x` (Σ sizes, I) holds the inputs of the steps one after the other, `sizes` the number of sequences that
reach each step, never increasing. A state row outside a step's size keeps its
value, which is what finished sequences need going forward and ones that have not begun need going backward
in time. `bias` is added to the products of inputs and states together, but the GRU has one for each, since its reset
gate multiplies the states'.

A sigmoid is computed as (1 + tanh(x/2))/2, with the factor 1/2 put into weights and inputs beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import prim
from tocha.prims.contract import linear, mm, recording

Sizes = tuple[int, ...]


def _spans(sizes: Sizes, reverse: bool) -> list[tuple[int, int]]:
    """(first row, number of rows) of each step in the order of the computation."""
    spans, start = [], 0
    for n in sizes:
        spans.append((start, n))
        start += n
    return spans[::-1] if reverse else spans


def _previous(join: Any, states: Any, initial: Any, sizes: Sizes, reverse: bool) -> Any:
    """The state before each step, laid out as `states`, the states after each, by `join(parts)`; arrays or tensors."""
    first = sizes[0]
    if sizes[-1] == first:
        rows = first * (len(sizes) - 1)
        return join([states[first:], initial] if reverse else [initial, states[:rows]])
    spans = _spans(sizes, False)
    parts = []
    for t, n in enumerate(sizes):
        before = t + 1 if reverse else t - 1
        if not 0 <= before < len(sizes):
            parts.append(initial[:n])
            continue
        start, size = spans[before]
        parts.append(states[start : start + min(n, size)])
        if size < n:
            parts.append(initial[size:n])
    return join(parts)


def _of_weight(d: Any, out: Any, h0: Any, sizes: Sizes, reverse: bool) -> Any:
    """The recurrent weight's gradient, from that of its products with the states."""
    from tocha.ops.shape import cat

    return mm(d, _previous(cat, out.detach(), h0, sizes, reverse), ta=True, tb=False)


def _formula(mode: str, g: Sequence[Any], inputs: Sequence[Any], needs: Any, sizes: Sizes, reverse: bool) -> list[Any]:
    """The gradients from ordinary operators, so that they can be differentiated again. `inputs`: the primitive's."""
    from tocha.autograd.engine import grad
    from tocha.ops.rnn import run_steps

    x, w_ih, w_hh, bias, *state = inputs
    b_hh = state.pop(0) if mode == "GRU" else None
    results = run_steps(mode, linear(x, w_ih, bias), tuple(state), sizes, reverse, (w_hh, b_hh, None))
    used = [(out, of_out) for out, of_out in zip(results, g) if of_out is not None]
    wanted = [i for i, need in enumerate(needs) if need]
    outs, of_outs = zip(*used)
    found = dict(zip(wanted, grad(outs, [inputs[i] for i in wanted], of_outs, create_graph=True, allow_unused=True)))
    return [found.get(i) for i in range(len(inputs))]


def _of_inputs(d: Any, x: Any, w_ih: Any, needs: Any) -> list[Any]:
    """The gradients of the inputs and their weight, from that of their products."""
    return [mm(d, w_ih, ta=False, tb=False) if needs[0] else None, mm(d, x, ta=True, tb=False) if needs[1] else None]


def _projected(xp: Any, x: Any, w_ih: Any, bias: Any) -> Any:
    """The inputs of all steps through their weight, in memory that may be written."""
    return linear.impl(xp, x, w_ih, bias)


def _start(xp: Any, gradient: Any, like: Any) -> Any:
    """A writable gradient of the final state."""
    return xp.zeros(like.shape, like.dtype) if gradient is None else gradient.copy("C")


# ---- LSTM


def _lstm_infer(
    x: Any, w_ih: Any, w_hh: Any, bias: Any, h0: Any, c0: Any, *, sizes: Any, reverse: Any, keep: Any
) -> list[MetaArray]:
    rows, n, state = x.shape[0], w_hh.shape[1], MetaArray(h0.shape, x.dtype)
    kept = [MetaArray((rows if keep else 0, columns), x.dtype) for columns in w_hh.shape]
    return [MetaArray((rows, n), x.dtype), state, state, *kept]


def _lstm_vjp(
    g: Any, x: Any, w_ih: Any, w_hh: Any, bias: Any, h0: Any, c0: Any, out: Any, gates: Any, cells: Any,
    *, sizes: Any, reverse: Any, needs: Any,
) -> Any:  # fmt: skip
    if recording(*g[:3], x, w_ih, w_hh, bias, h0, c0):
        return _formula("LSTM", g, (x, w_ih, w_hh, bias, h0, c0), needs, sizes, reverse)
    span = {"sizes": sizes, "reverse": reverse}
    d, of_h, of_c = lstm_layer_backward(gates.detach(), g[0], g[1], g[2], w_hh, c0, cells.detach(), **span)
    of_w = _of_weight(d, out, h0, **span) if needs[2] else None
    return *_of_inputs(d, x, w_ih, needs), of_w, d.sum(0) if needs[3] else None, of_h, of_c


@prim("lstm_layer", "recurrent", outputs=("out", "h", "c", "gates", "cells"), vjp=_lstm_vjp, infer=_lstm_infer)
def lstm_layer(
    xp: Any, x: Any, w_ih: Any, w_hh: Any, bias: Any, h0: Any, c0: Any, *, sizes: Sizes, reverse: bool, keep: bool
) -> Any:
    """All hidden states, final hidden and cell state; then, for backward if `keep`, the gates i, f, g, o and cells of all steps."""
    n_hidden, gates = w_hh.shape[1], _projected(xp, x, w_ih, bias)
    out = xp.empty((x.shape[0], n_hidden), x.dtype)
    cells = xp.empty_like(out)
    h, c = h0.copy("C"), c0.copy("C")
    i, f, g, o = (slice(k * n_hidden, (k + 1) * n_hidden) for k in range(4))
    scale = xp.full(4 * n_hidden, 0.5, x.dtype)
    scale[g] = 1
    shift = 1 - scale
    gates *= scale
    w = (w_hh * scale[:, None]).T
    for start, n in _spans(sizes, reverse):
        rows = slice(start, start + n)
        gate, cell, hidden = gates[rows], cells[rows], out[rows]
        gate += xp.matmul(h[:n], w)
        xp.tanh(gate, out=gate)
        gate *= scale
        gate += shift
        xp.multiply(gate[:, f], c[:n], out=cell)
        cell += gate[:, i] * gate[:, g]
        xp.tanh(cell, out=hidden)
        hidden *= gate[:, o]
        h[:n] = hidden
        c[:n] = cell
    return out, h, c, *((gates, cells) if keep else (gates[:0].copy(), cells[:0].copy()))


@prim("lstm_layer_backward", "recurrent", outputs=("products", "h0", "c0"))
def lstm_layer_backward(
    xp: Any, gates: Any, g_out: Any, g_h: Any, g_c: Any, w_hh: Any, c0: Any, cells: Any, *, sizes: Sizes, reverse: bool
) -> Any:
    """Gradients of `lstm_layer` by the products and states; factors that don't depend on later steps are computed beforehand."""
    before = _previous(xp.concatenate, cells, c0, sizes, reverse)
    dh, dc = _start(xp, g_h, c0), _start(xp, g_c, c0)
    d, into_cell = _lstm_factors(xp, gates, cells, before)
    by_gate = d.reshape(-1, 4, w_hh.shape[1])
    for start, n in reversed(_spans(sizes, reverse)):
        rows = slice(start, start + n)
        dhn, dcn, gate = dh[:n], dc[:n], by_gate[rows]
        if g_out is not None:
            dhn += g_out[rows]
        dcn += dhn * into_cell[rows]
        gate[:, :3] *= dcn[:, None]
        gate[:, 3] *= dhn
        dcn *= gates[rows, w_hh.shape[1] : 2 * w_hh.shape[1]]
        xp.matmul(d[rows], w_hh, out=dhn)
    return d, dh, dc


def _lstm_factors(xp: Any, gates: Any, cells: Any, before: Any) -> tuple[Any, Any]:
    """What gradients of the gates' values, and of the hidden state, are multiplied by."""
    n_hidden = cells.shape[1]
    i, _, g, o = (gates[:, k * n_hidden : (k + 1) * n_hidden] for k in range(4))
    bounded = xp.tanh(cells)
    d = 1 - gates
    d *= gates
    by_gate = d.reshape(-1, 4, n_hidden)
    by_gate[:, 0] *= g
    by_gate[:, 1] *= before
    by_gate[:, 2] = (1 - g * g) * i
    by_gate[:, 3] *= bounded
    return d, (1 - bounded * bounded) * o


# ---- GRU


def _gru_infer(
    x: Any, w_ih: Any, w_hh: Any, bias: Any, b_hh: Any, h0: Any, *, sizes: Any, reverse: Any, keep: Any
) -> list[MetaArray]:
    rows, n = x.shape[0], w_hh.shape[1]
    kept = [MetaArray((rows if keep else 0, columns), x.dtype) for columns in w_hh.shape]
    return [MetaArray((rows, n), x.dtype), MetaArray(h0.shape, x.dtype), *kept]


def _gru_vjp(
    g: Any, x: Any, w_ih: Any, w_hh: Any, bias: Any, b_hh: Any, h0: Any, out: Any, gates: Any, hidden_part: Any,
    *, sizes: Any, reverse: Any, needs: Any,
) -> Any:  # fmt: skip
    if recording(*g[:2], x, w_ih, w_hh, bias, b_hh, h0):
        return _formula("GRU", g, (x, w_ih, w_hh, bias, b_hh, h0), needs, sizes, reverse)
    span = {"sizes": sizes, "reverse": reverse}
    of_gx, d, of_h = gru_layer_backward(gates.detach(), g[0], g[1], w_hh, h0, out.detach(), hidden_part.detach(), **span)
    of_w = _of_weight(d, out, h0, **span) if needs[2] else None
    biases = [found.sum(0) if need else None for found, need in ((of_gx, needs[3]), (d, needs[4]))]
    return *_of_inputs(of_gx, x, w_ih, needs), of_w, *biases, of_h


@prim("gru_layer", "recurrent", outputs=("out", "h", "gates", "hidden_part"), vjp=_gru_vjp, infer=_gru_infer)
def gru_layer(
    xp: Any, x: Any, w_ih: Any, w_hh: Any, bias: Any, b_hh: Any, h0: Any, *, sizes: Sizes, reverse: bool, keep: bool
) -> Any:
    """Hidden states of all steps, final one; then, for backward if `keep`, the gates r, z, n and W_hn·h + b_hn of all steps."""
    n_hidden = w_hh.shape[1]
    sigmoids, new = slice(0, 2 * n_hidden), slice(2 * n_hidden, 3 * n_hidden)
    scale, half = xp.full(3 * n_hidden, 0.5, x.dtype), x.dtype.type(0.5)
    scale[new] = 1
    gates = _projected(xp, x, w_ih, bias)
    gates *= scale
    if b_hh is not None:
        gates[:, sigmoids] += b_hh[sigmoids] * half
    w = (w_hh * scale[:, None]).T
    out = xp.empty((x.shape[0], n_hidden), x.dtype)
    hidden_part = xp.empty_like(out)
    h = h0.copy()
    for start, n in _spans(sizes, reverse):
        rows = slice(start, start + n)
        hidden, part = out[rows], hidden_part[rows]
        product = xp.matmul(h[:n], w)
        rz, candidate = gates[rows, sigmoids], gates[rows, new]
        rz += product[:, sigmoids]
        xp.tanh(rz, out=rz)
        rz *= half
        rz += half
        part[...] = product[:, new]
        if b_hh is not None:
            part += b_hh[new]
        candidate += rz[:, :n_hidden] * part
        xp.tanh(candidate, out=candidate)
        xp.subtract(h[:n], candidate, out=hidden)
        hidden *= rz[:, n_hidden:]
        hidden += candidate
        h[:n] = hidden
    return out, h, *((gates, hidden_part) if keep else (gates[:0].copy(), hidden_part[:0].copy()))


@prim("gru_layer_backward", "recurrent", outputs=("inputs", "states", "h0"))
def gru_layer_backward(
    xp: Any, gates: Any, g_out: Any, g_h: Any, w_hh: Any, h0: Any, out: Any, hidden_part: Any, *, sizes: Sizes, reverse: bool
) -> Any:
    """Gradients of `gru_layer` by the products of inputs and of states, and h0; factors that don't depend on later steps are computed beforehand."""
    n_hidden = w_hh.shape[1]
    r, z, new = (gates[:, k * n_hidden : (k + 1) * n_hidden] for k in range(3))
    previous = _previous(xp.concatenate, out, h0, sizes, reverse)
    into_new = (1 - z) * (1 - new * new)
    d = xp.empty_like(gates)  # by the recurrent product, whose third part enters multiplied by r
    by_gate = d.reshape(-1, 3, n_hidden)
    by_gate[:, 0] = into_new * hidden_part * r * (1 - r)
    by_gate[:, 1] = (previous - new) * z * (1 - z)
    by_gate[:, 2] = into_new * r
    total = xp.empty_like(out)
    dh = _start(xp, g_h, h0)
    for start, n in reversed(_spans(sizes, reverse)):
        rows = slice(start, start + n)
        dhn = dh[:n]
        if g_out is not None:
            dhn += g_out[rows]
        total[rows] = dhn
        by_gate[rows] *= dhn[:, None]
        dhn *= z[rows]
        dhn += xp.matmul(d[rows], w_hh)
    of_gx = d.copy()
    of_gx[:, 2 * n_hidden :] = total * into_new
    return of_gx, d, dh


# ---- Elman network


def _rnn_infer(x: Any, w_ih: Any, w_hh: Any, bias: Any, h0: Any, *, sizes: Any, reverse: Any, relu: Any) -> list[MetaArray]:
    return [MetaArray((x.shape[0], w_hh.shape[1]), x.dtype), MetaArray(h0.shape, x.dtype)]


def _rnn_vjp(
    g: Any, x: Any, w_ih: Any, w_hh: Any, bias: Any, h0: Any, out: Any, *, sizes: Any, reverse: Any, relu: Any, needs: Any
) -> Any:
    if recording(*g[:2], x, w_ih, w_hh, bias, h0):
        return _formula("RNN_RELU" if relu else "RNN_TANH", g, (x, w_ih, w_hh, bias, h0), needs, sizes, reverse)
    d, of_h = rnn_layer_backward(out.detach(), g[0], g[1], w_hh, h0, sizes=sizes, reverse=reverse, relu=relu)
    of_w = _of_weight(d, out, h0, sizes, reverse) if needs[2] else None
    return *_of_inputs(d, x, w_ih, needs), of_w, d.sum(0) if needs[3] else None, of_h


@prim("rnn_layer", "recurrent", outputs=("out", "h"), vjp=_rnn_vjp, infer=_rnn_infer)
def rnn_layer(xp: Any, x: Any, w_ih: Any, w_hh: Any, bias: Any, h0: Any, *, sizes: Sizes, reverse: bool, relu: bool) -> Any:
    """Hidden states of all steps, final one: h = tanh (or relu) of W_ih·x + W_hh·h + bias."""
    out, w, h = _projected(xp, x, w_ih, bias), w_hh.T, h0.copy()
    for start, n in _spans(sizes, reverse):
        hidden = out[start : start + n]
        hidden += xp.matmul(h[:n], w)
        if relu:
            xp.maximum(hidden, 0, out=hidden)
        else:
            xp.tanh(hidden, out=hidden)
        h[:n] = hidden
    return out, h


@prim("rnn_layer_backward", "recurrent", outputs=("products", "h0"))
def rnn_layer_backward(
    xp: Any, out: Any, g_out: Any, g_h: Any, w_hh: Any, h0: Any, *, sizes: Sizes, reverse: bool, relu: bool
) -> Any:
    """Gradients of `rnn_layer` by the products and h0."""
    d = (out > 0).astype(out.dtype) if relu else 1 - out * out
    dh = _start(xp, g_h, h0)
    for start, n in reversed(_spans(sizes, reverse)):
        rows = slice(start, start + n)
        dhn = dh[:n]
        if g_out is not None:
            dhn += g_out[rows]
        d[rows] *= dhn
        xp.matmul(d[rows], w_hh, out=dhn)
    return d, dh
