"""Activations at NaN, infinity and kinks; softmax; in-place forms."""

import math

import pytest

import tocha as torch
import tocha.nn.functional as F

NAN, INF = math.nan, math.inf


def _same(found, expected):
    assert found.tolist() == pytest.approx(expected, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize(
    "call, expected",
    [
        (F.relu, [0.0, 0.0, 1.0, NAN, INF]),
        (F.relu6, [0.0, 0.0, 1.0, NAN, 6.0]),
        (F.leaky_relu, [-INF, 0.0, 1.0, NAN, INF]),
        (F.elu, [-1.0, 0.0, 1.0, NAN, INF]),
        (F.silu, [NAN, 0.0, 0.7310586, NAN, INF]),
        (F.softplus, [0.0, 0.6931472, 1.3132616, NAN, INF]),
        (F.logsigmoid, [-INF, -0.6931472, -0.3132617, NAN, 0.0]),
        (F.hardswish, [NAN, 0.0, 0.6666667, NAN, INF]),
        (F.hardsigmoid, [0.0, 0.5, 0.6666667, NAN, 1.0]),
        (F.hardshrink, [-INF, 0.0, 1.0, NAN, INF]),
        (F.gelu, [NAN, 0.0, 0.8413447, NAN, INF]),
        (F.tanhshrink, [-INF, 0.0, 0.2384058, NAN, INF]),
    ],
)
def test_values_at_the_edges(call, expected):
    _same(call(torch.tensor([-INF, 0.0, 1.0, NAN, INF])), expected)


@pytest.mark.parametrize(
    "call, at, expected",
    [
        (F.relu, 0.0, 0.0),
        (F.relu6, 6.0, 0.0),
        (F.hardtanh, -1.0, 0.0),
        (F.leaky_relu, 0.0, 0.01),
        (F.elu, 0.0, 1.0),
        (F.hardsigmoid, 3.0, 0.0),
        (F.hardswish, -3.0, 0.0),
        (F.hardshrink, 0.5, 0.0),
        (F.softshrink, -0.5, 0.0),
        (F.softplus, 21.0, 1.0),
    ],
)
def test_slopes_at_the_kinks(call, at, expected):
    x = torch.tensor(at, requires_grad=True)
    call(x).backward()
    assert x.grad.item() == pytest.approx(expected)


def test_relu_blocks_what_is_not_finite():
    x = torch.full((5000,), -1.0, requires_grad=True)
    F.relu(x).backward(torch.full((5000,), INF))
    assert x.grad.abs().sum().item() == 0.0


def test_large_and_small_arrays_agree():
    x = torch.linspace(-6, 6, 5001)
    for call in (F.gelu, F.relu, F.silu, F.leaky_relu, F.softshrink):
        parts = torch.cat([call(p) for p in x.split(100)])
        assert torch.allclose(call(x), parts, atol=1e-6, rtol=1e-6)


def test_inplace_changes_the_tensor_and_its_gradient():
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    y = x * 3
    assert F.elu(y, inplace=True) is y
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([3 * math.exp(-3.0), 3.0])
    with pytest.raises(RuntimeError, match="leaf Variable"):
        F.relu(x, inplace=True)


def test_softmax_is_stable_and_keeps_types():
    assert F.softmax(torch.tensor([1000.0, 1000.0]), 0).tolist() == [0.5, 0.5]
    assert F.log_softmax(torch.tensor([0.0, -INF]), 0).tolist() == [0.0, -INF]
    assert torch.isnan(F.softmax(torch.tensor([-INF, -INF]), 0)).all()
    assert F.softmax(torch.tensor([1, 2]), 0, dtype=torch.float64).dtype is torch.float64
    assert F.softmax(torch.tensor(3.0), 0).item() == 1.0
    assert F.softmax(torch.zeros(2, 0), 1).shape == (2, 0)
    with pytest.raises(NotImplementedError):
        F.softmax(torch.tensor([1, 2]), 0)
    with pytest.raises(IndexError):
        F.softmax(torch.ones(2), 1)


def test_glu_and_prelu_shapes():
    assert F.glu(torch.tensor([2.0, 0.0])).tolist() == [1.0]
    with pytest.raises(RuntimeError, match="must be even"):
        F.glu(torch.ones(3))
    x = torch.full((1, 2, 3), -1.0)
    w = torch.tensor([0.5, 2.0], requires_grad=True)
    out = F.prelu(x, w)
    assert out[0, :, 0].tolist() == [-0.5, -2.0]
    out.sum().backward()
    assert w.grad.tolist() == [-3.0, -3.0]
    with pytest.raises(RuntimeError, match="channel size"):
        F.prelu(x, torch.ones(3))


def test_softmax_of_a_number_is_a_tensor_of_its_own():
    x = torch.tensor(3.0, requires_grad=True)
    for function in (torch.softmax, torch.log_softmax, torch.nn.functional.softmin):
        y = function(x, 0)
        assert y._base is None and y.shape == ()
        y.add_(1).backward()
        assert x.grad == 0


def test_types_that_torch_refuses():
    truth, whole = torch.tensor([True]), torch.tensor([1, 2])
    for kind, call in (
        (RuntimeError, lambda: torch.relu(truth)),
        (NotImplementedError, lambda: F.threshold(truth, 0, 0)),
        (NotImplementedError, lambda: F.glu(whole)),
        (RuntimeError, lambda: F.prelu(whole, torch.tensor([1.0]))),
        (NotImplementedError, lambda: F.prelu(whole, torch.tensor([1]))),
    ):
        with pytest.raises(kind) as raised:
            call()
        assert type(raised.value) is kind
