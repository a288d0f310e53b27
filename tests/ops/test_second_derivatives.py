"""First and second derivatives of moving operators against finite differences."""

import math

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha.autograd import gradcheck, gradgradcheck

L = torch.tensor


def numbers(*shape, start=1):
    """Distinct numbers without pattern."""
    count = math.prod(shape)
    return torch.sin(torch.arange(float(start), count + start, dtype=torch.float64) * 1.7).reshape(shape).requires_grad_()


def assigned(x, v):
    y = x * 1
    y[:, 1] = v
    return y


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: x[:, L([0, 2, 0])], [(2, 3)]),
        (lambda x, v: x.index_put((L([1, 1]),), v, accumulate=True), [(2, 3), (2, 3)]),
        (lambda x, v: x.scatter(1, L([[0, 1], [2, 1]]), v), [(2, 3), (2, 3)]),
        (lambda x, v: x.scatter_reduce(1, L([[0, 0, 1], [2, 1, 1]]), v, "prod"), [(2, 3), (2, 3)]),
        (lambda x, v: x.scatter_reduce(1, L([[0, 0, 1], [2, 1, 1]]), v, "amax"), [(2, 3), (2, 3)]),
        (lambda x, v: x.masked_scatter(x.detach() > 0, v), [(2, 3), (7,)]),
        (assigned, [(2, 3), (2,)]),
        (lambda x: x.as_strided((2, 2), (1, 2), 1), [(2, 3)]),
        (lambda x: x.unfold(1, 2, 1), [(2, 4)]),
        (lambda x: x.repeat(2, 1, 2), [(2, 3)]),
        (lambda x: torch.constant_pad_nd(x, (1, -1, 2, 0), 3.0), [(2, 3)]),
        (lambda x: torch.fft.rfft2(x, norm="ortho").real, [(3, 4)]),
        (lambda x, y: torch.fft.irfft(torch.complex(x, y), n=5), [(2, 3), (2, 3)]),
    ],
)
def test_derivatives(function, shapes):
    inputs = tuple(numbers(*shape, start=1 + 10 * i) for i, shape in enumerate(shapes))
    assert gradcheck(function, inputs)
    assert gradgradcheck(lambda *xs: function(*xs) ** 2, inputs)


LINEAR_IN_PIECES = {
    "relu": F.relu,
    "relu_": lambda x: x.clone().relu_(),
    "relu6": F.relu6,
    "leaky_relu": F.leaky_relu,
    "leaky_relu_": lambda x: F.leaky_relu_(x.clone()),
    "hardtanh": F.hardtanh,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 0.5),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "prelu": lambda x: F.prelu(x, L([0.25], dtype=torch.float64)),
    "nll": lambda x: F.nll_loss(x[0, 0], L([0, 3, 1, 2])),
    "max_pool1d": lambda x: F.max_pool1d(x[0], 2),
    "max_pool2d": lambda x: F.max_pool2d(x, 2),
    "max_pool3d": lambda x: F.max_pool3d(x, 2),
    "with_indices": lambda x: F.max_pool2d(x, 2, return_indices=True)[0],
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "adaptive_max": lambda x: F.adaptive_max_pool2d(x, 3),
    "adaptive_avg": lambda x: F.adaptive_avg_pool2d(x, 3),
    "area": lambda x: F.interpolate(x, size=(3, 3), mode="area"),
    "unpool": lambda x: F.max_unpool2d(x, L(range(16)).reshape(1, 1, 4, 4).repeat(1, 4, 1, 1), 1),
    "reflect": lambda x: F.pad(x[0], (1, 2), mode="reflect"),
    "replicate": lambda x: F.pad(x[0], (1, 2), mode="replicate"),
    "polar": lambda x: torch.polar(x, x.detach()).real,
}


@pytest.mark.parametrize("name", LINEAR_IN_PIECES)
def test_second_derivatives_of_what_is_linear_in_pieces_are_zeros(name):
    x, function = numbers(1, 4, 4, 4), LINEAR_IN_PIECES[name]
    out = function(x)
    v = torch.ones_like(out).requires_grad_()
    (g,) = torch.autograd.grad(out, x, v, create_graph=True)
    of_x, of_v = torch.autograd.grad((g * g).sum(), (x, v))
    least = 1e-12 if name == "polar" else 0.0  # which leaves rounding, in torch too
    assert of_x.shape == x.shape and of_x.abs().max() <= least
    assert of_v.any()
    (g,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].abs().max() <= least


def test_moving_operators_are_not_connected_twice():
    x = numbers(1, 4, 4, 4)
    for function in (
        lambda x: F.pad(x[0], (1, 2), mode="circular"),
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    ):
        assert not torch.autograd.grad(function(x).sum(), x, create_graph=True)[0].requires_grad


def test_both_arguments_of_prelu_get_zeros_from_their_own_gradient():
    x, weight = numbers(3, 4), L([0.25], dtype=torch.float64, requires_grad=True)
    of_x, of_weight = torch.autograd.grad(F.prelu(x, weight).sum(), (x, weight), create_graph=True)
    below = (x.detach() <= 0).double()
    got = torch.autograd.grad(of_x.sum(), (x, weight), retain_graph=True)
    assert torch.equal(got[0], torch.zeros_like(x)) and got[1].item() == below.sum().item()
    got = torch.autograd.grad(of_weight.sum(), (x, weight))
    assert torch.equal(got[0], below) and got[1].tolist() == [0.0]


def test_gradient_penalty_reaches_every_parameter_before_a_rectifier():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    x = torch.randn(5, 3, requires_grad=True)
    (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    ((g.norm(dim=1) - 1) ** 2).mean().backward()
    assert model[0].bias.grad.tolist() == [0.0] * 4
    assert torch.equal(x.grad, torch.zeros(5, 3))
    assert model[0].weight.grad.any() and model[2].bias.grad is None


def test_first_order_gradients_have_no_history():
    x = numbers(1, 4, 4, 4)
    out = F.avg_pool2d(x, 2)
    assert not torch.autograd.grad(out.sum(), x)[0].requires_grad
    assert out.grad_fn.name() == "AvgPool2DBackward0"


def test_nearest_places_get_zeros():
    image, grid = torch.arange(16.0).reshape(1, 1, 4, 4), torch.zeros(1, 2, 2, 2, requires_grad=True)
    F.grid_sample(image, grid, mode="nearest", align_corners=False).sum().backward()
    assert torch.equal(grid.grad, torch.zeros(1, 2, 2, 2))


def test_the_count_of_non_zeros_has_no_gradient():
    x = numbers(3)
    out = torch.linalg.vector_norm(x, 0)
    assert out.requires_grad and torch.autograd.grad(out, x, allow_unused=True) == (None,)
