"""Window functions: symmetric and periodic forms, parameters."""

import pytest

import tocha as torch
from tocha.signal import windows


@pytest.mark.parametrize(
    ("window", "want"),
    [
        (windows.bartlett(5), [0, 0.5, 1, 0.5, 0]),
        (windows.hann(5, sym=False), [0, 0.3454915, 0.9045085, 0.9045085, 0.3454915]),
        (windows.hamming(5), [0.08, 0.54, 1, 0.54, 0.08]),
        (windows.cosine(2), [0.7071068, 0.7071068]),
        (windows.exponential(5), [0.1353353, 0.3678794, 1, 0.3678794, 0.1353353]),
        (windows.general_cosine(3, a=[0.5, 0.5]), [0, 1, 0]),
        (torch.hann_window(4), [0, 0.5, 1, 0.5]),
        (torch.hamming_window(3, periodic=False, alpha=0.6, beta=0.4), [0.2, 1, 0.2]),
        (torch.bartlett_window(1), [1]),
        (torch.kaiser_window(0), []),
    ],
)
def test_values(window, want):
    assert window.tolist() == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: windows.hann(-1), ValueError), (lambda: windows.hann(3, dtype=torch.float16), ValueError),
        (lambda: windows.gaussian(3, std=-1), ValueError), (lambda: windows.kaiser(3, beta=-1), ValueError),
        (lambda: windows.exponential(3, center=1.0), ValueError), (lambda: windows.general_cosine(3, a=[]), ValueError),
        (lambda: torch.hann_window(-1), RuntimeError), (lambda: torch.hann_window(3, dtype=torch.int64), RuntimeError),
    ],
)  # fmt: skip
def test_errors(call, error):
    with pytest.raises(error):
        call()
