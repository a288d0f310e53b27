"""fake_quantize: values and errors as torch 2.13 has them; the gradient passes inside the range."""

from __future__ import annotations

import math

import pytest

import tocha as torch


def test_each_tensor():
    x = torch.tensor([0.0, 0.25, 0.75, 1.25, 1e9, -1e9, math.nan], requires_grad=True)
    y = torch.fake_quantize_per_tensor_affine(x, 0.5, 0, -128, 127)
    assert y.tolist() == [0.0, 0.0, 1.0, 1.0, 63.5, -64.0, -64.0]
    assert type(y.grad_fn).__name__ == "FakeQuantizePerTensorAffineCachemaskBackward0"
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    got = torch.fake_quantize_per_tensor_affine(x.detach(), torch.tensor([0.3]), torch.tensor(5), 0, 255)
    torch.testing.assert_close(got[:6], torch.tensor([0.0, 0.3, 0.6, 1.2, 75.0, -1.5]))
    assert torch.fake_quantize_per_tensor_affine(x.detach().half(), 0.5, 0, -128, 127).dtype is torch.float16
    assert torch.fake_quantize_per_tensor_affine(torch.zeros(3, 4, device="meta"), 0.5, 0, 0, 9).shape == (3, 4)


def test_each_channel():
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    scale, zero = torch.tensor([0.5, 0.3, 2.0]), torch.tensor([0, 1, 2], dtype=torch.int32)
    y = torch.fake_quantize_per_channel_affine(x, scale, zero, 0, 0, 20)
    torch.testing.assert_close(y, torch.tensor([[0.0, 1.0, 2.0, 3.0], [3.9, 5.1, 5.7, 5.7], [8.0, 8.0, 10.0, 12.0]]))
    y.sum().backward()
    assert x.grad.tolist() == [[1.0] * 4, [1.0, 1.0, 0.0, 0.0], [1.0] * 4]
    y = torch.fake_quantize_per_channel_affine(x.detach()[:1], scale[:1], torch.tensor([0.5]), 0, 0, 20)
    assert y.tolist() == [[-0.25, 0.75, 1.75, 2.75]]  # a fractional zero point is added before rounding
    flipped = torch.fake_quantize_per_channel_affine(x.detach().t(), scale, zero, 1, 0, 20)
    assert flipped.stride() == (1, 4)


def test_refusals():
    x = torch.zeros(3, 4)
    scale, zero = torch.ones(3), torch.zeros(3, dtype=torch.int32)
    each, channels = torch.fake_quantize_per_tensor_affine, torch.fake_quantize_per_channel_affine
    with pytest.raises(NotImplementedError):
        each(x.int(), 0.5, 0, 0, 9)
    for call in (
        lambda: each(x, 0.5, 10, 0, 9),
        lambda: each(x, 0.5, 0, 9, 0),
        lambda: channels(x, scale, zero, 1, 0, 9),
        lambda: channels(x, scale, zero.long(), 0, 0, 9),
        lambda: channels(x, scale, zero, -2, 0, 9),
        lambda: channels(x, scale[:2], zero, 0, 0, 9),
    ):
        with pytest.raises(RuntimeError, match="fake_quantize"):
            call()
    with pytest.raises(IndexError):
        channels(x, scale, zero, 2, 0, 9)
