"""Kernels by the part of a graph that they compute, so that equal parts (a model's layers, a second process) share one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha._inductor import varying
from tocha._inductor.kernels import Built, Target
from tocha._inductor.nodes import kind_of
from tocha.aot import journal, run
from tocha.dispatch.prim import REGISTRY
from tocha.fx import Node
from tocha.inductor import entry, jit, memo
from tocha.inductor.loop_ir import Kernel

_FUNCTIONS = {run.window: "window", run.put: "put", run.fill: "fill", run.constant: "constant"}
_MOST = 4096
_made: dict[str, tuple[Any, Any]] = {}


@functools.cache
def _type(dtype: Any) -> str:
    return f"{dtype.str} {dtype.name}"


@functools.lru_cache(maxsize=4096)
def _geometry(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> str:
    return f"{shape} {strides} {_type(dtype)}"


class _Unknown(Exception):
    """Something in a graph that words don't determine."""


@dataclasses.dataclass
class Part:
    """Loops over `loop` that store `targets` and reduce, or one reduction with `inner` -1. Nodes in `memory` are loaded, but those in
    `values` only where the loops don't have them."""

    loop: Sequence[int]
    inner: int
    targets: Sequence[Target]
    reductions: Sequence[Node]
    wanted: Sequence[Node]
    memory: set[Node]
    values: set[Node]
    varying: bool = False  # whether graphs like this one come in many sizes

    def __post_init__(self) -> None:
        self.nodes: list[Node] = []
        self._lines: list[str] = []
        self._number: dict[Node, int] = {}

    def built(self, name: str, build: Callable[[], Built]) -> tuple[Built, Any]:
        """`build()`, whose kernel is called `name`, and its builtin."""
        what = None if journal.listeners else self.words()  # who listens wants to see all of it made
        found = _made.get(what or "")
        fresh: list[Built] = []
        if found is None:

            def make() -> tuple[Any, Any]:
                made = build()
                if self.varying:
                    builtin, made = varying.shared(made)
                else:
                    builtin = entry.build(dataclasses.replace(made.kernel, name="fused"), made.grain)
                fresh.append(made)
                return builtin, self._as_data(made)

            with jit.LOCK:
                found = memo.builtin(what, make, self._is_data)
            if what is not None and len(_made) < _MOST:
                _made[what] = found
        if fresh:
            return fresh[0], found[0]
        builtin, (outputs, inputs, work, grain, scratch, once) = found
        return Built(
            Kernel(name, (), (), (), ()), [self.nodes[i] for i in outputs], [(self.nodes[i], at) for i, at in inputs],
            work if isinstance(work, int) else np.array(work, np.int64), grain, scratch, once,
        ), builtin  # fmt: skip

    def _is_data(self, data: Any) -> bool:
        """Whether a note holds what `_as_data` makes."""
        try:
            outputs, inputs, work, grain, scratch, once = data
            places = [self.nodes[i] for i in (*outputs, *[i for i, at in inputs if at >= 0])]
            return bool(places) and np.asarray(work).dtype == np.int64 and grain > 0 <= scratch and once in (True, False)
        except (TypeError, ValueError, IndexError):
            return False

    def _as_data(self, made: Built) -> list[Any]:
        number = {n: self.number(n) for n in (*made.outputs, *[n for n, _ in made.inputs])}
        work = made.work if isinstance(made.work, int) else made.work.tolist()
        outputs, inputs = [number[n] for n in made.outputs], [(number[n], at) for n, at in made.inputs]
        return [outputs, inputs, work, made.grain, made.scratch, made.once]

    # ---- words

    def words(self) -> str | None:
        """All that the kernel depends on; None if words don't determine it."""
        try:
            stores = [(self.number(t.value, True), self.number(t.buffer, True), tuple(t.access)) for t in self.targets]
            sums = [self.number(n, True) for n in self.reductions], [self.number(n, True) for n in self.wanted]
        except (_Unknown, KeyError):
            return None
        return f"{tuple(self.loop)} {self.inner} {stores} {sums} {self._lines}"

    def number(self, node: Node, root: bool = False) -> int:
        """A node's number in the order in which they are met; its operands are described too, unless it is only loaded."""
        found = self._number.get(node)
        if found is not None:
            return found
        found = self._number[node] = len(self.nodes)
        self.nodes.append(node)
        self._lines.append("")
        value, kind, state = node.meta["val"], kind_of(node), (node in self.memory, node in self.values)
        if isinstance(value, tuple):
            raise _Unknown
        own = _geometry(value.shape, value.strides, value.dtype)
        if state == (True, False) and not root:
            self._lines[found] = f"array {own}"
        else:
            inside = "" if kind in ("input", "extern") else self._call(node)
            self._lines[found] = f"{kind} {state} {own} {bool(node.meta.get('alone'))} {inside}"
        return found

    def _call(self, node: Node) -> str:
        target: Any = node.target
        name: Any = _FUNCTIONS.get(target) or getattr(target, "name", "")
        ours = target in _FUNCTIONS or REGISTRY.get(name) is target
        if not ours or not (getattr(target, "impl", target).__module__ or "").startswith("tocha."):
            raise _Unknown  # a rule of the user's own may be another one tomorrow
        return f"{name} {self._argument(node.args)} {[(k, self._argument(v)) for k, v in sorted(node.kwargs.items())]}"

    def _argument(self, a: Any) -> str:
        if isinstance(a, Node):
            return f"%{self.number(a)}"
        if a.__class__ in (tuple, list):
            return f"({', '.join([self._argument(x) for x in a])})"
        if a is None or a.__class__ in (int, float, str, bool):
            return f"{a.__class__.__name__} {a!r}"
        if isinstance(a, np.dtype):
            return f"dtype {_type(a)}"
        if isinstance(a, np.generic):
            return f"{_type(a.dtype)} {a.tobytes().hex()}"
        raise _Unknown
