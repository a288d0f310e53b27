"""flex_attention: values and gradients against attention written out, block tables (from torch 2.13), errors, and compiled."""

import pytest

import tocha as torch
from tocha.nn.attention.flex_attention import create_block_mask, flex_attention


def causal(b, h, i, j):
    return i >= j


def _inputs(*shape):
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for _ in range(3)]


def test_block_tables():
    mask = create_block_mask(causal, None, None, 10, 12, device="cpu", BLOCK_SIZE=4)
    assert mask.kv_num_blocks.tolist() == [[[1, 1, 3]]] and mask.kv_indices.tolist() == [[[[0, 1, 2], [1, 0, 2], [0, 1, 2]]]]
    assert mask.full_kv_num_blocks.tolist() == [[[0, 1, 0]]] and mask.full_kv_indices.tolist() == [[[[0, 1, 2]] * 3]]
    assert mask.q_num_blocks.tolist() == [[[2, 2, 1]]] and mask.q_indices.tolist() == [[[[0, 2, 1], [1, 2, 0], [2, 0, 1]]]]
    assert mask.full_q_num_blocks.tolist() == [[[1, 0, 0]]] and mask.kv_indices.dtype == torch.int32
    assert mask.sparsity() == pytest.approx(20) and mask.to_dense().tolist() == [[[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]]
    assert mask._adjust(6, 8).to_dense().tolist() == [[[[1, 0], [1, 1]]]]
    whole = create_block_mask(causal, None, None, 8, 8, device="cpu", BLOCK_SIZE=4, separate_full_blocks=False)
    assert whole.full_kv_num_blocks is None and whole.kv_num_blocks.tolist() == [[[1, 2]]]


def test_masks_of_some_batches_and_heads():
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (b == 0) & (h != 1), 2, 3, 8, 8, device="cpu", BLOCK_SIZE=4)
    assert mask[1].shape == (1, 3, 8, 8) and mask[:, 1:3].shape == (2, 2, 8, 8)
    assert torch.equal(mask[1].to_dense(), mask.to_dense()[1:2]) and torch.equal(mask[-2, 1:].to_dense(), mask.to_dense()[:1, 1:])
    with pytest.raises(IndexError):
        mask[5]


@pytest.mark.parametrize("backend", [None, "eager", "inductor"])
def test_scores_masks_and_gradients(backend):
    q, k, v = _inputs(1, 2, 16, 8)
    bias = torch.randn(16, requires_grad=True)
    mask = create_block_mask(causal, None, None, 16, 16, device="cpu", BLOCK_SIZE=4)

    def run(q, k, v):
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * 2 + bias[(i - j) % 16], block_mask=mask)

    call = run if backend is None else torch.compile(run, backend=backend, fullgraph=True)
    index = torch.arange(16)
    scores = (q @ k.mT) * 8**-0.5 * 2 + bias[(index[:, None] - index) % 16]
    expected = scores.masked_fill(index[:, None] < index, -torch.inf).softmax(-1) @ v
    out = call(q, k, v)
    assert torch.allclose(out, expected, atol=1e-6)
    weight = torch.randn(expected.shape)
    wanted = torch.autograd.grad((expected * weight).sum(), (q, k, v, bias))
    found = torch.autograd.grad((out * weight).sum(), (q, k, v, bias))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, wanted, strict=True))


def test_without_functions_it_is_attention():
    q, k, v = _inputs(2, 4, 6, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True, scale=0.5)
    assert torch.allclose(flex_attention(q, k[:, :2], v[:, :2], enable_gqa=True, scale=0.5), expected, atol=1e-6)
    out, lse = flex_attention(q, k, v, return_lse=True)
    assert torch.allclose(lse, ((q @ k.mT) * 8**-0.5).logsumexp(-1), atol=1e-6) and torch.allclose(
        out, flex_attention(q, k, v), atol=1e-6
    )


@pytest.mark.parametrize(
    ("shapes", "mask", "error", "text"),
    [
        (((2, 3), (2, 3)), None, NotImplementedError, "must be 4D tensors"),
        (((1, 2, 8, 4), (1, 2, 8, 2)), None, ValueError, "embedding dimension but got E=4 and E=2"),
        (((1, 2, 8, 4), (1, 1, 8, 4)), None, ValueError, "Try setting enable_gqa=True"),
        (((1, 2, 8, 4), (2, 2, 8, 4)), None, ValueError, "Bq=1, and Bkv=2"),
        (((1, 2, 4, 4), (1, 2, 8, 4)), (8, 8), ValueError, "created for a larger length"),
        (((1, 2, 9, 4), (1, 2, 8, 4)), (8, 8), ValueError, "created for a smaller length"),
    ],
)
def test_errors(shapes, mask, error, text):
    q, k = (torch.zeros(s) for s in shapes)
    block_mask = None if mask is None else create_block_mask(causal, None, None, *mask, device="cpu")
    with pytest.raises(error, match=text):
        flex_attention(q, k, k, block_mask=block_mask)
    with pytest.raises(TypeError, match="not a callable"):
        create_block_mask(3, None, None, 8, 8)
