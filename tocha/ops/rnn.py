"""Recurrent layers and cells: torch.lstm, gru, rnn_tanh, rnn_relu and their *_cell forms, also packed.

A layer multiplies the inputs of all steps by its input weights at once; a primitive does the rest of a
direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tocha.backends import cpu, native
from tocha.dispatch.override import FUNCTION_MODES, INTERPRETERS
from tocha.dispatch.registry import op
from tocha.dtypes import float32
from tocha.ops.dropout import dropout as drop
from tocha.ops.matmul import linear
from tocha.ops.shape import cat, stack
from tocha.prims.contract import recording
from tocha.prims.recurrent import gru_layer, lstm_layer, rnn_layer
from tocha.tensor import Tensor

#: A step: (projected input, state, recurrent weight, recurrent bias, projection) to the new state, hidden
#: part first.
Step = Callable[[Any, tuple[Any, ...], Any, Any, Any], tuple[Any, ...]]


def _lstm_step(gx: Any, state: tuple[Any, ...], w_hh: Any, b_hh: Any, w_hr: Any) -> tuple[Any, ...]:
    h, c = state
    i, f, g, o = (linear(h, w_hh, b_hh) + gx).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    h = o.sigmoid() * c.tanh()
    if w_hr is not None:
        h = linear(h, w_hr, None)
    return h, c


def _gru_step(gx: Any, state: tuple[Any, ...], w_hh: Any, b_hh: Any, w_hr: Any) -> tuple[Any, ...]:
    (h,) = state
    n = h.shape[1]
    gh = linear(h, w_hh, b_hh)
    r, z = (gx[:, : 2 * n] + gh[:, : 2 * n]).sigmoid().chunk(2, 1)
    new = (gx[:, 2 * n :] + r * gh[:, 2 * n :]).tanh()
    return ((h - new) * z + new,)


def _tanh_step(gx: Any, state: tuple[Any, ...], w_hh: Any, b_hh: Any, w_hr: Any) -> tuple[Any, ...]:
    return ((linear(state[0], w_hh, b_hh) + gx).tanh(),)


def _relu_step(gx: Any, state: tuple[Any, ...], w_hh: Any, b_hh: Any, w_hr: Any) -> tuple[Any, ...]:
    return ((linear(state[0], w_hh, b_hh) + gx).relu(),)


_STEPS: dict[str, Step] = {"LSTM": _lstm_step, "GRU": _gru_step, "RNN_TANH": _tanh_step, "RNN_RELU": _relu_step}


def _run_forward(
    step: Step, steps: Sequence[Any], sizes: list[int], state: tuple[Any, ...], weights: tuple[Any, ...]
) -> tuple[Any, ...]:
    """All steps in order; rows whose sequence has ended leave the state and are put together at the end."""
    outputs, finished, n = [], [], sizes[0]
    for gx, size in zip(steps, sizes):
        if size < n:
            finished.append(tuple(s[size:n] for s in state))
            state = tuple(s[:size] for s in state)
            n = size
        state = step(gx, state, *weights)
        outputs.append(state[0])
    if finished:
        finished.append(state)
        state = tuple(cat(parts[::-1], 0) for parts in map(list, zip(*finished)))
    return outputs, state


def _run_reverse(
    step: Step, steps: Sequence[Any], sizes: list[int], state: tuple[Any, ...], weights: tuple[Any, ...]
) -> tuple[Any, ...]:
    """All steps from the last; rows enter with their initial state where their sequence ends."""
    first, n = state, sizes[-1]
    if n != sizes[0]:
        state = tuple(s[:n] for s in state)
    outputs = []
    for gx, size in zip(reversed(steps), reversed(sizes)):
        if size > n:
            state = tuple(cat([s, f[n:size]], 0) for s, f in zip(state, first))
            n = size
        state = step(gx, state, *weights)
        outputs.append(state[0])
    return outputs[::-1], state


def run_steps(
    mode: str, gx: Any, state: tuple[Any, ...], sizes: Sequence[int], reverse: bool, weights: tuple[Any, ...]
) -> tuple[Any, ...]:
    """A layer's direction by ordinary operators: outputs (Σ sizes, H), then the final states.

    `gx` (Σ sizes, gates·H) is the projected input, `weights` the recurrent weight, its bias and the
    projection.
    """
    run = _run_reverse if reverse else _run_forward
    outputs, final = run(_STEPS[mode], gx.split(list(sizes), 0), list(sizes), state, weights)
    return cat(outputs, 0), *final


_GATES = {"LSTM": 4, "GRU": 3}


def _check_direction(mode: str, x: Any, state: tuple[Any, ...], batch: int, weights: tuple[Any, ...]) -> None:
    """RuntimeError unless all shapes fit and all types are one."""
    hidden, out, inner = state[-1].shape[-1], state[0].shape[-1], x.shape[-1]
    rows = _GATES.get(mode, 1) * hidden
    shapes = (rows, inner), (rows, out), (rows,), (rows,), (out, hidden), (batch, out), (batch, hidden)
    for tensor, shape in zip((*weights, *state), shapes):
        if tensor is not None and (tuple(tensor.shape) != shape or tensor.dtype != x.dtype):
            raise RuntimeError(
                f"{mode.lower()}: expected a weight, bias or state of shape {shape} and type {x.dtype}, "
                f"got {tuple(tensor.shape)} and {tensor.dtype}"
            )


def run_direction(
    mode: str, x: Any, state: tuple[Any, ...], sizes: tuple[int, ...], reverse: bool, weights: tuple[Any, ...]
) -> tuple[Any, ...]:
    """As :func:`run_steps` of `x` (Σ sizes, I), by the fused primitive where there is one. `weights`: of inputs and states, their
    biases and the projection, None for what there isn't."""
    _check_direction(mode, x, state, sizes[0], weights)
    w_ih, w_hh, bias, b_hh, w_hr = weights
    if w_hr is not None:
        return run_steps(mode, linear(x, w_ih, bias), state, sizes, reverse, (w_hh, b_hh, w_hr))
    keep = bool(INTERPRETERS) or recording(x, w_ih, w_hh, bias, b_hh, *state)
    if mode == "GRU":
        return gru_layer(x, w_ih, w_hh, bias, b_hh, *state, sizes=sizes, reverse=reverse, keep=keep)[:2]
    if bias is not None and b_hh is not None:
        bias = bias + b_hh  # both are added to the same sums
    if mode == "LSTM":
        return lstm_layer(x, w_ih, w_hh, bias, *state, sizes=sizes, reverse=reverse, keep=keep)[:3]
    return rnn_layer(x, w_ih, w_hh, bias, *state, sizes=sizes, reverse=reverse, relu=mode == "RNN_RELU")


def _run_layers(
    mode: str, data: Any, batch_sizes: list[int] | None, hx: tuple[Any, ...], params: Sequence[Any], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The output, (T, N, H·directions) or packed, and the final states, each (layers·directions, N, H)."""
    directions = 2 if bidirectional else 1
    projected = mode == "LSTM" and hx[0].shape[2] != hx[1].shape[2]
    per_cell = 2 + 2 * has_biases + projected
    if len(params) != num_layers * directions * per_cell:
        raise RuntimeError(
            f"{mode.lower()}: expected {num_layers * directions * per_cell} weights for {num_layers} layer(s) of {directions} direction(s), "
            f"got {len(params)}"
        )
    sizes = tuple(batch_sizes) if batch_sizes is not None else (data.shape[1],) * data.shape[0]
    if not sizes:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    initial = [tuple(states) for states in zip(*(h.unbind(0) for h in hx))]
    finals = []
    x = data
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            cell = layer * directions + direction
            weights = tuple(params[cell * per_cell : (cell + 1) * per_cell])
            biases = weights[2:4] if has_biases else (None, None)
            weights = (*weights[:2], *biases, weights[-1] if projected else None)
            rows = x if batch_sizes is not None else x.flatten(0, 1)
            out, *state = run_direction(mode, rows, initial[cell], sizes, bool(direction), weights)
            outs.append(out if batch_sizes is not None else out.unflatten(0, (len(sizes), -1)))
            finals.append(state)
        x = outs[0] if directions == 1 else cat(outs, -1)
        if dropout and train and layer < num_layers - 1:
            x = drop(x, dropout, training=True)
    return x, *(stack(list(states), 0) for states in zip(*finals))


def _states(hx: Any) -> tuple[Any, ...]:
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _padded(
    mode: str, input: Any, hx: Any, params: Sequence[Any], has_biases: bool, num_layers: int, dropout: float, train: bool,
    bidirectional: bool, batch_first: bool,
) -> tuple[Any, ...]:  # fmt: skip
    if input.dim() != 3:
        raise RuntimeError(f"{mode.lower()}: expected a 3-D input, got shape {tuple(input.shape)}")
    if batch_first:
        input = input.transpose(0, 1)
    rest = (params, has_biases, num_layers, dropout, train, bidirectional)
    output, *states = _run_layers(mode, input, None, _states(hx), *rest)
    return (output.transpose(0, 1) if batch_first else output, *states)


def _packed(mode: str, data: Any, batch_sizes: Any, hx: Any, *rest: Any, **named: Any) -> tuple[Any, ...]:
    return _run_layers(mode, data, batch_sizes.tolist(), _states(hx), *rest, **named)


def _layer(mode: str, packed: bool, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """The padded or the packed overload."""
    return (_packed if packed or "batch_sizes" in kwargs else _padded)(mode, *args, **kwargs)


@op("torch")
def lstm(*args: Any, **kwargs: Any) -> tuple[Any, Any, Any]:
    """Output, h and c of (input, (h0, c0), params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first), or packed (data, batch_sizes, (h0, c0), params, has_biases, num_layers, dropout, train,
    bidirectional). Hochreiter and Schmidhuber 1997; torch docs: torch.nn.LSTM.
    """
    return _layer("LSTM", len(args) > 1 and isinstance(args[1], Tensor), args, kwargs)


@op("torch")
def gru(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """As :func:`lstm` with one state, giving output and h (Cho et al. 2014; torch docs: torch.nn.GRU)."""
    return _layer("GRU", len(args) > 2 and isinstance(args[2], Tensor), args, kwargs)


@op("torch")
def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """As :func:`gru` for `h = tanh(W_ih x + b_ih + W_hh h + b_hh)` (torch docs: torch.nn.RNN)."""
    return _layer("RNN_TANH", len(args) > 2 and isinstance(args[2], Tensor), args, kwargs)


@op("torch")
def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
    """As :func:`rnn_tanh` with relu."""
    return _layer("RNN_RELU", len(args) > 2 and isinstance(args[2], Tensor), args, kwargs)


def _cell(mode: str, input: Any, state: tuple[Any, ...], w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> tuple[Any, ...]:
    if input.shape[1] != w_ih.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {input.shape[1]} expected {w_ih.shape[1]}")
    hidden = w_hh.shape[1]
    for i, s in enumerate(state):
        if s.shape[0] != input.shape[0]:
            raise RuntimeError(f"Input batch size {input.shape[0]} doesn't match hidden{i} batch size {s.shape[0]}")
        if s.shape[1] != hidden:
            raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {s.shape[1]}, expected {hidden}")
    if mode in _GATES and _is_large(input) and (b_ih is None) == (b_hh is None):
        return run_direction(mode, input, state, (input.shape[0],), False, (w_ih, w_hh, b_ih, b_hh, None))[1:]
    return _STEPS[mode](linear(input, w_ih, b_ih), state, w_hh, b_hh, None)


def _is_large(x: Any) -> bool:
    """Whether a step is worth a kernel. What is captured stays a few operators, which then fuse."""
    plain = x._a.__class__ is cpu.Array and not INTERPRETERS and not FUNCTION_MODES
    return plain and x.dtype is float32 and x._a.size >= native.LEAST["recurrent"]


@op("torch")
def lstm_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> tuple[Any, Any]:
    """One step: input (N, in) and (h, c), each (N, hidden), to the new (h, c)."""
    if isinstance(hx, Tensor):
        raise TypeError("lstm_cell(): argument 'hx' (position 2) must be tuple of Tensors, not Tensor")
    if len(hx) != 2:
        raise RuntimeError("lstm_cell expects two hidden states")
    return _cell("LSTM", input, tuple(hx), w_ih, w_hh, b_ih, b_hh)


@op("torch")
def gru_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step: input (N, in) and h (N, hidden) to the new h."""
    return _cell("GRU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@op("torch")
def rnn_tanh_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step: input (N, in) and h (N, hidden) to the new h."""
    return _cell("RNN_TANH", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]


@op("torch")
def rnn_relu_cell(input: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> Any:
    """One step: input (N, in) and h (N, hidden) to the new h."""
    return _cell("RNN_RELU", input, (hx,), w_ih, w_hh, b_ih, b_hh)[0]
