"""Convolutions against their definition, and what depends on shapes."""

import itertools

import pytest

import tocha as torch
import tocha.nn.functional as F


def _by_definition(x, w, stride, padding, dilation, groups):
    """The cross-correlation as sums of shifted products, in ordinary slicing."""
    n, _, h, wd = x.shape
    o, per, kh, kw = w.shape
    padded = torch.zeros(n, x.shape[1], h + 2 * padding, wd + 2 * padding, dtype=x.dtype)
    padded[:, :, padding : padding + h, padding : padding + wd] = x
    oh = (padded.shape[2] - dilation * (kh - 1) - 1) // stride + 1
    ow = (padded.shape[3] - dilation * (kw - 1) - 1) // stride + 1
    out = torch.zeros(n, o, oh, ow, dtype=x.dtype)
    for c, k, i, j in itertools.product(range(o), range(per), range(kh), range(kw)):
        group = c // (o // groups)
        rows = slice(i * dilation, i * dilation + (oh - 1) * stride + 1, stride)
        columns = slice(j * dilation, j * dilation + (ow - 1) * stride + 1, stride)
        out[:, c] += w[c, k, i, j] * padded[:, group * per + k, rows, columns]
    return out


@pytest.mark.parametrize(
    "stride, padding, dilation, groups", [(1, 0, 1, 1), (2, 1, 1, 2), (1, 2, 2, 1), (3, 1, 1, 4), (2, 0, 1, 1)]
)
def test_conv2d_is_its_definition(stride, padding, dilation, groups):
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, 9, 8, dtype=torch.float64), torch.randn(8, 4 // groups, 3, 3, dtype=torch.float64)
    found = F.conv2d(x, w, None, stride, padding, dilation, groups)
    assert torch.allclose(found, _by_definition(x, w, stride, padding, dilation, groups))


def test_samples_agree_whatever_the_batch():
    torch.manual_seed(0)
    x, w = torch.randn(70, 3, 12, 12), torch.randn(5, 3, 3, 3)
    whole = F.conv2d(x, w)
    assert torch.allclose(whole[69:], F.conv2d(x[69:], w), atol=1e-5)
    assert torch.allclose(whole[3], F.conv2d(x[3], w), atol=1e-5)  # unbatched


def test_non_contiguous_input_and_channels_last():
    x = torch.arange(48.0).reshape(1, 3, 4, 4)
    w = torch.ones(2, 3, 1, 1)
    assert torch.equal(F.conv2d(x.transpose(2, 3), w), F.conv2d(x, w).transpose(2, 3))
    assert torch.equal(F.conv2d(x.contiguous(memory_format=torch.channels_last), w), F.conv2d(x, w))


def test_empty_batch_trains():
    w = torch.ones(4, 2, 3, 3, requires_grad=True)
    out = F.conv2d(torch.zeros(0, 2, 5, 5), w)
    assert out.shape == (0, 4, 3, 3)
    out.sum().backward()
    assert w.grad.abs().sum().item() == 0.0


def test_same_padding_puts_the_odd_element_last():
    out = F.conv1d(torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[[1.0, 10.0]]]), padding="same")
    assert out.tolist() == [[[21.0, 32.0, 3.0]]]
    with pytest.raises(RuntimeError, match="strided"):
        F.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 3), padding="same", stride=2)


def test_transposed_is_the_gradient():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 6, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 3, 3, 2, dtype=torch.float64)
    out = F.conv2d(x, w, stride=2)
    g = torch.randn(out.shape, dtype=torch.float64)
    (found,) = torch.autograd.grad(out, x, g)
    assert torch.allclose(F.conv_transpose2d(g, w, stride=2), found[:, :, :7, :6])


def test_transposed_output_padding():
    out = F.conv_transpose1d(torch.ones(1, 1, 2), torch.ones(1, 1, 2), stride=2, output_padding=1)
    assert out.tolist() == [[[1.0, 1.0, 1.0, 1.0, 0.0]]]
    with pytest.raises(RuntimeError, match="output padding must be smaller"):
        F.conv_transpose1d(torch.ones(1, 1, 2), torch.ones(1, 1, 2), stride=2, output_padding=2)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: F.conv2d(torch.ones(1, 3, 5, 5), torch.ones(4, 2, 3, 3)), "to have 2 channels, but got 3"),
        (lambda: F.conv2d(torch.ones(1, 2, 2, 2), torch.ones(4, 2, 3, 3)), r"\(2 x 2\). Kernel size: \(3 x 3\)"),
        (lambda: F.conv2d(torch.ones(5, 5), torch.ones(4, 2, 3, 3)), "Expected 3D"),
        (lambda: F.conv2d(torch.ones(1, 2, 5, 5), torch.ones(4, 2, 3, 3), stride=0), "non-positive stride"),
    ],
)
def test_errors_say_what_is_wrong(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_convolution_over_no_channels_is_an_empty_sum():
    x, w = torch.ones(1, 0, 4, 4, requires_grad=True), torch.ones(2, 0, 3, 3, requires_grad=True)
    y = F.conv2d(x, w, torch.tensor([1.0, 2.0]))
    assert (y.shape, y[0, 1].unique().tolist()) == ((1, 2, 2, 2), [2.0])
    y.sum().backward()
    assert (x.grad.shape, w.grad.shape) == (x.shape, w.shape)
    assert F.conv_transpose2d(torch.ones(1, 2, 4, 4), torch.ones(2, 0, 3, 3)).shape == (1, 0, 6, 6)


def test_transposed_convolution_refuses_negative_padding_and_empty_kernels():
    for kernel, padding in ((3, -1), (0, 0)):
        with pytest.raises(RuntimeError, match="padding can't be negative"):
            F.conv_transpose1d(torch.ones(1, 1, 4), torch.ones(1, 1, kernel), padding=padding)
