"""Recurrent layers and cells (torch docs: torch.nn, recurrent layers); the arithmetic is in
`tocha.ops.rnn`."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import tocha
from tocha.nn import init
from tocha.nn.modules.module import Module
from tocha.nn.parameter import Parameter
from tocha.nn.utils.rnn import PackedSequence

__all__ = ["GRU", "GRUCell", "LSTM", "LSTMCell", "RNN", "RNNBase", "RNNCell", "RNNCellBase"]

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def apply_permutation(tensor: Any, permutation: Any, dim: int = 1) -> Any:
    """Deprecated: `tensor.index_select(dim, permutation)`."""
    warnings.warn(
        "apply_permutation is deprecated, please use tensor.index_select(dim, permutation) instead",
        FutureWarning,
        stacklevel=2,
    )
    return tensor.index_select(dim, permutation)


def _check_arguments(
    mode: str,
    input_size: int,
    hidden_size: int,
    num_layers: int,
    bias: bool,
    batch_first: bool,
    dropout: Any,
    proj_size: int,
) -> None:
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:  # type: ignore[operator]
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:  # type: ignore[operator]
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
            f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    for name, flag in (("bias", bias), ("batch_first", batch_first)):
        if not isinstance(flag, bool):
            raise TypeError(f"{name} should be of type bool, got: {type(flag).__name__}")
    for name, value in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
        if value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")
    if mode not in _GATES:
        raise ValueError("Unrecognized RNN mode: " + mode)


class RNNBase(Module):
    """What the recurrent layers share: parameters `weight_ih_l{k}`, …, checks and the batch logic."""

    __constants__ = [
        "mode",
        "input_size",
        "hidden_size",
        "num_layers",
        "bias",
        "batch_first",
        "dropout",
        "bidirectional",
        "proj_size",
    ]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_arguments(mode, input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size

        kw = {"device": device, "dtype": dtype}
        gates = _GATES[mode] * hidden_size
        state_size = proj_size if proj_size > 0 else hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            for suffix in ("", "_reverse") if bidirectional else ("",):
                width = input_size if layer == 0 else state_size * (1 + bidirectional)
                shapes: dict[str, tuple[int, ...]] = {
                    "weight_ih": (gates, width),
                    "weight_hh": (gates, state_size),
                }
                if bias:
                    shapes["bias_ih"] = shapes["bias_hh"] = (gates,)
                if proj_size > 0:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = []
                for kind, shape in shapes.items():
                    names.append(f"{kind}_l{layer}{suffix}")
                    setattr(self, names[-1], Parameter(tocha.empty(shape, **kw)))
                self._all_weights.append(names)
        self.reset_parameters()

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name) for name in self._flat_weights_names]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Does nothing: the weights need no particular layout."""

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly from ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # files of torch store the derived lists as attributes
        state = {k: v for k, v in state.items() if k not in ("_flat_weights", "_flat_weights_names", "_flat_weight_refs")}
        super().__setstate__(state)
        self.__dict__.setdefault("proj_size", 0)

    def check_input(self, input: Any, batch_sizes: Any) -> None:
        """Raise unless the input's dtype, dimensions and size fit."""
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not tocha.is_autocast_enabled(input.device.type):
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert "
                "input: "
                f"input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        expected_dim = 2 if batch_sizes is not None else 3
        if input.dim() != expected_dim:
            raise RuntimeError(f"input must have {expected_dim} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.size(-1)}")

    def _state_size(self, input: Any, batch_sizes: Any, size: int) -> tuple[int, int, int]:
        if batch_sizes is not None:
            batch = int(batch_sizes[0])
        else:
            batch = input.size(0) if self.batch_first else input.size(1)
        return self.num_layers * (2 if self.bidirectional else 1), batch, size

    def get_expected_hidden_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """(layers·directions, batch, hidden or projected size)."""
        return self._state_size(input, batch_sizes, self.proj_size if self.proj_size > 0 else self.hidden_size)

    def check_hidden_size(
        self,
        hx: Any,
        expected_hidden_size: tuple[int, int, int],
        msg: str = "Expected hidden size {}, got {}",
    ) -> None:
        """Raise unless `hx` has the expected size."""
        if tuple(hx.size()) != tuple(expected_hidden_size):
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.size())))

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Check input and hidden state."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """The hidden state with its batch reordered."""
        return hx if permutation is None else hx.index_select(1, permutation)

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            s += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            s += f", num_layers={self.num_layers}"
        if self.bias is not True:
            s += f", bias={self.bias}"
        if self.batch_first is not False:
            s += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            s += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            s += f", bidirectional={self.bidirectional}"
        return s

    # -- the parts in which LSTM differs: its state is a pair

    def _zero_state(self, input: Any, batch_sizes: Any) -> Any:
        shape = self.get_expected_hidden_size(input, batch_sizes)
        return tocha.zeros(shape, dtype=input.dtype, device=input.device)

    def _check_state_dim(self, hx: Any, batched: bool) -> None:
        if hx.dim() != (3 if batched else 2):
            kind = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(f"For {kind} input, hx should also be {3 if batched else 2}-D but got {hx.dim()}-D tensor")

    @staticmethod
    def _map_state(fn: Any, hx: Any) -> Any:
        return fn(hx)

    def _dim_error(self, dim: int) -> str:
        return f"{self._get_name()}: Expected input to be 2D or 3D, got {dim}D instead"

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """Output (T, N, directions·hidden), as batched as the input, or packed, and the final state.

        Input (T, N, input_size), batch first if so set, (T, input_size), or a PackedSequence; the state is
        (layers·directions, N, hidden), zeros by default.
        """
        packed = isinstance(input, PackedSequence)
        if packed:
            data, batch_sizes, sorted_indices, unsorted_indices = input
            batched = True
        else:
            data, batch_sizes, sorted_indices, unsorted_indices = input, None, None, None
            if data.dim() not in (2, 3):
                raise ValueError(self._dim_error(data.dim()))
            batched = data.dim() == 3
            batch_dim = 0 if self.batch_first else 1
            if not batched:
                data = data.unsqueeze(batch_dim)
        if hx is None:
            hx = self._zero_state(data, batch_sizes)
        else:
            if not packed:
                self._check_state_dim(hx, batched)
                if not batched:
                    hx = self._map_state(lambda h: h.unsqueeze(1), hx)
            hx = self.permute_hidden(hx, sorted_indices)
        self.check_forward_args(data, hx, batch_sizes)
        output, hidden = self._run(data, batch_sizes, hx)
        if packed:
            output = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
        elif not batched:
            output = output.squeeze(batch_dim)
            hidden = self._map_state(lambda h: h.squeeze(1), hidden)
        return output, self.permute_hidden(hidden, unsorted_indices)

    def _run(self, data: Any, batch_sizes: Any, hx: Any) -> tuple[Any, Any]:
        function = getattr(tocha, self.mode.lower())
        rest = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        if batch_sizes is None:
            output, *state = function(data, hx, self._flat_weights, *rest, self.batch_first)
        else:
            output, *state = function(data, batch_sizes, hx, self._flat_weights, *rest)
        return output, state[0] if len(state) == 1 else tuple(state)


class RNN(RNNBase):
    """Elman network: `h = tanh(W_ih x + b_ih + W_hh h + b_hh)`, or relu by `nonlinearity`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + self.nonlinearity.upper(), *args, **kwargs)

    def _dim_error(self, dim: int) -> str:
        return f"RNN: Expected input to be 2D or 3D, got {dim}D tensor instead"


class GRU(RNNBase):
    """Gated recurrent units (Cho et al. 2014), gates in the order r, z, n."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997), gates in the order i, f, g, o; the state is
    (h, c).

    With `proj_size`, h is projected to that size (Sak et al. 2014).
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Any, batch_sizes: Any) -> tuple[int, int, int]:
        """(layers·directions, batch, hidden size)."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def check_forward_args(self, input: Any, hidden: Any, batch_sizes: Any) -> None:
        """Check input, hidden state and cell state."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden[0], self.get_expected_hidden_size(input, batch_sizes), "Expected hidden[0] size {}, got {}")
        self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "Expected hidden[1] size {}, got {}")

    def permute_hidden(self, hx: Any, permutation: Any) -> Any:
        """Both states with their batch reordered."""
        return hx if permutation is None else tuple(h.index_select(1, permutation) for h in hx)

    def _zero_state(self, input: Any, batch_sizes: Any) -> Any:
        shapes = (
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        )
        return tuple(tocha.zeros(shape, dtype=input.dtype, device=input.device) for shape in shapes)

    def _check_state_dim(self, hx: Any, batched: bool) -> None:
        n = 3 if batched else 2
        if hx[0].dim() != n or hx[1].dim() != n:
            kind = "batched 3-D" if batched else "unbatched 2-D"
            raise RuntimeError(
                f"For {kind} input, hx and cx should also be {n}-D but got ({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    @staticmethod
    def _map_state(fn: Any, hx: Any) -> Any:
        return tuple(fn(h) for h in hx)


class RNNCellBase(Module):
    """What the cells share: parameters weight_ih, weight_hh, bias_ih, bias_hh for `num_chunks` gates."""

    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        kw = {"device": device, "dtype": dtype}
        gates = num_chunks * hidden_size
        self.weight_ih = Parameter(tocha.empty((gates, input_size), **kw))
        self.weight_hh = Parameter(tocha.empty((gates, hidden_size), **kw))
        self.register_parameter("bias_ih", Parameter(tocha.empty(gates, **kw)) if bias else None)
        self.register_parameter("bias_hh", Parameter(tocha.empty(gates, **kw)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters uniformly from ±1/√hidden_size."""
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            s += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            s += f", nonlinearity={self.nonlinearity}"
        return s

    def _check_dim(self, what: str, value: Any) -> None:
        if value.dim() not in (1, 2):
            raise ValueError(f"{self._get_name()}: Expected {what} to be 1D or 2D, got {value.dim()}D instead")

    def _step(self, function: Any, input: Any, hx: Any) -> Any:
        """One step of a cell with a single state, with or without batch."""
        self._check_dim("input", input)
        if hx is not None:
            self._check_dim("hidden", hx)
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            hx = tocha.zeros((input.size(0), self.hidden_size), dtype=input.dtype, device=input.device)
        elif not batched:
            hx = hx.unsqueeze(0)
        out = function(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return out if batched else out.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of an Elman network."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=1, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(N, input_size) and h (N, hidden_size), zeros by default, to the new h."""
        functions = {"tanh": tocha.rnn_tanh_cell, "relu": tocha.rnn_relu_cell}
        if self.nonlinearity not in functions:
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(functions[self.nonlinearity], input, hx)


class GRUCell(RNNCellBase):
    """One step of gated recurrent units."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=3, device=device, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> Any:
        """(N, input_size) and h (N, hidden_size), zeros by default, to the new h."""
        return self._step(tocha.gru_cell, input, hx)


class LSTMCell(RNNCellBase):
    """One step of long short-term memory."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, num_chunks=4, device=device, dtype=dtype)

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        """(N, input_size) and (h, c), each (N, hidden_size), zeros by default, to the new (h, c)."""
        self._check_dim("input", input)
        if isinstance(hx, (tuple, list)):
            for i, value in enumerate(hx):
                self._check_dim(f"hx[{i}]", value)
        batched = input.dim() == 2
        if not batched:
            input = input.unsqueeze(0)
        if hx is None:
            zeros = tocha.zeros((input.size(0), self.hidden_size), dtype=input.dtype, device=input.device)
            hx = (zeros, zeros)
        elif not batched:
            hx = tuple(h.unsqueeze(0) for h in hx)
        h, c = tocha.lstm_cell(input, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))
