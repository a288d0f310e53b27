"""Short-time Fourier transform and its inverse (torch docs: torch.stft, torch.istft)."""

from __future__ import annotations

import warnings

import numpy as np

from tocha.backends import for_device
from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.prims import indexing, spectral
from tocha.prims.arrange import constant_pad
from tocha.tensor import Tensor, wrap


def _lengths(n_fft: int, hop: int | None, win: int | None, window: Tensor | None, name: str) -> tuple[int, int]:
    hop_length = n_fft // 4 if hop is None else hop
    win_length = n_fft if win is None else win
    if window is None:
        warnings.warn(
            "A window was not provided. A rectangular window will be applied, which is known to cause spectral leakage. Other "
            "windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage.",
            UserWarning,
            stacklevel=4,
        )
    if hop_length <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={hop_length}")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={win_length}, n_fft={n_fft}")
    if window is not None and (window.ndim != 1 or window._a.shape[0] != win_length):
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size "
            f"{list(window.shape)}"
        )
    return hop_length, win_length


def _full_window(window: Tensor | None, n_fft: int, win_length: int, like: Tensor) -> Tensor | None:
    """The window with zeros around it up to n_fft; None for all ones."""
    if window is None:
        if win_length == n_fft:
            return None
        window = like.real.new_ones(win_length)
    if win_length == n_fft:
        return window
    left = (n_fft - win_length) // 2
    return constant_pad(window, pad=((left, n_fft - win_length - left),), value=0)


def _padded(input: Tensor, n: int, mode: str) -> Tensor:
    """n elements more at both ends of the last dimension."""
    if mode == "constant":
        return constant_pad(input, pad=((0, 0),) * (input.ndim - 1) + ((n, n),), value=0)
    length = input._a.shape[-1]
    modes = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    if mode not in modes:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if mode == "reflect" and n >= length:
        raise RuntimeError(
            f"stft: Argument #4: Padding size should be less than the corresponding input dimension, but got: padding ({n}, {n}) at "
            f"dimension {input.ndim - 1} of input {list(input.shape)}"
        )
    positions = np.pad(np.arange(length), n, mode=modes[mode])  # type: ignore[call-overload]
    where = for_device(input.device).from_host(positions)
    return indexing.index(input, wrap(where), dims=(input.ndim - 1,))


@op("torch method")
def stft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool | None = None, align_to_window: bool | None = None,
) -> Tensor:  # fmt: skip
    """Transforms of overlapping windowed frames: (batch, frequencies, frames) (torch docs: torch.stft)."""
    check_tensor(input, "stft")
    dtype = input.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"stft expected a tensor of floating point or complex values, got {dtype.name}")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, got shape {list(input.shape)}")
    complex_out = dtype.is_complex or (window is not None and window.is_complex())
    if return_complex is None and not complex_out:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs.")
    if align_to_window is not None and center:
        raise RuntimeError("stft: align_to_window should only be set when center = false")
    x = input if input.ndim == 2 else input.unsqueeze(0)
    hop, win = _lengths(n_fft, hop_length, win_length, window, "stft")
    if center:
        x = _padded(x, n_fft // 2, pad_mode)
    elif align_to_window:
        left = (n_fft - win) // 2
        x = constant_pad(x, pad=((0, 0), (left, left)), value=0)
    length = x._a.shape[-1]
    if not 0 < n_fft <= length:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {length}, but got n_fft={n_fft}")
    frames = x.unfold(-1, n_fft, hop)
    full = _full_window(window, n_fft, win, x)
    if full is not None:
        frames = frames * full
    one = not complex_out if onesided is None else onesided
    if complex_out and one:
        raise RuntimeError("Cannot have onesided output if window or input is complex")
    norm = "ortho" if normalized else "backward"
    if one:
        out = spectral.fft_r2c(frames, dims=(2,), norm=norm)
    else:
        whole = frames if frames.is_complex() else frames.to(frames.dtype.to_complex())
        out = spectral.fft_c2c(whole, dims=(2,), norm=norm, forward=True)
    out = out.transpose(1, 2)
    out = out if input.ndim == 2 else out.squeeze(0)
    return out if return_complex or return_complex is None else out.view_as_real()


def _overlap_add(frames: Tensor, hop: int) -> Tensor:
    """(batch, frames, n) summed where they overlap: (batch, hop * (frames - 1) + n)."""
    batch, count, n = frames._a.shape
    positions = hop * np.arange(count)[:, None] + np.arange(n)
    where = wrap(for_device(frames.device).from_host(positions))
    flat = frames.new_zeros((batch, hop * (count - 1) + n))
    return indexing.index_put(flat, frames, where, dims=(1,), accumulate=True)


@op("torch method")
def istft(
    input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Tensor | None = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False,
) -> Tensor:  # fmt: skip
    """The signal whose stft is nearest to the input: windowed frames overlapped and added, over the windows' own sum
    of squares (Griffin and Lim 1984; torch docs: torch.istft)."""
    if not check_tensor(input, "istft").is_complex():
        raise RuntimeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    if input.ndim not in (2, 3):
        raise RuntimeError(f"istft: expected a tensor with 2 or 3 dimensions, but got {input.ndim}")
    hop, win = _lengths(n_fft, hop_length, win_length, window, "istft")
    x = input if input.ndim == 3 else input.unsqueeze(0)
    bins = x._a.shape[1]
    one = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if one else n_fft):
        raise RuntimeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft ({n_fft}) when onesided="
            f"{one}, but got {bins}"
        )
    if return_complex and one:
        raise RuntimeError("Cannot have onesided output if return_complex=True")
    spectrum, norm = x.transpose(1, 2), "ortho" if normalized else "backward"
    if one:
        frames = spectral.fft_c2r(spectrum, dims=(2,), norm=norm, size=n_fft)
    else:
        frames = spectral.fft_c2c(spectrum, dims=(2,), norm=norm, forward=False)
        frames = frames if return_complex else frames.real
    full = _full_window(window, n_fft, win, frames)
    weight = frames.real.new_ones(n_fft) if full is None else full
    signal = _overlap_add(frames * weight, hop)
    envelope = _overlap_add((weight * weight).expand((1, frames._a.shape[1], n_fft)), hop)
    start = n_fft // 2 if center else 0
    whole = signal._a.shape[-1]
    end = start + length if length is not None else whole - (n_fft // 2 if center else 0)
    signal, envelope = signal[:, start:end], envelope[:, start:end]
    if envelope._a.size and not envelope.is_meta and float(envelope.detach().abs().min().item()) < 1e-11:
        raise RuntimeError("window overlap add min: 1 is not fulfilled: windows of these lengths leave gaps in the signal")
    out = signal / envelope
    if end > whole:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail. Please "
            "check your center and hop_length settings.",
            UserWarning,
            stacklevel=3,
        )
        out = constant_pad(out, pad=((0, 0), (0, end - whole)), value=0)
    return out if input.ndim == 3 else out.squeeze(0)
