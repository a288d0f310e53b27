"""A schedule as Python: a function that calls kernels on arrays in order."""

from __future__ import annotations

import dataclasses
import operator
from typing import Any

import numpy as np

from tocha._inductor import calls, epilogues, products
from tocha._inductor.access import Access
from tocha._inductor.described import Part
from tocha._inductor.kernels import Built, Target, build, build_reduction
from tocha._inductor.nodes import own_of, prim_name, shape_of, view_of
from tocha._inductor.row_kernels import build_rows, same_place
from tocha._inductor.runner import Wrapper, empty
from tocha._inductor.scan_kernels import build_scan
from tocha._inductor.schedule import Extern, Loops, Reduction, Schedule, arrays_of
from tocha.aot import run
from tocha.aot.data import Made
from tocha.backends import cpu
from tocha.fx import Graph, Node, map_arg

_FRESH = frozenset(("mm", "linear", "conv"))  # calls whose result is an array that they have made


def wrap_up(graph: Graph, plan: Schedule) -> Wrapper:
    """The Python function of a schedule."""
    return _Writer(graph, plan).write()


class _Writer:
    def __init__(self, graph: Graph, plan: Schedule) -> None:
        self.graph, self.plan = graph, plan
        self.lines: list[str] = []
        self.names: dict[str, Any] = {}
        self.made: dict[str, Any] = {}
        self.numbers: dict[str, int] = {}  # from which on names are free
        self.taken = {n.name for n in graph.nodes}  # by local variables
        self.laid_out, self.restride = self._global("laid_out", run.laid_out), self._global("restride", cpu.restride)
        self.empty, self.new = self._global("empty", empty), self._global("new", np.empty)
        self.kernels: list[Built] = []
        self.placeholders = [n for n in graph.nodes if n.op == "placeholder"]
        self.known: dict[Node, str] = {}
        self.borrowed = {n.name for n in self.placeholders}
        self.own: set[Node] = set()  # arrays made here, on which nothing else looks
        self.position = 0
        self.objects: dict[int, str] = {}
        self.consumes = graph.meta.get("part") == "backward"
        self.varying = bool(graph.meta.get("varying"))
        self.outputs = {n for n in plan.outputs if n is not None}
        self.last = self._last_uses()
        self.packed: dict[Any, str] = {}
        self.shared: dict[Any, list[Node]] = {}  # products by their right factor
        for item in plan.items:
            if isinstance(item, Extern) and (factor := products.shared_factor(item.node)) is not None:
                self.shared.setdefault(factor, []).append(item.node)

    def write(self) -> Wrapper:
        for n in self.placeholders:
            self._input(n)
        for position, item in enumerate(self.plan.items):
            self.position = position
            if isinstance(item, Loops):
                self._loops(item)
            elif isinstance(item, Reduction):
                self._reduction(item)
            elif self._straight_product(item):
                pass
            elif item.loops is not None:
                self._product(item)
            else:
                self._extern(item)
            self._free(position)
        returned = ", ".join("None" if n is None else self.known[n] for n in self.plan.outputs)
        head = "".join(f"{n.name}, " for n in self.placeholders)
        body = [f"{head}= inputs"] if self.placeholders else []
        body += ["inputs.clear()"] if self.consumes else []
        body += [*self.lines, f"return [{returned}]"]
        source = "def forward(inputs):\n" + "".join(f"    {line}\n" for line in body)
        inputs = [(n.name, n.meta["val"].strides) for n in self.placeholders]
        return Wrapper(source, self.names, self.kernels, inputs, self.made)

    def _unused(self, wish: str) -> str:
        name, number = wish, self.numbers.get(wish, 1)
        while name in self.names or name in self.taken:
            name, number = f"{wish}_{number}", number + 1
        self.numbers[wish] = number
        return name

    def _global(self, wish: str, value: Any, how: Made | None = None) -> str:
        """A global of a value, which no description of its own may make again, but `how`."""
        name = self._unused(wish)
        self.names[name] = value
        self.made[name] = value if how is None else how
        return name

    def _type(self, dtype: Any) -> str:
        name = str(dtype.name)
        return name if self.names.get(name) is dtype else self._global(name, dtype)

    def _input(self, n: Node) -> None:
        if n.users:
            self._check(n)

    def _last_uses(self) -> dict[Node, int]:
        """The item that is the last to read or write each array."""
        last: dict[Node, int] = {}
        for position, item in enumerate(self.plan.items):
            last.update(dict.fromkeys(arrays_of(item), position))
            loops = item.loops if isinstance(item, Extern) else item
            if isinstance(loops, Loops):
                last.update(dict.fromkeys(loops.written(), position))
        return last

    def _free(self, position: int) -> None:
        """Drop the arrays that were read for the last time."""
        gone = [self.known.pop(n) for n in list(self.known) if self.last.get(n, -1) <= position and n not in self.outputs]
        if gone := [name for name in gone if name not in self.borrowed or (self.consumes and name not in self.names)]:
            self.lines.append(f"{' = '.join(gone)} = None")

    def _allocate(self, n: Node) -> None:
        if n not in self.known:
            value = n.meta["val"]
            self.own.add(n)
            self.known[n] = n.name
            type = self._type(value.dtype)
            plain = calls.row_major(n) or not value.size
            self.lines.append(
                f"{n.name} = "
                + (f"{self.new}({value.shape}, {type})" if plain else f"{self.empty}({value.shape}, {type}, {value.strides})")
            )

    def _reuse(self, n: Node, dying: Node) -> None:
        """Give a node the memory of an array that is read for the last time."""
        self.known[n] = n.name
        self.own.add(n)
        self.own.discard(dying)
        self.lines.append(f"{n.name} = {self.known[dying]}")

    def _ends(self, dying: Node, n: Node) -> bool:
        """Whether an array is read for the last time here, and could hold another's elements in its place."""
        a, b = dying.meta["val"], n.meta["val"]
        return (
            dying in self.own and dying not in self.outputs and self.last[dying] == self.position and n not in self.known
            and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
        )  # fmt: skip

    # ---- items

    def _in_place(self, item: Loops) -> tuple[Target, Node] | None:
        """A store that may go where an operand lies, of which it is the last to read each element: it becomes the last of the loops."""
        places: dict[Node, list[Any]] = {}
        for n, access in item.reads:
            places.setdefault(n, []).append(access)
        for t in item.targets if not item.reductions else ():
            for n, accesses in places.items():
                if t.value is t.buffer and self._ends(n, t.value) and all(same_place(a, t.access, item.shape) for a in accesses):
                    item.targets.sort(key=lambda other: other is t)
                    return t, n
        return None

    def _loops(self, item: Loops) -> None:
        has_memory, reused = self.plan.has_memory(item), self._in_place(item)
        name = "_".join(n.name for n in item.written()[:4])

        def make() -> Built:
            if item.scan is not None:
                return build_scan(name, item.shape, item.scan, item.targets, has_memory)
            if item.reductions:
                return build_rows(name, item.shape, item.inner, item.targets, item.reductions, item.wanted, has_memory)
            return build(name, item.shape, item.targets, has_memory)

        sums = item.reductions if item.scan is None else [item.scan]
        part = Part(item.shape, item.inner, item.targets, sums, item.wanted, self.plan.memory, item.values, self.varying)
        built, kernel = part.built(name, make)
        if reused is not None and built.once:
            self._reuse(reused[0].buffer, reused[1])
        for n in built.outputs:
            self._allocate(n)
        self._call(built, kernel)

    def _reduction(self, item: Reduction) -> None:
        node = item.node
        part = Part((), -1, (), (node,), (), self.plan.memory, set(), self.varying)
        built, kernel = part.built(node.name, lambda: build_reduction(node.name, node, lambda n, _: n in self.plan.memory))
        self._allocate(node)
        self._call(built, kernel)

    def _call(self, built: Built, kernel: Any) -> None:
        self.kernels.append(built)
        given = [self.known[n] for n in built.outputs]
        given += [self.known[n] if not offset else self._shifted(n, offset) for n, offset in built.inputs]
        if built.scratch:
            given.append(f"{self.new}({built.scratch}, {self._type(np.dtype(np.float64))})")
        work = built.work if isinstance(built.work, int) else self._global("work", built.work)
        self.lines.append(f"{self._global(f'kernel_{built.kernel.name}', kernel)}({', '.join(given)}, {work})")

    def _shifted(self, n: Node, offset: int) -> str:
        item = n.meta["val"].itemsize
        return f"{self.restride}({self.known[n]}, (1,), ({item},), {offset * item})"

    def _stored(self, item: Extern) -> list[Node]:
        """The nodes that a product writes, with memory."""
        if item.fused is None:
            self._allocate(item.node)
            return [item.node]
        for n in item.fused.stored:
            for dying in item.fused.beside():
                if self._ends(dying, n) and dying not in item.reads:
                    self._reuse(n, dying)
                    break
            self._allocate(n)
        return list(item.fused.stored)

    def _straight_product(self, item: Extern) -> bool:
        """Call a product straight, if it is short enough or its right factor is packed for several."""
        group = self.shared.get(products.shared_factor(item.node), [])
        shared, short, joined = products.pays_packing(group), products.is_short(item.node), item.fused is not None
        if not shared and not short:
            return False
        found = [view_of(n, self.plan.memory.__contains__) for n in item.node.args]
        accesses = [
            Access(own_of(n), 0) if base is n else access for n, (base, access) in zip(item.node.args, found, strict=True)
        ]
        direct, how = None, Made(products.direct_packed, (item.node, accesses, joined), True)
        direct = how.function(*how.args) if shared else None
        packed = "" if direct is None else self._packed(item.node)
        if direct is None and short:
            how = Made(products.direct, how.args, True)
            direct = how.function(*how.args)
        if direct is None:
            return False
        stored = self._stored(item)
        held = [
            packed if value is None else self._held(name, value, Made(operator.getitem, (Made(getattr, (how, "held")), name)))
            for name, value in direct.held.items()
        ]
        given = [self.known[n] for n in (stored[0], *[base for base, _ in found])]
        finish, others = "0", list[str]()
        if item.fused is not None:
            end = epilogues.hole(item)
            finish = self._held("finish", end.finish, Made(getattr, (end, "finish")))
            others = [self.known[n] for n in (*stored, *item.fused.operands)]
        name = self._held(f"call_{item.node.name}", direct.builtin, Made(getattr, (how, "builtin")))
        work = "None" if direct.work is None else self._held("work", direct.work)
        arguments = [*given, *held, finish, work, *others]
        self.lines.append(f"{name}({', '.join(arguments)})")
        if packed and group[-1] is item.node:
            self.lines.append(f"{packed} = None")
        return True

    def _packed(self, node: Node) -> str:
        """The right factor of a product, packed here for all that share it if no product did so before."""
        factor = products.shared_factor(node)
        assert factor is not None
        name = self.packed.get(factor)
        if name is None:
            name = self.packed[factor] = self._unused(f"packed_{factor[0].name}")
            self.taken.add(name)
            pack = self._global("pack", products.packing(node), Made(products.packing, (node,)))
            self.lines.append(f"{name} = {pack}({self._array(factor[0])})")
        return name

    def _held(self, wish: str, value: Any, how: Made | None = None) -> str:
        """The name of a global, one for each object."""
        found = self.objects.get(id(value))
        if found is None:
            found = self.objects[id(value)] = self._global(wish, value, how)
        return found

    def _product(self, item: Extern) -> None:
        assert item.loops is not None
        self._stored(item)
        name = "_".join([item.node.name, *[n.name for n in item.fused.stored[:3]]])
        how = Made(calls.joined, (item.node, epilogues.hole(item)))
        function = self._global(f"call_{name}", how.function(*how.args), how)
        factors = ", ".join("None" if n is None else self._array(n) for n in item.node.args)
        outs, operands = ("".join(f"{self.known[n]}, " for n in nodes) for nodes in (item.fused.stored, item.fused.operands))
        self.lines.append(f"{function}({factors}, ({outs}), ({operands}))")

    def _extern(self, item: Extern) -> None:
        node = item.node
        if node.target is operator.getitem:
            return  # taken apart where its operand is made
        if node.target is run.constant:
            array = run.laid_out(node.args[0].array, node.meta["val"].strides)
            self.known[node] = self._global("constant", array)
            self.borrowed.add(self.known[node])
            return
        fresh = prim_name(node) in _FRESH
        if not fresh:  # its result may show an operand's memory
            self.own.difference_update(item.reads)
        function = calls.caller(node)
        dense, own = calls.is_dense(function), calls.is_laid_out(function)
        args = map_arg(node.args, lambda n: _Source(self._array(n, own)))
        how = None if function is node.target else Made(calls.caller, (node,))
        call = f"{self._global(f'call_{node.name}', function, how)}({', '.join(self._show(a) for a in args)})"
        value = node.meta.get("val")
        if value is None:  # called for its effect
            self.lines.append(call)
            return
        if not isinstance(value, tuple):
            self.lines.append(f"{node.name} = {call}")
            self._check(node, dense)
            if fresh:
                self.own.add(node)
            return
        parts: dict[int, Node] = {n.args[1]: n for n in node.users}
        names = [parts[i].name if i in parts else "_" for i in range(len(value))]
        self.lines.append(f"{''.join(f'{name}, ' for name in names)}= {call}")
        for part in parts.values():
            self._check(part, dense)

    def _check(self, node: Node, dense: bool = False) -> None:
        """Have a new array in the layout that its readers count on; `dense` says that it is row-major."""
        self.known[node] = node.name
        strides = node.meta["val"].strides
        if strides and not (dense and calls.row_major(node)):
            self.lines.append(f"if {node.name}.strides != {strides}: {node.name} = {self.laid_out}({node.name}, {strides})")

    def _show(self, a: Any) -> str:
        if isinstance(a, _Source):
            return a.text
        if isinstance(a, (tuple, list)):
            return f"({''.join(f'{self._show(x)}, ' for x in a)})"
        if a is None or a.__class__ in (bool, int, str):
            return repr(a)
        return self._global("value", a)

    def _array(self, n: Node, own: bool = False) -> str:
        """A node's array as an expression: its own, or a view of its base's, copied if its `own` layout is wanted."""
        base, access = view_of(n, self.plan.memory.__contains__)
        if base is n:
            return self.known[n]
        item = n.meta["val"].itemsize
        strides = tuple(s * item for s in access.steps)
        view = f"{self.restride}({self.known[base]}, {shape_of(n)}, {strides}, {access.offset * item})"
        return f"{self.laid_out}({view}, {n.meta['val'].strides})" if own and access.steps != own_of(n) else view


@dataclasses.dataclass(frozen=True)
class _Source:
    text: str
