"""Normalisation: statistics, running averages, types, degenerate sizes."""

import pytest

import tocha as torch
import tocha.nn.functional as F


def test_batch_norm_updates_running_statistics_in_place():
    x = torch.tensor([[1.0, 10.0], [3.0, 30.0]])
    mean, var = torch.zeros(2), torch.ones(2)
    out = F.batch_norm(x, mean, var, training=True, momentum=0.5, eps=1e-9)
    assert torch.allclose(out, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    assert mean.tolist() == [1.0, 10.0]
    assert var.tolist() == [1.5, 100.5]  # the unbiased variance
    assert F.batch_norm(x, mean, var)[0, 0].item() == 0.0


def test_batch_norm_of_half_precision_with_float_parameters():
    x = torch.randn(4, 3, 5, dtype=torch.bfloat16)
    w, b = torch.ones(3), torch.zeros(3)
    mean, var = torch.zeros(3), torch.ones(3)
    out = F.batch_norm(x, mean, var, w, b, training=True)
    assert out.dtype is torch.bfloat16 and mean.dtype is torch.float32 and mean.abs().sum().item() > 0


def test_batch_norm_needs_two_values_for_each_channel():
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        F.batch_norm(torch.ones(1, 3), None, None, training=True)
    with pytest.raises(RuntimeError, match="running_mean"):
        F.batch_norm(torch.ones(2, 3), torch.zeros(2), torch.ones(2))


def test_gradients_do_not_reach_running_statistics():
    x = torch.randn(4, 3, requires_grad=True)
    mean, var = torch.zeros(3), torch.ones(3)
    F.batch_norm(x, mean, var, training=True).sum().backward()
    assert not mean.requires_grad and x.grad.abs().max().item() < 1e-5


def test_layer_norm_of_several_dimensions_and_no_rows():
    x = torch.arange(12.0).reshape(2, 2, 3)
    out = F.layer_norm(x, (2, 3))
    assert torch.allclose(out.mean((1, 2)), torch.zeros(2), atol=1e-6)
    assert torch.allclose(out.var((1, 2), correction=0), torch.ones(2), atol=1e-4)
    assert F.layer_norm(torch.ones(0, 3), (3,)).shape == (0, 3)
    with pytest.raises(RuntimeError, match="normalized_shape"):
        F.layer_norm(x, (4,))


def test_layer_norm_keeps_digits_far_from_zero():
    x = torch.tensor([[1e4, 1e4 + 1, 1e4 + 2]])
    assert torch.allclose(F.layer_norm(x, (3,)), torch.tensor([[-1.2247, 0.0, 1.2247]]), atol=1e-3)


def test_bias_without_weight_gets_its_gradient():
    x = torch.ones(2, 4, 3)
    b = torch.zeros(4, 3, requires_grad=True)
    F.layer_norm(x, (4, 3), None, b).sum().backward()
    assert torch.equal(b.grad, torch.full((4, 3), 2.0))


def test_group_and_instance_norm_are_batch_norm_of_regrouped_channels():
    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 3)
    one = F.group_norm(x, 2)
    regrouped = F.batch_norm(x.reshape(1, 4, -1), None, None, training=True).reshape(x.shape)
    assert torch.allclose(one, regrouped, atol=1e-6)
    same = F.batch_norm(x.reshape(1, 8, 5, 3), None, None, training=True).reshape(x.shape)
    assert torch.allclose(F.instance_norm(x), same, atol=1e-6)
    with pytest.raises(RuntimeError, match="divisible by num_groups"):
        F.group_norm(x, 3)


def test_rms_norm_and_local_response():
    assert torch.allclose(F.rms_norm(torch.tensor([3.0, 4.0]), (2,)), torch.tensor([0.84852815, 1.1313709]))
    x = torch.ones(1, 4, 2)
    assert torch.allclose(F.local_response_norm(x, 2, alpha=2.0, beta=1.0)[0, :, 0], torch.tensor([0.5, 1 / 3, 1 / 3, 1 / 3]))


def test_normalize_divides_by_at_least_eps():
    assert F.normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]


def test_group_norm_of_one_value_per_group():
    for shape, groups in (((1, 4), 4), ((1, 4, 1, 1), 4), ((1, 1), 1)):
        with pytest.raises(ValueError, match=r"Expected more than 1 value per channel when training, got input size \[1, "):
            F.group_norm(torch.ones(shape), groups)
    assert F.group_norm(torch.ones(2, 4), 4).tolist() == [[0.0] * 4] * 2
    assert torch.group_norm(torch.ones(1, 4), 4).tolist() == [[0.0] * 4]  # only torch.nn.functional refuses it
    with pytest.raises(RuntimeError, match="divisible by num_groups"):
        F.group_norm(torch.ones(2, 6, 2), 4)
