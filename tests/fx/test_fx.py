"""Graphs: recorded, checked, changed, printed and run."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha import fx, nn


class Small(nn.Module):
    """Two layers, a parameter, views and several outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.scale = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x: Any, shift: float = 2.0) -> Any:
        """Layers, scaled, cut and joined."""
        y = self.layers(x) * self.scale + shift
        a, b = y.split(1, dim=1)
        return torch.cat([b, a], 1).relu()[:, 0], y.shape


@pytest.fixture
def traced() -> tuple[Small, fx.GraphModule]:
    """A module and its graph."""
    module = Small()
    return module, fx.symbolic_trace(module)


def test_code_names_functions_where_they_are(traced: Any) -> None:
    assert traced[1].code.splitlines()[1:] == [
        "    layers_0 = getattr(self.layers, '0')(x); x = None",
        "    layers_1 = getattr(self.layers, '1')(layers_0); layers_0 = None",
        "    layers_2 = getattr(self.layers, '2')(layers_1); layers_1 = None",
        "    scale = self.scale",
        "    mul = layers_2 * scale; layers_2 = scale = None",
        "    add = mul + shift; mul = shift = None",
        "    split = add.split(1, dim=1)",
        "    getitem = split[0]",
        "    getitem_1 = split[1]; split = None",
        "    cat = torch.cat([getitem_1, getitem], 1); getitem_1 = getitem = None",
        "    relu = cat.relu(); cat = None",
        "    getitem_2 = relu[(slice(None, None, None), 0)]; relu = None",
        "    getattr_1 = add.shape; add = None",
        "    return (getitem_2, getattr_1)",
    ]


@pytest.mark.parametrize(
    "again",
    [
        lambda g: g,
        copy.deepcopy,
        lambda g: pickle.loads(pickle.dumps(g)),
        lambda g: fx.Transformer(g).transform(),
        fx.Interpreter,
    ],
)
def test_runs_as_the_module(traced: Any, again: Any) -> None:
    module, graph = traced
    x = torch.randn(3, 4)
    got = again(graph)
    value, shape = got.run(x) if isinstance(got, fx.Interpreter) else got(x)
    assert torch.equal(value, module(x)[0]) and shape == (3, 2)
    if not isinstance(got, fx.Interpreter):
        value, _ = got(x, shift=-1.0)
        assert torch.equal(value, module(x, -1.0)[0])


def test_replacing_a_node(traced: Any) -> None:
    _, module = traced
    graph = module.graph
    (add,) = graph.find_nodes(op="call_function", target=operator.add)
    with graph.inserting_after(add):
        doubled = graph.call_function(torch.mul, (add.args[0], 2.0))
    add.replace_all_uses_with(doubled)
    graph.erase_node(add)
    graph.lint()
    module.recompile()
    assert "torch.mul(mul, 2.0)" in module.code and " + shift" not in module.code


def test_erasing_a_node_that_is_read(traced: Any) -> None:
    graph = traced[1].graph
    (relu,) = graph.find_nodes(op="call_method", target="relu")
    with pytest.raises(RuntimeError, match="'relu', but it still has 1 users: getitem_2"):
        graph.erase_node(relu)


def test_dead_code() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    dead = graph.call_function(torch.neg, (x,))
    graph.call_function(torch.neg, (dead,))
    graph.call_method("add_", (x, 1))
    graph.output(x)
    assert graph.eliminate_dead_code()
    assert [n.name for n in graph.nodes] == ["x", "add_", "output"]


def test_lint_finds_a_use_before_its_definition() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    first, second = graph.call_function(torch.neg, (x,)), graph.call_function(torch.exp, (x,))
    first.args = (second,)
    with pytest.raises(RuntimeError, match="'neg' reads 'exp', which is not defined before it"):
        graph.lint()


def test_control_flow_on_a_proxy() -> None:
    with pytest.raises(fx.TraceError, match="control flow"):
        fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)


def test_names_never_hide_builtins() -> None:
    got = fx.symbolic_trace(lambda input, len: (input.shape, getattr(len, "T")))  # noqa: B009
    assert got(torch.ones(2, 3), torch.ones(2, 3))[0] == (2, 3)


def test_users_follow_arguments() -> None:
    graph = fx.Graph()
    a, b = graph.placeholder("a"), graph.placeholder("b")
    node = graph.call_function(torch.stack, ([a, {"k": (b, slice(a, None))}],))
    assert node.all_input_nodes == [a, b] and list(b.users) == [node]
    node.replace_input_with(b, a)
    assert not b.users and node.all_input_nodes == [a]


def test_numbers_of_numpy_keep_their_values() -> None:
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(operator.mul, (x, np.float64(2.5))))
    assert fx.GraphModule({}, graph)(2) == 5.0
