"""Control flow in graphs of primitives: nodes that run one compiled function or another, or one again and again.

    node ::= choose(pred, branches, operands…)                      -> outputs…, state
           | choose_backward(state, branches, operands…, gradients…)  -> gradients of the wanted operands
           | loop(test and body, carried…, others…)                  -> carried…

`state` is an array of one object: which branch ran, and what its forward saved. Arrays that go in stay the outer graph's; results are new.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.aot import trace
from tocha.aot.joint import Unsupported
from tocha.autograd.graph import Node
from tocha.autograd.mode import state as modes
from tocha.autograd.views import edge_of
from tocha.backends.meta import MetaArray
from tocha.tensor import Tensor, wrap

Arrays = Sequence[Any]
_OBJECT = np.dtype(object)


class Functions:
    """Compiled functions in a node's arguments, shown short."""

    def __init__(self, functions: Sequence[Callable[..., Any]], inputs: Sequence[Tensor]) -> None:
        from tocha._higher_order_ops.graphs import tensors_of
        from tocha.aot import runtime

        compiler = runtime.compilers[-1] if runtime.compilers else runtime.by_running
        self.made = [runtime.compile(lambda *xs, f=f: list(tensors_of(f(*xs))), inputs, compiler) for f in functions]
        for c in self.made:
            if c.traced.mutated or any(r.kind != "value" for r in c.traced.results):
                raise Unsupported("a branch or a loop's body writes to its operands, or returns one of them")
        traced = [c.traced for c in self.made if c.backward is not None]
        self.numbers = [[r.index for r in c.traced.results] for c in self.made]
        self.wanted = sorted({i for t in traced for i in t.wanted})
        self.read = sorted({i for c in self.made for i in c.saved_inputs})
        self.like = [MetaArray(t._a.shape, t._a.dtype) for t in inputs]

    def __repr__(self) -> str:
        return f"<{len(self.made)} functions>"

    def outputs(self, which: int) -> list[MetaArray]:
        """What a function returns, without data."""
        c = self.made[which]
        returned = c.traced.graph.output_node().args[0]
        return [MetaArray(returned[i].meta["val"].shape, returned[i].meta["val"].dtype) for i in self.numbers[which]]

    def differentiable(self) -> list[int]:
        """The outputs that one of the functions has gradients for."""
        return [
            k
            for k in range(len(self.numbers[0]))
            if any(numbers[k] in c.traced.differentiable for c, numbers in zip(self.made, self.numbers, strict=True))
        ]


def choose(pred: Any, functions: Functions, *operands: Any) -> tuple[Any, ...]:
    """The first function's results if `pred`, else the second's; last the state."""
    which = 0 if pred else 1
    c = functions.made[which]
    arrays = c.forward(list(operands))
    state = np.empty((), object)
    state[()] = which, arrays[c.count :]
    return *[arrays[i] for i in functions.numbers[which]], state


def choose_backward(state: Any, functions: Functions, *arrays: Any) -> tuple[Any, ...]:
    """Gradients of the wanted operands; zeros for those that the branch doesn't use."""
    which, saved = state[()]
    c, traced = functions.made[which], functions.made[which].traced
    operands, gradients = dict(zip(functions.read, arrays, strict=False)), arrays[len(functions.read) :]
    found: dict[int, Any] = {}
    if c.backward is not None:
        by_value: dict[int, Any] = {}
        for k, g in zip(functions.differentiable(), gradients, strict=True):
            number = functions.numbers[which][k]
            by_value[number] = g if number not in by_value else by_value[number] + g
        given = [*[operands[i] for i in c.saved_inputs], *saved, *[by_value[i] for i in traced.differentiable]]
        found = {i: g for i, g in zip(traced.wanted, c.backward(given), strict=True) if g is not None}
    return tuple(
        [found[i] if i in found else np.zeros(functions.like[i].shape, functions.like[i].dtype) for i in functions.wanted]
    )


def loop(functions: Functions, count: int, *arrays: Any) -> tuple[Any, ...]:
    """The first `count` arrays, replaced by the second function's results as long as the first one's holds."""
    test, body = functions.made
    now, others = list(arrays[:count]), arrays[count:]
    started = False
    while test.forward([*now, *others])[functions.numbers[0][0]]:
        outs = body.forward([*now, *others])
        now, started = [outs[i] for i in functions.numbers[1]], True
    return tuple(now) if started else tuple([a.copy() for a in now])


choose.impure = loop.impure = True  # type: ignore[attr-defined]  # they may draw random numbers


def _parts(node: Any, values: list[MetaArray]) -> list[Any]:
    """A node's results as arrays of the trace."""
    node.meta["val"] = tuple(values)
    return [trace.made(trace.graph().call_function(operator.getitem, (node, i)), v) for i, v in enumerate(values)]


class BranchBackward(Node):
    """The tape's record of a branch, in a trace."""

    __slots__ = ("functions", "like", "operands", "state")
    functions: Functions
    like: list[Any]  # the outputs that gradients come for
    operands: list[Any]  # nodes
    state: Any

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        given = [trace.filled(a.shape, a.dtype, 0, None) if g is None else g._a for g, a in zip(grads, self.like, strict=True)]
        arguments = (self.state.read(), self.functions, *self.operands, *[a.read() for a in given])
        node = trace.graph().call_function(choose_backward, arguments)
        return [wrap(a) for a in _parts(node, [self.functions.like[i] for i in self.functions.wanted])]


def cond(pred: Tensor, functions: Sequence[Callable[..., Any]], operands: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """`tocha._higher_order_ops.graphs.cond` in a trace."""
    made = Functions(functions, operands)
    values = made.outputs(0)
    if [(v.shape, v.dtype) for v in values] != [(v.shape, v.dtype) for v in made.outputs(1)]:
        raise Unsupported("the branches of a cond return tensors of other shapes or types")
    nodes = [t._a.read() for t in operands]
    node = trace.graph().call_function(choose, (pred._a.read(), made, *nodes))
    *arrays, state = _parts(node, [*values, MetaArray((), _OBJECT)])
    outs = [wrap(a) for a in arrays]
    if made.wanted and modes.grad:
        edges = tuple([edge_of(operands[i]) for i in made.wanted])
        differentiable = made.differentiable()
        record = BranchBackward(edges, tuple([operands[i]._nr for i in made.wanted]), len(differentiable))
        record.functions, record.state, record.operands = made, state, [nodes[i] for i in made.read]
        record.like = [outs[k]._a for k in differentiable]
        for number, k in enumerate(differentiable):
            outs[k]._rg, outs[k]._node, outs[k]._nr = True, record, number
    return tuple(outs)


def while_loop(
    test: Callable[..., Any], body: Callable[..., Any], carried: Sequence[Tensor], others: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """`tocha._higher_order_ops.graphs.while_loop` in a trace."""
    if modes.grad and any(t.requires_grad for t in (*carried, *others)):
        raise Unsupported("gradients go through a while_loop")
    inputs = (*carried, *others)
    made = Functions([test, body], inputs)
    values = [MetaArray(t._a.shape, t._a.dtype) for t in carried]
    if [(v.shape, v.dtype) for v in made.outputs(1)] != [(v.shape, v.dtype) for v in values]:
        raise Unsupported("a while_loop's body returns tensors of other shapes or types")
    node = trace.graph().call_function(loop, (made, len(carried), *[t._a.read() for t in inputs]))
    return tuple([wrap(a) for a in _parts(node, values)])
