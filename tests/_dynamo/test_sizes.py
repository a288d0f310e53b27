"""Sizes that vary: two graphs for any number of lengths, the plain result for each, and never a graph for other sizes."""

from __future__ import annotations

from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tests._dynamo import helpers
from tests._dynamo.test_modules import Block, Config, Model
from tocha import nn
from tocha._dynamo.testing import CompileCounter
from tocha.fx.experimental.symbolic_shapes import ConstraintViolationError


def flattened(x: Any) -> Any:
    b, t, d = x.shape
    y = x.reshape(b * t, d) @ torch.ones(d, 3)
    return y.view(b, t, -1).transpose(1, 2) + torch.arange(t)


def sizes_returned(x: Any) -> Any:
    return x.shape, x.size(1) * 2, (x * 2).shape[1] + 1, x.numel(), len(x)


def decided(x: Any) -> Any:
    return x * 2 if x.shape[1] > 6 else x * 3


def decided_on_computed(x: Any) -> Any:
    y = torch.cat([x, x], dim=1)
    return y * 2 if y.shape[1] > 12 else y * 3


def looped(x: Any) -> Any:
    total = x[:, 0]
    for i in range(x.shape[1]):
        total = total + x[:, i] * i
    return total


def split(x: Any) -> Any:
    return [p.sum() for p in x.split(3, dim=1)], x.unbind(1)[0]


def masked(x: Any) -> Any:
    t = x.shape[1]
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    scores = (x @ x.transpose(1, 2)) / t**0.5
    return scores.masked_fill(~mask, -1e9).softmax(-1)[:, : t // 2]


def clamped(x: Any) -> Any:
    y = x[:, :8]
    return y * y.shape[1]


def in_place(x: Any) -> Any:
    y = x * 1
    y[:, 0] = y.shape[1]
    return y


def padded(x: Any) -> Any:
    return F.pad(x, (0, 0, 0, 16 - x.shape[1])).sum(1), f"{x.shape[1]}"


def drawn(x: Any) -> Any:
    y = F.dropout(x, 0.5)
    return y + torch.rand(y.shape[1], 1) * y.shape[1]


def broken(x: Any) -> Any:
    k = x.sum().item()
    t = x.shape[1]
    return x.view(-1, t) * k


CASES = [flattened, sizes_returned, decided, decided_on_computed, looped, split, masked, clamped, in_place, padded, drawn, broken]
ONCE = {flattened: 2, sizes_returned: 2, decided: 3, masked: None}


@pytest.mark.filterwarnings("ignore:torch.compile")
@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_all_lengths(function: Any, dynamic: Any, backend: Any) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=backend or counter, dynamic=dynamic)
    for t in (3, 4, 5, 6, 7, 8, 9, 1, 12, 2, 13, 3):
        x = torch.arange(2.0 * t * 4).view(2, t, 4)
        torch.manual_seed(t)
        expected = function(x.clone())
        torch.manual_seed(t)
        assert helpers.same(expected, compiled(x.clone()), 1e-6), t
    if dynamic is None and ONCE.get(function) and not backend:
        assert counter.frame_count == ONCE[function] + 1  # and one for size 1


@pytest.mark.parametrize("training", [False, True])
def test_ten_lengths_of_a_model(training: bool) -> None:
    counter = CompileCounter()
    for module in (Block(), nn.Sequential(nn.Linear(8, 8), nn.ReLU())):
        torch._dynamo.reset()
        counter.clear()
        module.train(training)
        compiled = torch.compile(module, backend=counter, fullgraph=True)
        for t in range(3, 13):
            x = torch.randn(2, t, 8)
            assert torch.allclose(compiled(x), module(x), 1e-5, 1e-6)
        assert counter.frame_count == 2


def test_ten_lengths_with_labels() -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    model = Model(Config())
    compiled = torch.compile(model, backend=counter, fullgraph=True)
    for t in range(3, 13):
        ids = torch.randint(0, 11, (2, t))
        got, expected = compiled(ids, labels=ids), model(ids, labels=ids)
        assert torch.allclose(got.loss, expected.loss) and type(got) is type(expected)
    assert counter.frame_count == 2


def test_marks() -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x * x.shape[0], backend=counter)
    for n in (4, 5, 6):
        x = torch.ones(n)
        torch._dynamo.mark_dynamic(x, 0)
        assert compiled(x)[0].item() == n
    assert counter.frame_count == 1
    counter.clear()
    torch._dynamo.reset()
    for n in (4, 5, 6):
        x = torch.ones(n)
        torch._dynamo.mark_static(x)
        assert compiled(x)[0].item() == n
    assert counter.frame_count == 3


def test_bounds_of_marked_sizes() -> None:
    counter = CompileCounter()
    compiled = torch.compile(lambda x: x * 2, backend=counter)
    graphs = []
    for n in (5, 7, 20, 30, 6):
        x = torch.ones(n)
        if n <= 10:
            torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
        assert compiled(x).shape == (n,)
        graphs.append(counter.frame_count)
    assert graphs == [1, 1, 2, 2, 2]
    x = torch.ones(50)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=10)
    with pytest.raises(RuntimeError, match="50 of dimension 0 is not <= 10"):
        torch.compile(lambda x: x * 3, backend="eager")(x)


def test_a_marked_size_that_the_program_fixes() -> None:
    def f(x: Any) -> Any:
        return x * 2 if x.shape[0] == 5 else x

    x = torch.ones(5)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError, match=r"x\.shape\[0\] was marked dynamic"):
        torch.compile(f, backend="eager")(x)
    x = torch.ones(5)
    torch._dynamo.maybe_mark_dynamic(x, 0)
    assert torch.compile(f, backend="eager")(x).sum() == 10
    x = torch.ones(6)
    torch._dynamo.mark_dynamic(x, 0)
    assert torch.compile(f, backend="eager")(x).sum() == 6
