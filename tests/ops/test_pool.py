"""Pooling: NaN, ties, padding, ceil mode, indices."""

import math

import pytest

import tocha as torch
import tocha.nn.functional as F

NAN, INF = math.nan, math.inf


def test_max_pool_passes_nan_and_minus_infinity():
    x = torch.tensor([[[1.0, NAN], [NAN, 1.0]]])
    out, at = F.max_pool2d(x, 2, return_indices=True)
    assert math.isnan(out.item()) and at.item() == 2
    low = torch.full((1, 1, 2, 2), -INF)
    out, at = F.max_pool2d(low, 2, padding=1, stride=2, return_indices=True)
    assert out.flatten().tolist() == [-INF] * 4 and at.flatten().tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("return_indices", [False, True])
def test_ties_give_the_gradient_to_the_first(return_indices):
    x = torch.ones(1, 1, 2, 4, requires_grad=True)
    out = F.max_pool2d(x, 2, stride=(2, 1), return_indices=return_indices)
    (out[0] if return_indices else out).sum().backward()
    assert x.grad.tolist() == [[[[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]]


def test_gradient_without_indices_is_that_with_them():
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 8, requires_grad=True)
    a = F.max_pool2d(x, 3, 2, 1, dilation=2)
    b = F.max_pool2d(x, 3, 2, 1, dilation=2, return_indices=True)[0]
    g = torch.randn(a.shape)
    assert torch.allclose(torch.autograd.grad(a, x, g)[0], torch.autograd.grad(b, x, g)[0], atol=1e-6)


def test_ceil_mode_starts_no_window_in_the_padding():
    x = torch.arange(1.0, 6.0).reshape(1, 1, 5)
    assert F.max_pool1d(x, 2, ceil_mode=True).tolist() == [[[2.0, 4.0, 5.0]]]
    assert F.avg_pool1d(x, 2, ceil_mode=True).tolist() == [[[1.5, 3.5, 5.0]]]
    assert F.max_pool1d(x, 3, stride=3, padding=1, ceil_mode=True).tolist() == [[[2.0, 5.0]]]


def test_avg_pool_counts_padding_or_not():
    x = torch.ones(1, 1, 2, 2)
    assert F.avg_pool2d(x, 2, 2, 1).flatten().tolist() == [0.25] * 4
    assert F.avg_pool2d(x, 2, 2, 1, count_include_pad=False).flatten().tolist() == [1.0] * 4
    assert F.avg_pool2d(x, 2, divisor_override=2).item() == 2.0
    assert F.avg_pool1d(torch.tensor([[[-3, 2]]]), 2).tolist() == [[[0]]]  # integers truncate


def test_adaptive_windows_overlap_where_sizes_do_not_divide():
    x = torch.arange(5.0).reshape(1, 1, 5)
    assert F.adaptive_avg_pool1d(x, 3).tolist() == [[[0.5, 2.0, 3.5]]]
    assert F.adaptive_max_pool1d(x, 3, return_indices=True)[1].tolist() == [[[1, 3, 4]]]
    assert F.adaptive_avg_pool2d(torch.ones(2, 3, 4, 5), (None, 1)).shape == (2, 3, 4, 1)


def test_unpool_puts_maxima_back():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    out, at = F.max_pool2d(x, 2, return_indices=True)
    back = F.max_unpool2d(out, at, 2)
    assert back.sum().item() == 5 + 7 + 13 + 15 and back[0, 0, 1, 1].item() == 5.0
    with pytest.raises(RuntimeError, match="invalid max index"):
        F.max_unpool2d(out, at + 100, 2)


def test_empty_batch_and_refused_shapes():
    assert F.max_pool2d(torch.ones(0, 2, 4, 4), 2).shape == (0, 2, 2, 2)
    with pytest.raises(RuntimeError, match="too small"):
        F.max_pool2d(torch.ones(1, 2, 5, 5), 6)
    with pytest.raises(RuntimeError, match="half of effective kernel"):
        F.avg_pool2d(torch.ones(1, 2, 5, 5), 2, padding=2)


def test_fold_is_the_transpose_of_unfold():
    torch.manual_seed(0)
    x, y = torch.randn(1, 2, 5, 4), torch.randn(1, 8, 6)
    columns = F.unfold(x, 2, dilation=2, padding=1, stride=2)
    assert columns.shape == y.shape
    back = F.fold(y, (5, 4), 2, dilation=2, padding=1, stride=2)
    assert abs((columns * y).sum().item() - (x * back).sum().item()) < 1e-4
