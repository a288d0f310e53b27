"""Answers that depend on values, where a graph may not break: comparisons of numbers that only the graph knows, such numbers as sizes and
indices, and results whose shape depends on values.

The graph so far is run on the inputs of the call that is captured, and the answer of that example is taken. When the graph runs it checks
that the answer is the same (`sizes.SizeChanged`); a call for which it isn't runs in plain Python. So `torch._check(n > 0)` holds, or raises there.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha._dynamo import sizes
from tocha._dynamo.exc import Break
from tocha.aot import trace
from tocha.aot.run import draw, draw_into
from tocha.autograd import mode
from tocha.dispatch.override import require, stacks
from tocha.fx import GraphModule, map_arg
from tocha.tensor import Tensor, wrap


def real(recorder: Any, asked: Any, then: Callable[[Any], Any], hint: str) -> Any:
    """`then` of what the tensors in `asked` are in the call that is captured."""
    if recorder.graph is not recorder.root or recorder.writes or any(n.target in (draw, draw_into) for n in trace.graph().nodes):
        raise Break("a value is asked for after the graph wrote to its inputs or drew random numbers, or in a function within it", hint)
    if stacks.autocast:
        raise Break("a value is asked for under autocast", hint)
    nodes = recorder.argument(asked)
    graph = copy.deepcopy(recorder.graph)
    same = dict(zip(recorder.graph.nodes, graph.nodes, strict=True))
    graph.output(map_arg(nodes, lambda n: same[n]))
    got: list[Any] = []

    def run() -> None:  # on a thread of its own, whose modes are its own
        mode.state.grad, mode.state.inference = recorder.grad, caller.inference
        try:
            got.append((True, then(GraphModule(dict(recorder.modules), graph).forward(*recorder.inputs))))
        except Exception as error:
            got.append((False, error))

    caller = mode.state
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    (fine, found), recorder.by_example = got[0], True
    if not fine:
        raise found
    return found


def decided(vm: Any, op: Callable[..., Any], operands: tuple[Any, ...], hint: str) -> bool:
    """The outcome of a comparison of numbers of the graph, each a tensor of no dimensions or a number."""
    outcome = real(vm.recorder, list(operands), lambda given: bool(op(*[_number(x) for x in given])), hint)
    vm.recorder.check(check_outcome, vm.recorder.argument(op(*operands)), outcome)
    return bool(outcome)


def _number(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


def check_outcome(found: Tensor, expected: bool) -> None:
    """A check in a graph: a comparison comes out as it did when the graph was captured."""
    require(found if expected else found.logical_not(), sizes.SizeChanged, "a comparison of values comes out otherwise than in the example")


check_outcome.impure = True  # type: ignore[attr-defined]


def _size(vm: Any, number: Any, hint: str) -> sizes.VaryingSize:
    """An integer of the graph as a size or an index."""
    recorder, t = vm.recorder, number.t
    if number.size is None:
        found = real(recorder, t, lambda t: int(t.item()), hint)
        recorder.varying = True
        vm.world.examples.add(found)
        number.size = sizes.VaryingSize(vm, found, lambda: recorder.graph.call_method("item", (recorder.nodes[id(t)],), {}), None, ())
        _ = number.size.node  # now: the tensor may be written to later
    return number.size


def given(vm: Any, value: Any, hint: str) -> Any:
    """Arguments of a function, with integers of the graph as sizes."""
    kind = value.__class__
    if kind is tuple or kind is list:
        return kind([given(vm, v, hint) for v in value])
    if kind is slice:
        return slice(given(vm, value.start, hint), given(vm, value.stop, hint), given(vm, value.step, hint))
    return _size(vm, value, hint) if getattr(kind, "of_graph", False) and value.whole else value


def result(vm: Any, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], hint: str) -> Any:
    """A stand-in of what a function returns whose result's shape depends on values."""
    got = real(vm.recorder, (args, kwargs), lambda given: func(*given[0], **given[1]), hint)
    vm.recorder.varying = True
    return _stand_in(vm, got)


def _stand_in(vm: Any, got: Any) -> Any:
    if isinstance(got, (tuple, list)):
        parts = [_stand_in(vm, x) for x in got]
        return type(got)(*parts) if hasattr(got, "_fields") else type(got)(parts)
    if not isinstance(got, Tensor):
        return got
    vm.world.examples.update(got.shape)
    fake = wrap(trace.lift(np.zeros(got.shape, got._a.dtype)))
    if not got.requires_grad:
        return fake
    fake._rg = True
    return fake.view_as(fake)
