"""Wrong types of arguments are TypeErrors whatever they would break further in; what fails for another reason keeps its error."""

import pickle

import pytest

import tocha as torch
import tocha.nn.functional as F


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: torch.cumsum([1.0], 0), "cumsum.*'input'.*Tensor, not list"), (lambda: torch.polygamma(1, 1.0), "must be Tensor, not float"),
        (lambda: torch.roll([1], 1), "must be Tensor, not list"), (lambda: F.layer_norm(torch.ones(2), (2,), eps="a"), "'eps'.*float, not str"),
        (lambda: torch.add(torch.ones(2), torch.ones(2), out=3), "'out' must be Tensor"),
    ],
)  # fmt: skip
def test_wrong_types(call, text):
    with pytest.raises(TypeError, match=text):
        call()


def test_other_errors_stay_what_they_are():
    with pytest.raises(IndexError):
        torch.ones(2).cumsum(3)
    with pytest.raises(ValueError, match="Overflow"):
        torch.ones(2).softmax(2**63)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1).expand(3).add_(1)


@pytest.mark.parametrize(
    "function", [torch.relu, F.relu, F.cross_entropy, torch.linalg.norm, torch.fft.fft, torch.Tensor.add, torch.Tensor.__add__]
)
def test_operators_can_be_pickled(function):
    assert pickle.loads(pickle.dumps(function)) is function


def test_a_module_that_holds_an_operator_can_be_pickled():
    layer = pickle.loads(pickle.dumps(torch.nn.TransformerEncoderLayer(4, 2, 8, activation="gelu")))
    assert layer.activation is F.gelu
    assert torch.overrides.resolve_name(F.gelu) == "torch.nn.functional.gelu"
