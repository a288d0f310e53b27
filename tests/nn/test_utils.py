"""nn.utils: gradient clipping, parametrisations, functional calls, fusion; nn.init."""

from __future__ import annotations

import copy
import math
import pickle

import pytest

import tocha as torch
from tocha import nn
from tocha.nn.utils import parametrizations, parametrize, stateless


def with_grads(*grads):
    params = []
    for g in grads:
        p = nn.Parameter(torch.zeros(2) if g is None else torch.zeros_like(torch.tensor(g)))
        p.grad = None if g is None else torch.tensor(g)
        params.append(p)
    return params


@pytest.mark.parametrize(
    "norm_type, norm, first",
    [
        (2, 8.1240, [0.3693, 0.4924]),
        (1, 16.0, [0.1875, 0.25]),
        (math.inf, 6.0, [0.5, 0.6667]),
        ("inf", 6.0, [0.5, 0.6667]),
        (0, 3.0, [1.0, 1.3333]),
        (3.5, 6.5421, [0.4586, 0.6114]),
    ],
)
def test_clip_grad_norm(norm_type, norm, first):
    params = with_grads([3.0, 4.0], [[1.0, -2.0]], None, 6.0)
    total = nn.utils.clip_grad_norm_(params, 1.0, norm_type)
    assert total.item() == pytest.approx(norm, abs=1e-4)
    assert params[0].grad.tolist() == pytest.approx(first, abs=1e-4)


def test_clip_leaves_small_gradients():
    (p,) = with_grads([0.3])
    nn.utils.clip_grad_norm_(p, 1.0)
    assert p.grad.tolist() == [pytest.approx(0.3)]


def test_clip_of_nothing():
    assert nn.utils.clip_grad_norm_([], 1.0).item() == 0
    exhausted = nn.Linear(1, 1).parameters()
    list(exhausted)
    with pytest.warns(UserWarning, match="empty generator"):
        nn.utils.clip_grad_norm_(exhausted, 1.0)


@pytest.mark.parametrize("norm_type", [math.inf, 2.0])
def test_empty_gradients_add_nothing(norm_type):
    params = with_grads([3.0, -4.0]) + [nn.Parameter(torch.zeros(0))]
    params[1].grad = torch.zeros(0)
    assert nn.utils.clip_grad_norm_(params, 2.0, norm_type).item() == (4.0 if norm_type == math.inf else 5.0)
    assert nn.utils.get_total_norm([torch.zeros(0)], norm_type).item() == 0


def test_non_finite_norm():
    params = with_grads([3.0, math.nan])
    with pytest.raises(RuntimeError, match=r"total norm of order 2.0 .* is non-finite"):
        nn.utils.clip_grad_norm_(params, 1.0, error_if_nonfinite=True)
    assert params[0].grad[0].item() == 3.0
    assert math.isnan(nn.utils.clip_grad_norm_(params, 1.0).item())


def test_clip_grad_value():
    params = with_grads([3.0, -4.0], None)
    nn.utils.clip_grad_value_(params, 2.5)
    assert params[0].grad.tolist() == [2.5, -2.5]


def test_parameters_to_vector_and_back():
    m = nn.Linear(2, 1)
    vector = nn.utils.parameters_to_vector(m.parameters())
    assert vector.shape == (3,) and vector.requires_grad
    nn.utils.vector_to_parameters(torch.arange(3.0), m.parameters())
    assert m.weight.tolist() == [[0.0, 1.0]] and m.bias.tolist() == [2.0]


class Symmetric(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class Halves(nn.Module):
    def forward(self, a, b):
        return a + b

    def right_inverse(self, x):
        return x / 2, x / 2


def test_parametrized_weight():
    m = nn.Linear(2, 2)
    original = m.weight
    parametrize.register_parametrization(m, "weight", Symmetric())
    assert type(m).__name__ == "ParametrizedLinear" and isinstance(m, nn.Linear)
    assert parametrize.is_parametrized(m, "weight") and not parametrize.is_parametrized(m, "bias")
    assert list(m.state_dict()) == ["bias", "parametrizations.weight.original"]
    assert m.parametrizations.weight.original is original
    m.weight = torch.tensor([[1.0, 2.0], [9.0, 3.0]])
    assert m.weight.tolist() == [[1.0, 2.0], [2.0, 3.0]]
    m(torch.ones(1, 2)).sum().backward()
    assert original.grad.tolist() == [[1.0, 2.0], [0.0, 1.0]]


def test_parametrization_by_several_tensors_and_removal():
    m = nn.Linear(2, 2)
    bias = m.bias.tolist()
    parametrize.register_parametrization(m, "bias", Halves())
    assert sorted(m.parametrizations.bias._parameters) == ["original0", "original1"]
    assert m.bias.tolist() == pytest.approx(bias)
    with pytest.raises(ValueError, match="Cannot leave unparametrized"):
        parametrize.remove_parametrizations(m, "bias", leave_parametrized=False)
    parametrize.remove_parametrizations(m, "bias")
    assert type(m) is nn.Linear and list(m._parameters) == ["weight", "bias"]
    assert m.bias.tolist() == pytest.approx(bias)


def test_parametrization_errors_leave_the_module_alone():
    class Cut(nn.Module):
        def forward(self, x):
            return x[:1]

    m = nn.Linear(2, 2)
    with pytest.raises(ValueError, match="may not change the shape of the tensor"):
        parametrize.register_parametrization(m, "bias", Cut())
    assert type(m) is nn.Linear and m.bias.shape == (2,)
    with pytest.raises(ValueError, match="with name 'nope'"):
        parametrize.register_parametrization(m, "nope", Cut())


def test_cached_parametrization_runs_once():
    class Counting(nn.Module):
        calls = 0

        def forward(self, x):
            Counting.calls += 1
            return x

    m = parametrize.register_parametrization(nn.Linear(1, 1), "weight", Counting())
    Counting.calls = 0
    with parametrize.cached():
        assert m.weight is m.weight
    assert Counting.calls == 1
    _ = m.weight
    assert Counting.calls == 2


def test_copies_of_parametrized_modules():
    m = parametrize.register_parametrization(nn.Linear(2, 2), "weight", Symmetric())
    other = copy.deepcopy(m)
    assert other.weight.tolist() == m.weight.tolist()
    assert other.parametrizations.weight.original is not m.parametrizations.weight.original
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(m)


def test_weight_norm():
    m = nn.Linear(2, 1)
    weight = m.weight.tolist()
    parametrizations.weight_norm(m)
    assert m.weight.tolist()[0] == pytest.approx(weight[0])
    with torch.no_grad():
        m.parametrizations.weight.original0.fill_(10)
    assert m.weight.norm().item() == pytest.approx(10, rel=1e-5)


def test_old_weight_norm_and_its_state():
    with pytest.warns(FutureWarning, match="deprecated in favor"):
        old = nn.utils.weight_norm(nn.Linear(2, 3))
    assert sorted(old.state_dict()) == ["bias", "weight_g", "weight_v"]
    new = parametrizations.weight_norm(nn.Linear(2, 3))
    new.load_state_dict(old.state_dict())
    x = torch.ones(1, 2)
    assert torch.allclose(new(x), old(x))
    nn.utils.remove_weight_norm(old)
    assert sorted(old.state_dict()) == ["bias", "weight"] and torch.allclose(new(x), old(x))


@pytest.mark.parametrize("wrap", [parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_spectral_norm(wrap):
    torch.manual_seed(0)
    m = wrap(nn.Linear(4, 3))
    for _ in range(30):
        m(torch.ones(1, 4))
    m.eval()
    m(torch.ones(1, 4))
    assert torch.linalg.matrix_norm(m.weight, 2).item() == pytest.approx(1, abs=1e-4)


def test_functional_call_uses_given_tensors_only_during_the_call():
    m = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))
    own = m[0].weight
    given = {"0.weight": torch.zeros(1, 2, requires_grad=True), "1.running_mean": torch.full((1,), 10.0)}
    stateless._functional_call(m, given, (torch.ones(3, 2),)).sum().backward()
    assert given["0.weight"].grad is not None and own.grad is None
    assert m[0].weight is own
    assert given["1.running_mean"].item() != 10.0 and m[1].running_mean.item() == 0.0


def test_functional_call_takes_none_for_a_tensor():
    layer = nn.Linear(2, 2)
    x = torch.ones(1, 2)
    assert torch.equal(torch.func.functional_call(layer, {"bias": None}, x), x @ layer.weight.t())
    assert layer.bias is not None


def test_functional_call_follows_ties():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Parameter(torch.ones(1))
            self.b = self.a

        def forward(self, x):
            return x * self.a + self.b

    m, x = Tied(), torch.ones(1)
    call = stateless._functional_call
    assert call(m, {"a": torch.zeros(1)}, x).item() == 0
    assert call(m, {"a": torch.zeros(1)}, x, tie_weights=False).item() == 1
    with pytest.raises(ValueError, match=r"multiple values for keys \['a', 'b'\], which are tied"):
        call(m, {"a": torch.zeros(1), "b": torch.ones(1)}, x)
    with pytest.raises(RuntimeError, match="Unexpected key"):
        call(m, {"z": torch.zeros(1)}, x, strict=True)


def test_fused_convolution_and_batch_norm():
    torch.manual_seed(0)
    conv, bn = nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)
    bn.running_mean.normal_()
    bn.running_var.uniform_(1, 2)
    with pytest.raises(AssertionError, match="Fusion only for eval"):
        nn.utils.fuse_conv_bn_eval(conv, bn)
    conv.eval(), bn.eval()
    x = torch.randn(1, 2, 4, 4)
    fused = nn.utils.fuse_conv_bn_eval(conv, bn)
    assert torch.allclose(fused(x), bn(conv(x)), atol=1e-5) and fused is not conv


def test_skip_init_draws_nothing():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    m = nn.utils.skip_init(nn.Linear, 3, 4)
    assert m.weight.shape == (4, 3) and not m.weight.is_meta
    assert torch.equal(torch.get_rng_state(), before)


# -- init: torch's values for seed 0


@pytest.mark.parametrize(
    "name, values",
    [
        ("xavier_uniform_", [-0.0082, 0.58764, -0.9016, -0.80618, -0.42192, 0.29375]),
        ("xavier_normal_", [0.97461, -0.18558, -1.37799, 0.35951, -0.68591, -0.88455]),
        ("kaiming_uniform_", [-0.01059, 0.75865, -1.16396, -1.04077, -0.54469, 0.37923]),
        ("kaiming_normal_", [1.25822, -0.23958, -1.77897, 0.46412, -0.88551, -1.14195]),
        ("trunc_normal_", [1.541, -0.29343, -0.71926, 0.56843, -1.08452, -1.3986]),
        ("orthogonal_", [0.57398, -0.10929, -0.81154, -0.34542, -0.93088, -0.11894]),
    ],
)
def test_init_values(name, values):
    torch.manual_seed(0)
    t = getattr(nn.init, name)(torch.empty(2, 3))
    assert t.flatten().tolist() == pytest.approx(values, abs=2e-5)


def test_layers_draw_in_torchs_order():
    torch.manual_seed(0)
    assert nn.Linear(2, 2).weight.flatten().tolist() == pytest.approx([-0.00529, 0.37932, -0.58198, -0.52039], abs=1e-5)
    assert nn.Linear(2, 2).bias.tolist() == pytest.approx([-0.2137, -0.13899], abs=1e-5)


def test_init_of_special_matrices():
    assert nn.init.eye_(torch.empty(2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert nn.init.dirac_(torch.empty(2, 1, 3), groups=2)[:, 0].tolist() == [[0, 1, 0], [0, 1, 0]]
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.kaiming_normal_(torch.empty(3))
    with pytest.warns(FutureWarning, match="`nn.init.xavier_normal` is now deprecated"):
        nn.init.xavier_normal(torch.empty(2, 2))


def test_calculate_gain():
    assert nn.init.calculate_gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    with pytest.raises(ValueError, match="Unsupported nonlinearity x"):
        nn.init.calculate_gain("x")
