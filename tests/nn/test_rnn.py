"""Recurrent layers against torch's values, packed sequences, second derivatives."""

# ruff: noqa: E501
from __future__ import annotations

import warnings

import pytest

import tocha as torch
from tocha import nn
from tocha.nn.utils import rnn as packing
from tocha.ops.rnn import run_direction, run_steps


def filled(module):
    """The module with parameters that are a fixed function of their index."""
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            n = p.numel()
            p.copy_(((torch.arange(n) * 7 + 3 * k) % 11).float().reshape(p.shape) / 11 - 0.4)
    return module


def steps():
    return (torch.arange(12.0).reshape(3, 2, 2) % 5) / 5 - 0.3


def flat(t):
    return t.flatten().tolist()


def close(t, expected):
    return flat(t) == pytest.approx(expected, abs=2e-5)


# output, final states, gradient of the input, gradient of weight_hh_l0, for the loss (output * arange).sum()
CASES = {
    "RNN": (
        lambda: nn.RNN(2, 2),
        [0.57836, -0.17456, 0.53316, -0.02363, 0.12952, -0.25223, 0.49856, -0.01729, 0.39434, 0.12593, 0.52827, -0.09974],
        [[0.39434, 0.12593, 0.52827, -0.09974]],
        [-0.32128, 0.98377, -1.21124, 2.33808, -2.51714, 4.13104, -3.05909, 5.40523, -3.82968, 6.10603, -4.26979, 7.24831],
        [9.65844, -2.70714, 14.52143, -3.68188],
    ),
    "RNN relu": (
        lambda: nn.RNN(2, 2, nonlinearity="relu"),
        [0.66, 0.0, 0.59455, 0.0, 0.20873, 0.0, 0.5516, 0.0, 0.53525, 0.08309, 0.5898, 0.0],
        [[0.53525, 0.08309, 0.5898, 0.0]],
        [0.21845, -0.12908, -0.55934, 0.33052, -1.71636, 1.01421, -1.89091, 1.11736, -4.34545, 6.47273, -4.0, 2.36364],
        [12.82843, 0.0, 1.87855, 0.0],
    ),
    "GRU": (
        lambda: nn.GRU(2, 2),
        [-0.12743, 0.08459, -0.12583, 0.00235, -0.31207, 0.14117, -0.19261, 0.0372, -0.29753, 0.05118, -0.23198, 0.09511],
        [[-0.29753, 0.05118, -0.23198, 0.09511]],
        [-0.82987, -0.65415, -1.16527, -0.37005, -0.87575, -0.84486, -1.78063, -0.53618, -0.99903, -0.10423, -1.6322, -0.61033],
        [0.04048, -0.015, 0.3182, -0.10037, -0.17119, 0.06788, -0.01831, 0.03019, -2.01087, 0.60546, -1.29147, 0.39646],
    ),
    "LSTM": (
        lambda: nn.LSTM(2, 2),
        [-0.09702, -0.00331, -0.09451, -0.03758, -0.22243, -0.00161, -0.13223, -0.04207, -0.1833, -0.07189, -0.15049, -0.02936],
        [[-0.1833, -0.07189, -0.15049, -0.02936], [-0.36565, -0.16607, -0.29971, -0.08772]],
        [-0.38514, -0.08146, -0.67646, 0.09576, -0.45421, -0.17419, -1.15553, 0.25162, -1.02346, -0.06276, -1.21254, 0.32362],
        [0.16103, 0.02519, 0.08578, 0.00698, 0.16141, 0.02263, 0.02411, 0.00788, -1.32754, -0.25225, -0.93498, -0.14736, 0.32186, 0.04676, 0.12302, 0.0149],
    ),
    "LSTM projected": (
        lambda: nn.LSTM(2, 2, proj_size=1),
        [0.0289, 0.01691, 0.07037, 0.03048, 0.03892, 0.04248],
        [[0.03892, 0.04248], [-0.36023, -0.1385, -0.31394, -0.0695]],
        [0.04461, -0.12561, 0.0828, -0.20326, 0.05092, -0.1689, 0.12583, -0.29829, 0.10338, -0.26767, 0.13061, -0.27104],
        [0.00672, -0.00289, 0.00711, -0.00067, -0.05437, 0.03858, 0.01345, -0.00424],
    ),
    "GRU deep, both directions": (
        lambda: nn.GRU(2, 2, num_layers=2, bidirectional=True),
        [-0.09463, 0.129, 0.00611, -0.24658, -0.06267, 0.12257, 0.04952, -0.27889, -0.14412, 0.18805, 0.005, -0.19752, -0.10111, 0.19338, 0.03082, -0.22802, -0.12121, 0.20571, 0.031, -0.16841, -0.12637, 0.23198, 0.01345, -0.15224],
        [[-0.29753, 0.05118, -0.23198, 0.09511, -0.17795, 0.17911, -0.10546, 0.15292, -0.12121, 0.20571, -0.12637, 0.23198, 0.00611, -0.24658, 0.04952, -0.27889]],
        [0.07818, 1.04485, -0.066, 1.47261, -0.05769, 0.93282, -0.16694, 1.72697, -0.49111, 0.76771, -0.57762, 1.1799],
        [-0.00709, 0.00253, -0.15803, 0.04743, 0.02446, -0.00836, -0.00909, -0.00737, 0.35671, -0.10464, 0.64385, -0.18675],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_layers(name):
    make, output, states, of_input, of_weight = CASES[name]
    m, x = filled(make()), steps().requires_grad_()
    out, final = m(x)
    (out * torch.arange(out.numel()).reshape(out.shape)).sum().backward()
    assert close(out, output)
    final = final if isinstance(final, tuple) else (final,)
    assert all(close(t, expected) for t, expected in zip(final, states, strict=True))
    assert close(x.grad, of_input)
    assert close(m.weight_hh_l0.grad, of_weight)


def test_packed_bidirectional():
    m = filled(nn.GRU(2, 2, bidirectional=True))
    packed = packing.pack_padded_sequence(steps(), [2, 3], enforce_sorted=False)
    out, h = m(packed)
    out, lengths = packing.pad_packed_sequence(out)
    assert close(
        out,
        [-0.12743, 0.08459, -0.1683, 0.16316, -0.12583, 0.00235, -0.10546, 0.15292, -0.31207, 0.14117, -0.15443, 0.11289,
         -0.19261, 0.0372, -0.10088, 0.14554, 0.0, 0.0, 0.0, 0.0, -0.23198, 0.09511, -0.06878, 0.10709],
    )  # fmt: skip
    assert close(h, [-0.31207, 0.14117, -0.23198, 0.09511, -0.1683, 0.16316, -0.10546, 0.15292])
    assert lengths.tolist() == [2, 3]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("reverse", [False, True])
def test_fused_gradients_equal_the_formula(kind, reverse):
    """Through all outputs, with sequences of different lengths."""
    torch.manual_seed(0)
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]
    mode = "RNN_TANH" if kind == "RNN" else kind
    sizes, hidden = (3, 3, 2, 1), 2
    state = [torch.randn(3, hidden, dtype=torch.float64) for _ in range(2 if kind == "LSTM" else 1)]
    inputs = [
        torch.randn(sum(sizes), 5, dtype=torch.float64),
        torch.randn(gates * hidden, 5, dtype=torch.float64),
        torch.randn(gates * hidden, dtype=torch.float64),
        torch.randn(gates * hidden, hidden, dtype=torch.float64),
        torch.randn(gates * hidden, dtype=torch.float64),
        *state,
    ]
    for t in inputs:
        t.requires_grad_()
    x, w_ih, b_ih, w, b, *state = inputs

    def by_steps():
        return run_steps(mode, torch.nn.functional.linear(x, w_ih, b_ih), tuple(state), sizes, reverse, (w, b, None))

    def by_primitive():
        return run_direction(mode, x, tuple(state), sizes, reverse, (w_ih, w, b_ih, b, None))

    fused, plain = by_primitive(), by_steps()
    for f, p in zip(fused, plain, strict=True):
        assert torch.allclose(f, p)
    weights = [torch.randn_like(p) for p in plain]
    loss = lambda outs: sum((o * w).sum() for o, w in zip(outs, weights))  # noqa: E731
    for f, p in zip(torch.autograd.grad(loss(fused), inputs), torch.autograd.grad(loss(plain), inputs)):
        assert torch.allclose(f, p)
    second = []
    for outs in (by_primitive(), by_steps()):
        first = torch.autograd.grad(loss(outs), inputs, create_graph=True)
        second.append(torch.autograd.grad(sum((g * g).sum() for g in first), inputs))
    for f, p in zip(*second, strict=True):
        assert torch.allclose(f, p)


def test_batch_first_and_unbatched_agree():
    m = filled(nn.LSTM(2, 3))
    b = filled(nn.LSTM(2, 3, batch_first=True))
    x = steps()
    out, (h, _) = m(x)
    assert torch.equal(b(x.transpose(0, 1))[0], out.transpose(0, 1))
    alone, (h0, _) = m(x[:, 0])
    assert alone.shape == (3, 3) and h0.shape == (1, 3)
    assert torch.allclose(alone, out[:, 0]) and torch.allclose(h0, h[:, 0])


def test_cells_are_one_step_of_the_layers():
    for layer, cell in ((nn.LSTM(2, 3), nn.LSTMCell(2, 3)), (nn.GRU(2, 3), nn.GRUCell(2, 3))):
        filled(layer)
        cell.load_state_dict({k[: -len("_l0")]: v for k, v in layer.state_dict().items()})
        x = steps()[:1]
        got = cell(x[0])
        got = got[0] if isinstance(got, tuple) else got
        assert torch.allclose(got, layer(x)[0][0], atol=1e-6)


def test_dropout_between_layers_only_in_training():
    m = nn.GRU(2, 2, num_layers=2, dropout=1.0)
    x = steps()
    assert not torch.allclose(m(x)[0], m.eval()(x)[0])
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last recurrent layer"):
        nn.GRU(2, 2, dropout=0.5)


def test_empty_batch():
    out, h = nn.GRU(2, 3)(torch.zeros(4, 0, 2))
    assert out.shape == (4, 0, 3) and h.shape == (1, 0, 3)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda m: m(torch.zeros(5, 2, 4)), RuntimeError, "input.size(-1) must be equal to input_size. Expected 3, got 4"),
        (lambda m: m(torch.zeros(5)), ValueError, "GRU: Expected input to be 2D or 3D, got 1D instead"),
        (lambda m: m(torch.zeros(5, 2, 3), torch.zeros(2, 2, 4)), RuntimeError, "Expected hidden size (1, 2, 4), got [2, 2, 4]"),
        (lambda m: m(torch.zeros(5, 3), torch.zeros(1, 2, 4)), RuntimeError, "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor"),
        (lambda m: nn.GRU(3, 0), ValueError, "hidden_size must be greater than zero"),
        (lambda m: nn.GRU(3, 4, proj_size=2), ValueError, "proj_size argument is only supported for LSTM, not RNN or GRU"),
        (lambda m: nn.RNN(3, 4, nonlinearity="x"), ValueError, "Unknown nonlinearity 'x'. Select from 'tanh' or 'relu'."),
    ],
)  # fmt: skip
def test_errors(call, error, message):
    with pytest.raises(error) as e:
        call(nn.GRU(3, 4))
    assert str(e.value) == message


def test_repr_and_parameter_names():
    m = nn.LSTM(3, 4, 2, dropout=0.5, bidirectional=True, batch_first=True)
    assert repr(m) == "LSTM(3, 4, num_layers=2, batch_first=True, dropout=0.5, bidirectional=True)"
    assert list(m.state_dict())[4:8] == [
        "weight_ih_l0_reverse",
        "weight_hh_l0_reverse",
        "bias_ih_l0_reverse",
        "bias_hh_l0_reverse",
    ]
    assert m.all_weights[1][0] is m.weight_ih_l0_reverse


# -- packing


def test_pack_and_pad_round_trip():
    x = torch.arange(30.0).view(5, 2, 3)
    packed = packing.pack_padded_sequence(x, [3, 4], enforce_sorted=False)
    assert packed.batch_sizes.tolist() == [2, 2, 2, 1]
    assert packed.sorted_indices.tolist() == [1, 0]
    assert packed.data[:, 0].tolist() == [3.0, 0.0, 9.0, 6.0, 15.0, 12.0, 21.0]
    padded, lengths = packing.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0, total_length=5)
    assert padded[:, :, 0].tolist() == [[0, 6, 12, -1, -1], [3, 9, 15, 21, -1]]
    assert lengths.tolist() == [3, 4]


def test_packing_is_differentiable():
    x = torch.ones(3, 2, requires_grad=True)
    packing.pack_padded_sequence(x, [3, 1]).data.sum().backward()
    assert x.grad.tolist() == [[1.0, 1.0], [1.0, 0.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    "lengths, message",
    [
        ([3, 5], "must be sorted in decreasing order when `enforce_sorted` is True"),
        ([5, 0], "found an element in 'lengths' that is <= 0"),
        ([5], r"but got 1 \(batch_size=2\)"),
        ([6, 5], "a length of 6 exceeds the input's 5 steps"),
    ],
)
def test_bad_lengths(lengths, message):
    with pytest.raises(RuntimeError, match=message):
        packing.pack_padded_sequence(torch.zeros(5, 2, 3), lengths)


def test_pad_sequence_sides():
    rows = [torch.ones(2), torch.ones(3)]
    assert packing.pad_sequence(rows, True, -1).tolist() == [[1, 1, -1], [1, 1, 1]]
    assert packing.pad_sequence(rows, True, -1, "left").tolist() == [[-1, 1, 1], [1, 1, 1]]
    assert [t.tolist() for t in packing.unpad_sequence(torch.arange(6).view(3, 2), torch.tensor([1, 3]))] == [
        [0],
        [1, 3, 5],
    ]


def test_packed_sequence_moves_as_a_whole():
    packed = packing.pack_sequence([torch.tensor([1.0, 2.0]), torch.tensor([3.0])])
    assert packed.double().data.dtype == torch.float64
    assert packed.to(torch.float32) is packed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [t.tolist() for t in packing.unpack_sequence(packed)] == [[1.0, 2.0], [3.0]]


@pytest.mark.parametrize("place", range(4))
def test_weights_of_other_shapes_are_refused(place):
    m = nn.LSTM(2, 3)
    weights = [w.detach() for w in m._flat_weights]
    weights[place] = weights[place][:-1].clone()
    h = torch.zeros(1, 2, 3)
    with pytest.raises(RuntimeError, match="shape"):
        torch.lstm(steps(), (h, h), weights, True, 1, 0.0, False, False, False)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_large_cell_is_a_step_of_the_layer(kind, bias):
    torch.manual_seed(0)
    layer, cell = getattr(nn, kind)(16, 20, bias=bias), getattr(nn, kind + "Cell")(16, 20, bias=bias)
    cell.load_state_dict({name.removesuffix("_l0"): value for name, value in layer.state_dict().items()})
    x = torch.randn(3, 16, 16, requires_grad=True)  # (steps, sequences, inputs)
    zeros = torch.zeros(16, 20)
    state = (zeros, zeros) if kind == "LSTM" else zeros
    outs = []
    for step in x:
        state = cell(step, state)
        outs.append(state[0] if kind == "LSTM" else state)
    for got, want in zip(torch.stack(outs), layer(x)[0], strict=True):
        assert torch.allclose(got, want, atol=1e-6)
    assert "Layer" in type(outs[-1].grad_fn).__name__  # one primitive, not a dozen operators
    loss = torch.stack(outs).square().sum()
    for got, want in zip(
        torch.autograd.grad(loss, [x, cell.weight_hh]), torch.autograd.grad(layer(x)[0].square().sum(), [x, layer.weight_hh_l0])
    ):
        assert torch.allclose(got, want, atol=1e-5)
