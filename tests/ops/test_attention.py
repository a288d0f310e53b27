"""Attention: masks, rows that are hidden entirely, grouped heads."""

import math

import pytest

import tocha as torch
import tocha.nn.functional as F


def _by_definition(q, k, v, mask=None):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores if mask is None else scores + mask, -1) @ v


def test_masks_of_either_kind():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)
    seen = torch.tensor([[True, False, True, True, False]] * 3)
    added = torch.zeros(3, 5).masked_fill(~seen, -math.inf)
    expected = _by_definition(q, k, v, added)
    assert torch.allclose(F.scaled_dot_product_attention(q, k, v, seen), expected, atol=1e-6)
    assert torch.allclose(F.scaled_dot_product_attention(q, k, v, added), expected, atol=1e-6)


def test_causal_hides_what_comes_later():
    torch.manual_seed(0)
    q, k, v = torch.randn(1, 2, 4), torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(out[:, 0], v[:, 0], atol=1e-6)
    assert torch.allclose(out[:, 1:], _by_definition(q[:, 1:], k[:, :2], v[:, :2]), atol=1e-6)


def test_a_row_that_sees_nothing_is_zero_and_has_no_gradient():
    q = torch.randn(1, 2, 4, requires_grad=True)
    k, v = torch.randn(1, 3, 4), torch.randn(1, 3, 4)
    mask = torch.tensor([[False] * 3, [True] * 3])
    out = F.scaled_dot_product_attention(q, k, v, mask)
    assert out[0, 0].tolist() == [0.0] * 4
    out.sum().backward()
    assert q.grad[0, 0].tolist() == [0.0] * 4 and torch.isfinite(q.grad).all()


def test_grouped_heads_share_keys():
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 3, 5), torch.randn(2, 2, 6, 5), torch.randn(2, 2, 6, 5)
    out = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    wide_k, wide_v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
    assert torch.allclose(out, _by_definition(q, wide_k, wide_v), atol=1e-6)


def test_scale_and_refused_arguments():
    q = torch.ones(1, 2, 3)
    v = torch.tensor([[[1.0], [3.0]]])
    assert torch.allclose(F.scaled_dot_product_attention(q, q, v, scale=0.0), torch.full((1, 2, 1), 2.0))
    with pytest.raises(RuntimeError, match="is_causal"):
        F.scaled_dot_product_attention(q, q, v, torch.ones(2, 2, dtype=torch.bool), is_causal=True)
    with pytest.raises(RuntimeError, match="dtype"):
        F.scaled_dot_product_attention(q, q.double(), v)


def test_dropout_of_everything_gives_zeros():
    q = torch.randn(1, 2, 3)
    assert F.scaled_dot_product_attention(q, q, q, dropout_p=1.0).abs().sum().item() == 0.0


@pytest.mark.parametrize(("heads", "shared", "keys"), [(6, 3, 0), (6, 4, 0), (6, 0, 2), (0, 0, 2), (0, 3, 2)])
def test_grouped_heads_without_elements(heads, shared, keys):
    q, k = torch.ones(3, heads, 2, 8, requires_grad=True), torch.ones(3, shared, keys, 8, requires_grad=True)
    out = F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    assert torch.equal(out, torch.zeros(3, heads, 2, 8))
    out.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q)) and torch.equal(k.grad, torch.zeros_like(k))
