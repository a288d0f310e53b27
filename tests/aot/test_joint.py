"""Functions traced to graphs of primitives, with their gradients, and the graphs run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn
from tocha.aot import joint, run, trace


def outputs(function: Callable[..., Any], *inputs: Any, grads: Any = ()) -> list[Any]:
    """What the traced graph returns for the inputs."""
    traced = joint.capture(function, inputs)
    traced.graph.lint()
    return run.run(traced.graph, [t._a for t in (*inputs, *grads)])


def in_place(x: Any, w: Any) -> list[Any]:
    """Writes through views of fresh memory, in several orders."""
    z = torch.zeros(8, 32)
    z[:, 1:] = (x @ w)[:, :-1]
    z.add_(1)
    z.t()[3] = 7
    v = z.view(4, 2, 32)[1]
    v.mul_(2.0)
    z.view(-1)[::5].fill_(0.5)
    return [z * torch.arange(32), v.sum(0)]


def random_numbers(x: Any) -> list[Any]:
    """Numbers drawn in the program's order, out of place and in place."""
    return [F.dropout(x, 0.5) + torch.rand(4, 5), torch.empty(3, 4).normal_(), torch.randperm(7)]


def dtypes(x: Any) -> list[Any]:
    """Promotion, casts and bit views."""
    h = x.half() + x.to(torch.bfloat16)
    return [h, x.view(torch.int32) & 255, (x > 0).sum(), torch.view_as_real(torch.complex(x, x.exp()))]


def test_functional_graph_of_in_place_program() -> None:
    x, w = torch.randn(8, 16), torch.randn(16, 32)
    for got, want in zip(outputs(in_place, x, w), in_place(x, w), strict=True):
        np.testing.assert_array_equal(got, want.numpy())


def test_random_numbers_are_drawn_when_the_graph_runs() -> None:
    x = torch.randn(4, 5)
    traced = joint.capture(random_numbers, [x])
    for _ in range(2):
        torch.manual_seed(5)
        want = random_numbers(x)
        torch.manual_seed(5)
        for got, expected in zip(run.run(traced.graph, [x._a]), want, strict=True):
            np.testing.assert_array_equal(got, expected.numpy())


def test_dtypes() -> None:
    x = torch.randn(4, 5)
    for got, want in zip(outputs(dtypes, x), dtypes(x), strict=True):
        assert got.dtype == want._a.dtype
        np.testing.assert_array_equal(got, want._a)


def test_gradients_equal_eager() -> None:
    x, w, b = torch.randn(8, 16), torch.randn(32, 16, requires_grad=True), torch.randn(32, requires_grad=True)
    target = torch.arange(8)

    def step(x: Any, w: Any, b: Any, target: Any) -> list[Any]:
        h = F.gelu(F.linear(x, w, b))
        h = h.view(4, 2, 32).transpose(0, 1).reshape(8, 32)
        return [F.cross_entropy(h, target), h.detach()]

    g = torch.tensor(2.0)
    loss, _, gw, gb = outputs(step, x, w, b, target, grads=[g])
    want = step(x, w, b, target)[0]
    want.backward(g)
    np.testing.assert_array_equal(loss, want.detach().numpy())
    np.testing.assert_array_equal(gw, w.grad.numpy())
    np.testing.assert_array_equal(gb, b.grad.numpy())


def test_inputs_written_to_become_outputs() -> None:
    norm = nn.BatchNorm1d(3)
    x = torch.randn(6, 3)
    state = dict(norm.named_buffers())

    def call(x: Any, *buffers: Any) -> list[Any]:
        return [torch.func.functional_call(norm, dict(zip(state, buffers, strict=True)), (x,))]

    inputs = [x, *state.values()]
    traced = joint.capture(call, inputs)
    assert [list(state)[i - 1] for i in sorted(traced.mutated)] == ["running_mean", "running_var", "num_batches_tracked"]
    assert state["num_batches_tracked"] == 0
    after = run.run(traced.graph, [t._a for t in inputs])
    norm(x)
    for i, got in zip(traced.mutated, after[traced.values :], strict=False):
        np.testing.assert_array_equal(got, inputs[i].numpy())


def test_aliases_are_noted() -> None:
    def views(x: Any) -> list[Any]:
        y = x * 2
        return [x, x.t(), y, y[1], 3, y.view(6)]

    kinds = [r.kind for r in joint.capture(views, [torch.randn(2, 3)]).results]
    assert kinds == ["input", "input view", "value", "value view", "other", "value view"]


@pytest.mark.parametrize(
    "ask", [lambda x: x.sum().item(), lambda x: x.nonzero(), lambda x: bool(x.sum() > 0), lambda x: x[x > 0]]
)
def test_values_are_refused(ask: Callable[[Any], Any]) -> None:
    with pytest.raises(trace.DataDependent):
        joint.capture(lambda x: [ask(x)], [torch.randn(3)])
    assert torch.zeros(2)._a.__class__ is np.ndarray  # tracing has ended


def test_inputs_that_share_memory_are_refused_where_one_is_written_to() -> None:
    x = torch.arange(6.0)
    with pytest.raises(joint.Unsupported, match="inputs 0 and 1 share memory, and one of them is written to"):
        joint.capture(lambda a, b: [a.add_(1), b * 2], [x[:4], x[2:]])
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    got = outputs(lambda a, b: [a + b], x[:4], x[2:])
    np.testing.assert_array_equal(got[0], [2, 4, 6, 8])


@pytest.mark.parametrize("strides", [(0, 1), (1, 1), (2, 1)])
def test_inputs_whose_elements_coincide_are_refused_where_that_shows(strides: tuple[int, int]) -> None:
    def given() -> Any:
        return torch.arange(9.0).as_strided((3, 3), strides)

    def written(x: Any) -> list[Any]:
        x[0, 1:2] = 5
        return [x.sum()]

    with pytest.raises(joint.Unsupported, match="input 0 is written to, and elements of it may lie on one place of memory"):
        joint.capture(written, [given()])
    x = given()
    expected = {(0, 1): 21, (1, 1): 26, (2, 1): 31}[strides]
    assert torch.compile(lambda x: written(x)[0])(x).item() == expected == x.sum().item()
    assert joint.capture(lambda x: [x * 2, x[1]], [given()])  # no write and no gradient
    leaf = given().detach().requires_grad_()
    torch.compile(lambda x: x[1:])(leaf).sum().backward()
    assert leaf.grad.tolist() == [[0, 0, 0], [1, 1, 1], [1, 1, 1]]
