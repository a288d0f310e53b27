"""Kernels of one step of an LSTM: everything but the matrix products, each row (a sequence) a unit of work.

Gates lie as (rows, 4, n): input, forget, cell and output gate. σ(x) is computed as (1 + tanh(x / 2)) / 2.
"""

from __future__ import annotations

from tocha.inductor.elementary import elementary
from tocha.inductor.loop_ir import Buffer, Const, Expr, Index, Kernel, Load, Loop, Size, Store, verify

_ZERO = Const(0, "index")


def _tanh(x: Expr) -> Expr:
    return elementary("tanh", x, hard=None)


class _Row:
    def __init__(self, type: str) -> None:
        self.type, self.n = type, Size("n")
        self.loops: list[Loop] = []

    def load(self, buffer: str, gate: int | None = None) -> Expr:
        return Load(buffer, self.offset(gate), self.type)

    def offset(self, gate: int | None) -> Expr:
        """Of the element of a state or a gate, in the loop that is being written."""
        row = Index("unit") if gate is None else Index("unit") * 4 + gate
        return row * self.n + Index(f"j{len(self.loops)}")

    def each(self, **values: Expr | dict[int, Expr]) -> None:
        """A loop over the row's elements that stores values in buffers, in those of gates by the gate."""
        stores = []
        for buffer, value in values.items():
            for gate, v in value.items() if isinstance(value, dict) else [(None, value)]:
                stores.append(Store(buffer, self.offset(gate), v))
        self.loops.append(Loop(f"j{len(self.loops)}", _ZERO, self.n, tuple(stores), "vector"))

    def kernel(self, name: str, buffers: tuple[str, ...]) -> Kernel:
        body = (Loop("unit", Size("lo"), Size("hi"), tuple(self.loops)),)
        made = Kernel(name, tuple([Buffer(b, self.type) for b in buffers]), (), (self.n,), body)
        verify(made)
        return made


def forward(type: str) -> Kernel:
    """The gates' values at gx + product + bias; the new cell and hidden state, each written twice: to the step's rows and the state."""
    row = _Row(type)
    for k in range(4):  # in loops of their own: all at once needs more registers than there are
        bias = Load("bias", Index(f"j{k}") + row.n * k, type)
        x = row.load("gx", k) + row.load("product", k) + bias
        row.each(gates={k: _tanh(x) if k == 2 else _tanh(x * 0.5) * 0.5 + 0.5})
    i, f, g, o = (row.load("gates", k) for k in range(4))
    cell = f * row.load("c") + i * g
    hidden = o * _tanh(cell)
    row.each(cells=cell, out=hidden, h=hidden, c=cell)
    return row.kernel("lstm_cell", ("gates", "gx", "product", "bias", "c", "cells", "h", "out"))


def backward(type: str) -> Kernel:
    """From dh and dc, gradients of the step's hidden and cell state, those of the gates' arguments (`d`); dc becomes the earlier cell's."""
    row = _Row(type)
    i, f, g, o = (row.load("gates", k) for k in range(4))
    bounded = _tanh(row.load("cells"))
    dh = row.load("dh")
    dc = row.load("dc") + dh * o * (1.0 - bounded * bounded)
    into = (
        dc * g * (i * (1.0 - i)),
        dc * row.load("before") * (f * (1.0 - f)),
        dc * i * (1.0 - g * g),
        dh * bounded * (o * (1.0 - o)),
    )
    row.each(d=dict(enumerate(into)), dc=dc * f)
    return row.kernel("lstm_cell_backward", ("d", "dc", "dh", "gates", "cells", "before"))
