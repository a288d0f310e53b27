"""Attention and transformer layers against torch's values."""

from __future__ import annotations

import pytest

import tocha as torch
from tocha import nn
from tocha.nn.attention import SDPBackend, sdpa_kernel
from tocha.nn.attention.flex_attention import create_block_mask, flex_attention


def filled(module):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            n = p.numel()
            p.copy_(((torch.arange(n) * 7 + 3 * k) % 11).float().reshape(p.shape) / 11 - 0.4)
    return module


def sequence():
    return (torch.arange(12.0).reshape(1, 3, 4) % 5) / 5 - 0.3


def close(t, expected):
    return t.flatten().tolist() == pytest.approx(expected, abs=2e-5)


def test_multihead_attention():
    m = filled(nn.MultiheadAttention(4, 2, batch_first=True))
    x = sequence()
    out, weights = m(x, x, x)
    assert close(
        out,
        [0.53279, 0.04611, -0.21772, 0.2956, 0.53488, 0.04543, -0.21478, 0.29577, 0.53343, 0.04173, -0.21666, 0.29164],
    )  # fmt: skip
    assert close(weights, [0.32592, 0.33365, 0.34043, 0.32323, 0.35297, 0.3238, 0.33488, 0.32956, 0.33556])
    alone, none = m(x, x, x, need_weights=False)
    assert none is None and torch.allclose(alone, out, atol=1e-6)


def test_fully_masked_row_is_not_nan():
    m = nn.MultiheadAttention(4, 2, batch_first=True)
    x = sequence()
    mask = torch.zeros(3, 3, dtype=torch.bool)
    mask[1] = True
    out, weights = m(x, x, x, attn_mask=mask)
    assert torch.isfinite(out).all() and weights[0, 1].tolist() == [0.0, 0.0, 0.0]
    assert torch.allclose(out, m(x, x, x, attn_mask=mask, need_weights=False)[0], atol=1e-6)


def test_key_padding_and_separate_sizes():
    m = nn.MultiheadAttention(4, 2, kdim=3, vdim=5)
    q, k, v = torch.randn(2, 1, 4), torch.randn(3, 1, 3), torch.randn(3, 1, 5)
    padding = torch.tensor([[False, False, True]])
    out, weights = m(q, k, v, key_padding_mask=padding, average_attn_weights=False)
    assert weights.shape == (1, 2, 2, 3) and weights[..., 2].abs().max() == 0
    assert torch.allclose(out, m(q, k[:2], v[:2])[0], atol=1e-6)


def test_encoder_layer():
    m = filled(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True)).eval()
    assert close(
        m(sequence()),
        [0.09705, 0.28307, -0.11589, 0.46043, -0.14307, 0.29601, -0.1367, 0.70569, -0.09334, 0.25917, 0.39775, 0.74607],
    )  # fmt: skip


def test_encoder_leaves_zeros_at_padding_where_torch_drops_it():
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 4, batch_first=True), 1).eval()
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False, False, True], [False, False, False]])
    with torch.no_grad():
        dropped = encoder(x, src_key_padding_mask=padding)
    kept = encoder(x, src_key_padding_mask=padding)
    assert dropped[0, 2].tolist() == [0.0] * 4 and kept[0, 2].abs().max() > 0
    assert torch.allclose(dropped[0, :2], kept[0, :2], atol=1e-6)


def test_transformer_shapes_and_errors():
    m = nn.Transformer(8, 2, 1, 1, 16)
    assert m(torch.zeros(5, 2, 8), torch.zeros(3, 2, 8)).shape == (3, 2, 8)
    with pytest.raises(RuntimeError, match="the batch number of src and tgt must be equal"):
        m(torch.zeros(5, 3, 8), torch.zeros(3, 2, 8))
    with pytest.raises(RuntimeError, match="activation should be relu/gelu, not x"):
        nn.TransformerEncoderLayer(8, 2, activation="x")


def test_causal_mask():
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    assert mask.tolist() == [[0, float("-inf"), float("-inf")], [0, 0, float("-inf")], [0, 0, 0]]


def test_flex_attention_with_mask_and_score():
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 4, 4)
    assert block_mask.sparsity() == 100 * (1 - 128 * 128 / 16)  # of blocks, as torch counts
    masked = flex_attention(q, k, v, block_mask=block_mask)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    weights = ((q @ k.transpose(-2, -1)) / 8**0.5).masked_fill(~causal, float("-inf")).softmax(-1)
    assert torch.allclose(masked, weights @ v, atol=1e-6)
    bias = torch.tensor([0.5, 2.0])
    scored = flex_attention(q, k, v, lambda s, b, h, i, j: s - bias[h] * (i - j).abs())
    distance = (torch.arange(4)[:, None] - torch.arange(4)).abs() * bias[:, None, None]
    weights = ((q @ k.transpose(-2, -1)) / 8**0.5 - distance).softmax(-1)
    assert torch.allclose(scored, weights @ v, atol=1e-6)


def test_flex_attention_row_without_keys_is_zero():
    q = torch.randn(1, 1, 2, 4)
    mask = create_block_mask(lambda b, h, i, j: (i > 0) & (j >= 0), None, None, 2, 2)
    out, lse = flex_attention(q, q, q, block_mask=mask, return_lse=True)
    assert out[0, 0, 0].tolist() == [0.0] * 4 and lse[0, 0, 0].item() == float("-inf")


def test_choice_of_backend_is_scoped():
    from tocha.nn.attention import _cur_sdpa_kernel_backends

    before = _cur_sdpa_kernel_backends()
    with sdpa_kernel(SDPBackend.MATH):
        assert _cur_sdpa_kernel_backends() == [SDPBackend.MATH]
    assert _cur_sdpa_kernel_backends() == before


def test_returned_weights_are_the_ones_after_dropout():
    m = nn.MultiheadAttention(4, 2, dropout=1.0)
    x = torch.randn(3, 1, 4)
    assert m(x, x, x)[1].abs().max() == 0
    assert m.eval()(x, x, x)[1].sum(-1).tolist() == [[pytest.approx(1.0)] * 3]


def test_key_and_value_of_different_shapes_are_refused() -> None:
    query, key, value = torch.zeros(3, 2, 4), torch.zeros(3, 2, 4), torch.zeros(3, 1, 4)
    with pytest.raises(
        AssertionError, match=r"key shape torch.Size\(\[3, 2, 4\]\) does not match value shape torch.Size\(\[3, 1, 4\]\)"
    ):
        torch.nn.MultiheadAttention(4, 2)(query, key, value)
    with pytest.raises(AssertionError, match="key's sequence and batch dims"):
        torch.nn.MultiheadAttention(4, 2, kdim=4, vdim=5)(query, key, torch.zeros(2, 2, 5))
