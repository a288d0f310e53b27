"""Recurrent layers on native kernels (tocha.inductor.templates.recurrent): a direction's steps are one call, forward and backward.

A function of `RUNS` gets a primitive's arrays and parameters and returns its results, or None for NumPy to compute them. Half types are
computed in float32 and rounded once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha import threads
from tocha.backends import _native_products, native
from tocha.dtypes import HALF_NP

_FLOAT32 = np.dtype(np.float32)
_FEW = 12  # sequences
Arrays = dict[str, Any]
Run = Callable[[list[Any], dict[str, Any]], Any]


@functools.cache
def _spec(mode: str, forward: bool, full: bool, inputs: bool = False) -> Any:
    from tocha.inductor.templates import recurrent

    return recurrent.Spec(mode, forward, full, inputs)


def _kernel(spec: Any) -> Any:
    modules = native.inductor()
    if modules is None:
        return None

    def build() -> Any:
        from tocha.inductor.templates import recurrent

        return modules.entry.build_template("recurrent", spec.buffers, recurrent.SIZES, recurrent.code(spec))

    return native.built(("recurrent", spec), build)


def _spans(sizes: tuple[int, ...], reverse: bool) -> Any:
    """(first row, number of rows) of each step in the order of the computation."""
    spans = np.empty((len(sizes), 2), np.int64)
    spans[:, 1] = sizes
    spans[:, 0] = np.cumsum(spans[:, 1]) - spans[:, 1]
    return np.ascontiguousarray(spans[::-1]) if reverse else spans


def _steps(spec: Any, w: Any, params: dict[str, Any], arrays: Arrays, x: Any = None, w_ih: Any = None) -> bool:
    """Run a kernel, which writes those of `arrays` that it computes; False if there is none. `x`, `w_ih`: inputs that it multiplies."""
    sizes, reverse = params["sizes"], params["reverse"]
    pack, main = _native_products.packing("f32"), _kernel(spec)
    if main is None or pack is None:
        return False
    n, rows, slots = w.shape[1], sizes[0], threads.get_num_threads()
    product = packed = packed_x = x_read = arrays["dh" if "dh" in arrays else "h"]  # stands for those that are not read
    given = spec.forward and len(sizes) == 1
    if given:
        product = _native_products.multiply(arrays["h"], w.T)
        product = arrays["h"] @ w.T if product is None else product
    elif spec.forward:
        packed = pack(_by_gate(w, spec.gates))
        if spec.inputs:
            x_read, packed_x = x, pack(_by_gate(w_ih, spec.gates))
    else:
        packed = pack(w[None])
    inner = x_read.shape[1]

    def plan() -> Any:
        from tocha.inductor.templates import recurrent

        return recurrent.plan(spec, len(sizes), rows, n, inner, slots, given)

    work, scratch = native.remember(("recurrent", spec, len(sizes), rows, n, inner, slots, given), plan)
    spans = native.remember(("spans", sizes, reverse), lambda: _spans(sizes, reverse))
    flags, room = np.zeros(slots, np.int64), np.empty(slots * scratch, _FLOAT32)
    main(spans, packed, product, flags, room, x_read, packed_x, *[arrays[name] for name in spec.arrays], work)
    return True


def _by_gate(w: Any, gates: int) -> Any:
    """The right factors of a weight's gates, each (inner, n)."""
    return w.reshape(gates, -1, w.shape[1]).transpose(0, 2, 1)


def _run(mode: str | None, compute: Callable[..., Any]) -> Run:
    """`compute(mode, params, *arrays)` on row-major float32 arrays."""

    def run(arrays: list[Any], params: dict[str, Any]) -> Any:
        given = next(a for a in arrays if a is not None).dtype
        if (given is not _FLOAT32 and given not in HALF_NP) or any(a is not None and a.dtype is not given for a in arrays):
            return None
        if not all(params["sizes"]):
            return None
        network = mode or ("relu" if params["relu"] else "tanh")
        found = compute(network, params, *[None if a is None else np.ascontiguousarray(a, _FLOAT32) for a in arrays])
        return found if given is _FLOAT32 or found is None else tuple([a.astype(given) for a in found])

    return run


def _forward(
    mode: str, params: dict[str, Any], x: Any, w_ih: Any, w: Any, bias: Any, states: Arrays, bias_hh: Any = None, **kept: int
) -> Any:
    """Outputs, final states and what backward needs, of so many columns; without rows if nothing is kept."""
    keep, rows, n, sizes = params.get("keep", False), x.shape[0], w.shape[1], params["sizes"]
    # Few rows a step would read the inputs' weight for each step anew.
    inputs = len(sizes) > 1 and rows >= _FEW * len(sizes) and x.shape[1] <= 2 * n
    arrays = {"out": np.empty((rows, n), _FLOAT32)} | {name: state.copy() for name, state in states.items()}
    for name, columns in kept.items():
        arrays[name] = np.empty((rows if keep else 0, columns), _FLOAT32)
    zeros = np.zeros(w.shape[0], _FLOAT32)
    given = {"bias": zeros if bias_hh is None else bias_hh}
    if inputs:
        given["bias_x"] = zeros if bias is None else bias
    else:
        given["gx"] = _projected(x, w_ih, bias)
    if not _steps(_spec(mode, True, keep, inputs), w, params, given | arrays, x, w_ih):
        return None
    return tuple(arrays.values())


def _projected(x: Any, w: Any, bias: Any) -> Any:
    """The inputs of all steps through their weight."""
    found = _native_products.RUNS["linear"]([x, w, bias], {})
    if found is None:
        found = x @ w.T
        if bias is not None:
            found += bias
    return found


def _lstm(mode: str, params: dict[str, Any], x: Any, w_ih: Any, w: Any, bias: Any, h0: Any, c0: Any) -> Any:
    return _forward(mode, params, x, w_ih, w, bias, {"h": h0, "c": c0}, gates=w.shape[0], cells=w.shape[1])


def _gru(mode: str, params: dict[str, Any], x: Any, w_ih: Any, w: Any, bias: Any, bias_hh: Any, h0: Any) -> Any:
    return _forward(mode, params, x, w_ih, w, bias, {"h": h0}, bias_hh, gates=w.shape[0], part=w.shape[1])


def _elman(mode: str, params: dict[str, Any], x: Any, w_ih: Any, w: Any, bias: Any, h0: Any) -> Any:
    return _forward(mode, params, x, w_ih, w, bias, {"h": h0})


def _backward(mode: str, params: dict[str, Any], w: Any, g_out: Any, of_states: Arrays, like: Any, **arrays: Any) -> Any:
    """The gradients of the gates' arguments, those of the recurrent product if they are others, and of the initial states."""
    rows = next(a.shape[0] for name, a in arrays.items() if name in ("gates", "out"))
    made = {name: np.empty((rows, w.shape[0]), _FLOAT32) for name in (("d_gx", "d") if mode == "gru" else ("d",))}
    for name, gradient in of_states.items():
        made[name] = np.zeros(like.shape, _FLOAT32) if gradient is None else gradient.copy()
    full = g_out is not None
    given = {"g_out": g_out} if full else {}
    return tuple(made.values()) if _steps(_spec(mode, False, full), w, params, {**arrays, **given, **made}) else None


def _lstm_backward(
    mode: str, params: dict[str, Any], gates: Any, g_out: Any, g_h: Any, g_c: Any, w: Any, c0: Any, cells: Any
) -> Any:
    of_states = {"dh": g_h, "dc": g_c}
    return _backward(mode, params, w, g_out, of_states, c0, gates=gates, cells=cells, states=cells, initial=c0)


def _gru_backward(
    mode: str, params: dict[str, Any], gates: Any, g_out: Any, g_h: Any, w: Any, h0: Any, out: Any, part: Any
) -> Any:
    return _backward(mode, params, w, g_out, {"dh": g_h}, h0, gates=gates, part=part, states=out, initial=h0)


def _elman_backward(mode: str, params: dict[str, Any], out: Any, g_out: Any, g_h: Any, w: Any, h0: Any) -> Any:
    return _backward(mode, params, w, g_out, {"dh": g_h}, h0, out=out)


RUNS: dict[str, Run] = {
    "lstm_layer": _run("lstm", _lstm), "lstm_layer_backward": _run("lstm", _lstm_backward),
    "gru_layer": _run("gru", _gru), "gru_layer_backward": _run("gru", _gru_backward),
    "rnn_layer": _run(None, _elman), "rnn_layer_backward": _run(None, _elman_backward),
}  # fmt: skip
