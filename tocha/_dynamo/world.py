"""The world of a trace: what values from before the segment become in it, and how they are told from values made in it.

Tensors become fakes; lists, dicts, sets and deques become copies that the trace may change; tuples, bound methods and iterators are
rebuilt on such parts; other objects stay themselves, with attribute writes kept in `overlay`. Every value that enters is guarded.
"""

from __future__ import annotations

import collections
import enum
import functools
import re
import types
from typing import Any, NamedTuple

import numpy as np

from tocha import dtypes
from tocha._dynamo import guards as g
from tocha._dynamo.exc import Break, ConstraintViolationError
from tocha._dynamo.frame import NULL, Marker
from tocha._dynamo.recorder import Recorder
from tocha._dynamo.source import Source
from tocha.device import Size, device, layout, memory_format
from tocha.dispatch.override import NO_DISPATCH, PLAIN, DisableTorchFunction, alias_as
from tocha.nn import Module, Parameter
from tocha.tensor import Tensor


class Unentered(NamedTuple):
    """A local variable that the trace hasn't looked at yet."""

    value: Any
    source: Source


class Known(NamedTuple):
    """A value from before: itself, what stands for it in the trace, its source."""

    real: Any
    value: Any
    source: Source


#: Compared by identity, and the same in every process state that matters.
_IDENTICAL = (
    type, types.ModuleType, types.BuiltinFunctionType, types.CodeType, dtypes.dtype, layout, memory_format, enum.Enum, Marker,
    types.WrapperDescriptorType, types.MethodDescriptorType, type(NotImplemented), type(...), property,
    classmethod, staticmethod, types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType,
    types.GenericAlias, types.UnionType, re.Pattern,
)  # fmt: skip
#: Immutable classes whose subclasses' instances are guarded by value.
SIMPLE = (int, float, str)
COPIED = (list, dict, set, collections.deque, collections.OrderedDict, collections.defaultdict, collections.Counter)
FIXED: tuple[dict[str, tuple[int, ...]], ...] = ()
DELETED = Marker("DELETED")
ITERATORS: tuple[type, ...] = (
    type(iter([])), type(iter(())), type(iter(range(0))), type(reversed([])), enumerate, zip, map, filter, type(iter({})), type(iter({}.values())),
    type(iter({}.items())), type(iter(set())), type(iter("")), type(iter(range(1 << 70))),
)  # fmt: skip


class World:
    """See the module's text."""

    def __init__(self, guards: g.Guards, recorder: Recorder) -> None:
        self.guards, self.recorder = guards, recorder
        self.known: dict[int, Known] = {}  # by id of the real value and of what stands for it
        self.hooked: list[tuple[Tensor, str, Any, Any]] = []  # hooks registered on tensors from before: method, function and handle
        self.copies: list[tuple[Any, Any, Any]] = []  # real container, the trace's copy, what the copy held at first
        self.overlay: dict[tuple[int, str], Any] = {}
        self.viewed: dict[int, dict[str, Any]] = {}  # objects whose __dict__ was looked at: the copy in force
        self.previous: Any = FIXED  # shapes of inputs at earlier captures, by label
        self.all_vary = False
        self.floats: dict[int, Any] = {}  # inputs of the graph, by their sources' ids
        self.enter_array: Any = None  # arrays.from_before
        self.enter_float: Any = None  # scalars.from_before, where floats may be
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.owned: dict[int, Any] = {}  # iterators that only the frames hold
        self.varying: dict[int, set[int]] = {}  # dimensions of a fake that vary
        self.marked: list[Source] = []  # sizes that mark_dynamic promised to be any
        self.examples: set[int] = set()
        self.fixed_sizes: set[int] = set()
        self.identified: list[Any] = []  # objects whose id was asked
        self.made: set[int] = set()  # ids of functions made in the trace
        self.kept: list[Any] = []

    # ---- sources

    def source_of(self, value: Any) -> Source | None:
        """Where a value comes from, None if it was made in the trace."""
        known = self.known.get(id(value))
        return None if known is None else known.source

    def constant(self, value: Any, label: str = "") -> Source:
        """The source of an object known to be always the same: a class, a module's globals."""
        known = self.known.get(id(value))
        if known is not None:
            return known.source
        source = self.guards.constant(value, label or getattr(value, "__qualname__", None) or type(value).__name__)
        self.remember(value, value, source)
        return source

    def remember(self, real: Any, value: Any, source: Source) -> Any:
        """Note what stands for a value from before."""
        self.known[id(real)] = self.known[id(value)] = Known(real, value, source)
        return value

    # ---- entering

    def enter(self, value: Any, source: Source) -> Any:
        """What stands for a value from before; guards say what the trace relies on."""
        kind = type(value)
        if value is None or kind is bool or isinstance(value, _IDENTICAL):
            if not is_bound(value):
                g.check_is(source, value)
                return value
        if kind is float and self.previous is not FIXED:
            number = f"{source.label} as a float"
            if id(source) in self.floats:
                return self.floats[id(source)]
            self.shapes[number] = (value,)
            if self.enter_float is not None and any(repr(before.get(number, (value,))[0]) != repr(value) for before in self.previous):
                self.floats[id(source)] = self.enter_float(self, value, source)
                return self.floats[id(source)]
        if kind in g.literal_types() or isinstance(value, (Size, device, range)) or (kind is frozenset and not value):
            g.check_equal(source, value)
            return value
        known = self.known.get(id(value))
        if known is not None:
            if known.source is not source:
                self.guards.late.append((f"{source.label} is {known.source.label}", "{} is {}", (source, known.source)))
            return known.value
        return self._enter_object(value, kind, source)

    def _enter_object(self, value: Any, kind: type, source: Source) -> Any:
        if isinstance(value, Tensor):
            with DisableTorchFunction():
                face = is_face(type(value))
                alias = plain(value) if face else value
                fake = self.recorder.fake(alias, source.label)
                dims = self._varying_dims(source.label, value)
                if dims:
                    g.check_varying(source, value, dims)
                else:
                    g.check_tensor(source, value)
            if face:
                self.remember(alias, fake, source.child("{0}({})", "{}", plain))
                fake = self.recorder.face(type(value), fake, True)
            self.varying[id(fake)] = dims
            self._bound_sizes(value, source, dims)
            self.shapes[source.label] = tuple(value._a.shape)
            self.examples |= {value._a.shape[i] for i in dims}
            self.fixed_sizes |= {n for i, n in enumerate(value._a.shape) if i not in dims}
            self.recorder.varying = self.recorder.varying or bool(dims)
            return self.remember(value, fake, source)
        if kind is np.ndarray:
            made = self.enter_array(self, value, source)
            if made is not NULL:
                return made
        g.check_type(source, value)
        base = next((b for b in SIMPLE if isinstance(value, b)), None)
        if base is not None:
            text = base.__repr__(value)
            source.check(f"is {text}", "{c0}({v}) == {c1}", base.__repr__, text)
            return self.remember(value, value, source)
        if kind is tuple or (isinstance(value, tuple) and hasattr(value, "_fields")):
            g.check_length(source, value)
            items = [self.enter(v, source.item(i)) for i, v in enumerate(value)]
            return self.remember(value, tuple(items) if kind is tuple else kind._make(items), source)  # type: ignore[attr-defined]
        if kind in COPIED or (kind is frozenset):
            return self._enter_container(value, kind, source)
        if kind is slice:
            return self.remember(
                value, slice(*[self.enter(getattr(value, n), source.attribute(n)) for n in ("start", "stop", "step")]), source
            )
        if kind is types.MethodType:
            own = self.enter(value.__self__, source.attribute("__self__"))
            return self.remember(value, types.MethodType(self.enter(value.__func__, source.attribute("__func__")), own), source)
        if is_bound(value):
            own = self.enter(value.__self__, source.attribute("__self__"))
            source.check(f"is named {value.__name__}", "{v}.__name__ == {c0}", value.__name__)
            if kind is types.MethodWrapperType:  # `super` may have found it
                source.check(f"is of {value.__objclass__.__name__}", "{v}.__objclass__ is {c0}", value.__objclass__)
                if not isinstance(own, value.__objclass__):
                    raise Break(f"{value.__name__} of {value.__objclass__.__name__} is called by its name")
                return self.remember(value, vars(value.__objclass__)[value.__name__].__get__(own), source)
            return self.remember(value, getattr(own, value.__name__) if type(own) is type(value.__self__) else value, source)
        if kind is functools.partial:
            parts = [self.enter(getattr(value, n), source.attribute(n)) for n in ("func", "args", "keywords")]
            return self.remember(value, functools.partial(parts[0], *parts[1], **parts[2]), source)
        if kind is types.FunctionType:
            source.check("has the same code", g.SAME_CODE, value.__code__, value.__globals__)
        return self.remember(value, value, source)

    def _bound_sizes(self, t: Tensor, source: Source, dims: set[int]) -> None:
        """Guard the bounds of sizes that mark_dynamic gave."""
        for i, (low, high) in t.__dict__.get("_dynamo_bounds", {}).items():
            size = t._a.shape[i]
            under, over = low is not None and size < low, high is not None and size > high
            for bound, outside, symbol in ((low, under, ">="), (high, over, "<=")):
                if outside:
                    raise ConstraintViolationError(f"{source.label}: size {size} of dimension {i} is not {symbol} {bound}, its mark")
                if bound is not None and i in dims:
                    source.check(f"has a size {i} {symbol} {bound}", f"{{v}}._a.shape[{i}] {symbol} {bound}")
            if i in dims:
                self.marked.append(source.child(f"{{}}._a.shape[{i}]", f"{{}}.shape[{i}]"))

    def check_marked(self, source: Source, size: int) -> None:
        """Refuse that the program needs one size where any was promised."""
        if source in self.marked:
            raise ConstraintViolationError(
                f"{source.label} was marked dynamic, and the program needs it to be {size}: remove the mark, or use maybe_mark_dynamic"
            )

    def _varying_dims(self, label: str, t: Tensor) -> set[int]:
        """The dimensions of an input whose sizes differ from those of earlier captures, or that the user marked."""
        shape, dims = t._a.shape, set(t.__dict__.get("_dynamo_dynamic", ()))
        for shapes in self.previous:
            before = shapes.get(label)
            if before is not None and len(before) == len(shape):
                dims |= {i for i, n in enumerate(shape) if before[i] != n}
        if self.all_vary:
            dims |= set(range(len(shape)))
        dims -= set(t.__dict__.get("_dynamo_static", ()))
        fixed = self.previous is FIXED or isinstance(t, Parameter) or not t._a.flags.c_contiguous
        return set() if fixed else {i for i in dims if shape[i] >= 2}

    def _enter_container(self, value: Any, kind: type, source: Source) -> Any:
        if kind is frozenset or kind is set:
            if not all(hashable(v) for v in value):
                return self.remember(value, value, source)
            g.check_members(source, value)
            copy: Any = kind(value)
        elif isinstance(value, dict):
            if not all(hashable(k) for k in value):
                return self.remember(value, value, source)
            g.check_keys(source, value)
            copy = kind() if kind is not collections.defaultdict else collections.defaultdict(None)
            self.remember(value, copy, source)
            if kind is collections.defaultdict:
                copy.default_factory = self.enter(
                    value.default_factory,  # type: ignore[attr-defined]
                    source.attribute("default_factory"),
                )
            for key, v in value.items():
                copy[key] = self.enter(v, source.item(key))
        else:
            g.check_length(source, value)
            copy = kind() if kind is not collections.deque else collections.deque(maxlen=value.maxlen)
            self.remember(value, copy, source)
            for i, v in enumerate(value):
                copy.append(self.enter(v, source.item(i)))
        self.remember(value, copy, source)
        if kind is not frozenset:
            self.copies.append((value, copy, contents(copy)))
        return copy

    def enter_iterator(self, value: Any, source: Source) -> Any:
        """An iterator that only a frame holds becomes a copy at the same place. Others stay as they are, and opaque."""
        if id(value) not in self.owned:
            return self.enter(value, source)
        source.check("is only the frames'", "id({v}) in frames.owned")
        return self._copied_iterator(value, source)

    def _copied_iterator(self, value: Any, source: Source) -> Any:
        kind = type(value)
        if kind not in ITERATORS:
            return self.enter(value, source)
        g.check_type(source, value)
        reduced = value.__reduce__()
        form = source.child("{}.__reduce__()", "{}")
        g.check_is(form.item(0), reduced[0])
        g.check_length(form, reduced)
        args = form.item(1)
        g.check_length(args, reduced[1])
        parts = [self._copied_iterator(v, args.item(i)) for i, v in enumerate(reduced[1])]
        made = reduced[0](*parts)
        if len(reduced) > 2 and reduced[2] is not None:
            made.__setstate__(self.enter(reduced[2], form.item(2)))
        self.kept.append(made)
        return made

    # ---- attributes of objects from before

    def read(self, obj: Any, name: str, real: Any, source: Source) -> Any:
        """An attribute (or item, …) of an object from before, as written in this trace if it was."""
        written = self.overlay.get((id(obj), name), NULL)
        if written is DELETED:
            raise AttributeError(f"{type(obj).__name__!r} object has no attribute {name!r}")
        return self.enter(real, source) if written is NULL else written

    def write(self, obj: Any, name: str, value: Any) -> None:
        """Set an attribute of an object from before, for this trace."""
        self.overlay[id(obj), name] = value

    def distinct(self) -> None:
        """Guard that what was written to isn't at the same time something else of its class: the trace took them for two."""
        written = {type(real) for real, copy, before in self.copies if changed(copy, before)}
        written |= {type(self.known[of].real) for of, _ in self.overlay}
        for kind in written - {dict} if not any(type(r) is dict for r, c, b in self.copies if changed(c, b)) else written:
            sources = {
                id(k.source): k.source for k in self.known.values() if type(k.real) is kind and k.source.parent is not None
            }
            if len(sources) > 1:
                condition = "len({{" + ", ".join(["id({})"] * len(sources)) + "}}) == " + str(len(sources))
                labels = ", ".join(s.label for s in sources.values())
                self.guards.late.append((f"{labels} are different objects", condition, tuple(sources.values())))

    def view(self, obj: Any, source: Source) -> dict[str, Any]:
        """The __dict__ of an object from before, as a copy that is in force from now on."""
        found = self.viewed.get(id(obj))
        if found is None:
            found = self.enter(obj.__dict__, source.attribute("__dict__"))
            for (of, name), value in list(self.overlay.items()):
                if of == id(obj):
                    del self.overlay[of, name]
                    found.pop(name, None) if value is DELETED else found.__setitem__(name, value)
            self.viewed[id(obj)] = found
        return found


def ours(module: Any) -> bool:
    """Whether code belongs to this package."""
    return isinstance(module, str) and (module == "tocha" or module.startswith("tocha."))


def is_face(kind: type) -> bool:
    """Whether a class is a user's subclass of Tensor of which a trace can have instances: it has a `__torch_function__` alone."""
    return issubclass(kind, Tensor) and kind not in PLAIN and kind in NO_DISPATCH and not ours(kind.__module__) and type(kind) is type


def plain(t: Tensor) -> Tensor:
    """A plain alias of a subclass's instance."""
    out: Tensor = alias_as(Tensor, t)
    return out


def is_bound(value: Any) -> bool:
    """Whether a value is a builtin method of some object."""
    if type(value) not in (types.BuiltinFunctionType, types.MethodWrapperType):
        return False
    own = value.__self__
    return own is not None and not isinstance(own, (types.ModuleType, type))


def hashable(key: Any) -> bool:
    """Whether a key compares by value or identity alone."""
    kind = type(key)
    if kind is tuple:
        return all(map(hashable, key))
    return (
        key is None
        or kind in g.literal_types()
        or kind is bool
        or (
            isinstance(key, (type, enum.Enum, dtypes.dtype, device, types.FunctionType, types.BuiltinFunctionType, Module))
            and not isinstance(key, Tensor)
        )
    )


def contents(container: Any) -> Any:
    """What a container holds, to see later whether it changed."""
    return (
        list(container.items())
        if isinstance(container, dict)
        else list(container)
        if not isinstance(container, set)
        else set(container)
    )


def changed(container: Any, before: Any) -> bool:
    """Whether a container holds something else than before."""
    if isinstance(container, set):
        return container != before
    now = contents(container)
    if len(now) != len(before):
        return True
    if isinstance(container, dict):
        return any((a[0] is not b[0] and a[0] != b[0]) or a[1] is not b[1] for a, b in zip(now, before, strict=True))
    return any(a is not b for a, b in zip(now, before, strict=True))
