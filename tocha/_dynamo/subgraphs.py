"""Operators that take functions, in a trace: a tensor decides, so each function becomes a graph of its own within the graph.

    cond       -> graphs.cond(pred, true_graph, false_graph, operands)
    while_loop -> graphs.while_loop(cond_graph, body_graph, carried, others)

Tensors from around that a function uses are operands too. What such a function may not do, since it may run or not, once or often:
write to anything from outside it, or return a tensor that shares memory with one from outside.
"""

from __future__ import annotations

import collections
import contextlib
import types
from collections.abc import Iterable
from typing import Any

from tocha._dynamo.calls import Rule, rule
from tocha._dynamo.exc import Break, NotDynamic, Restart
from tocha._dynamo.recorder import Scope
from tocha._dynamo.world import changed
from tocha._higher_order_ops import cond, graphs, while_loop
from tocha.aot import trace
from tocha.autograd import mode
from tocha.backends.meta import MetaArray
from tocha.dispatch.override import PLAIN, DisableTorchFunction
from tocha.fx import Node
from tocha.tensor import Tensor, wrap
from tocha.utils._pytree import tree_flatten, tree_unflatten

_SEPARATE = "clone() what is returned"


class Captured:
    """One function as a graph: `scope` of its nodes, and its result's leaves. `watched`: arguments that it may not change.

    With `shares` the result may share memory with what is outside, and it is for the caller to close the graph."""

    def __init__(
        self, vm: Any, op: str, fn: Any, args: tuple[Any, ...], fresh: Iterable[Tensor] = (), clone: bool = False, watched: Any = None,
        shares: bool = False, kwargs: Any = None,
    ) -> None:  # fmt: skip
        recorder = vm.recorder
        recorder.kept += fresh
        self.vm, self.op, self.shares = vm, op, shares
        self.before = [(t._a.buffer, t._a.buffer.version) for t in recorder.kept]
        self.around = State(vm, fn, args if watched is None else watched)
        self.modes = mode.is_grad_enabled(), len(recorder.contexts), len(recorder.opened)
        self.scope = Scope(recorder.nodes)
        for t in fresh:
            self.scope.input(t)
        self.leaves, self.spec = tree_flatten(self.run(fn, args, kwargs))
        self.outer = {id(b) for b, _ in self.before} | recorder.outer
        with recorder.subgraph(self.scope):
            self.leaves = [self._separate(op, x, self.outer, clone) for x in self.leaves]
        if not shares:
            self.close(self.leaves)

    def run(self, fn: Any, args: tuple[Any, ...], kwargs: Any = None) -> Any:
        """Run a function into the graph."""
        with self.vm.recorder.subgraph(self.scope):
            return self.vm.nested(fn, args, kwargs)

    def close(self, returned: list[Any]) -> None:
        """What the graph returns; it ends here."""
        recorder = self.vm.recorder
        if any(b.version != version for b, version in self.before):
            raise Break(f"{self.op}: a function writes in place to a tensor from outside it", "write to a clone")
        if self.around.changed() or (mode.is_grad_enabled(), len(recorder.contexts), len(recorder.opened)) != self.modes:
            raise Break(f"{self.op}: a function changes what it didn't make", "return what changes")
        self.nodes = [self.scope[id(x)] if isinstance(x, Tensor) else x for x in returned]

    def _separate(self, op: str, x: Any, outer: set[int], clone: bool) -> Any:
        """A leaf of the result, in memory of its own."""
        if not isinstance(x, Tensor):
            if x is not None and type(x) not in (int, bool):
                raise Break(f"{op}: a function returns a {type(x).__name__}", "return tensors")
            return x
        if type(x) not in PLAIN:
            raise Break(f"{op}: a function returns a {type(x).__name__}", "return plain tensors")
        if self.shares:
            return x
        if id(x._a.buffer) in outer:
            if not clone:
                raise Break(f"{op}: a function returns a tensor from outside, or a view of it or of another result", _SEPARATE)
            x = x.clone()
        outer.add(id(x._a.buffer))
        return x

    def outline(self) -> list[Any]:
        """What the leaves are, but for their values."""
        return [_outline(x) for x in self.leaves]


def _outline(x: Any) -> Any:
    return (x._a.shape, x._a.dtype.name, x._a.strides) if isinstance(x, Tensor) else x


class State:
    """What a call could change besides tensors: values from before the trace, and those made in it that the function reaches."""

    def __init__(self, vm: Any, fn: Any, args: Any) -> None:
        self.world = vm.world
        self.overlay = {k: id(v) for k, v in self.world.overlay.items()}
        self.copies = len(self.world.copies)
        self.held = self._reached([fn, args, *[copy for _, copy, _ in self.world.copies]])

    def _reached(self, waiting: list[Any]) -> dict[int, tuple[Any, list[int]]]:
        """Objects with what they hold, by id."""
        seen: dict[int, tuple[Any, list[int]]] = {}
        while waiting:
            x = waiting.pop()
            if id(x) not in seen:
                inside = self._inside(x)
                seen[id(x)] = x, [*map(id, inside)]
                waiting += inside
        return seen

    def _inside(self, x: Any) -> list[Any]:
        if isinstance(x, types.FunctionType):
            return [*(x.__closure__ or ()), *(x.__defaults__ or ())]
        if isinstance(x, types.MethodType):
            return [x.__self__, x.__func__]
        if isinstance(x, dict):
            return [*x.keys(), *x.values()]
        if isinstance(x, (list, tuple, set, frozenset, collections.deque)):
            return [*x]
        if isinstance(x, (Tensor, type, types.ModuleType)) or self.world.source_of(x) is not None:
            return []
        if isinstance(x, types.CellType):
            with contextlib.suppress(ValueError):
                return [x.cell_contents]
            return []
        return [*getattr(x, "__dict__", {}).values()]

    def _inside_now(self, x: Any) -> list[int] | None:
        """What an object holds; None for one from before the trace, which only the epilogue changes."""
        known = self.world.known.get(id(x))
        return None if known is not None and known.real is x and known.value is x else [*map(id, self._inside(x))]

    def changed(self) -> bool:
        """Whether something is different now."""
        new = self.world.copies[self.copies :]
        return (
            {k: id(v) for k, v in self.world.overlay.items()} != self.overlay
            or any(changed(copy, before) for _, copy, before in new)
            or any(self._inside_now(x) not in (ids, None) for x, ids in self.held.values())
        )


def lifted_by(captured: Iterable[Captured]) -> list[Node]:
    """The nodes from around that any of the graphs reads."""
    return list(dict.fromkeys(n for c in captured for n in c.scope.lifted))


def attribute(vm: Any, name: str, captured: Captured, lifted: list[Node]) -> Node:
    """The graph as an attribute of the one around it."""
    recorder = vm.recorder
    made = captured.scope.module(lifted, captured.nodes)
    number = sum(k.startswith(name) for k in recorder.modules)
    recorder.modules[f"{name}_{number}"] = made
    return recorder.graph.get_attr(f"{name}_{number}")


def _result(vm: Any, node: Node, captured: list[Captured]) -> Any:
    """Stand-ins for what the operator returns; `captured`: the functions one of whose results it is."""
    recorder, leaves = vm.recorder, []
    recorder.calls += 1
    tensors: list[Tensor] = []
    for i, like in enumerate(captured[0].leaves):
        if not isinstance(like, Tensor):
            leaves.append(like)
            continue
        with DisableTorchFunction():
            needs = mode.is_grad_enabled() and any(c.leaves[i].requires_grad for c in captured)
            leaves.append(stand_in(like, needs))
        tensors.append(leaves[-1])
    node.meta["example_value"] = tuple(tensors)
    recorder.bind(tuple(tensors), node)
    return tree_unflatten(leaves, captured[0].spec)


def stand_in(like: Tensor, needs: bool) -> Tensor:
    """A tensor of the trace in memory of its own, with a history if it needs a gradient."""
    return on_memory(trace.placeholder("x", MetaArray(like._a.shape, like._a.dtype, like._a.strides)), needs)


def on_memory(a: Any, needs: bool) -> Tensor:
    """A tensor on memory of the trace, with a history if it needs a gradient."""
    made = wrap(a)
    if needs:
        made._rg = True
        view = made.view_as(made)
        made._node, made._nr = view._node, view._nr
    return made


def whole(capturing: Rule) -> Rule:
    """A rule that has looked into functions when it breaks: their traces are undone by another trace that ends before."""

    def captured(vm: Any, args: Any, kwargs: Any) -> Any:
        try:
            return capturing(vm, args, kwargs)
        except Break as broken:
            raise Restart(vm.count, broken.reason, broken.hint) from broken

    return captured


@rule(cond)
@whole
def _cond(vm: Any, args: Any, kwargs: Any) -> Any:
    pred, true_fn, false_fn, operands = _cond_arguments(*args, **kwargs)
    if not isinstance(pred, Tensor) or pred._a.size != 1 or not isinstance(operands, (tuple, list)):
        return vm.inline(cond, args, kwargs)
    if vm.recorder.varying:
        raise NotDynamic
    both = [Captured(vm, "torch.cond", fn, tuple(operands)) for fn in (true_fn, false_fn)]
    if both[0].spec != both[1].spec or both[0].outline() != both[1].outline():
        raise Break(
            f"torch.cond: the branches return unlike things, {both[0].outline()} and {both[1].outline()}",
            "return the same structure, with tensors of the same shapes, dtypes and strides and equal numbers",
        )
    lifted = lifted_by(both)
    attributes = [attribute(vm, name, c, lifted) for name, c in zip(("cond_true", "cond_false"), both, strict=True)]
    node = vm.recorder.graph.call_function(graphs.cond, (vm.recorder.argument(pred), *attributes, tuple(lifted)))
    return _result(vm, node, both)


def _cond_arguments(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> tuple[Any, Any, Any, Any]:
    return pred, true_fn, false_fn, operands


def _loop_arguments(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> tuple[Any, Any, Any]:
    return cond_fn, body_fn, carried_inputs


@rule(while_loop)
@whole
def _while_loop(vm: Any, args: Any, kwargs: Any) -> Any:
    cond_fn, body_fn, carried = _loop_arguments(*args, **kwargs)
    leaves, spec = tree_flatten(tuple(carried) if isinstance(carried, list) else carried)
    if not isinstance(carried, (tuple, list)) or not all(isinstance(x, Tensor) for x in leaves):
        return vm.inline(while_loop, args, kwargs)  # an int decides, which is known
    if vm.recorder.varying:
        raise NotDynamic
    captured = []
    for fn in (cond_fn, body_fn):
        with DisableTorchFunction():
            fresh = [stand_in(x, x.requires_grad) for x in leaves]
        captured.append(Captured(vm, "while_loop", fn, tree_unflatten(fresh, spec), fresh, clone=fn is body_fn))
    test, body = captured
    _check_loop(test, body, leaves)
    lifted = lifted_by(captured)
    attributes = [attribute(vm, name, c, lifted) for name, c in zip(("cond_fn", "body_fn"), captured, strict=True)]
    given = tuple([vm.recorder.argument(x) for x in leaves])
    node = vm.recorder.graph.call_function(graphs.while_loop, (*attributes, given, tuple(lifted)))
    body.spec = spec
    return _result(vm, node, [body])


def _check_loop(test: Captured, body: Captured, carried: list[Tensor]) -> None:
    if len(test.leaves) != 1 or not isinstance(test.leaves[0], Tensor) or test.leaves[0]._a.size != 1:
        raise Break("while_loop: the condition is no tensor of one element", "compute it from the carried tensors")
    expected = [*map(_outline, carried)]
    if body.outline() != expected:
        raise Break(
            f"while_loop: the carried tensors are {expected} and become {body.outline()}", "keep shapes, dtypes and strides"
        )
