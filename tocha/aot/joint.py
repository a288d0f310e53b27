"""From a function of tensors to a graph: run it once on traced tensors, forward and (where gradients are wanted) backward.

The graph takes the inputs and, for a joint graph, a gradient for each differentiable output; it returns, in this order, the
function's results, new values of the inputs it writes to, and the inputs' gradients. What results are besides plain values (an
input itself, a view of an input, a view of another result) is noted in `Result`s, from which `tocha.aot.runtime` rebuilds them.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tocha import autograd
from tocha.aot import data, run, trace
from tocha.aot.partition import ancestors
from tocha.aot.trace import TraceArray
from tocha.autograd.mode import enable_grad
from tocha.autograd.views import edge_of
from tocha.backends import device_of, namespace
from tocha.backends.meta import MetaArray
from tocha.dispatch.prim import REGISTRY
from tocha.fx import Graph, Node
from tocha.tensor import Tensor, wrap


class Unsupported(RuntimeError):
    """The function can't be captured soundly; it runs eagerly instead. The message says why."""


@dataclasses.dataclass(frozen=True)
class Result:
    """Where one of the function's results comes from.

    "value": the graph's output number `index`. "input": the input number `index` itself. "input view" and "value view": a view of
    one, of this shape, strides and offset (in elements). "other": `value`, which is no tensor.
    """

    kind: str
    index: int = -1
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0
    value: Any = None
    recorded: bool = False  # whether a view has a history of its own
    cut: bool = False  # whether it was detached


@dataclasses.dataclass
class Traced:
    """A captured function. `graph` has `len(inputs)` placeholders, and as many more as `differentiable` has members."""

    graph: Graph
    inputs: int
    results: list[Result]
    values: int  # outputs that results refer to; first in the graph's output
    differentiable: list[int]  # the outputs (values and mutations) that get gradients
    mutated: list[int]  # inputs written to; their new values come next
    wanted: list[int]  # inputs whose gradients come last (a gradient may be None)
    unrecorded: frozenset[int] = (
        frozenset()
    )  # those of `mutated` that no history was recorded for: under no_grad, or through detach
    copied: frozenset[int] = frozenset()  # inputs that backward has as they were: running statistics, which training steps change
    reach: Sequence[int] = ()  # for each of `wanted` the differentiable outputs that its gradient comes from, as bits
    shared: Sequence[int] = ()  # for each differentiable output those that have a part of backward in common with it, as bits
    opaque: bool = False  # whether it calls what isn't this package's, which may be otherwise in another process


def capture(function: Callable[..., Sequence[Any]], inputs: Sequence[Tensor]) -> Traced:
    """Trace `function(*inputs)`. Unsupported says what stands in the way; tensors given are left as they were."""
    _check(inputs)
    graph = Graph()
    with trace.tracing(graph):
        arrays = [trace.placeholder(f"x{i}", t._a) for i, t in enumerate(inputs)]
        stand_ins = [wrap(a) for a in arrays]
        for stand_in, given in zip(stand_ins, inputs, strict=True):
            if given.requires_grad:
                stand_in._rg = True
        seen = _aliases_for(stand_ins, inputs)
        nodes = [s._node for s in seen]
        results = function(*seen)
        kept = frozenset(i for i, s in enumerate(seen) if s._node is nodes[i])
        _check_written(inputs, arrays)
        return _finish(graph, arrays, stand_ins, seen, list(results), kept)


def _check(inputs: Sequence[Tensor]) -> None:
    for i, t in enumerate(inputs):
        if device_of(t._a).type != "cpu":
            raise Unsupported(f"input {i} is on {t.device}: only CPU tensors are compiled")
        if any(s < 0 for s in t._a.strides):
            raise Unsupported(f"input {i} has negative strides")


def _check_written(inputs: Sequence[Tensor], arrays: Sequence[TraceArray]) -> None:
    """Inputs and their elements are apart in the graph: one that is written to may share its memory with no other."""
    first: dict[int, int] = {}
    for i, t in enumerate(inputs):
        other = first.setdefault(namespace(t._a).memory_id(t._a), i)
        if other != i and (arrays[i].buffer.version or arrays[other].buffer.version):
            raise Unsupported(f"inputs {other} and {i} share memory, and one of them is written to")
        if arrays[i].buffer.version and _coincide(arrays[i]):
            raise Unsupported(f"input {i} is written to, and elements of it may lie on one place of memory")


def _coincide(a: TraceArray) -> bool:
    """Whether elements may lie on one place; where dimensions interleave that isn't looked into."""
    end = 0
    for step, size in sorted([(s, n) for s, n in zip(a.strides, a.shape, strict=True) if n != 1]):
        if step <= end:
            return a.size > 0
        end += step * (size - 1)
    return False


def _aliases_for(stand_ins: list[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """What the function sees: inputs with a history are no leaves, so that it may write to them as in an eager run."""
    with enable_grad():  # the function may switch recording on
        return [
            _result_of(s) if given.requires_grad and not given.is_leaf else s for s, given in zip(stand_ins, inputs, strict=True)
        ]


def _result_of(s: Tensor) -> Tensor:
    """The same memory as a tensor that was computed from s, not as a view of it, which may not be written to."""
    view = s.view_as(s)
    made = wrap(view._a)
    made._rg, made._node, made._nr = True, view._node, view._nr
    return made


def _finish(
    graph: Graph, arrays: list[TraceArray], stand_ins: list[Tensor], seen: list[Tensor], results: list[Any], kept: frozenset[int]
) -> Traced:  # fmt: skip
    for i, (a, s) in enumerate(zip(arrays, seen, strict=True)):
        now = s._a
        if now.buffer is not a.buffer or (now.shape, now.strides, now.dtype) != (a.shape, a.strides, a.dtype):
            raise Unsupported(f"input {i} is given another shape or memory")
    owners = {id(a.buffer): i for i, a in enumerate(arrays)}
    shared: dict[int, int] = {}
    for r in results:
        if isinstance(r, Tensor) and r._a.__class__ is TraceArray:
            shared[id(r._a.buffer)] = shared.get(id(r._a.buffer), 0) + 1
    values: list[Tensor] = []
    found: dict[int, int] = {}

    def value(t: Tensor) -> int:
        if id(t) not in found:
            found[id(t)] = len(values)
            values.append(t)
        return found[id(t)]

    bases = _bases(results)
    notes = [_note(r, arrays, seen, owners, bases if shared.get(_memory(r), 0) > 1 else {}, value) for r in results]
    mutated = [i for i, a in enumerate(arrays) if a.buffer.version]
    outputs = [*values, *[wrap(seen[i]._a) if i in kept else seen[i] for i in mutated]]
    wanted = [i for i, s in enumerate(stand_ins) if s._rg] if any(o.requires_grad for o in outputs) else []
    differentiable = [i for i, o in enumerate(outputs) if o.requires_grad] if wanted else []
    tangents: list[Tensor] = []
    returned: list[Node | None] = [_as_it_lies(o._a) if i < len(values) else o._a.read() for i, o in enumerate(outputs)]
    reach: list[int] = []
    if differentiable:
        reach = _reach([edge_of(outputs[i]) for i in differentiable], [edge_of(stand_ins[i]) for i in wanted])
        tangents = [wrap(trace.placeholder("g", _dense(outputs[i]))) for i in differentiable]
        try:
            grads = autograd.grad(
                [outputs[i] for i in differentiable], [stand_ins[i] for i in wanted], tangents, allow_unused=True
            )
        except RuntimeError as error:  # forward alone is fine, so the error is for the user's own backward to raise
            raise Unsupported(f"backward fails: {error}") from error
        returned += [None if g is None else g._a.read() for g in grads]
    placeholders_first(graph)
    _keep_what_may_raise(graph, returned)
    graph.output(returned)
    opaque = not all(data.ours(n.target) for n in graph.nodes if n.op == "call_function")
    statistics = {c for n in graph.nodes if n.target is REGISTRY["batch_norm_given"] for s in n.args[3:] for c in s.all_input_nodes}
    copied = frozenset(i for i, a in enumerate(arrays) if i not in mutated and a.read() in statistics)
    shared_paths = _shared(graph, [t._a.read() for t in tangents])
    return Traced(
        graph, len(arrays), notes, len(values), differentiable, mutated, wanted, kept & {*mutated}, copied, reach, shared_paths, opaque
    )  # fmt: skip


def _reach(outputs: list[Any], inputs: list[Any]) -> list[int]:
    """`Traced.reach`, by the tape: a gradient that is 0 whatever comes isn't none."""
    found = dict.fromkeys(map(id, inputs), 0)
    for i, output in enumerate(outputs):
        todo, passed = [output], {id(output)}
        while todo:
            edge = todo.pop()
            if id(edge) in found:
                found[id(edge)] |= 1 << i
            following = [e for e in getattr(edge, "edges", ()) if e is not None and id(e) not in passed]
            passed.update(map(id, following))
            todo += following
    return [found[id(edge)] for edge in inputs]


def _shared(graph: Graph, tangents: list[Node]) -> list[int]:
    """`Traced.shared`. Sums that only gradients of inputs are made of are nothing in common: eager mode's tape has them in the leaves."""
    masks = {t: 1 << i for i, t in enumerate(tangents)}
    for node in graph.nodes:
        if node not in masks and node.op != "output":
            mask = functools.reduce(operator.or_, [masks.get(read, 0) for read in node.all_input_nodes], 0)
            if mask:
                masks[node] = mask
    sums: set[Node] = set()
    met: set[int] = set()
    for node in reversed(masks):
        if node.target is REGISTRY["add"] and all(user.op == "output" or user in sums for user in node.users):
            sums.add(node)
        else:
            met.add(masks[node])
    return [functools.reduce(operator.or_, [m for m in met if m >> i & 1], 0) for i in range(len(tangents))]


def _keep_what_may_raise(graph: Graph, returned: list[Node | None]) -> None:
    """Kernels that check values (tag "raises") run although nobody reads their results: a check that looks at nothing reads them."""
    tagged = [n for n in graph.nodes if "raises" in getattr(n.target, "tags", ())]
    if tagged:
        effects = [n for n in graph.nodes if getattr(n.target, "impure", False)]
        live = ancestors([*effects, *[n for n in returned if n is not None]])
        for node in tagged:
            if node not in live:
                result = next(iter(node.users)) if isinstance(node.meta["val"], tuple) else node
                with graph.inserting_after(result):
                    graph.call_function(run.check, (run.computed, result))


def _as_it_lies(a: TraceArray) -> Node:
    """The node of an array's value, in memory laid out as the array's: a value written in place may lie otherwise, as what a view shows."""
    node = a.read()
    have = node.meta["val"].strides
    if a.size == 0 or all(n == 1 or s == h or s == 0 for n, s, h in zip(a.shape, a.strides, have, strict=True)):
        return node
    base = trace.graph().call_function(run.fill, (a.shape, a.dtype, None))
    made = trace.graph().call_function(run.put, (base, node, a.strides, a.shape, a.strides, 0))
    base.meta["val"], made.meta["val"] = MetaArray(a.shape, a.dtype), MetaArray(a.shape, a.dtype, a.strides)
    return made


def _dense(t: Tensor) -> Any:
    return MetaArray(t._a.shape, t._a.dtype)


def _note(
    r: Any, arrays: list[TraceArray], seen: list[Tensor], owners: dict[int, int], bases: dict[int, Tensor], value: Callable[[Tensor], int]
) -> Result:  # fmt: skip
    if not isinstance(r, Tensor):
        return Result("other", value=r)
    if r._a.__class__ is not TraceArray:
        raise Unsupported("a result is a tensor from outside the function")
    for i, s in enumerate(seen):
        if r is s:
            return Result("input", i)
    a = r._a
    item = a.itemsize
    strides = tuple(s // item for s in a.strides)
    owner = owners.get(id(a.buffer))
    if owner is not None:
        if a.dtype != arrays[owner].dtype:
            raise Unsupported("a result is a view of an input as another type")
        if r.grad_fn is not None and _coincide(arrays[owner]):  # as_strided would spread its gradient over them
            raise Unsupported(f"a result is a view of input {owner}, elements of which may lie on one place of memory")
        return Result("input view", owner, a.shape, strides, (a.offset - a.buffer.offset) // item, None, *_history(r))
    base = bases.get(id(a.buffer), r)
    if base is r:
        return Result("value", value(r))
    if not base._a.whole() or a.dtype != base._a.dtype or (r.requires_grad and _base_of(r) is not base):
        raise Unsupported("results share memory in a way that can't be made again")
    return Result("value view", value(base), a.shape, strides, (a.offset - a.buffer.offset) // item, None, *_history(r))


def _memory(r: Any) -> int:
    return id(r._a.buffer) if isinstance(r, Tensor) and r._a.__class__ is TraceArray else 0


def _base_of(r: Tensor) -> Tensor:
    base = r if r._view is None else r._view.base
    return base if _memory(base) == _memory(r) else r


def _bases(results: list[Any]) -> dict[int, Tensor]:
    """For each memory the tensor that results are views of: one with a history, where some are detached."""
    found: dict[int, Tensor] = {}
    for r in results:
        if _memory(r):
            base = _base_of(r)
            if not found.get(_memory(r), base).requires_grad or _memory(r) not in found:
                found[_memory(r)] = base
    return found


def _history(r: Tensor) -> tuple[bool, bool]:
    return r.grad_fn is not None, not r.requires_grad


def placeholders_first(graph: Graph) -> None:
    """Move the placeholders of gradients, made after the forward, to the others."""
    last = None
    for node in list(graph.nodes):
        if node.op == "placeholder":
            if last is None:
                next(iter(graph.nodes)).prepend(node)
            elif last.next is not node:
                last.append(node)
            last = node
