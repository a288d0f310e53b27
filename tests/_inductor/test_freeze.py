"""Graphs with constant parameters: what is folded, and that results stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha import nn
from tocha._inductor import freezing
from tocha.aot import runtime


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def frozen(model: nn.Module, x: Any) -> Any:
    """The model as a function of x alone, its parameters and buffers constants."""
    state = [*model.named_parameters(), *model.named_buffers()]
    tensors = [t for _, t in state]

    def forward(x: Any, *given: Any) -> list[Any]:
        return [torch.func.functional_call(model, dict(zip([n for n, _ in state], given, strict=True)), (x,))]

    with torch.no_grad():
        compiler = freezing({i + 1: t._a for i, t in enumerate(tensors)})
        made = runtime.compile(forward, [x, *tensors], compiler)

    def call(x: Any) -> Any:
        with torch.no_grad():
            return made(x, *tensors)[0]

    call.code = made.forward.code  # type: ignore[attr-defined]
    return call


def settled(model: nn.Module) -> nn.Module:
    """In evaluation, with statistics and scales that aren't trivial."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            for t in (module.running_mean, module.running_var, module.weight, module.bias):
                if t is not None:
                    t.data.copy_(torch.rand(t.shape) + 0.5)
    return model.eval()


@pytest.mark.parametrize(
    ("model", "shape", "convolutions"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()), (2, 3, 9, 9), 1),
        (nn.Sequential(nn.Conv2d(8, 16, 3, stride=2), nn.BatchNorm2d(16, affine=False)), (2, 8, 33, 33), 1),
        (nn.Sequential(nn.Conv1d(4, 6, 3, groups=2), nn.BatchNorm1d(6)), (3, 4, 20), 1),
        (nn.Sequential(nn.Conv2d(256, 512, 3, padding=1), nn.BatchNorm2d(512)), (1, 256, 7, 7), 1),
        (nn.Sequential(nn.ReLU(), nn.BatchNorm2d(4)), (2, 4, 5, 5), 0),
        (nn.Sequential(nn.Conv2d(8, 8, 3, groups=8), nn.BatchNorm2d(8)), (2, 8, 12, 12), 1),
    ],
)
def test_scale_and_shift_go_into_the_convolution(model: nn.Module, shape: tuple[int, ...], convolutions: int) -> None:
    x = torch.randn(shape)
    call = frozen(settled(model), x)
    for _ in range(2):  # the second call uses what the first packed
        torch.testing.assert_close(call(x), model(x), rtol=1e-5, atol=1e-5)
    other = torch.randn(shape)
    torch.testing.assert_close(call(other), model(other), rtol=1e-5, atol=1e-5)
    assert call.code.count("call_conv") == convolutions
    assert call.code.count("kernel_") == (1 if isinstance(model[-1], nn.ReLU) or not convolutions else 0)


def test_a_convolution_read_twice_keeps_its_values() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            return self.norm(y) + y

    model, x = settled(Both()), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(frozen(model, x)(x), model(x), rtol=1e-5, atol=1e-5)


def test_constants_are_computed_with_once_and_not_spread_out() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(8, 4))

        def forward(self, x: Any) -> Any:
            return x @ (self.w.exp() * 2).t() + self.w.sum(1)

    model, x = Scaled(), torch.randn(3, 4)
    call = frozen(model, x)
    torch.testing.assert_close(call(x), model(x))
    assert "kernel_" not in call.code and call.code.count("call_") == 1  # the product, which adds the folded vector
    with torch.no_grad():
        model.w.zero_()
    assert not np.allclose(call(x).numpy(), model(x).detach().numpy())  # a constant is one


def test_a_result_that_is_constant_is_a_new_array() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def forward(self, x: Any) -> Any:
            return self.w * 2

    call = frozen(Constant(), torch.zeros(1))
    first = call(torch.zeros(1))
    first.zero_()
    assert call(torch.zeros(1)).tolist() == [2, 2, 2]


def graphs_of(compiled: Any) -> list[Any]:
    """A compiled module's graphs, the latest first."""
    segments = compiled.__dict__["_dynamo_call"]._dynamo_program.segments
    return [s.graph for found in segments.values() for s in found]


@pytest.mark.parametrize("by", ["config", "options"])
def test_compile_freezes_parameters_where_no_gradients_are_recorded(by: str) -> None:
    model = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()))
    x = torch.randn(2, 3, 9, 9)
    with torch._inductor.config.patch(freezing=by == "config"):
        compiled = torch.compile(model, options={"freezing": True} if by == "options" else None)
        compiled(x).sum().backward()  # a graph that records gradients reads its parameters
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
    frozen_code, recorded = [g.forward.code for g in graphs_of(compiled)]
    assert frozen_code.count("kernel_") == 1 and recorded.count("kernel_") > 1


def test_frozen_parameters_that_change_are_frozen_anew() -> None:
    model = settled(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    compiled, x = torch.compile(model, options={"freezing": True}), torch.randn(5, 4)
    with torch.no_grad():
        compiled(x)
        model[0].weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x))
        model[1].running_mean.add_(1)
        torch.testing.assert_close(compiled(x), model(x))
        model[0].bias = nn.Parameter(torch.ones(3))
        torch.testing.assert_close(compiled(x), model(x))
        assert len(graphs_of(compiled)) == 4
        compiled(x)
        assert len(graphs_of(compiled)) == 4


def test_buffers_that_the_graph_writes_are_not_frozen() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    compiled, x = torch.compile(model, options={"freezing": True}), torch.randn(5, 4)
    with torch.no_grad():
        for _ in range(3):
            before = model[1].running_mean.clone()
            compiled(x)
            expected = 0.9 * before + 0.1 * model[0](x).mean(0)
            torch.testing.assert_close(model[1].running_mean, expected)
        assert len(graphs_of(compiled)) == 1  # not guarded by what the graph itself changes


def test_freezing_where_the_function_records_itself() -> None:
    weight = nn.Parameter(torch.randn(4))

    class Recording(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = weight

        def forward(self, x: Any) -> Any:
            with torch.enable_grad():
                return (x * self.w.exp()).sum()

    compiled, x = torch.compile(Recording(), options={"freezing": True}), torch.randn(4)
    with torch.no_grad():
        loss = compiled(x)
    loss.backward()
    torch.testing.assert_close(weight.grad, x * weight.detach().exp())
