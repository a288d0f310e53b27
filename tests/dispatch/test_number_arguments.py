"""0-d tensors where an operator takes a Python number. Values from torch 2.13."""

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import tensor

X = tensor([-1.0, 0.5, 2.0])
CALLS = [
    (lambda s: F.hardtanh(X, s(-0.5), s(1.0)), [-0.5, 0.5, 1.0]),
    (lambda s: F.softplus(X, s(2.0), threshold=s(1.0)), [0.063464, 0.6566308, 2.0]),
    (lambda s: F.threshold(X, s(0.1), s(9.0)), [9.0, 0.5, 2.0]),
    (lambda s: F.leaky_relu(X, s(0.1)), [-0.1, 0.5, 2.0]),
    (lambda s: F.elu(X, s(0.5)), [-0.3160603, 0.5, 2.0]),
    (lambda s: F.celu(X, alpha=s(0.5)), [-0.4323323, 0.5, 2.0]),
    (lambda s: F.hardshrink(X, s(0.6)), [-1.0, 0.0, 2.0]),
    (lambda s: F.softshrink(X, s(0.2)), [-0.8, 0.3, 1.8]),
    (lambda s: torch.logit(X, eps=s(0.1)), [-2.1972246, 0.0, 2.1972244]),
    (lambda s: torch.addcmul(X, X, X, value=s(2.0)), [1.0, 1.0, 10.0]),
    (lambda s: torch.add(X, X, alpha=s(2.0)), [-3.0, 1.5, 6.0]),
    (lambda s: X.sub(X, alpha=s(2.0)), [1.0, -0.5, -2.0]),
    (lambda s: X.clone().index_add_(0, tensor([0]), X[:1], alpha=s(2.0)), [-3.0, 0.5, 2.0]),
    (lambda s: torch.full((2,), s(2.0)), [2.0, 2.0]),
    (lambda s: torch.full_like(X, s(2.0)), [2.0, 2.0, 2.0]),
    (lambda s: torch.var(X, correction=s(0.0)), 1.5),
    (lambda s: F.cross_entropy(X[None], tensor([0]), label_smoothing=s(0.1)), 3.0913112),
    (lambda s: torch.linalg.vector_norm(X, s(3.0)), 2.0896697),
    (lambda s: F.layer_norm(X, (3,), eps=s(0.1)), [-1.1858542, 0.0, 1.1858542]),
]


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_number_or_tensor_of_no_dimensions(call, expected):
    got = call(tensor)
    assert got.dtype is torch.float32
    assert got.tolist() == pytest.approx(expected, rel=1e-6)
    assert got.tolist() == pytest.approx(call(lambda v: v).tolist())


@pytest.mark.parametrize(("call", "expected"), CALLS)
def test_other_tensors_are_refused(call, expected):
    with pytest.raises(TypeError, match=r"must be (Number|float), not Tensor"):
        call(lambda v: tensor([v]))
    with pytest.raises(TypeError, match=r"must be (Number|float), not Tensor"):
        call(lambda v: tensor(v, requires_grad=True))


def test_a_temperature_keeps_its_gradient():
    tau = tensor(1.0, requires_grad=True)
    F.gumbel_softmax(X, tau)[0].backward()
    assert tau.grad is not None
