"""Traced graphs as functions of tensors: compile, run, put history on the results, write mutated inputs back.

    compile(function, inputs, compiler) -> callable(*inputs)

`compiler(graph)` turns a graph of primitives into a callable from a list of arrays to a list of arrays, whose results share no
memory with its inputs or each other: `by_running`, or the inductor's. It may empty the list it is given, so that arrays go with their last
use. If it has `prepare`, that may change a joint graph first.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tocha.aot import journal, kept, run
from tocha.aot.joint import Result, Traced, capture
from tocha.aot.partition import partition
from tocha.aot.twice import Again
from tocha.autograd.graph import Node, Version, bump_all, check_saved, check_unchanged, version_of
from tocha.autograd.mode import INFERENCE_USED, no_grad, set_grad_enabled, state
from tocha.autograd.packed import Packed
from tocha.autograd.views import edge_of
from tocha.backends import namespace
from tocha.backends.meta import MetaArray
from tocha.dispatch.inplace import check_history
from tocha.dispatch.override import FUNCTION_MODES, INTERPRETERS, disabled_torch_function
from tocha.fx import Graph
from tocha.tensor import Tensor, wrap

if TYPE_CHECKING:
    from tocha.aot.bound import Bound

Arrays = list[Any]
Run = Callable[[Arrays], Arrays]
Compiler = Callable[[Graph], Run]
#: Of the functions that are being traced, innermost last: functions within them are compiled by it too.
compilers: list[Compiler] = []


def by_running(graph: Graph) -> Run:
    """The compiler that doesn't compile: nodes one by one on NumPy and eager kernels."""

    def call(inputs: Arrays) -> Arrays:
        seen: set[int] = {id(_owner(a)) for a in inputs}
        outputs = []
        for a in run.run(graph, inputs):
            if a is not None and id(_owner(a)) in seen:
                a = a.copy("K")
            seen.add(id(_owner(a)))
            outputs.append(a)
        return outputs

    return call


def _owner(a: Any) -> Any:
    while getattr(a, "base", None) is not None:
        a = a.base
    return a


def compile(
    function: Callable[..., Sequence[Any]], inputs: Sequence[Tensor], compiler: Compiler, captured: str | None = None
) -> Compiled:
    """`function` compiled for inputs like these. Its tensors must be all arguments; Unsupported and DataDependent say why not. What another
    process compiled is taken from disk, if words say what the function is that was `captured` (`kept.words`)."""
    recording = bool(state.grad)
    key = kept.key(captured, inputs)
    found = kept.recall(key)
    if found is not None:
        known, saved_inputs, needs, forward, restored = found
        again = Again(function, known, recording, inputs, needs) if known.wanted else None
        return Compiled(known, forward, restored, saved_inputs, again is not None and not recording, again)
    compilers.append(compiler)
    try:
        with journal.stage("trace to primitives"):
            traced = capture(function, inputs)
    finally:
        compilers.pop()
    key, words = None if traced.opaque else key, dataclasses.replace(traced, graph=None)  # type: ignore[arg-type]
    prepare = getattr(compiler, "prepare", None)
    if prepare is not None:  # before it is decided what to save
        prepare(traced.graph)
    if not traced.wanted:
        forward = _made(compiler, traced.graph, "inference")
        kept.keep(key, words, [], None, forward)
        return Compiled(traced, forward, None, [])
    with journal.stage("partition"):
        parts = partition(traced)
    forward = _made(compiler, parts.forward, "forward")
    again = Again(function, traced, recording, inputs)
    key = kept.keep(key, words, parts.saved_inputs, again.known, forward)
    return Compiled(traced, forward, _Lazy(compiler, parts.backward, key), parts.saved_inputs, not recording, again)


def _made(compiler: Compiler, graph: Graph, part: str) -> Run:
    """The compiler's callable; listeners are told what it was made of."""
    graph.meta["part"] = part
    if not journal.listeners:
        return compiler(graph)
    text = graph.python_code("self").src
    with journal.stage(f"{part} to native code"):
        made = compiler(graph)
    journal.note("compiled", part=part, graph=text, made=made)
    return made


class _Lazy:
    """A backward graph, compiled when first needed, and kept as `key`."""

    def __init__(self, compiler: Compiler, graph: Graph, key: str | None) -> None:
        self.compiler, self.graph, self.key, self.subject = compiler, graph, key, journal.subject()
        self.made: Run | None = None

    def __call__(self, arrays: Arrays) -> Arrays:
        if self.made is None:
            with journal.without_collections(), journal.about(self.subject):
                self.made = _made(self.compiler, self.graph, "backward")
                kept.keep(self.key, self.made)
        return self.made(arrays)


class Filled(NamedTuple):
    """A list of which most is the same at every call, and the rest as (place, value): a call makes only those."""

    known: list[Any]
    rest: Sequence[tuple[int, Any]] = ()

    def whole(self) -> list[Any]:
        """The list."""
        filled = self.known.copy()
        for at, value in self.rest:
            filled[at] = value
        return filled


class Compiled:
    """Calls a forward, and records a node that calls the backward on these inputs, on what the forward saved, and on gradients."""

    def __init__(
        self, traced: Traced, forward: Run, backward: Run | None, saved_inputs: list[int], always: bool = False, again: Again | None = None
    ) -> None:  # fmt: skip
        self.traced, self.forward, self.backward, self.saved_inputs, self.again = traced, forward, backward, saved_inputs, again
        self.always = always  # the function itself switches recording on
        self.count = traced.values + len(traced.mutated)
        self.checked = [] if again is None else [again.needed.index(i) for i in saved_inputs]
        self.like: list[Any] = []  # arrays of no memory like the outputs that gradients come for
        self.kept: list[int] | None = None  # outputs that are also saved: the same at every call
        self.plain = not traced.mutated and [(r.kind, r.index) for r in traced.results] == [
            ("value", i) for i in range(self.count)
        ]

    def __call__(self, *inputs: Tensor) -> list[Any]:
        node = self.history(inputs) if self.records() else None
        return self.finish(inputs, self.forward([t._a for t in inputs]), node)

    def records(self) -> bool:
        """Whether a call now gets a history."""
        return self.again is not None and bool(state.grad or self.always)

    def history(self, inputs: Sequence[Tensor]) -> CompiledBackward:
        """A call's node, with what it needs of its inputs."""
        assert self.again is not None
        numbers = tuple([inputs[i]._nr for i in self.traced.wanted])
        edges = tuple([edge_of(inputs[i]) if inputs[i].requires_grad else None for i in self.traced.wanted])
        node = CompiledBackward(edges, numbers if any(numbers) else None, len(self.traced.differentiable))
        node.made, node.rng, node.done = self, self.again.rng(), 0
        node.arrays = Filled([inputs[i]._a for i in self.saved_inputs])
        node.held = Filled([(version_of(inputs[i]), inputs[i]) for i in self.again.needed])
        return node.checked()

    def bind(self, fixed: dict[int, Tensor]) -> Bound:
        """The same for inputs some of which, by number, are always these tensors, their arrays, hooks and counters included."""
        from tocha.aot.bound import Bound

        return Bound(self, fixed)

    def finish(self, inputs: Sequence[Tensor], arrays: Arrays, node: CompiledBackward | None) -> list[Any]:
        """The results of a call whose graph gave `arrays`."""
        traced, count = self.traced, self.count
        outs = [wrap(arrays[0])] if count == 1 else [wrap(a) for a in arrays[:count]]
        if node is not None:
            self._record(outs, arrays[count:], node)
        if self.plain:
            return outs
        results = [_result(r, inputs, outs) for r in traced.results]
        if traced.mutated:
            self._write_back(inputs, outs[traced.values :])
        return [
            _view_of_input(r, inputs) if r.kind == "input view" else got for r, got in zip(traced.results, results, strict=True)
        ]

    def _write_back(self, inputs: Sequence[Tensor], news: list[Tensor]) -> None:
        """Copy new values into mutated inputs, all or none of them: those that are plain memory all at once."""
        traced, plain, others = self.traced, [], []
        for i, new in zip(traced.mutated, news, strict=True):
            t, unrecorded = inputs[i], i in traced.unrecorded
            if _is_plain(t, new) and (unrecorded or not (state.grad and (t._rg or new._rg))):
                plain.append((t, new._a))
                continue
            check_history(t, "copy_", not unrecorded and (t._rg or new._rg))
            others.append((t, new, unrecorded))
        for t, new, unrecorded in others:
            with no_grad() if unrecorded else contextlib.nullcontext():
                t.copy_(new)
        for t, a in plain:
            np.copyto(t._a, a)
        bump_all([t for t, _ in plain], "copy_")

    def _record(self, outs: list[Tensor], saved: Arrays, node: CompiledBackward) -> None:
        for number, i in enumerate(self.traced.differentiable):
            out = outs[i]
            out._rg, out._node, out._nr = True, node, number
        if self.kept is None:
            ids = {id(a) for a in saved}
            self.like = [MetaArray(outs[i]._a.shape, outs[i]._a.dtype) for i in self.traced.differentiable]
            self.kept = [i for i, o in enumerate(outs) if id(o._a) in ids]
        node.saved = saved
        node.outputs_kept = [(version_of(outs[i]), outs[i]._a) for i in self.kept] if self.kept else ()
        node.packed = node.pack() if state.saved_hooks else None


class Apart:
    """A compiled function that writes to its inputs, for inputs none of which shows in another; others are given to `otherwise`, and
    those that retain their gradient, which would be that of what is written."""

    def __init__(self, made: Compiled, otherwise: Callable[..., Any]) -> None:
        self.made, self.otherwise = made, otherwise

    def __call__(self, *inputs: Tensor) -> Any:
        apart = len({memory_of(t) for t in inputs}) == len(inputs) and not any(t.retains_grad for t in inputs)
        return self.made(*inputs) if apart else self.otherwise(*inputs)

    def bind(self, fixed: dict[int, Tensor]) -> Callable[..., Any] | None:
        """As `Compiled.bind`; None if the fixed inputs show in each other."""
        taken = {memory_of(t) for t in fixed.values()}
        if len(taken) < len(fixed):
            return None
        bound = self.made.bind(fixed)

        def call(*rest: Tensor) -> Any:
            own = {memory_of(t) for t in rest}
            apart = len(own) == len(rest) and taken.isdisjoint(own) and not any(t.retains_grad for t in rest)
            return bound(*rest) if apart else self.otherwise(*bound.inputs_with(rest))

        return call


def memory_of(t: Tensor) -> int:
    """The same for tensors on the same memory."""
    return namespace(t._a).memory_id(t._a)


def _is_plain(t: Tensor, new: Tensor) -> bool:
    """Whether a copy of `new` into t is a copy of memory, and nobody listens."""
    a, b = t._a, new._a
    return (
        not INTERPRETERS and not FUNCTION_MODES and (t.__class__ is Tensor or t.__class__.__torch_function__ is disabled_torch_function)
        and a.__class__ is np.ndarray and a.flags.c_contiguous and a.flags.writeable and a.dtype is b.dtype and a.shape == b.shape
        and (t._vc is None or t._vc.__class__ is Version)
    )  # fmt: skip


def _result(r: Result, inputs: Sequence[Tensor], outs: list[Tensor]) -> Any:
    if r.kind == "value":
        return outs[r.index]
    if r.kind == "input":
        return inputs[r.index]
    if r.kind == "value view":
        return _view(r, outs[r.index], 0)
    return r.value


def _view_of_input(r: Result, inputs: Sequence[Tensor]) -> Tensor:
    x = inputs[r.index]
    return _view(r, x, x.storage_offset())


def _view(r: Result, x: Tensor, start: int) -> Tensor:
    """The view of x, with a history if the function's had one, whatever mode is on now."""
    with contextlib.nullcontext() if bool(state.grad) is r.recorded or not x.requires_grad else set_grad_enabled(r.recorded):
        view = x.as_strided(r.shape, r.strides, start + r.offset)
        return view.detach() if r.cut and x.requires_grad else view


class CompiledBackward(Node):
    """The tape's record of a compiled forward."""

    __slots__ = ("arrays", "done", "held", "made", "outputs_kept", "packed", "rng", "saved")
    arrays: Filled  # of inputs that backward reads
    done: int  # outputs whose backward has run, in part at least, as bits
    held: Filled  # the inputs that running again takes, with their version counters
    made: Compiled
    outputs_kept: Sequence[tuple[Version, Any]]
    packed: list[Any] | None  # what hooks on saved tensors made of all that
    rng: Any
    saved: Arrays | None

    def checked(self) -> CompiledBackward:
        """The node itself, if the inputs that backward reads are counted when they change: those made in inference mode aren't."""
        if INFERENCE_USED:
            held = self.held.whole()
            check_saved([held[i] for i in self.made.checked])
        return self

    def pack(self) -> list[Any]:
        """Give what is kept to the hooks on saved tensors."""
        arrays, self.saved, self.outputs_kept = self.saved or (), [], ()
        kept = [Packed(t, None) for _, t in self.held.whole()]
        self.held = self.arrays = _NOTHING
        return [*kept, *[a if a.dtype.kind == "O" else Packed(wrap(a), None) for a in arrays]]

    def unpack(self, needed: list[int]) -> None:
        """Have back what the hooks were given, whose changes they have to notice."""
        kept = [p.unpack(self) if p.__class__ is Packed else wrap(p) for p in self.packed or ()]
        self.held = Filled([(Version(), t) for t in kept[: len(needed)]])
        self.arrays, self.saved = Filled([kept[i]._a for i in self.made.checked]), [t._a for t in kept[len(needed) :]]

    def release(self) -> None:
        if self.done not in (0, (1 << self.outputs) - 1):
            return  # another output's backward is apart from what has run, and may still come
        self.saved = self.rng = self.packed = None
        self.held = self.arrays = _NOTHING

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        made = self.made
        grads = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        came = sum([1 << i for i, g in enumerate(grads) if g is not None])
        if self.saved is None or made.backward is None or made.again is None or came & self.done:
            raise RuntimeError(
                "Trying to backward through the graph a second time: the compiled function has freed what it saved. Specify "
                "retain_graph=True if you need to backward through the graph a second time."
            )
        if self.packed is not None:
            self.unpack(made.again.needed)
        held = self.held.whole()
        if state.grad:
            return made.again.gradients(self, held, self.rng, grads)
        for i in made.checked:
            version, tensor = held[i]
            check_unchanged(version, self, tensor)
        for version, array in self.outputs_kept:
            check_unchanged(version, self, wrap(array))
        given = [np.zeros(a.shape, a.dtype) if g is None else g._a for g, a in zip(grads, made.like, strict=True)]
        arrays = [*self.arrays.whole(), *self.saved, *given]
        if state.runs and not state.runs[-1].retains:  # each array goes with its last use
            for i, mask in enumerate(made.traced.shared):
                self.done |= mask if came >> i & 1 else 0
            self.release()
        del given, grads, grad, held
        return [wrap(a) if a is not None and came & reach else None for a, reach in zip(made.backward(arrays), made.traced.reach, strict=True)]


_NOTHING = Filled([])
