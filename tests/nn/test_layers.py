"""Layers: arguments, defaults, representations, buffers."""

from __future__ import annotations

import pytest

import tocha as torch
from tocha import nn

REPRS = [
    (lambda: nn.Conv2d(4, 8, 3, 2, 1, groups=2, bias=False, dilation=2),
     "Conv2d(4, 8, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), dilation=(2, 2), groups=2, bias=False)"),
    (lambda: nn.Conv1d(4, 4, 3, padding="same"), "Conv1d(4, 4, kernel_size=(3,), stride=(1,), padding=same)"),
    (lambda: nn.ConvTranspose2d(2, 2, 3, stride=2, output_padding=1),
     "ConvTranspose2d(2, 2, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1))"),
    (lambda: nn.BatchNorm1d(3), "BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)"),
    (lambda: nn.LayerNorm([2, 2], bias=False), "LayerNorm((2, 2), eps=1e-05, elementwise_affine=True, bias=False)"),
    (lambda: nn.GroupNorm(2, 4), "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)"),
    (lambda: nn.RMSNorm(3), "RMSNorm((3,), eps=None, elementwise_affine=True)"),
    (lambda: nn.MaxPool2d(2), "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)"),
    (lambda: nn.AvgPool1d(2), "AvgPool1d(kernel_size=(2,), stride=(2,), padding=(0,))"),
    (lambda: nn.ZeroPad2d(1), "ZeroPad2d((1, 1, 1, 1))"),
    (lambda: nn.ConstantPad1d(1, 2), "ConstantPad1d(padding=(1, 1), value=2)"),
    (lambda: nn.Embedding(3, 4, padding_idx=-1, max_norm=2.0), "Embedding(3, 4, padding_idx=2, max_norm=2.0)"),
    (lambda: nn.EmbeddingBag(3, 4, mode="max"), "EmbeddingBag(3, 4, mode='max')"),
    (lambda: nn.ReLU6(True), "ReLU6(inplace=True)"),
    (lambda: nn.Hardsigmoid(True), "Hardsigmoid()"),
    (lambda: nn.GELU("tanh"), "GELU(approximate='tanh')"),
    (lambda: nn.Softplus(), "Softplus(beta=1.0, threshold=20.0)"),
    (lambda: nn.Upsample(scale_factor=2), "Upsample(scale_factor=2.0, mode='nearest')"),
    (lambda: nn.Flatten(), "Flatten(start_dim=1, end_dim=-1)"),
    (lambda: nn.Dropout(0.2), "Dropout(p=0.2, inplace=False)"),
    (lambda: nn.CrossEntropyLoss(), "CrossEntropyLoss()"),
    (lambda: nn.MultiheadAttention(4, 2),
     "MultiheadAttention(\n  (out_proj): NonDynamicallyQuantizableLinear(in_features=4, out_features=4, bias=True)\n)"),
]  # fmt: skip


@pytest.mark.parametrize("make, text", REPRS, ids=lambda v: v if isinstance(v, str) else "")
def test_repr(make, text):
    assert repr(make()) == text


ERRORS = [
    (lambda: nn.Conv2d(3, 4, 3, groups=2), ValueError, "in_channels must be divisible by groups"),
    (lambda: nn.Conv2d(2, 2, 3, stride=2, padding="same"), ValueError, "padding='same' is not supported for strided convolutions"),
    (lambda: nn.ConvTranspose1d(2, 2, 3, padding_mode="reflect"), ValueError, 'Only "zeros" padding mode is supported for ConvTranspose1d'),
    (lambda: nn.Dropout(1.5), ValueError, "dropout probability has to be between 0 and 1, but got 1.5"),
    (lambda: nn.GroupNorm(3, 4), ValueError, "num_channels (4) must be divisible by num_groups (3)"),
    (lambda: nn.BatchNorm2d(2)(torch.zeros(2, 2)), ValueError, "expected 4D input (got 2D input)"),
    (lambda: nn.InstanceNorm1d(3, affine=True)(torch.zeros(2, 4, 5)), ValueError,
     "expected input's size at dim=1 to match num_features (3), but got: 4."),
    (lambda: nn.Embedding(3, 4, padding_idx=3), AssertionError, "Padding_idx must be within num_embeddings"),
    (lambda: nn.MultiMarginLoss(p=3), ValueError, "only p == 1 and p == 2 supported"),
    (lambda: nn.Hardtanh(2, 1), AssertionError, "max_val (1) must be greater than min_val (2)"),
    (lambda: nn.MultiheadAttention(5, 2), AssertionError, "embed_dim must be divisible by num_heads"),
    (lambda: nn.FractionalMaxPool2d(2), ValueError, "FractionalMaxPool2d requires specifying either an output size, or a pooling ratio"),
    (lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 10, []), ValueError, "cutoffs should be a sequence of length larger than 0"),
]  # fmt: skip


@pytest.mark.parametrize("call, error, message", ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors(call, error, message):
    with pytest.raises(error) as e:
        call()
    assert str(e.value) == message


def test_batch_norm_keeps_cumulative_averages_without_momentum():
    m = nn.BatchNorm1d(2, momentum=None)
    m(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))
    m(torch.tensor([[1.0, 2.0], [3.0, 7.0]]))
    assert m.running_mean.tolist() == [2.0, 4.0]
    assert m.running_var.tolist() == pytest.approx([2.0, 8.5])
    assert m.num_batches_tracked.item() == 2


def test_batch_norm_reads_states_without_a_batch_count():
    state = {k: torch.ones(1) for k in ("weight", "bias", "running_mean", "running_var")}
    assert nn.BatchNorm1d(1).load_state_dict(state).missing_keys == []


def test_sync_batch_norm_conversion_shares_parameters():
    m = nn.Sequential(nn.BatchNorm2d(3), nn.ReLU())
    weight = m[0].weight
    m = nn.SyncBatchNorm.convert_sync_batchnorm(m)
    assert type(m[0]) is nn.SyncBatchNorm and m[0].weight is weight


def test_transposed_convolution_output_size():
    m = nn.ConvTranspose2d(2, 2, 3, stride=2)
    x = torch.zeros(1, 2, 4, 4)
    assert m(x, output_size=(10, 10)).shape == (1, 2, 10, 10)
    with pytest.raises(ValueError, match=r"valid sizes range from \[9, 9\] to \[10, 10\]"):
        m(x, output_size=(20, 10))


def test_cross_map_lrn_has_torchs_window():
    out = nn.CrossMapLRN2d(3)(torch.arange(16.0).view(1, 4, 2, 2)).flatten().tolist()
    assert out[8:] == pytest.approx([7.95549, 8.9384, 9.91681, 10.89019, 11.93798, 12.91902, 13.89591, 14.86824], abs=1e-4)


def test_adaptive_softmax_sums_to_one():
    torch.manual_seed(0)
    m = nn.AdaptiveLogSoftmaxWithLoss(8, 10, [2, 5], div_value=2.0)
    x = torch.randn(4, 8)
    log_prob = m.log_prob(x)
    target = torch.tensor([0, 3, 9, 1])
    out, loss = m(x, target)
    assert log_prob.exp().sum(1).tolist() == pytest.approx([1.0] * 4, abs=1e-5)
    assert torch.allclose(out, log_prob.gather(1, target[:, None]).squeeze(1), atol=1e-6)
    assert loss.item() == pytest.approx(-out.mean().item())
    assert m.predict(x).tolist() == log_prob.argmax(1).tolist()
    with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 9\], but values in range \[1, 10\]"):
        m(x[:2], torch.tensor([1, 10]))


def test_embedding_padding_row_gets_no_gradient():
    m = nn.Embedding(3, 2, padding_idx=1)
    assert m.weight[1].tolist() == [0.0, 0.0]
    m(torch.tensor([0, 1, 0])).sum().backward()
    assert m.weight.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]
    frozen = nn.Embedding.from_pretrained(torch.ones(2, 3))
    assert not frozen.weight.requires_grad


@pytest.mark.parametrize("name", ["L1Loss", "MSELoss"])
def test_deprecated_reductions(name):
    with pytest.warns(UserWarning, match="please use reduction='sum' instead"):
        assert getattr(nn, name)(size_average=False).reduction == "sum"


@pytest.mark.parametrize("make", [nn.BatchNorm1d, lambda c: nn.InstanceNorm1d(c, affine=True, track_running_stats=True)])
def test_backward_of_running_statistics_that_change_meanwhile(make):
    torch.manual_seed(0)
    layer, x = make(4).eval(), torch.randn(8, 4, 5, requires_grad=True)
    (want,) = torch.autograd.grad(layer(x).square().sum(), x)
    out = layer(x)
    layer.train()(x)
    assert not torch.equal(layer.running_mean, torch.zeros(4))
    assert torch.equal(torch.autograd.grad(out.square().sum(), x)[0], want)  # torch would take the changed ones
