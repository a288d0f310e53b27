"""Builtins and functions of this package that mean something of their own in a trace."""

from __future__ import annotations

import builtins
import dataclasses
import operator
from typing import Any

import tocha
from tocha import compiler, dtypes, jit
from tocha._dynamo import calls, library
from tocha._dynamo.arrays import Array
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break, Restart
from tocha._dynamo.generators import Generator
from tocha._dynamo.recorder import METHODS
from tocha._dynamo.scalars import Scalar
from tocha._dynamo.sizes import Sizes, VaryingSize, shape_of
from tocha.amp.autocast_mode import autocast
from tocha.autograd import mode
from tocha.device import Size, device
from tocha.dtypes import get_default_dtype
from tocha.nn import Module
from tocha.overrides import is_tensor_like
from tocha.tensor import Tensor


@rule(isinstance)
def _isinstance(vm: Any, args: Any, kwargs: Any) -> Any:
    """Of what stands for the value: the class is guarded."""
    if isinstance(args[0], (VaryingSize, Scalar)):
        args = (getattr(args[0], "kind", int)(), args[1])
    elif isinstance(args[0], Array):
        args = (args[0].like, args[1])
    elif isinstance(args[0], Sizes):
        args = (Size(()), args[1])
    kinds = args[1] if isinstance(args[1], tuple) else (args[1],)
    for i, k in enumerate(kinds):
        if calls.python_method(k, "__instancecheck__") and not calls.outside(type(k)) and type(k).__module__ not in ("abc", "typing"):
            if isinstance(args[0], kinds[:i]) or type(args[0]) is k or vm.truth(vm.nested(vm.special(k, "__instancecheck__"), (k, args[0]))):
                return True
            return _isinstance(vm, (args[0], kinds[i + 1 :]), {})
    return isinstance(*args)


@rule(issubclass)
def _issubclass(vm: Any, args: Any, kwargs: Any) -> Any:
    return issubclass(*args)


@rule(len)
def _len(vm: Any, args: Any, kwargs: Any) -> Any:
    (value,) = args
    method = vm.of_program(value, "__len__")
    if method is not None:
        return vm.nested(method, (value,))
    if isinstance(value, Tensor) and vm.recorder.varying:
        return shape_of(vm, value)[0]
    if vm.opaque(value):
        raise Break(f"len of a {type(value).__name__}")
    return len(value)


@rule(getattr)
def _getattr(vm: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 2:
        return vm.getattr(*args)
    try:
        return vm.getattr(*args[:2])
    except AttributeError:
        return args[2]


@rule(hasattr)
def _hasattr(vm: Any, args: Any, kwargs: Any) -> Any:
    obj, name = args
    try:
        vm.getattr(obj, name)
        return True
    except AttributeError:
        return False


@rule(setattr)
def _setattr(vm: Any, args: Any, kwargs: Any) -> None:
    vm.setattr(*args)


@rule(object.__setattr__)
def _set_plainly(vm: Any, args: Any, kwargs: Any) -> None:
    obj, name, value = args
    if isinstance(obj, (Tensor, type, Module)):
        raise Break("object.__setattr__")
    vm.set_plainly(obj, name, value)


@rule(delattr)
def _delattr(vm: Any, args: Any, kwargs: Any) -> None:
    vm.delattr(*args)


@rule(vars)
def _vars(vm: Any, args: Any, kwargs: Any) -> Any:
    if not args:
        raise Break("vars()")
    return vm.getattr(args[0], "__dict__")


@rule(iter)
def _iter(vm: Any, args: Any, kwargs: Any) -> Any:
    return vm.iter(args[0]) if len(args) == 1 else vm.nested(library.until, args)


@rule(next)
def _next(vm: Any, args: Any, kwargs: Any) -> Any:
    try:
        return vm.next(args[0])
    except StopIteration:
        if len(args) == 2:
            return args[1]
        raise


@rule(type)
def _type(vm: Any, args: Any, kwargs: Any) -> Any:
    if len(args) == 1 and isinstance(args[0], Generator):
        at = vm.made_at.get(id(args[0]))
        raise Break("the class of a generator is asked") if at is None else Restart(at, "the class of a generator is asked")
    if len(args) == 1:
        if isinstance(args[0], Array):
            return type(args[0].like)
        return args[0].kind if isinstance(args[0], Scalar) else {VaryingSize: int, Sizes: Size}.get(type(args[0]), type(args[0]))
    raise Break("a class is made")


@rule(builtins.__build_class__)
def _class(vm: Any, args: Any, kwargs: Any) -> Any:
    raise Break("a class is made")


@rule(super)
def _super(vm: Any, args: Any, kwargs: Any) -> Any:
    if args:
        return super(*args)
    f = vm.frames[-1]
    first = vm.load_local(f, f.code.co_varnames[0])
    if first.__class__.__name__ == "cell":
        first = vm.cell_get(first)
    return super(vm.cell_get(vm.load_local(f, "__class__")), first)


@rule(str)
def _str(vm: Any, args: Any, kwargs: Any) -> Any:
    return str(*args, **kwargs) if len(args) != 1 or kwargs else vm.text("__str__", args[0])


@rule(repr)
def _repr(vm: Any, args: Any, kwargs: Any) -> Any:
    return vm.text("__repr__", args[0])


@rule(format)
def _format(vm: Any, args: Any, kwargs: Any) -> Any:
    return vm.text("__format__", args[0], args[1] if len(args) > 1 else "")


@rule(str.format)
def _str_format(vm: Any, args: Any, kwargs: Any) -> Any:
    if not all(map(calls.is_data, (*args, *kwargs.values()))):
        raise Break("str.format of objects")
    return str.format(*args, **kwargs)


@rule(bool)
def _bool(vm: Any, args: Any, kwargs: Any) -> Any:
    return vm.truth(args[0]) if args else False


def _collecting(kind: Any) -> None:
    @rule(kind)
    def collect(vm: Any, args: Any, kwargs: Any) -> Any:
        if not args:
            return kind()
        items = vm.listed(args[0])
        if kind in (set, frozenset) and calls.compares_in_python(items):
            raise Break(f"a {kind.__name__} of objects that compare in Python")
        return kind(items)


for _kind in (list, tuple, set, frozenset):
    _collecting(_kind)


@rule(sum)
def _sum(vm: Any, args: Any, kwargs: Any) -> Any:
    total = kwargs.get("start", args[1] if len(args) > 1 else 0)
    for item in vm.listed(args[0]):
        total = vm.operate(operator.add, total, item)
    return total


def _quantifying(function: Any, stop: bool) -> None:
    @rule(function)
    def quantify(vm: Any, args: Any, kwargs: Any) -> Any:
        iterator = vm.iter(args[0])
        while True:
            try:
                item = vm.next(iterator)
            except StopIteration:
                return not stop
            if vm.truth(item) is stop:
                return stop


_quantifying(any, True)
_quantifying(all, False)


def _operators() -> None:
    for op in calls._DUNDERS:

        @rule(op)
        def operate(vm: Any, args: Any, kwargs: Any, op: Any = op) -> Any:
            return vm.operate(op, *args)


_operators()


@rule(operator.getitem)
def _getitem(vm: Any, args: Any, kwargs: Any) -> Any:
    return vm.getitem(*args)


@rule(operator.is_)
def _is(vm: Any, args: Any, kwargs: Any) -> Any:
    return vm.same(*args)


@rule(operator.is_not)
def _is_not(vm: Any, args: Any, kwargs: Any) -> Any:
    return not vm.same(*args)


class Identity(int):
    """An id in a trace: good for telling objects apart, but no number that may leave it."""


@rule(id)
def _id(vm: Any, args: Any, kwargs: Any) -> Any:
    vm.world.identified.append(args[0])
    got = Identity(id(args[0]))
    vm._noted(got)
    return got


@rule(print, input, open, exec, eval, compile, globals, locals, dir, breakpoint, __import__)
def _breaks(vm: Any, args: Any, kwargs: Any) -> Any:
    raise Break("a call of a builtin that looks or reaches outside")


# ---- torch


@rule(METHODS.size)
def _size(vm: Any, args: Any, kwargs: Any) -> Any:
    if not vm.recorder.varying:
        return METHODS.size(*args, **kwargs)
    shape = shape_of(vm, args[0])
    dim = args[1] if len(args) > 1 else kwargs.get("dim")
    return shape if dim is None else shape[dim]


@rule(METHODS.numel, METHODS.nelement, tocha.numel)
def _numel(vm: Any, args: Any, kwargs: Any) -> Any:
    return shape_of(vm, args[0]).numel() if vm.recorder.varying else METHODS.numel(*args, **kwargs)


@rule(mode._set_grad)
def _set_grad(vm: Any, args: Any, kwargs: Any) -> None:
    vm.recorder.set_grad(*args)


@rule(autocast)
def _autocast(vm: Any, args: Any, kwargs: Any) -> Any:
    if not all(map(calls.is_data, (*args, *kwargs.values()))):
        raise Break("autocast with something else than data")
    made = autocast(*args, **kwargs)
    vm._noted(made)
    return made


@rule(autocast.__enter__)
def _enter_autocast(vm: Any, args: Any, kwargs: Any) -> Any:
    made = args[0]
    if vm.world.source_of(made) is not None:
        made = autocast(*[vm.getattr(made, name) for name in ("device", "fast_dtype", "_enabled", "_cache_enabled")])
        vm._noted(made)
        vm.entered[id(made)] = args[0]
    vm.recorder.enter_autocast(made)
    return args[0]


@rule(autocast.__exit__)
def _exit_autocast(vm: Any, args: Any, kwargs: Any) -> None:
    last = vm.recorder.contexts[-1:]
    vm.recorder.exit_autocast(last[0] if last and vm.entered.get(id(last[0])) is args[0] else args[0])


@rule(is_tensor_like)
def _is_tensor_like(vm: Any, args: Any, kwargs: Any) -> bool:
    return isinstance(args[0], Tensor) or calls.lookup(type(args[0]), "__torch_function__") is not None


@rule(mode.is_grad_enabled)
def _grad_enabled(vm: Any, args: Any, kwargs: Any) -> bool:
    return mode.is_grad_enabled()


@rule(compiler.is_compiling, compiler.is_dynamo_compiling)
def _compiling(vm: Any, args: Any, kwargs: Any) -> bool:
    return True


@rule(compiler.is_exporting)
def _exporting(vm: Any, args: Any, kwargs: Any) -> bool:
    return compiler.is_exporting()


@rule(jit.is_scripting, jit.is_tracing, mode.is_inference_mode_enabled)
def _never(vm: Any, args: Any, kwargs: Any) -> bool:
    return False


def _native(function: Any) -> None:
    @rule(function)
    def call(vm: Any, args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)


for _function in (
    device,
    dtypes.finfo,
    dtypes.iinfo,
    get_default_dtype,
    tocha.is_autocast_enabled,
    tocha.get_autocast_dtype,
    dataclasses.is_dataclass,
):
    _native(_function)


@rule(dataclasses.fields)
def _fields(vm: Any, args: Any, kwargs: Any) -> Any:
    return dataclasses.fields(args[0] if isinstance(args[0], type) else type(args[0]))
