"""Fourier transforms: types, sizes, norms, gradients."""

import math

import pytest

import tocha as torch

X = torch.tensor([[1.0, 2.0, 4.0], [0.0, -1.0, 3.0]])


def test_types_and_shapes():
    assert torch.fft.fft(X).dtype is torch.complex64
    assert torch.fft.rfft(X.double()).dtype is torch.complex128
    assert torch.fft.rfft(X).shape == (2, 2)
    assert torch.fft.irfft(torch.fft.rfft(X), n=3).dtype is torch.float32
    assert torch.fft.fft(X.int()).dtype is torch.complex64
    assert torch.fft.fftn(X, s=(4,)).shape == (2, 4)
    assert torch.fft.hfft(torch.fft.ihfft(X, n=4)).shape == (2, 4)


def test_round_trips():
    for forward, back in (("fft", "ifft"), ("fft2", "ifft2"), ("rfft2", "irfft2"), ("ihfft2", "hfft2")):
        for norm in (None, "ortho", "forward"):
            y = getattr(torch.fft, forward)(X, norm=norm)
            options = {"s": (2, 3)} if back in ("irfft2", "hfft2") else {}
            z = getattr(torch.fft, back)(y, norm=norm, **options)
            assert torch.allclose(z.real, X, atol=1e-6), (forward, norm)


def test_known_values():
    y = torch.fft.rfft(torch.tensor([1.0, 2.0, 4.0]))
    assert y[0].item() == 7
    assert y[1].imag.item() == pytest.approx(math.sqrt(3))
    assert torch.fft.fftfreq(4).tolist() == [0, 0.25, -0.5, -0.25]
    assert torch.fft.fftshift(torch.arange(5)).tolist() == [3, 4, 0, 1, 2]
    assert torch.fft.ifftshift(torch.fft.fftshift(torch.arange(5))).tolist() == [0, 1, 2, 3, 4]


def test_gradient_is_the_adjoint():
    x = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64, requires_grad=True)
    torch.fft.rfft(x).abs().square().sum().backward()
    # |y0|^2 + |y1|^2 + |y2|^2 by hand: y0 = sum, y2 = alternating sum, y1 = (a-c) - i(b-d)
    a, b, c, d = 1.0, 2.0, 4.0, 8.0
    s, t = a + b + c + d, a - b + c - d
    want = [2 * s + 2 * t + 2 * (a - c), 2 * s - 2 * t + 2 * (b - d), 2 * s + 2 * t - 2 * (a - c), 2 * s - 2 * t - 2 * (b - d)]
    assert x.grad.tolist() == pytest.approx(want)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: torch.fft.fft(torch.tensor(1.0)), IndexError), (lambda: torch.fft.fft(X, n=0), RuntimeError),
        (lambda: torch.fft.fft(X, norm="x"), RuntimeError), (lambda: torch.fft.fftn(X, dim=(0, 0)), RuntimeError),
        (lambda: torch.fft.rfft(X + 0j), RuntimeError), (lambda: torch.fft.fft(X.half()), RuntimeError),
        (lambda: torch.fft.fftn(X, s=(1, 2, 3)), RuntimeError), (lambda: torch.fft.irfft(X[:, :1]), RuntimeError),
    ],
)  # fmt: skip
def test_errors(call, error):
    with pytest.raises(error):
        call()
