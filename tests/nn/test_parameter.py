"""Parameter, Buffer and their uninitialised forms; lazy modules."""

from __future__ import annotations

import copy
import pickle

import pytest

import tocha as torch
from tocha import nn

pytestmark = pytest.mark.filterwarnings("ignore:Lazy modules are a new feature")


def test_parameter_shares_memory_and_requires_grad():
    data = torch.zeros(2)
    p = nn.Parameter(data)
    data.fill_(3)
    assert p.requires_grad and p.is_leaf and p.tolist() == [3.0, 3.0]
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert nn.Parameter().shape == (0,)


def test_results_are_plain_tensors():
    p = nn.Parameter(torch.ones(2))
    assert type(p + 1) is torch.Tensor and type(p.detach()) is torch.Tensor
    assert not isinstance(torch.ones(1), nn.Parameter)


def test_integers_need_no_gradient():
    with pytest.raises(RuntimeError, match="floating point and complex"):
        nn.Parameter(torch.zeros(1, dtype=torch.int64))
    assert nn.Parameter(torch.zeros(1, dtype=torch.int64), requires_grad=False).dtype == torch.int64


def test_parameter_of_a_subclass_keeps_its_class():
    class Mine(torch.Tensor):
        pass

    p = nn.Parameter(torch.ones(1).as_subclass(Mine))
    assert type(p) is Mine and isinstance(p, nn.Parameter)
    m = nn.Module()
    m.p = p
    assert list(m._parameters) == ["p"]


def test_deepcopy_drops_the_gradient():
    p = nn.Parameter(torch.ones(1))
    p.grad = torch.ones(1)
    q = copy.deepcopy(p)
    assert type(q) is nn.Parameter and q.grad is None and q is not p


def test_lazy_linear_becomes_linear():
    m = nn.LazyLinear(4)
    assert repr(m) == "LazyLinear(in_features=0, out_features=4, bias=True)"
    assert repr(m.weight) == "<UninitializedParameter>"
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter"):
        _ = m.weight.shape
    with pytest.raises(ValueError, match="Attempted to use an uninitialized parameter"):
        m.weight + 1
    weight = m.weight
    assert m(torch.ones(2, 3)).shape == (2, 4)
    assert type(m) is nn.Linear and m.in_features == 3
    assert m.weight is weight and type(weight) is nn.Parameter and weight.shape == (4, 3)
    assert not m._forward_pre_hooks


@pytest.mark.parametrize(
    "make, shape, kind",
    [
        (lambda: nn.LazyConv1d(4, 2), (1, 3, 5), nn.Conv1d),
        (lambda: nn.LazyConv2d(4, 2), (3, 5, 5), nn.Conv2d),
        (lambda: nn.LazyConvTranspose2d(4, 2), (1, 3, 5, 5), nn.ConvTranspose2d),
        (lambda: nn.LazyBatchNorm1d(), (2, 3), nn.BatchNorm1d),
        (lambda: nn.LazyInstanceNorm2d(), (2, 3, 4, 4), nn.InstanceNorm2d),
    ],
)
def test_other_lazy_modules(make, shape, kind):
    m = make()
    m.initialize_parameters(torch.ones(shape))
    assert not m.has_uninitialized_params()
    m(torch.ones(shape))
    assert type(m) is kind


def test_lazy_double_is_remembered():
    m = nn.LazyLinear(2).double()
    m(torch.ones(1, 3, dtype=torch.float64))
    assert m.weight.dtype == torch.float64


def test_loading_gives_a_lazy_module_its_shapes():
    m = nn.LazyLinear(2)
    m.load_state_dict(nn.Linear(3, 2).state_dict())
    assert m.weight.shape == (2, 3) and type(m) is nn.LazyLinear
    m(torch.ones(1, 3))
    assert m.in_features == 3 and type(m) is nn.Linear


def test_lazy_state_stays_lazy():
    m = nn.LazyLinear(2)
    assert isinstance(m.state_dict()["weight"], nn.UninitializedParameter)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert other.has_uninitialized_params()
        assert other(torch.ones(1, 5)).shape == (1, 2)
    assert m.has_uninitialized_params()


def test_wrong_dimensions_for_a_lazy_convolution():
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"):
        nn.LazyConv2d(4, 3)(torch.zeros(5, 5))
