"""Attribute access of the tracer: Python's own lookup, step by step, with guards for what came from before."""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import Any, NamedTuple

from tocha._dynamo import calls
from tocha._dynamo.exc import Break, NotDynamic
from tocha._dynamo.frame import NULL
from tocha._dynamo.generators import Generator
from tocha._dynamo.guards import ABSENT, LACKS
from tocha._dynamo.interpreter import Interpreter
from tocha._dynamo.recorder import Recorder
from tocha._dynamo.sizes import shape_of
from tocha._dynamo.source import Source
from tocha._dynamo.world import DELETED, World
from tocha.dispatch.override import PLAIN, DisableTorchFunction
from tocha.nn import Module, Parameter
from tocha.tensor import Tensor

TABLES = ("_parameters", "_modules", "_buffers")
#: Attributes of tensors that are known while tracing and that the tensors' guards cover.
_GEOMETRY = frozenset("shape dtype device ndim layout requires_grad is_leaf itemsize nbytes is_cuda is_cpu is_meta".split())
_HIDDEN = frozenset(("grad_fn", "_version", "_base", "_backward_hooks", "_a", "_node", "_vc", "_view", "_extra", "__dict__"))
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType, type(collections.namedtuple("_", "x").x))  # type: ignore[attr-defined]


class Written(NamedTuple):
    """What the trace wrote to a class."""

    value: Any


class Attributes(Interpreter):
    """getattr, setattr and super of the tracer."""

    world: World
    recorder: Recorder

    # Supplied by the tracer.
    lacking: set[tuple[tuple[type, ...], str]]  # what was guarded to be in none of some classes

    def nested(self, fn: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        raise NotImplementedError

    def of_array(self, obj: Any, name: str) -> Any:
        raise NotImplementedError

    def special(self, obj: Any, name: str) -> Any:
        """A special method that the object's class defines in Python, None otherwise."""
        found = calls.python_method(obj, name)
        if found is not None:
            self._check_class(type(obj).__mro__, name, found)
        return found

    def of_program(self, obj: Any, name: str) -> Any:
        """`special`, but for what Tensor itself defines."""
        return None if isinstance(obj, Tensor) and calls.lookup(type(obj), name) is vars(Tensor).get(name) else self.special(obj, name)

    def getattr(self, obj: Any, name: str) -> Any:
        try:
            return self._attribute(obj, name)
        except AttributeError:
            self._check_lacks(obj, name)
            raise

    def _check_lacks(self, obj: Any, name: str) -> None:
        """Guard that an attribute is missing."""
        source = self.world.source_of(obj)
        if source is None and isinstance(obj, (type, types.ModuleType, types.FunctionType)) and id(obj) not in self.world.made:
            source = self.world.constant(obj)
        if source is None:
            self._check_classes_lack(type(obj).__mro__, name)
        elif (id(obj), name) not in self.world.overlay and not isinstance(obj, Tensor):
            source.check(f"has no attribute {name}", LACKS, name)

    def _check_classes_lack(self, classes: tuple[type, ...], name: str) -> None:
        if (classes, name) in self.lacking:
            return
        self.lacking.add((classes, name))
        for c in classes:
            if not calls.outside(c) and c.__module__ not in sys.stdlib_module_names and id(c) not in self.world.made:
                self.world.constant(c).check(f"has no {name}", ABSENT, name)

    def _attribute(self, obj: Any, name: str) -> Any:
        kind = type(obj)
        if isinstance(obj, Tensor):
            return self._of_tensor(obj, name)
        if kind.__name__ == "Array" and getattr(kind, "of_graph", False):
            return self.of_array(obj, name)
        if kind.__name__ == "Scalar" and getattr(kind, "of_graph", False):
            raise Break(f"{name} of a number that exists only when the graph runs")
        if kind is types.ModuleType:
            return self._of_package(obj, name)
        if isinstance(obj, type):
            return self._of_class(obj, name)
        if kind is super:
            mro = obj.__self_class__.__mro__
            rest = mro[mro.index(obj.__thisclass__) + 1 :]
            return self._after(obj.__self__, name, rest) if obj.__self__ is obj.__self_class__ else self._of_object(
                obj.__self__, name, rest, True
            )  # fmt: skip
        if kind is types.MethodType and name not in ("__self__", "__func__", "__call__"):
            return self.getattr(obj.__func__, name)
        if kind is types.FunctionType:
            return self._of_function(obj, name)
        if kind is not types.SimpleNamespace and (
            kind in calls.BUILTIN_CLASSES or kind in calls.NATIVE or isinstance(obj, Generator) or kind.__module__ == "builtins"
        ):
            source = self.world.source_of(obj)
            if source is None or calls.is_entered(obj):
                return getattr(obj, name)
            return self.world.enter(getattr(obj, name), source.attribute(name))
        return self._of_object(obj, name, kind.__mro__)

    def _of_tensor(self, obj: Tensor, name: str) -> Any:
        if name == "shape" and self.recorder.varying:
            return shape_of(self, obj)
        if name == "nbytes" and self.recorder.varying:
            raise NotDynamic(name)
        if calls.is_face(type(obj)):
            return self._of_face(obj, name)
        if name in _GEOMETRY:
            return getattr(obj, name)
        if name in _HIDDEN:
            raise Break(f"Tensor.{name} is read")
        known = self.world.known.get(id(obj))
        if known is not None:
            written = self.world.overlay.get((id(obj), name), NULL)
            if written is not NULL:
                return written if name != "data" else written.detach()
            if name == "grad":
                with DisableTorchFunction():
                    leaf, retains = known.real.is_leaf, known.real.retains_grad
                    grad = known.real.grad if leaf or retains else None
                if leaf or self.world.enter(retains, known.source.attribute("retains_grad")):
                    return self.world.enter(grad, known.source.attribute("grad"))
                return None
            if name == "retains_grad":
                return self.world.enter(known.real.retains_grad, known.source.attribute(name))
            if name in known.real.__dict__:
                return self.world.enter(known.real.__dict__[name], known.source.attribute(name))
            if not hasattr(type(obj), name):
                known.source.check(f"has no attribute {name}", ABSENT, name)
        elif name == "grad":
            raise Break("Tensor.grad of a computed tensor is read")
        return getattr(obj, name)

    def _of_face(self, obj: Tensor, name: str) -> Any:
        """An attribute of a subclass's instance: Tensor's own go through __torch_function__, others are like any object's."""
        if name in ("__class__", "__dict__") or name in _HIDDEN:
            if name != "__class__":
                raise Break(f"Tensor.{name} is read")
            return type(obj)
        mro = type(obj).__mro__
        if isinstance(calls.lookup(type(obj), "__getattribute__"), types.FunctionType):
            raise Break(f"an attribute of a {type(obj).__name__}, which has a __getattribute__ of its own")
        found = self._found(mro, name)
        if found is not NULL and found.__class__ is not Written and vars(Tensor).get(name, NULL) is found:
            self._check_class(mro, name, found)
            if name == "grad" and not self.recorder.overridden((obj,), {}):
                raise Break("Tensor.grad of a computed tensor is read")
            return getattr(obj, name)
        known, source = self.world.known.get(id(obj)), self.world.source_of(obj)
        if found is not NULL and hasattr(type(found), "__set__"):
            return self._described(obj, name, found, source, mro)
        written = self.world.overlay.get((id(obj), name), NULL)
        if written is not NULL:
            return written
        held = obj.__dict__ if known is None else known.real.__dict__
        if name in held:
            return held[name] if source is None else self.world.enter(held[name], source.attribute(name))
        if source is not None:
            source.check(f"has no {name} of its own", ABSENT, name)
        if found is not NULL:
            return found.value if found.__class__ is Written else self._bound(obj, type(obj), name, found, mro)
        fallback = calls.lookup(type(obj), "__getattr__")
        if fallback is None:
            raise AttributeError(f"'{type(obj).__name__}' object has no attribute '{name}'")
        self._check_class(mro, "__getattr__", fallback)
        return self.nested(fallback, (obj, name))

    def _of_package(self, obj: Any, name: str) -> Any:
        written = self.world.overlay.get((id(vars(obj)), name), NULL)
        if written is not NULL:
            return written
        value = getattr(obj, name)
        return self.world.enter(value, self.world.constant(obj, obj.__name__).attribute(name))

    def _of_class(self, cls: type, name: str) -> Any:
        if name == "__dict__":
            raise Break("the __dict__ of a class is read")
        if name in ("__name__", "__qualname__", "__module__", "__mro__", "__bases__", "__doc__"):
            return getattr(cls, name)
        found = self._found(cls.__mro__, name)
        if found is NULL:
            return getattr(cls, name)  # of the metaclass, or an error
        if found.__class__ is Written:
            return found.value
        if isinstance(found, types.FunctionType):
            self._check_class(cls.__mro__, name, found)
            return found
        value = getattr(cls, name)
        if isinstance(value, types.MethodType):
            return types.MethodType(value.__func__, value.__self__)
        if calls.outside(cls) or isinstance(value, (*calls.NATIVE, *_SLOTS)):
            return value
        return self.world.enter(value, self.world.constant(cls).attribute(name))

    def _after(self, cls: type, name: str, mro: tuple[type, ...]) -> Any:
        """An attribute of a class, by `super`."""
        found = self._found(mro, name)
        if found is NULL:
            raise AttributeError(f"'super' object has no attribute '{name}'")
        if found.__class__ is Written:
            return found.value
        if isinstance(found, types.FunctionType):
            self._check_class(mro, name, found)
            return found
        return self._bound(cls, cls, name, found, mro)

    def _found(self, mro: tuple[type, ...], name: str) -> Any:
        """What the first class that has a name has there, unbound: `Written` if the trace wrote it, NULL if there is none."""
        for c in mro:
            written = self.world.overlay.get((id(c), name), NULL)
            if written is not NULL:
                return Written(written)
            if name in vars(c):
                return vars(c)[name]
        return NULL

    def _of_function(self, fn: types.FunctionType, name: str) -> Any:
        if name in ("__get__", "__call__"):
            return getattr(fn, name)
        written = self.world.overlay.get((id(fn), name), NULL)
        if written is not NULL:
            return written
        value = getattr(fn, name)
        if id(fn) in self.world.made:
            return value
        return self.world.enter(value, self.world.constant(fn).attribute(name))

    def _check_class(self, mro: tuple[type, ...], name: str, found: Any) -> None:
        """Guard what the first class that has a name defines, and that those before it don't; but for the standard library's."""
        for i, c in enumerate(mro):
            if vars(c).get(name, NULL) is found:
                self._check_classes_lack(mro[:i], name)
                if c.__module__ not in sys.stdlib_module_names:
                    self.world.constant(c).check(f"{name} is as it was", "{v}.__dict__[{c0}] is {c1}", name, found)
                return

    # ---- objects

    def _of_object(self, obj: Any, name: str, mro: tuple[type, ...], by_super: bool = False) -> Any:
        kind = type(obj)
        source = self.world.source_of(obj)
        own = calls.lookup(kind, "__getattribute__")
        if isinstance(own, types.FunctionType):
            raise Break(f"an attribute of a {kind.__name__}, which has a __getattribute__ of its own")
        self._check_classes_lack(kind.__mro__, "__getattribute__")
        if name == "__class__":
            return kind
        if name == "__dict__":
            return obj.__dict__ if source is None else self.world.view(obj, source)
        found = self._found(mro, name)
        if found is not NULL and hasattr(type(found), "__set__"):
            return self._described(obj, name, found, source, mro)
        if not by_super:
            value = self._in_instance(obj, name, source)
            if value is not NULL:
                return value
        if found is not NULL:
            if source is not None and not by_super and hasattr(obj, "__dict__"):
                source.check(f"has no {name} of its own", ABSENT, name)
            return found.value if found.__class__ is Written else self._bound(obj, kind, name, found, mro)
        fallback = calls.lookup(kind, "__getattr__")
        if fallback is not None and not by_super and fallback is not calls.MODULE_GETATTR:
            if source is not None and hasattr(obj, "__dict__"):
                source.check(f"has no {name} of its own", ABSENT, name)
            self._check_classes_lack(mro, name)
            self._check_class(kind.__mro__, "__getattr__", fallback)
            return self.nested(fallback, (obj, name))
        raise AttributeError(f"'{kind.__name__}' object has no attribute '{name}'")

    def _in_instance(self, obj: Any, name: str, source: Source | None) -> Any:
        """An attribute of the object's own, NULL if it has none."""
        if source is None:
            held = getattr(obj, "__dict__", {})
            tables = [held, *[held.get(t, {}) for t in TABLES]] if isinstance(obj, Module) else [held]
            return next((t[name] for t in tables if name in t), NULL)
        written = self.world.overlay.get((id(obj), name), NULL)
        if written is DELETED:
            raise AttributeError(f"'{type(obj).__name__}' object has no attribute '{name}'")
        if written is not NULL:
            return written
        if id(obj) in self.world.viewed:
            found = self.world.viewed[id(obj)]
            if name in found:
                return found[name]
        else:
            held = getattr(obj, "__dict__", {})
            if name in held:
                return self.world.enter(held[name], source.attribute(name))
        if isinstance(obj, Module):
            for table in TABLES:
                held = obj.__dict__.get(table, {})
                if name in held:
                    entered = self.world.known.get(id(held))
                    if entered is not None:
                        return entered.value[name]
                    return self.world.enter(held[name], source.attribute(table).item(name, f"{source.label}.{name}"))
        return NULL

    def _described(self, obj: Any, name: str, found: Any, source: Source | None, mro: tuple[type, ...]) -> Any:
        """The value that a data descriptor gives."""
        if isinstance(found, property):
            if found.fget is None:
                raise AttributeError(f"property '{name}' of '{type(obj).__name__}' object has no getter")
            self._check_class(mro, name, found)
            return self.nested(found.fget, (obj,))
        if isinstance(found, _SLOTS):
            if source is None or isinstance(obj, tuple):
                return found.__get__(obj)
            written = self.world.overlay.get((id(obj), name), NULL)
            return self.world.read(obj, name, None if written is not NULL else found.__get__(obj), source.attribute(name))
        getter = self.special(found, "__get__")
        if getter is None:
            raise Break(f"a descriptor of class {type(found).__name__}")
        return self.nested(getter, (self.world.enter(found, self._class_part(obj, name)), obj, type(obj)))

    def _class_part(self, obj: Any, name: str) -> Source:
        owner = next(c for c in type(obj).__mro__ if name in vars(c))
        template = "{}.__dict__[" + repr(name) + "]"
        return self.world.constant(owner).child(template, f"{{}}.{name}", step=("class", name))

    def _bound(self, obj: Any, kind: type, name: str, found: Any, mro: tuple[type, ...]) -> Any:
        """What a class attribute is as seen from an instance."""
        self._check_class(mro, name, found)
        if isinstance(found, types.FunctionType):
            return types.MethodType(found, obj)
        if isinstance(found, classmethod):
            return types.MethodType(found.__func__, kind)
        if isinstance(found, staticmethod):
            return found.__func__
        if isinstance(found, functools.cached_property):
            value = self.nested(found.func, (obj,))
            self._store(obj, name, value)
            return value
        if isinstance(found, functools._lru_cache_wrapper):
            return types.MethodType(self.world.enter(found, self._class_part(obj, name)), obj)
        if isinstance(found, calls.NATIVE):
            return found.__get__(obj, kind) if hasattr(found, "__get__") else found
        if hasattr(type(found), "__get__"):
            getter = self.special(found, "__get__")
            if getter is None:
                raise Break(f"a descriptor of class {type(found).__name__}")
            return self.nested(getter, (self.world.enter(found, self._class_part(obj, name)), obj, kind))
        return found if calls.is_constant(found) else self.world.enter(found, self._class_part(obj, name))

    # ---- writing

    def setattr(self, obj: Any, name: str, value: Any) -> None:
        kind = type(obj)
        if isinstance(obj, Tensor):
            self._set_on_tensor(obj, name, value)
            return
        if name in ("__class__", "__dict__"):
            raise Break(f"the {name} of an object is set")
        if kind is collections.OrderedDict and self.world.source_of(obj) is None:
            vars(obj)[name] = value
            return
        if isinstance(obj, (type, types.ModuleType)) or kind in calls.BUILTIN_CLASSES:
            self._set_outside(obj, kind, name, value)
            return
        if kind is types.FunctionType:
            if id(obj) in self.world.made:
                setattr(obj, name, value)
            elif name.startswith("__"):
                raise Break(f"the {name} of a function is set")
            else:
                if self.world.source_of(obj) is None:
                    self.world.constant(obj)
                self.world.write(obj, name, value)
            return
        setter = calls.lookup(kind, "__setattr__")
        if setter is calls.MODULE_SETATTR:
            self._set_on_module(obj, name, value)
        elif isinstance(setter, types.FunctionType):
            self.nested(setter, (obj, name, value))
        else:
            self.set_plainly(obj, name, value)

    def _set_on_tensor(self, obj: Tensor, name: str, value: Any) -> None:
        """Set an attribute of the user's, or the gradient or memory of a tensor from before."""
        known = self.world.known.get(id(obj))
        if calls.is_face(type(obj)) and not hasattr(Tensor, name) and name != "__dict__":
            setter = calls.lookup(type(obj), "__setattr__")
            if isinstance(setter, types.FunctionType) and not calls.ours(setter.__module__):
                self.nested(setter, (obj, name, value))
            else:
                self.set_plainly(obj, name, value)
            return
        if not hasattr(type(obj), name) and name not in _HIDDEN and not name.startswith("_"):
            vars(obj).update({name: value}) if known is None else self.world.write(obj, name, value)
        elif name == "grad" and known is not None and obj.is_leaf and (
            value is None or (type(value) in PLAIN and (value._a.shape, value._a.dtype) == (obj._a.shape, obj._a.dtype))
        ):  # fmt: skip
            self.world.write(obj, name, value)
        elif name == "data" and known is not None:
            self._set_data(obj, value)
        else:
            raise Break(f"Tensor.{name} is set")

    def _set_data(self, obj: Tensor, value: Any) -> None:
        """Have the epilogue give a tensor from before other memory. In the trace it is the value from now on; a leaf can't be used any more."""
        recorder = self.recorder
        like = type(value) in PLAIN and (value._a.shape, value._a.dtype) == (obj._a.shape, obj._a.dtype)
        if not like or recorder.varying or recorder.graph is not recorder.root or value is obj:
            raise Break("Tensor.data is set")
        self.world.write(obj, "data", value)
        shown = value.detach()
        if obj._rg:
            recorder.nodes.pop(id(obj), None)
        else:
            recorder.nodes[id(obj)], obj._a = recorder.nodes[id(shown)], shown._a

    def _set_outside(self, obj: Any, kind: type, name: str, value: Any) -> None:
        """Set an attribute of a class or module that means nothing to Python itself."""
        found = self._found(obj.__mro__, name) if kind is type else NULL
        if (
            kind not in (type, types.ModuleType) or name.startswith("__") or calls.ours(obj.__name__ if kind is not type else obj.__module__)
            or any(hasattr(type(v), "__get__") for v in (value, found) if v is not NULL)
        ):  # fmt: skip
            raise Break(f"an attribute of {getattr(obj, '__name__', kind.__name__)} is set")
        place = obj if kind is type else vars(obj)
        self.world.constant(place, obj.__name__)
        self.world.write(place, name, value)

    def set_plainly(self, obj: Any, name: str, value: Any) -> None:
        """object.__setattr__."""
        if not self._by_descriptor(obj, name, "set", value):
            self._store(obj, name, value)

    def _by_descriptor(self, obj: Any, name: str, how: str, *value: Any) -> bool:
        """Have the class's property or other descriptor "set" or "delete" an attribute; False if it has none."""
        found = calls.lookup(type(obj), name)
        if isinstance(found, property):
            function, missing = (found.fset, "setter") if how == "set" else (found.fdel, "deleter")
            if function is None:
                raise AttributeError(f"property '{name}' of '{type(obj).__name__}' object has no {missing}")
            self.nested(function, (obj, *value))
        elif found is not None and hasattr(type(found), f"__{how}__") and not isinstance(found, _SLOTS):
            method = self.special(found, f"__{how}__")
            if method is None:
                raise Break(f"{how} by a descriptor of class {type(found).__name__}")
            self.nested(method, (self.world.enter(found, self._class_part(obj, name)), obj, *value))
        else:
            return False
        return True

    def _store(self, obj: Any, name: str, value: Any) -> None:
        source = self.world.source_of(obj)
        if source is None:
            object.__setattr__(obj, name, value)
        elif id(obj) in self.world.viewed:
            self.world.viewed[id(obj)][name] = value
        elif hasattr(obj, "__dict__") or isinstance(calls.lookup(type(obj), name), _SLOTS):
            self.world.write(obj, name, value)
        else:
            object.__setattr__(obj, name, value)  # raises what Python raises

    def _set_on_module(self, obj: Module, name: str, value: Any) -> None:
        held = obj.__dict__
        tables = [t for t in TABLES if name in held.get(t, ())]
        if isinstance(value, (Parameter, Module)) or tables:
            kind = "_modules" if isinstance(value, Module) else "_parameters" if isinstance(value, Parameter) else "_buffers"
            if (tables != [kind] and not (value is None and tables)) or self.world.source_of(obj) is None:
                raise Break(f"the parameter or child {name} of a module is set")
            self.getattr(obj, tables[0])[name] = value
        else:
            self.set_plainly(obj, name, value)

    def delattr(self, obj: Any, name: str) -> None:
        kind = type(obj)
        if isinstance(obj, (Tensor, type, types.ModuleType, Module)) or isinstance(
            calls.lookup(kind, "__delattr__"), types.FunctionType
        ):
            raise Break(f"an attribute of a {kind.__name__} is deleted")
        if self._by_descriptor(obj, name, "delete"):
            return
        if self.world.source_of(obj) is None:
            delattr(obj, name)
        elif id(obj) in self.world.viewed:
            raise Break(f"an attribute of a {kind.__name__} is deleted")
        else:
            self.getattr(obj, name)
            if name in getattr(obj, "__dict__", ()) or isinstance(calls.lookup(kind, name), _SLOTS):
                self.world.write(obj, name, DELETED)
            else:
                self.world.overlay.pop((id(obj), name), None)

    def load_super(self, sup: Any, cls: Any, obj: Any, name: str) -> Any:
        if sup is not super:
            raise Break("`super` is not the builtin")
        return self.getattr(super(cls, obj), name)
