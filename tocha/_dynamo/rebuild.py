"""The epilogue: code that makes real values of what a trace ended with, and replays its writes.

    epilogue(given, outs) -> the return value, or the frames to go on with

`given` are the prologue's values, `outs` the graph's outputs. Values made in the trace are made anew at each call, once each, so that
aliases stay aliases.
"""

from __future__ import annotations

import builtins
import collections
import functools
import re
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha._dynamo import calls
from tocha._dynamo import guards as g
from tocha._dynamo.arrays import Array, on_memory
from tocha._dynamo.frame import NULL, Frame
from tocha._dynamo.generators import Generator
from tocha._dynamo.scalars import Scalar
from tocha._dynamo.sizes import Sizes, VaryingSize
from tocha._dynamo.source import Constants, Source
from tocha._dynamo.tracer import Inlined
from tocha._dynamo.world import _IDENTICAL, DELETED, ITERATORS, Unentered, World, changed, is_bound
from tocha.device import Size, device
from tocha.dispatch.override import PLAIN, alias_as
from tocha.nn import Module
from tocha.tensor import Tensor

_BASES = (object, dict, list, tuple, collections.OrderedDict, BaseException, Exception)
_ITERATOR_MAKERS = (iter, enumerate, zip, map, filter, reversed)


class Unmakeable(Exception):
    """A value that can't be made again."""

    def __init__(self, value: Any, why: str) -> None:
        super().__init__(why)
        self.value = value


class Rebuilder:
    """Collects the lines of an epilogue."""

    def __init__(self, world: World, inputs: list[Source]) -> None:
        self.world = world
        self.given: list[Source] = list(inputs)  # the graph's inputs come first
        self.outputs: list[Any] = []  # tensors, and sizes that only the graph knows
        self.lines: list[str] = []
        self.uses: collections.Counter[int] = collections.Counter()  # of iterators
        self.held: list[Any] = []  # what frames hold
        self.constants = Constants(
            FunctionType=types.FunctionType, CellType=types.CellType, MethodType=types.MethodType, new=new, Frame=Frame
        )
        self._made: dict[int, str] = {}
        self._given: dict[int, str] = {id(s): f"given[{i}]" for i, s in enumerate(inputs)}

    def compile(self, result: str) -> tuple[Callable[[Any, Any], Any], str]:
        """The function that runs the lines and returns `result`, and its text."""
        text = "def epilogue(given, outs):\n" + "".join(f"    {line}\n" for line in [*self.lines, f"return {result}"])
        exec(compile(text, "<epilogue>", "exec"), self.constants.scope)
        return self.constants.scope["epilogue"], text

    # ---- values

    def source(self, source: Source) -> str:
        """The value of a source at the segment's start."""
        found = self._given.get(id(source))
        if found is None:
            if source.parent is None and source.constants:
                return self.constants.name(source.constants[0])
            found = self._given[id(source)] = f"given[{len(self.given)}]"
            self.given.append(source)
        return found

    def value(self, v: Any) -> str:
        """An expression for a value of the trace."""
        if v.__class__ is Unentered:
            return self.source(v.source)
        kind = type(v)
        if kind in ITERATORS:
            self.uses[id(v)] += 1
        if v is None or kind is bool or v is ... or v is NotImplemented:
            return repr(v)
        if v is NULL:
            return self.constants.name(NULL)
        if kind is int or kind is str:
            return repr(v)
        made = self._made.get(id(v))
        if made is not None:
            return made
        known = self.world.known.get(id(v))
        if known is not None:
            return self.source(known.source)
        if isinstance(v, Tensor):
            return self._tensor(v)
        if kind is VaryingSize:
            return self._size(v)
        if kind is Array:
            return self._let(v, f"{self.constants.name(on_memory)}({self.value(v.t)}, {v.scalar})")
        if kind is Scalar:
            return f"{self.value(v.t)}.item()"
        if isinstance(v, _IDENTICAL) and not is_bound(v):
            return self.constants.name(v)
        if kind in g.literal_types() or isinstance(v, (Size, device, range, np.dtype, re.Match)):
            return self.constants.name(v)
        return self._make(v, kind)

    def _tensor(self, v: Tensor) -> str:
        if id(v) not in self.world.recorder.nodes:
            raise Unmakeable(v, "a tensor that no call of the graph made")
        if type(v) not in PLAIN:
            return self._face(v)
        if v.__dict__:
            raise Unmakeable(v, "a tensor with attributes of its own")
        self._made[id(v)] = f"outs[{len(self.outputs)}]"
        self.outputs.append(v)
        return self._made[id(v)]

    def _face(self, v: Tensor) -> str:
        """An instance of a subclass, made of a plain tensor."""
        name = self._let(v, f"{self.constants.name(alias_as)}({self.constants.name(type(v))}, outs[{len(self.outputs)}])")
        self.outputs.append(v)
        for key, item in v.__dict__.items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.value(item)}")
        return name

    def _size(self, v: VaryingSize) -> str:
        if v.text is not None:
            return f"({v.text})".format(*[self.source(s) for s in v.sources])
        self._made[id(v)] = f"outs[{len(self.outputs)}]"
        self.world.recorder.nodes[id(v)] = v.node
        self.world.kept.append(v)
        self.outputs.append(v)
        return self._made[id(v)]

    def _let(self, v: Any, expression: str) -> str:
        name = self._made[id(v)] = f"m{len(self._made)}"
        self.world.kept.append(v)
        self.lines.append(f"{name} = {expression}")
        return name

    def _make(self, v: Any, kind: type) -> str:
        if kind is tuple or kind is frozenset:
            items = "".join(self.value(x) + ", " for x in v)
            return self._let(v, f"({items})" if kind is tuple else f"frozenset(({items}))")
        if kind is list:
            name = self._let(v, "[]")
            if v:
                self.lines.append(f"{name} += ({''.join(self.value(x) + ', ' for x in v)})")
            return name
        if isinstance(v, dict) and kind in (dict, collections.OrderedDict, collections.defaultdict, collections.Counter):
            return self._dict(v, kind)
        if kind is set or kind is collections.deque:
            items = "".join(self.value(x) + ", " for x in v)
            more = f", {v.maxlen}" if kind is collections.deque else ""
            return self._let(v, f"{self.constants.name(kind)}(({items}){more})")
        if kind is slice:
            return self._let(v, f"slice({self.value(v.start)}, {self.value(v.stop)}, {self.value(v.step)})")
        maker = _MAKERS.get(kind)
        if maker is not None:
            return maker(self, v)
        if isinstance(v, Generator):
            return self._generator(v)
        if hasattr(v, "__next__") and kind.__module__ in ("builtins", "itertools"):
            return self._iterator(v)
        return self._object(v, kind)

    def _dict(self, v: Any, kind: type) -> str:
        first = "" if kind is not collections.defaultdict else self.value(v.default_factory)
        name = self._let(v, f"{self.constants.name(kind)}({first})")
        for key, item in v.items():
            self.lines.append(f"{name}[{self.value(key)}] = {self.value(item)}")
        for key, item in getattr(v, "__dict__", {}).items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.value(item)}")
        return name

    def _object(self, v: Any, kind: type) -> str:
        """An instance of a Python class, by its contents."""
        if not all(
            b in _BASES or b.__flags__ & (1 << 9) or issubclass(b, Exception) for b in kind.__mro__
        ) or kind.__module__.startswith("tocha.nn") or getattr(kind, "of_graph", False):
            raise Unmakeable(v, f"an object of class {kind.__name__} was made, which can't be made again from its parts")
        if isinstance(v, tuple):
            name = self._let(
                v,
                f"{self.constants.name(tuple.__new__)}({self.constants.name(kind)}, ({''.join(self.value(x) + ', ' for x in v)}))",
            )
        elif isinstance(v, BaseException):
            args = "".join(self.value(x) + ", " for x in v.args)
            name = self._let(v, f"{self.constants.name(kind.__new__)}({self.constants.name(kind)}, {args})")
            for slot in ("__cause__", "__context__"):
                if getattr(v, slot) is not None:
                    self.lines.append(f"{name}.{slot} = {self.value(getattr(v, slot))}")
        else:
            name = self._let(v, f"new({self.constants.name(kind)})")
        if isinstance(v, dict):
            base = collections.OrderedDict if isinstance(v, collections.OrderedDict) else dict
            put, items = self.constants.name(base.__setitem__), base.items(v)
            for key, item in items:
                self.lines.append(f"{put}({name}, {self.value(key)}, {self.value(item)})")
        elif isinstance(v, list):
            self.lines.append(
                f"{self.constants.name(list.extend)}({name}, ({''.join(self.value(x) + ', ' for x in list.__iter__(v))}))"
            )
        for key, item in getattr(v, "__dict__", {}).items():
            self.lines.append(f"{name}.__dict__[{key!r}] = {self.value(item)}")
        for c in kind.__mro__:
            for slot, descriptor in vars(c).items():
                if isinstance(descriptor, types.MemberDescriptorType) and c not in _BASES and hasattr(v, slot):
                    self.lines.append(f"{self.constants.name(descriptor)}.__set__({name}, {self.value(descriptor.__get__(v))})")
        return name

    def _iterator(self, v: Any) -> str:
        if id(v) in self.world.known:
            return self.source(self.world.known[id(v)].source)
        try:
            reduced = v.__reduce__()
        except TypeError:
            raise Unmakeable(v, f"an iterator of class {type(v).__name__}") from None
        args = ", ".join(self.value(x) for x in reduced[1])
        name = self._let(v, f"{self.constants.name(reduced[0])}({args})")
        if len(reduced) > 2 and reduced[2] is not None:
            self.lines.append(f"{name}.__setstate__({self.value(reduced[2])})")
        return name

    def _generator(self, v: Generator) -> str:
        if v.running:
            raise Unmakeable(v, "a generator that is running")
        name = self._let(v, f"new({self.constants.name(Generator)})")
        frame = "None" if v.frame is None else self.frame(v.frame)
        self.lines.append(f"{name}.vm, {name}.frame, {name}.running = None, {frame}, False")
        return name

    def frame(self, f: Frame) -> str:
        """A frame with real values."""
        self.held += [*f.local.values(), *f.stack]
        local = ", ".join(f"{k!r}: {self.value(v)}" for k, v in f.local.items())
        k = self.constants.name
        self.world.kept.append(f)
        name = f"f{len(self.lines)}"
        self.lines.append(f"{name} = Frame({k(f.code)}, {k(f.globals)}, {{{local}}}, {f.ip})")
        if f.stack:
            self.lines.append(f"{name}.stack += ({''.join(self.value(v) + ', ' for v in f.stack)})")
        if f.instead is not NULL:
            self.lines.append(f"{name}.instead = {self.value(f.instead)}")
        return name

    def owned(self) -> str:
        """The iterators that only the frames hold, by id."""
        found = []
        for v in self.held:
            if v.__class__ is Unentered:
                if id(v.value) in self.world.owned:
                    v.source.check("is only the frames'", "id({v}) in frames.owned")
                    found.append(self.source(v.source))
            elif type(v) in ITERATORS and self._alone(v):
                found.append(self._made[id(v)])
        return "{" + ", ".join(f"id({name}): {name}" for name in found) + "}"

    def _alone(self, v: Any) -> bool:
        """Whether one place holds an iterator, and only it those it takes from."""
        if self.uses[id(v)] != 1 or id(v) not in self._made:
            return False
        return all(self._alone(part) for part in v.__reduce__()[1] if type(part) in ITERATORS)

    # ---- writes

    def effects(self) -> None:
        """Replay writes to what existed before."""
        world = self.world
        world.distinct()
        for x, method, fn, handle in world.hooked:
            if x._a.buffer.version:
                raise Unmakeable(handle, f"{method} of a tensor that is written to")
            self._let(handle, f"{self.source(world.known[id(x)].source)}.{method}({self.value(fn)})")
        later: list[str] = []
        for real, copy, before in world.copies:
            if changed(copy, before):
                later += self._write_back(self.value(copy), real, copy, before)
        for (of, name), value in world.overlay.items():
            known = world.known[of]
            target = self.source(known.source)
            if isinstance(known.real, dict):  # a module's globals
                later.append(f"{target}.pop({name!r}, None)" if value is DELETED else f"{target}[{name!r}] = {self.value(value)}")
            elif value is DELETED:
                later.append(f"del {target}.{name}")
            elif isinstance(calls.lookup(type(known.real), "__setattr__"), types.FunctionType):  # which has run in the trace
                put = calls.MODULE_SETATTR if isinstance(known.real, Module) else object.__setattr__
                later.append(f"{self.constants.name(put)}({target}, {name!r}, {self.value(value)})")
            else:
                later.append(f"{target}.{name} = {self.value(value)}")
        self.lines += later

    def _write_back(self, target: str, real: Any, copy: Any, before: Any) -> list[str]:
        if isinstance(copy, dict):
            old = dict(before)
            gone = [k for k in old if k not in copy]
            if [*copy] == [*(k for k in old if k in copy), *(k for k in copy if k not in old)]:
                lines = [f"del {target}[{self.value(k)}]" for k in gone]
                return lines + [
                    f"{target}[{self.value(k)}] = {self.value(v)}" for k, v in copy.items() if k not in old or old[k] is not v
                ]
            items = "".join(f"({self.value(k)}, {self.value(v)}), " for k, v in copy.items())
            return [f"{target}.clear()", f"{target}.update(({items}))"]
        items = "".join(self.value(v) + ", " for v in copy)
        if isinstance(copy, list):
            return [f"{target}[:] = ({items})"]
        return [f"{target}.clear()", f"{target}.{'update' if isinstance(copy, set) else 'extend'}(({items}))"]


def new(kind: type) -> Any:
    """An instance without contents."""
    base = next(b for b in kind.__mro__ if b in (dict, list, collections.OrderedDict, object))
    return base.__new__(kind)


def _function(r: Rebuilder, v: types.FunctionType) -> str:
    if id(v) not in r.world.made:
        return r.constants.name(v)
    k = r.constants.name
    cells = "".join(r.value(c) + ", " for c in v.__closure__ or ())
    name = r._let(v, f"FunctionType({k(v.__code__)}, {k(v.__globals__)}, {v.__name__!r}, {r.value(v.__defaults__)}, ({cells}))")
    r.lines.append(f"{name}.__kwdefaults__ = {r.value(v.__kwdefaults__)}")
    r.lines.append(f"{name}.__qualname__, {name}.__module__ = {v.__qualname__!r}, {v.__module__!r}")
    if v.__annotations__:
        r.lines.append(f"{name}.__annotations__ = {r.value(v.__annotations__)}")
    for key, item in v.__dict__.items():
        r.lines.append(f"{name}.__dict__[{key!r}] = {r.value(item)}")
    return name


def _cell(r: Rebuilder, v: types.CellType) -> str:
    name = r._let(v, "CellType()")
    try:
        held = v.cell_contents
    except ValueError:
        return name
    r.lines.append(f"{name}.cell_contents = {r.value(held)}")
    return name


def _method(r: Rebuilder, v: types.MethodType) -> str:
    return r._let(v, f"MethodType({r.value(v.__func__)}, {r.value(v.__self__)})")


def _builtin_method(r: Rebuilder, v: Any) -> str:
    if isinstance(calls.lookup(type(v.__self__), v.__name__), types.FunctionType):  # `super` found it
        found = next(f for c in type(v.__self__).__mro__ if isinstance(f := vars(c).get(v.__name__), types.MethodDescriptorType))
        return r._let(v, f"{r.constants.name(found)}.__get__({r.value(v.__self__)})")
    return r._let(v, f"{r.value(v.__self__)}.{v.__name__}")


def _slot(r: Rebuilder, v: Any) -> str:
    """A bound slot, perhaps not that of the object's class: `super` found it."""
    return r._let(v, f"{r.constants.name(vars(v.__objclass__)[v.__name__])}.__get__({r.value(v.__self__)})")


def _partial(r: Rebuilder, v: Any) -> str:
    return r._let(v, f"{r.constants.name(functools.partial)}({r.value(v.func)}, *{r.value(v.args)}, **{r.value(v.keywords)})")


def _sizes(r: Rebuilder, v: Sizes) -> str:
    return r._let(v, f"{r.constants.name(Size)}(({''.join(r.value(n) + ', ' for n in v)}))")


def _super(r: Rebuilder, v: Any) -> str:
    return r._let(v, f"{r.constants.name(builtins.super)}({r.value(v.__thisclass__)}, {r.value(v.__self__)})")


def _inlined(r: Rebuilder, v: Any) -> str:
    return r.value(v.fn)


_MAKERS: dict[type, Callable[[Rebuilder, Any], str]] = {
    types.FunctionType: _function,
    types.CellType: _cell,
    types.MethodType: _method,
    types.BuiltinFunctionType: _builtin_method,
    types.MethodWrapperType: _slot,
    functools.partial: _partial,
    super: _super,
    Sizes: _sizes,
    Inlined: _inlined,
}
