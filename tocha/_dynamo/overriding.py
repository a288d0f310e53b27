"""Tensor subclasses with a `__torch_function__`, and function modes, in a trace.

    A subclass's instance in a trace is another face of a fake: an alias of the subclass (`face`), with the fake's node. Every public call
    comes to the recorder, which has the tracer ask the modes and classes in order; their handlers are interpreted, and what they call at
    the end is recorded. So graphs know plain tensors only; the prologue takes instances apart and the epilogue makes them again.
"""

from __future__ import annotations

import types
from typing import Any

from tocha._dynamo import calls
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break
from tocha._dynamo.frame import NULL
from tocha._dynamo.recorder import METHODS
from tocha.device import CPU, device, get_default_device, set_default_device
from tocha.dispatch.interpret import TorchFunctionMode
from tocha.dispatch.override import KEEPS_CLASS, DisableTorchFunctionSubclass, stacks
from tocha.tensor import Tensor


def ask(vm: Any, func: Any, kinds: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of the innermost mode, or of the first of these classes that has one; NULL if there is nobody to ask."""
    recorder = vm.recorder
    if not kinds and not recorder.modes:
        return NULL
    stacks.function_modes.append(recorder)  # which was taken off to be asked
    try:
        if recorder.modes:
            mode = recorder.modes.pop()
            try:
                got = vm.nested(vm.getattr(mode, "__torch_function__"), (func, kinds, args, kwargs))
            finally:
                recorder.modes.append(mode)
            if got is not NotImplemented:
                return got
        for kind in kinds:
            found = calls.lookup(kind, "__torch_function__")
            if not isinstance(found, classmethod):
                raise Break(f"the __torch_function__ of {kind.__name__} is no classmethod")
            vm._check_class(kind.__mro__, "__torch_function__", found)
            got = vm.nested(found.__func__, (kind, func, kinds, args, kwargs))
            if got is not NotImplemented:
                return got
    finally:
        stacks.function_modes.pop()
    if kinds:
        raise Break(f"all __torch_function__ handlers of {func.__name__} return NotImplemented")
    return NULL


def face(vm: Any, kind: type, t: Tensor) -> Any:
    """A tensor of the trace as an instance of a subclass."""
    if not calls.is_face(kind) and kind is not Tensor:
        raise Break(f"a tensor of class {kind.__name__} is made")
    return vm.recorder.face(kind, t)


def _faces(vm: Any, got: Any, kind: type) -> Any:
    """Results as instances of a subclass."""
    if isinstance(got, Tensor):
        return got if kind is Tensor or isinstance(got, kind) else face(vm, kind, got)
    if isinstance(got, (tuple, list)) and kind is not Tensor:
        items = [_faces(vm, item, kind) for item in got]
        return type(got)(*items) if hasattr(got, "_fields") else type(got)(items)
    return got


def plainly(vm: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call in which no class is asked."""
    stacks.subclass_functions_disabled += 1
    try:
        return vm.nested(func, args, kwargs)
    finally:
        stacks.subclass_functions_disabled -= 1


@rule(vars(Tensor)["__torch_function__"].__func__)
def _default(vm: Any, args: Any, kwargs: Any) -> Any:
    """Tensor.__torch_function__."""

    def given(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return cls, func, types, args, kwargs or {}

    kind, func, kinds, args, kwargs = given(*args, **kwargs)
    if not all(issubclass(kind, k) for k in kinds):
        return NotImplemented
    got = plainly(vm, func, tuple(args), dict(kwargs))
    return got if func in KEEPS_CLASS else _faces(vm, got, kind)


@rule(METHODS.as_subclass)
def _as_subclass(vm: Any, args: Any, kwargs: Any) -> Any:
    t, kind = args
    return face(vm, kind, t)


def without_history(vm: Any, kind: type, data: Any, requires_grad: Any = False) -> Any:
    """A tensor's memory as an instance of a subclass."""
    if requires_grad or not isinstance(data, Tensor):
        raise Break(f"a tensor of class {kind.__name__} is made")
    return face(vm, kind, plainly(vm, METHODS.detach, (data,), {}))


@rule(Tensor._make_subclass)
def _make_subclass(vm: Any, args: Any, kwargs: Any) -> Any:
    return without_history(vm, *args, **kwargs)


@rule(Tensor.__new__)
def _new(vm: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 2 or kwargs:
        raise Break(f"a tensor of class {args[0].__name__} is made")
    return without_history(vm, *args)


def construct(vm: Any, kind: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An instance of a subclass, by its `__new__` and `__init__`."""
    if not calls.is_face(kind):
        raise Break(f"a {kind.__name__} is made")
    new, init = calls.lookup(kind, "__new__"), calls.lookup(kind, "__init__")
    for name, found in (("__new__", new), ("__init__", init)):
        vm._check_class(kind.__mro__, name, found)
    made = vm.nested(new.__func__ if isinstance(new, staticmethod) else new, (kind, *args), kwargs)
    if isinstance(made, kind) and init is not object.__init__ and isinstance(init, types.FunctionType):
        vm.nested(init, (made, *args), kwargs)
    return made


# ---- what is entered and left


def _enter(vm: Any, context: Any) -> Any:
    vm._noted(context)
    vm.recorder.opened.append((context, vm.count))
    return context


def _leave(vm: Any, context: Any) -> None:
    if not vm.recorder.opened or vm.recorder.opened[-1][0] is not context:
        raise Break(f"a {type(context).__name__} from outside what was captured is left")
    vm.recorder.opened.pop()


@rule(TorchFunctionMode.__enter__)
def _enter_mode(vm: Any, args: Any, kwargs: Any) -> Any:
    vm.recorder.modes.append(args[0])
    return _enter(vm, args[0])


@rule(TorchFunctionMode.__exit__)
def _leave_mode(vm: Any, args: Any, kwargs: Any) -> None:
    _leave(vm, args[0])
    vm.recorder.modes.pop()


@rule(DisableTorchFunctionSubclass)
def _disable(vm: Any, args: Any, kwargs: Any) -> Any:
    made = DisableTorchFunctionSubclass()
    vm._noted(made)
    return made


@rule(DisableTorchFunctionSubclass.__enter__)
def _enter_disabled(vm: Any, args: Any, kwargs: Any) -> None:
    _enter(vm, args[0])
    stacks.subclass_functions_disabled += 1


@rule(DisableTorchFunctionSubclass.__exit__)
def _leave_disabled(vm: Any, args: Any, kwargs: Any) -> None:
    _leave(vm, args[0])
    stacks.subclass_functions_disabled -= 1


@rule(device.__enter__)
def _enter_device(vm: Any, args: Any, kwargs: Any) -> Any:
    """Of the device that is the default already: others would be in force in the graph too."""
    _set_device(vm, args, kwargs)
    return _enter(vm, args[0])


@rule(device.__exit__)
def _leave_device(vm: Any, args: Any, kwargs: Any) -> None:
    _leave(vm, args[0])


@rule(set_default_device)
def _set_device(vm: Any, args: Any, kwargs: Any) -> None:
    where = [*args, *kwargs.values()][0]
    if (CPU if where is None else device(where)) != get_default_device():
        raise Break(f"the default device becomes {where}")


@rule(get_default_device)
def _get_device(vm: Any, args: Any, kwargs: Any) -> Any:
    return get_default_device()
