"""Modules for function transforms: ensembles stacked, batch norms without running statistics."""

import pytest

import tocha as torch
from tocha import nn
from tocha.func import replace_all_batch_norm_modules_, stack_module_state, vmap


def test_a_stack_is_trained_where_its_models_are():
    models = [nn.Linear(2, 3), nn.Linear(2, 3)]
    for m in models:
        m.weight.requires_grad_(False)
    params, buffers = stack_module_state(models)
    assert params["weight"].shape == (2, 3, 2) and params["bias"].shape == (2, 3) and buffers == {}
    assert not params["weight"].requires_grad and params["bias"].requires_grad and params["bias"].is_leaf


def test_models_that_differ_are_not_stacked():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    first.weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="Expected weight from each model to have the same"):
        stack_module_state([first, second])
    first.eval()
    with pytest.raises(RuntimeError, match="same training/eval mode"):
        stack_module_state([first, second])
    with pytest.raises(RuntimeError, match="same class"):
        stack_module_state([first, nn.ReLU().eval()])


def test_batch_norms_lose_their_running_statistics_in_place():
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Sequential(nn.BatchNorm2d(2)), nn.InstanceNorm2d(2, track_running_stats=True))
    assert replace_all_batch_norm_modules_(net) is net
    for module in (net[0], net[1][0]):
        assert module.running_mean is None and module.running_var is None and module.num_batches_tracked is None
        assert not module.track_running_stats
    assert net[2].running_mean is not None
    x = torch.tensor([[[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]], [[0.0, 1.0, 5.0], [2.0, 1.0, 7.0]]])
    per_example = vmap(net[0], randomness="error")(x)
    assert torch.allclose(per_example, torch.stack([net[0](e) for e in x]))
