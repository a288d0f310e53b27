"""stft and istft undo each other; frames, windows, errors."""

import pytest

import tocha as torch

X = torch.sin(torch.arange(40.0).reshape(2, 20))
W = torch.hann_window(8)


@pytest.mark.parametrize(
    "options", [{}, {"hop_length": 4}, {"normalized": True}, {"win_length": 6, "hop_length": 3}, {"onesided": False}]
)
def test_round_trip(options):
    window = torch.hann_window(options.get("win_length", 8))
    y = torch.stft(X, 8, window=window, return_complex=True, **options)
    assert torch.allclose(torch.istft(y, 8, window=window, length=20, **options), X, atol=1e-5)


def test_shapes():
    assert torch.stft(X, 8, window=W, return_complex=True).shape == (2, 5, 11)
    assert torch.stft(X[0], 8, window=W, center=False, return_complex=False).shape == (5, 7, 2)
    assert torch.stft(X + 0j, 8, window=W).shape == (2, 8, 11)


def test_gradient_through_both():
    x = X.double().requires_grad_()
    y = torch.stft(x, 8, window=W.double(), return_complex=True)
    (torch.istft(y * 3, 8, window=W.double()) ** 2).sum().backward()
    assert torch.allclose(x.grad, 18 * X.double(), atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"return_complex": True, "hop_length": 0},
        {"return_complex": True, "win_length": 9},
        {"return_complex": True, "window": W[:5]},
    ],
)
@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_errors(options):
    with pytest.raises(RuntimeError):
        torch.stft(X, 8, **options)


def test_windows_that_leave_gaps_are_refused():
    y = torch.stft(X, 8, window=W, center=False, return_complex=True)
    with pytest.raises(RuntimeError, match="overlap add"):
        torch.istft(y, 8, window=W, center=False)
