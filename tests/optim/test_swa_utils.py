"""Averages of weights and batch-norm statistics."""

import pytest

import tocha
from tocha import nn
from tocha.optim.swa_utils import (
    AveragedModel,
    get_ema_avg_fn,
    get_ema_multi_avg_fn,
    get_swa_avg_fn,
    update_bn,
)


def filled(value):
    model = nn.Linear(2, 1)
    with tocha.no_grad():
        for p in model.parameters():
            p.fill_(value)
    return model


def averaged(values, **options):
    model = filled(values[0])
    average = AveragedModel(model, **options)
    for value in values:
        with tocha.no_grad():
            for p in model.parameters():
                p.fill_(value)
        average.update_parameters(model)
    assert average.n_averaged.item() == len(values)
    return average.module.weight[0, 0].item()


def test_equal_average_by_default_and_by_function():
    assert averaged([1.0, 2.0, 6.0]) == pytest.approx(3.0)
    assert averaged([1.0, 2.0, 6.0], avg_fn=get_swa_avg_fn()) == pytest.approx(3.0)


def test_exponential_average():
    expected = (1.0 * 0.9 + 2.0 * 0.1) * 0.9 + 6.0 * 0.1
    assert averaged([1.0, 2.0, 6.0], multi_avg_fn=get_ema_multi_avg_fn(0.9)) == pytest.approx(expected)
    assert averaged([1.0, 2.0, 6.0], avg_fn=get_ema_avg_fn(0.9)) == pytest.approx(expected)


def test_own_function_gets_the_count():
    assert averaged([1.0, 2.0, 6.0], avg_fn=lambda a, m, n: a + m * n) == pytest.approx(1 + 2 * 1 + 6 * 2)


def test_averaged_model_computes_with_the_averages_and_leaves_the_model_alone():
    model = filled(1.0)
    average = AveragedModel(model)
    average.update_parameters(model)
    with tocha.no_grad():
        model.weight.fill_(5.0)
    assert average(tocha.ones(1, 2)).item() == pytest.approx(3.0)
    assert set(average.state_dict()) == {"n_averaged", "module.weight", "module.bias"}


@pytest.mark.parametrize("use_buffers,expected", [(False, 4.0), (True, 2.0)])
def test_buffers_are_copied_or_averaged(use_buffers, expected):
    model = nn.BatchNorm1d(1)
    average = AveragedModel(model, use_buffers=use_buffers)
    for value in (0.0, 4.0):
        model.running_mean.fill_(value)
        average.update_parameters(model)
    assert average.module.running_mean.item() == pytest.approx(expected)


def test_update_bn_computes_plain_means_and_restores_the_model():
    model = nn.Sequential(nn.BatchNorm1d(1))
    model.eval()
    batches = [(tocha.tensor([[0.0], [2.0]]), "label"), (tocha.tensor([[4.0], [10.0]]), "label")]
    update_bn(batches, model)
    assert model[0].running_mean.item() == pytest.approx(4.0)
    assert model[0].running_var.item() == pytest.approx((2.0 + 18.0) / 2)
    assert model[0].momentum == 0.1 and not model.training


def test_refusals():
    with pytest.raises(ValueError, match="Only one"):
        AveragedModel(filled(1.0), avg_fn=get_swa_avg_fn(), multi_avg_fn=get_ema_multi_avg_fn())
    with pytest.raises(ValueError, match="decay"):
        get_ema_avg_fn(1.5)
