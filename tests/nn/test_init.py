"""Initialisation as function modes see it, and apart from memory formats."""

from __future__ import annotations

import pytest

import tocha as torch
from tocha.overrides import TorchFunctionMode, resolve_name

nn = torch.nn
MADE = [("torch.empty", 1), ("torch.Tensor.grad_fn.__get__", 1)]
FAN = [("torch.Tensor.dim", 1), ("torch.Tensor.size", 2), ("torch.Tensor.size", 2), ("torch.Tensor.dim", 1)]


class Record(TorchFunctionMode):
    def __init__(self):
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = resolve_name(function) or f"torch.nn.init.{function.__name__}"
        self.seen.append((name.replace("tocha", "torch"), len(args), tuple(kwargs or ())))
        return function(*args, **(kwargs or {}))


def seen(call):
    with Record() as mode:
        call()
    return [entry[:2] for entry in mode.seen]


def test_constructors_show_what_torchs_show():
    uniform = [("torch.nn.init.uniform_", 0)]
    assert seen(lambda: nn.Linear(2, 2)) == [*MADE, *MADE, ("torch.nn.init.kaiming_uniform_", 0), *FAN, *uniform]
    assert seen(lambda: nn.Embedding(3, 2)) == [*MADE, ("torch.nn.init.normal_", 0)]
    assert seen(lambda: nn.PReLU()) == [*MADE, ("torch.nn.init.constant_", 0)]
    assert seen(lambda: nn.Parameter(torch.empty(2))) == [("torch.empty", 1)]


def test_arguments_come_by_name_and_may_be_answered():
    class Zeros(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is nn.init.uniform_:
                assert list(kwargs) == ["tensor", "a", "b", "generator"] and kwargs["b"] == 2.0
                return kwargs["tensor"].zero_()
            return function(*args, **(kwargs or {}))

    x = torch.ones(3)
    with Zeros():
        assert nn.init.uniform_(x, b=2.0) is x
    assert x.tolist() == [0, 0, 0]


def test_subclasses_are_asked():
    asked = []

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, types, args=(), kwargs=None):
            asked.append(function)
            return super().__torch_function__(function, types, args, kwargs)

    x = torch.ones(2, 2).as_subclass(Mine)
    nn.init.constant_(x, 3.0)
    assert asked[0] is nn.init.constant_ and x.tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize("make", [lambda: nn.Conv2d(2, 3, 2), lambda: nn.ConvTranspose2d(2, 3, 2)])
def test_convolutions_draw_the_same_in_every_memory_format(make):
    one, other = make(), make().to(memory_format=torch.channels_last)
    for layer in (one, other):
        torch.manual_seed(0)
        layer.reset_parameters()
    assert torch.equal(one.weight, other.weight) and not other.weight.is_contiguous()
    assert other.weight.requires_grad and other.weight.is_leaf
