"""First and second derivatives of moving operators against finite differences."""

import math

import pytest

import tocha as torch
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
