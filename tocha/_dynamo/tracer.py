"""The tracer: the interpreter's operations with provenance. Calls of Python functions are inlined, calls on tensors recorded, anything
that could see or change the world outside breaks the graph."""

from __future__ import annotations

import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

from tocha._dynamo import arrays, calls, config, library, overriding, scalars
from tocha._dynamo.attributes import Attributes
from tocha._dynamo.bytecode import decode
from tocha._dynamo.exc import Break, ConstraintViolationError, Refused, Restart
from tocha._dynamo.frame import NULL, PUSHED, Frame, bind, is_generator
from tocha._dynamo.generators import Generator
from tocha._dynamo.guards import SAME_ITEM, check_is
from tocha._dynamo.recorder import REMEDY
from tocha._dynamo.sizes import VaryingSize
from tocha._dynamo.world import COPIED, DELETED, Known, Unentered, World
from tocha.aot.trace import DataDependent
from tocha.dispatch.override import DisableTorchFunction
from tocha.nn import Module
from tocha.tensor import Tensor

_NUMBERS = (int, float, complex, bool)
_PLAIN_ERRORS = (
    StopIteration,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
    ArithmeticError,
    AssertionError,
    NameError,
    ImportError,
)


class Tracer(Attributes):
    """Runs frames whose values are those of `world`. `stop` maps the numbers of instructions to break before to reasons."""

    def __init__(self, frames: list[Frame], handled: Any, world: World, stop: dict[int, tuple[str, str]]) -> None:
        super().__init__(frames, handled)
        self.world, self.recorder, self.stop = world, world.recorder, stop
        self.recorder.ask, self.recorder.vm = functools.partial(overriding.ask, self), self
        self.count = self.total = 0
        self.nesting = 0
        self.made_at: dict[int, int] = {}
        self.generators: list[Generator] = []
        self.raised: dict[int, BaseException] = {}  # by the program, which may catch them
        self.entered: dict[int, Any] = {}  # autocasts from before, by ids of those entered for them
        self.layers: dict[int, Module] = {}  # made in the trace
        self.lacking = set()

    # ---- running

    def run(self) -> tuple[str, Any]:
        """Trace until the end ("return", value) or a break ("break", its reason)."""
        while self.done is NULL:
            f = self.frames[-1]
            saved, ip = list(f.stack), f.ip
            try:
                if self.count in self.stop:
                    reason, hint = self.stop[self.count]
                    raise Break(reason, hint)
                self.step()
            except Break as broken:
                if self.frames[-1] is not f:
                    raise Refused(f"broke between frames: {broken.reason}") from broken
                f.stack[:], f.ip = saved, ip
                return "break", broken
            self.count += 1
        return self.done

    def step(self) -> None:
        self.total += 1
        if self.total > config.trace_limit:
            raise Refused(f"more than {config.trace_limit} instructions")
        f = self.frames[-1]
        self.recorder.where = f.where
        super().step()

    def unwind(self, error: BaseException) -> None:
        """Exceptions of plain Python that a traced frame handles go there; others are for the real run to raise."""
        if isinstance(error, ConstraintViolationError):
            raise error
        if isinstance(error, DataDependent):
            raise Break(str(error), REMEDY) from error
        name = decode(self.frames[-1].code).instructions[self.frames[-1].ip - 1].name
        handled = any(decode(f.code).handlers[f.ip - 1] is not None for f in self.frames[self._base :])
        if self.nesting == 0 and not handled:
            raise Break(f"raises {type(error).__name__}: {error}") from error
        if name in ("RAISE_VARARGS", "RERAISE", "YIELD_VALUE"):
            self.raised[id(error)] = error
        elif id(error) not in self.raised and not isinstance(error, _PLAIN_ERRORS):
            raise Break(f"raises {type(error).__name__}: {error}") from error
        super().unwind(error)

    def nested(self, fn: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """A call's result, run to its end now. A break in it ends the segment before the instruction that asked."""
        base = len(self.frames)
        self.nesting += 1
        try:
            got = self.call(fn, args, kwargs or {})
            return self.execute(base)[1] if got is PUSHED else got
        except Break as broken:
            raise Restart(self.count, broken.reason, broken.hint) from broken
        except BaseException:
            del self.frames[base:]
            raise
        finally:
            self.nesting -= 1

    def resume(self, frame: Frame, error: BaseException | None) -> tuple[str, Any]:
        self.nesting += 1
        try:
            return super().resume(frame, error)
        except Break as broken:
            raise Restart(self.count, broken.reason, broken.hint) from broken
        finally:
            self.nesting -= 1

    # ---- variables

    def load_local(self, f: Frame, name: str) -> Any:
        value = f.local[name]
        if value.__class__ is Unentered:
            value = f.local[name] = self.world.enter_iterator(value.value, value.source)
        return value

    def load_global(self, f: Frame, name: str) -> Any:
        written = self.world.overlay.get((id(f.globals), name), NULL)
        if written is not NULL and written is not DELETED:
            return written
        if written is NULL and name in f.globals:
            value = f.globals[name]
            if calls.ours(f.globals.get("__name__")) and isinstance(value, (types.FunctionType, type, types.ModuleType)):
                return value
            return self.world.enter(value, self._globals(f).item(name))
        self._globals(f).check(f"has no global {name}", "{c0} not in {v}", name)
        if name in f.builtins:
            self.world.constant(f.builtins, "builtins").check(f"{name} is as it was", SAME_ITEM, name, f.builtins[name])
            return f.builtins[name]
        raise NameError(f"name '{name}' is not defined", name=name)

    def _globals(self, f: Frame) -> Any:
        return self.world.constant(f.globals, f"globals of {f.globals.get('__name__')}")

    def store_global(self, f: Frame, name: str, value: Any) -> None:
        self._globals(f)
        self.world.write(f.globals, name, value)

    def delete_global(self, f: Frame, name: str) -> None:
        raise Break(f"the global {name} is deleted")

    def cell_get(self, cell: Any) -> Any:
        source = self.world.source_of(cell)
        if source is None:
            return cell.cell_contents
        if (id(cell), "cell_contents") in self.world.overlay:
            return self.world.read(cell, "cell_contents", None, source)
        return self.world.enter(cell.cell_contents, source.attribute("cell_contents"))

    def cell_set(self, cell: Any, value: Any) -> None:
        if self.world.source_of(cell) is None:
            cell.cell_contents = value
        else:
            self.world.write(cell, "cell_contents", value)

    def cell_clear(self, cell: Any) -> None:
        if self.world.source_of(cell) is not None:
            raise Break("a variable of an enclosing function is deleted")
        del cell.cell_contents

    def import_name(self, f: Frame, name: str, fromlist: Any, level: int) -> Any:
        if level or name not in sys.modules:
            raise Break(f"import {name}")
        return sys.modules[name] if fromlist else sys.modules[name.partition(".")[0]]

    def made_function(self, made: types.FunctionType) -> types.FunctionType:
        self.world.made.add(id(made))
        self.world.kept.append(made)
        return made

    # ---- operators

    def operate(self, op: Callable[..., Any], *operands: Any) -> Any:
        for a in operands:
            if a.__class__ is arrays.Array:
                return arrays.operate(self, op, operands)
            if a.__class__ is scalars.Scalar:
                return scalars.operate(self, op, operands)
            if calls.has_python_operators(a):
                return self.dunder(op, operands)
        if any(self.opaque(a) for a in operands) and not (op in (operator.eq, operator.ne) and calls.by_identity(operands)):
            raise Break(f"{op.__name__} of a {' and a '.join(type(a).__name__ for a in operands)}")
        return op(*operands)

    def dunder(self, op: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
        """An operator that a Python class defines."""
        if any(isinstance(a, Tensor) for a in operands) and not any(calls.is_face(type(a)) for a in operands):
            raise Break(f"{op.__name__} of a tensor and a {type(operands[-1]).__name__}")
        if op is operator.ne and all(calls.lookup(type(a), "__ne__") is object.__ne__ for a in operands):
            return not self.truth(self.operate(operator.eq, *operands))
        for name, args in calls.methods_of_operator(op, operands):
            method = calls.lookup(type(args[0]), name)
            if isinstance(method, types.FunctionType):
                self._check_class(type(args[0]).__mro__, name, method)
                got = self.nested(method, args)
                if got is not NotImplemented:
                    return got
            elif method is not None and calls.lookup(object, name) is not method and type(args[0]) not in _NUMBERS:
                raise Break(f"{name} of a {type(args[0]).__name__}")
        if op is operator.eq or op is operator.ne:
            return self.same(*operands) is (op is operator.eq)
        raise Break(f"{op.__name__} of a {type(operands[0]).__name__}")

    def contains(self, container: Any, item: Any) -> bool:
        method = self.special(container, "__contains__")
        if method is not None:
            return self.truth(self.nested(method, (container, item)))
        if type(container) in (list, tuple) and not self.opaque(container) and calls.compares_in_python((container, item)):
            return any(self.same(item, v) or self.truth(self.operate(operator.eq, v, item)) for v in container)
        if self.opaque(container) or calls.compares_in_python(container) or calls.compares_in_python(item):
            raise Break(f"`in` on a {type(container).__name__}")
        return item in container

    def same(self, a: Any, b: Any) -> bool:
        known = [self.world.known.get(id(v)) for v in (a, b)]
        if a is not b and known[0] is not None and known[1] is not None and type(a) is type(b):
            self.world.guards.late.append(
                (f"{known[0].source.label} is not {known[1].source.label}", "{} is not {}", (known[0].source, known[1].source))
            )
        return a is b

    def truth(self, value: Any) -> bool:
        if isinstance(value, Tensor) and self.of_program(value, "__bool__") is None:
            if value._a.size == 1 or self.recorder.varying:
                raise Break("a branch on a tensor's value", "torch.where computes both sides in the graph")
            return bool(value)
        for name in ("__bool__", "__len__"):
            method = self.special(value, name)
            if method is not None:
                return bool(self.nested(method, (value,)))
        if self.opaque(value) and (calls.lookup(type(value), "__bool__") or calls.lookup(type(value), "__len__")):
            raise Break(f"the truth of a {type(value).__name__}")
        return bool(value)

    def getitem(self, obj: Any, key: Any) -> Any:
        if type(obj).__module__ == "typing":
            return obj[key]
        if obj.__class__ is arrays.Array:
            return arrays.getitem(self, obj, key)
        method = self.of_program(obj, "__getitem__")
        if method is not None:
            return self.nested(method, (obj, key))
        if self.opaque(obj):
            raise Break(f"an item of a {type(obj).__name__}")
        if isinstance(obj, dict) and calls.compares_in_python(key):
            raise Break(f"a dict's key of class {type(key).__name__}")
        missing = self.special(obj, "__missing__") if isinstance(obj, dict) else None
        if missing is not None and key not in obj:
            return self.nested(missing, (obj, key))
        if type(obj).__name__ == "defaultdict" and key not in obj and isinstance(obj.default_factory, types.FunctionType):
            obj[key] = self.nested(obj.default_factory)
        return obj[key]

    def setitem(self, obj: Any, key: Any, value: Any) -> None:
        method = self.of_program(obj, "__setitem__")
        if method is not None:
            self.nested(method, (obj, key, value))
            return
        if self.opaque(obj) or (isinstance(obj, dict) and calls.compares_in_python(key)):
            raise Break(f"an item of a {type(obj).__name__} is set")
        obj[key] = value

    def delitem(self, obj: Any, key: Any) -> None:
        method = self.special(obj, "__delitem__")
        if method is not None:
            self.nested(method, (obj, key))
            return
        if self.opaque(obj):
            raise Break(f"an item of a {type(obj).__name__} is deleted")
        del obj[key]

    def of_array(self, obj: Any, name: str) -> Any:
        return arrays.attribute(self, obj, name)

    # ---- iteration and text

    def iter(self, value: Any) -> Any:
        if isinstance(value, Generator):
            return value
        method = self.of_program(value, "__iter__")
        if method is not None:
            return self.nested(method, (value,))
        if self.opaque(value):
            raise Break(f"iteration over a {type(value).__name__}")
        if calls.lookup(type(value), "__iter__") is None and self.special(value, "__getitem__") is not None:
            return self.nested(library.by_position, (value,))
        return iter(value)

    def next(self, iterator: Any) -> Any:
        method = self.special(iterator, "__next__")
        if method is not None and not isinstance(iterator, Generator):
            return self.nested(method, (iterator,))
        if self.opaque(iterator):
            raise Break(f"the next item of a {type(iterator).__name__}")
        return next(iterator)

    def listed(self, value: Any) -> list[Any]:
        if type(value) in (list, tuple):
            return list(value)
        iterator, out = self.iter(value), []
        while True:
            try:
                out.append(self.next(iterator))
            except StopIteration:
                return out

    def mapping(self, value: Any) -> dict[Any, Any]:
        if self.opaque(value) or not isinstance(value, dict):
            raise Break(f"a {type(value).__name__} is unpacked as a mapping")
        return dict(value)

    def format(self, value: Any, spec: str) -> str:
        return self.text("__format__", value, spec)

    def convert(self, how: int, value: Any) -> str:
        return self.text("__str__" if how == 1 else "__repr__", value)

    def text(self, name: str, value: Any, *more: Any) -> str:
        """A value as text, by `__str__`, `__repr__` or `__format__`."""
        if isinstance(value, VaryingSize):
            value = value.fixed()
        if isinstance(value, str) and type(value) is str and name != "__repr__":
            return format(value, *more)
        if not calls.is_data(value) and not (
            isinstance(value, BaseException) and calls.is_data(value.args) and not calls.python_made(type(value))
        ):
            method = self.special(value, name)
            if method is None and name != "__repr__" and not any(more) and calls.lookup(type(value), name) is vars(object)[name]:
                return self.text("__str__" if name == "__format__" else "__repr__", value)
            if method is None or isinstance(value, Tensor):
                raise Break(f"text of a {type(value).__name__}")
            return self.nested(method, (value, *more))
        return format(value, *more) if name == "__format__" else str(value) if name == "__str__" else repr(value)

    # ---- calls

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kind = type(fn)
        if kind is types.MethodType:
            return self.call(fn.__func__, (fn.__self__, *args), kwargs)
        rule = calls.rule_of(fn)
        if rule is not None and not (calls.is_overridable(fn) and self.recorder.overridden(args, kwargs)):
            self._recognised(fn)
            return rule(self, args, kwargs)
        if kind is types.FunctionType:
            return self.call_function(fn, args, kwargs)
        if calls.of_numpy(fn) and arrays.among(args, kwargs, (arrays.Array, Tensor)):
            return arrays.call(self, fn, args, kwargs)
        if calls.of_numpy(fn) and all(map(calls.is_data, (*args, *kwargs.values()))):
            got = fn(*args, **kwargs)
            return got if calls.is_data(got) else arrays.made(self, got, calls.title(fn))
        if isinstance(fn, type):
            return self.construct(fn, args, kwargs)
        if kind.__name__ == "partial" and kind.__module__ == "functools":
            return self.call(fn.func, (*fn.args, *args), {**fn.keywords, **kwargs})
        if isinstance(fn, Module):
            return self.call_module(fn, args, kwargs)
        if kind in calls.NATIVE:
            return self.call_native(fn, args, kwargs)
        source = self.world.source_of(fn)
        if kind is weakref.ref and source is not None and not args:
            return self.world.enter(fn(), source.child("{}()", "{}()"))
        method = self.special(fn, "__call__")
        if method is not None:
            return self.call(method, (fn, *args), kwargs)
        raise Break(f"a call of a {kind.__name__}")

    def call_function(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A Python function: recorded if it is torch's, inlined if it can be."""
        if id(fn) in calls.torch_functions():
            self._recognised(fn)
            op = scalars.spelled(fn, args, kwargs)
            if op is not None:
                return scalars.operate(self, op, args)
            return fn(*args, **kwargs)
        if getattr(fn, "_dynamo_constant_result", False) and all(map(calls.is_data, (*args, *kwargs.values()))):
            return self.constant_result(fn, args, kwargs)
        if fn in calls.ALLOWED:
            self._recognised(fn)
            with DisableTorchFunction():
                return self.recorder.__torch_function__(fn, (), args, kwargs)
        if hasattr(fn, "_torchdynamo_orig_callable"):
            self._recognised(fn)
            fn = fn._torchdynamo_orig_callable
        if not isinstance(fn, types.FunctionType):
            return self.call(fn, args, kwargs)
        if fn.__module__ == "tocha.device" and fn.__qualname__.startswith("Size.") and all(map(calls.is_data, args)):
            return fn(*args, **kwargs)
        why = calls.kept_out(fn)
        if why is not None:
            raise Break(why)
        return self.inline(fn, args, kwargs)

    def _recognised(self, fn: Any) -> None:
        """Guard that a function is this very one: others may share its code."""
        source = self.world.source_of(fn)
        if source is not None and source.parent is not None:
            check_is(source, fn)

    def constant_result(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a function returns whose result torch.compiler.assume_constant_result says never changes."""
        self.world.constant(fn)
        self._recognised(fn)
        got = fn(*args, **kwargs)
        if not calls.is_constant(got):
            raise Break(f"{calls.title(fn)} is assumed constant, and returns a {type(got).__name__}")
        return got

    def inline(self, fn: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], instead: Any = NULL) -> Any:
        """Go on in the function's own frame."""
        code = fn.__code__
        unsupported = decode(code).unsupported
        if unsupported is not None:
            raise Break(f"{fn.__qualname__} has {unsupported}")
        if len(self.frames) > config.inline_depth_limit:
            raise Break(f"calls nest deeper than {config.inline_depth_limit}")
        known = self.world.known.get(id(fn))
        if known is None and id(fn) not in self.world.made and not calls.ours(fn.__module__):
            self.world.constant(fn)
            known = self.world.known[id(fn)]
        defaults, kwdefaults, cells = self._parts(fn, known)
        local = bind(code, fn.__qualname__, defaults, kwdefaults, args, kwargs)
        local.update(zip(code.co_freevars, cells, strict=True))
        f = Frame(code, fn.__globals__, local)
        f.instead = instead
        if is_generator(code):
            generator = Generator(f, self)
            self.generators.append(generator)
            self._noted(generator)
            return generator
        self.frames.append(f)
        return PUSHED

    def _parts(self, fn: types.FunctionType, known: Known | None) -> tuple[Any, Any, tuple[Any, ...]]:
        """Defaults, keyword defaults and cells, entered if the function is from before."""
        cells = fn.__closure__ or ()
        if known is None and id(fn) in self.world.made:
            return fn.__defaults__, fn.__kwdefaults__, cells
        source = known.source if known is not None else None
        if source is None:
            if not cells and not fn.__defaults__ and not fn.__kwdefaults__:
                return None, None, ()
            source = self.world.constant(fn)
        enter = self.world.enter
        for name in ("__defaults__", "__kwdefaults__"):
            if not getattr(fn, name):
                source.check(f"has no {name}", f"not {{v}}.{name}")
        return (
            None if not fn.__defaults__ else enter(fn.__defaults__, source.attribute("__defaults__")),
            None if not fn.__kwdefaults__ else enter(fn.__kwdefaults__, source.attribute("__kwdefaults__")),
            tuple([enter(c, source.attribute("__closure__").item(i)) for i, c in enumerate(cells)]),
        )

    def call_module(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A layer's call: its forward, unless hooks or a __call__ of its own say otherwise."""
        method = calls.lookup(type(module), "__call__")
        self._check_class(type(module).__mro__, "__call__", method)
        if method is not calls.MODULE_CALL:
            return self.call(method, (module, *args), kwargs)
        source = self.world.source_of(module)
        if source is not None and not self.getattr(module, "_hooked") and not calls.global_hooks():
            source.check("calls have no hooks on all modules", "not {c0}", calls.global_hooks())
            return self.call(self.getattr(module, "forward"), args, kwargs)
        if module.__dict__.get("_compiled_call_impl") is not None:
            raise Break("a module compiled on its own is called")
        if self.recorder.fullgraph:  # otherwise it gets them between graphs, in the program's order
            library.initialize(module, args, kwargs)
        return self.call(self.getattr(module, "_call_impl"), args, kwargs)

    def construct(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """An instance: of a plain builtin natively, of a Python class by its own __new__ and __init__."""
        if cls in calls.BUILTIN_CLASSES or (issubclass(cls, BaseException) and not calls.python_made(cls)):
            return self.call_native(cls, args, kwargs)
        if type(cls) is not type and calls.lookup(type(cls), "__call__") is not type.__call__:
            if isinstance(cls, calls.EnumMeta) and len(args) == 1:
                return cls(*args)
            raise Break(f"an instance of {cls.__name__}, whose class has a metaclass, is made")
        if issubclass(cls, Module):
            made = library.stateless(self, cls, args, kwargs)
            if made is None:
                raise Break(f"a {cls.__name__} is made, with parameters or state of its own", "make layers outside, once")
            return made
        if issubclass(cls, Tensor):
            return overriding.construct(self, cls, args, kwargs)
        if calls.outside(cls):
            raise Break(f"a {cls.__name__} is made")
        made_by = calls.lookup(cls, "__new__")
        self._check_class(cls.__mro__, "__new__", made_by)
        if isinstance(made_by, staticmethod):
            made = self.nested(made_by.__func__, (cls, *args), kwargs)
        elif calls.lookup(cls, "__init__") is object.__init__ and made_by is object.__new__ and (args or kwargs):
            raise TypeError(f"{cls.__name__}() takes no arguments")
        else:
            base = getattr(made_by, "__self__", object)
            if base not in calls.MAKEABLE_BASES:
                raise Break(f"a {cls.__name__} is made")
            make: Any = base.__new__
            made = make(cls, *args) if base is tuple else make(cls)
        self._noted(made)
        init = calls.lookup(cls, "__init__")
        self._check_class(cls.__mro__, "__init__", init)
        if not isinstance(made, cls) or init is object.__init__:
            return made
        if isinstance(init, types.FunctionType):
            return self.inline(init, (made, *args), kwargs, instead=made)
        init(made, *args, **kwargs)
        return made

    def instance(self, cls: type) -> Any:
        return self.nested(cls)

    def _noted(self, made: Any) -> None:
        self.made_at.setdefault(id(made), self.count)
        self.world.kept.append(made)

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A builtin that looks at nothing but its arguments."""
        if type(fn) is functools._lru_cache_wrapper:
            return library.cached(self, fn, args, kwargs)
        if not calls.is_pure(fn):
            raise Break(f"a call of {calls.title(fn)}")
        own = getattr(fn, "__self__", None)
        if own is None and getattr(fn, "__objclass__", None) is not None and args:
            own = args[0]
        if own is not None and self.opaque(own):
            raise Break(f"a call of {calls.title(fn)} on an object from outside")
        args, kwargs = tuple([self.argument(fn, a) for a in args]), {k: self.argument(fn, v) for k, v in kwargs.items()}
        got = fn(*args, **kwargs)
        if not calls.is_data(got):
            self._noted(got)
        return got

    def argument(self, fn: Any, a: Any) -> Any:
        """An argument for native code: functions come back to the tracer, iterables are iterated by it."""
        if isinstance(a, (types.FunctionType, types.MethodType)) or (isinstance(a, Module) and fn in (map, filter)):
            return a if calls.only_stores(fn) else Inlined(self, a)
        if not calls.only_stores(fn):
            if not isinstance(a, (Tensor, Generator)) and self.special(a, "__iter__") is not None:
                return self.iter(a)
            if calls.compares_in_python(a):
                raise Break(f"{calls.title(fn)} of a {type(a).__name__}")
            by_identity = isinstance(a, Module) and getattr(fn, "__name__", "") in calls.MEMBERS
            if (
                self.opaque(a)
                and not isinstance(a, (types.FunctionType, type))
                and fn not in calls.INDIFFERENT
                and not by_identity
            ):
                raise Break(f"{calls.title(fn)} of a {type(a).__name__}")
        return a

    def opaque(self, value: Any) -> bool:
        """Whether a value is an object from before whose state native code could look at."""
        known = self.world.known.get(id(value))
        if known is None:
            return False
        return not calls.is_entered(value) or (
            known.real is value and isinstance(value, COPIED)
        )  # such as a dict with tensors as keys


class Inlined:
    """A function of the traced program, as native code calls it."""

    def __init__(self, vm: Tracer, fn: Any) -> None:
        self.vm, self.fn = vm, fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.vm.nested(self.fn, args, kwargs)
