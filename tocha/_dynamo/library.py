"""Rules for functions of the standard library and of this package that programs call in a trace: each means there what it means outside."""

from __future__ import annotations

import copy
import inspect
import operator
import re
import sys
from typing import Any

import tocha
from tocha import _checks, settings
from tocha._dynamo import calls
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break, Restart
from tocha._dynamo.generators import Generator
from tocha._dynamo.subgraphs import State, whole
from tocha.aot import trace
from tocha.autograd.mode import is_grad_enabled
from tocha.autograd.profiler import record_function
from tocha.dispatch.overload import OpNamespace, OpOverload, OpOverloadPacket
from tocha.dispatch.override import DisableTorchFunction
from tocha.library import CustomOpDef
from tocha.nn import Module, ModuleDict, ModuleList, Sequential, parameter
from tocha.nn.modules.lazy import LazyModuleMixin
from tocha.ops import linalg_norm
from tocha.prims import native_rows
from tocha.tensor import Tensor
from tocha.utils import checkpoint as _checkpointing

#: Arguments of `checkpoint` that say how to save and recompute, which a graph decides by itself.
_HOW = frozenset(("use_reentrant", "determinism_check", "debug", "early_stop", "preserve_rng_state"))


@rule(_checkpointing.checkpoint)
@whole
def _checkpoint(vm: Any, args: Any, kwargs: Any) -> Any:
    """The call: what is kept for backward and what is computed again is decided for the graph as a whole. Writes to tensors happen once, as in
    torch.compile; a function that changes objects runs again in backward, so it isn't captured."""
    if kwargs.get("context_fn") not in (None, _checkpointing.noop_context_fn):
        raise Break("checkpoint with a context_fn")
    with DisableTorchFunction():
        if kwargs.get("use_reentrant") and not any(isinstance(a, Tensor) and a.requires_grad for a in args):
            raise Break("a reentrant checkpoint of arguments that don't require gradients, whose results don't either")
    state = State(vm, args[0], args[1:])
    got = vm.nested(args[0], args[1:], {k: v for k, v in kwargs.items() if k not in _HOW and k != "context_fn"})
    if is_grad_enabled() and state.changed():
        raise Break("checkpoint of a function that changes objects")
    return got


def _of_generators(*methods: Any) -> None:
    for method in methods:

        @rule(method)
        def go_on(vm: Any, args: Any, kwargs: Any, method: Any = method) -> Any:
            return method(*args)


_of_generators(Generator.send, Generator.throw, Generator.close)


calls.ALLOWED.add(linalg_norm.norms)


@rule(native_rows.fused_update)
def _fused_update(vm: Any, args: Any, kwargs: Any) -> Any:
    """Leaves all rows to ordinary operators."""
    return range(len(next(iter(args[1].values()))))


@rule(parameter.gradients)
def _gradients(vm: Any, args: Any, kwargs: Any) -> Any:
    return [vm.getattr(p, "grad") for p in vm.listed(args[0])]


@rule(sys.exception)
def _exception(vm: Any, args: Any, kwargs: Any) -> Any:
    if vm.handled is not None:
        raise Break("sys.exception() while an exception is handled")


@rule(sys.exc_info)
def _exc_info(vm: Any, args: Any, kwargs: Any) -> Any:
    if vm.handled is not None:
        raise Break("sys.exc_info() while an exception is handled")
    return None, None, None


def initialize(layer: Any, args: Any, kwargs: Any) -> None:
    """Give a lazy layer its parameters, if it has none yet; the trace starts again."""
    if isinstance(layer, LazyModuleMixin) and "_initialize_hook" in vars(layer):
        with DisableTorchFunction(), trace.tracing(None):
            layer._infer_parameters(layer, args, kwargs)
        raise Restart(-id(layer), "a lazy layer gets its parameters")


@rule(OpNamespace.__getattr__, OpOverloadPacket.__getattr__)
def _operator_of(vm: Any, args: Any, kwargs: Any) -> Any:
    """torch.ops' objects, of which there is one for each name."""
    found, source = getattr(*args), vm.world.source_of(args[0])
    if source is not None:
        source.check(f"{args[1]} is the same operator", "getattr({v}, {c0}) is {c1}", args[1], found)
    return found


@rule(OpOverload.__call__, OpOverloadPacket.__call__, CustomOpDef.__call__)
def _called_by_name(vm: Any, args: Any, kwargs: Any) -> Any:
    """An operator of a library is a node of its own: its kernel isn't looked into."""
    op, *given = args
    if isinstance(op, CustomOpDef):
        vm._recognised(op)
        if op.composite is not None:
            return vm.call(op.composite, tuple(given), kwargs)
        op = op._opoverload
    try:
        with DisableTorchFunction():
            return vm.recorder.__torch_function__(op.default if isinstance(op, OpOverloadPacket) else op, (), tuple(given), kwargs)
    except Exception as error:  # of the fake implementation, which the program hasn't called
        raise Break(str(error)) from error


def until(function: Any, sentinel: Any) -> Any:
    """`iter` with a sentinel; a trace inlines it."""
    while (item := function()) != sentinel:
        yield item


def by_position(items: Any) -> Any:
    """`iter` of an object that has items and no `__iter__`; a trace inlines it."""
    number = 0
    while True:
        try:
            item = items[number]
        except IndexError:
            return
        yield item
        number += 1


def from_end(items: Any) -> Any:
    """`reversed` of an object that has items; a trace inlines it."""
    for number in range(len(items) - 1, -1, -1):
        yield items[number]


@rule(reversed)
def _reversed(vm: Any, args: Any, kwargs: Any) -> Any:
    method = vm.of_program(args[0], "__reversed__")
    if method is not None:
        return vm.nested(method, args)
    return vm.call_native(reversed, args, kwargs) if vm.of_program(args[0], "__getitem__") is None else vm.nested(from_end, args)


def _of_data(*functions: Any) -> None:
    """Functions that run as they are on builtin data."""
    for function in functions:

        @rule(function)
        def run(vm: Any, args: Any, kwargs: Any, function: Any = function) -> Any:
            if not all(map(calls.is_data, (*args, *kwargs.values()))):
                raise Break(f"{calls.title(function)} of objects")
            return function(*args, **kwargs)


_of_data(hash, copy.copy, copy.deepcopy, tocha.promote_types, tocha.can_cast, re.sub, re.split, re.findall)


def _matching(*functions: Any) -> None:
    """Functions of data that give an object which never changes."""
    for function in functions:

        @rule(function)
        def match(vm: Any, args: Any, kwargs: Any, function: Any = function) -> Any:
            if not all(map(calls.is_data, (*args, *kwargs.values()))):
                raise Break(f"{calls.title(function)} of objects")
            made = function(*args, **kwargs)
            if made is not None:
                vm._noted(made)
            return made


_matching(re.match, re.search, re.fullmatch)


@rule(record_function)
def _record_function(vm: Any, args: Any, kwargs: Any) -> Any:
    made = record_function(*args, **kwargs)
    vm._noted(made)
    return made


@rule(record_function.__enter__)
def _enter_region(vm: Any, args: Any, kwargs: Any) -> Any:
    return args[0]


@rule(record_function.__exit__)
def _leave_region(vm: Any, args: Any, kwargs: Any) -> None:
    """Nothing: a graph has no regions."""


@rule(settings._assert)
def _assert(vm: Any, args: Any, kwargs: Any) -> None:
    if not vm.truth(args[0]):
        raise AssertionError(*args[1:])


@rule(_checks.assert_all)
def _assert_all(vm: Any, args: Any, kwargs: Any) -> None:
    vm.recorder.graph.call_function(_checks.assert_all, (vm.recorder.argument(args[0]), args[1]))
    vm.recorder.calls += 1


@rule(operator.methodcaller)
def _methodcaller(vm: Any, args: Any, kwargs: Any) -> Any:
    made = operator.methodcaller(*args, **kwargs)
    vm._noted(made)
    return made


def _about_functions(*functions: Any) -> None:
    """Questions about functions' and classes' own kind."""
    for function in functions:

        @rule(function)
        def ask(vm: Any, args: Any, kwargs: Any, function: Any = function) -> Any:
            return function(*args)


_about_functions(
    inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isfunction, inspect.ismethod, inspect.isclass,
)  # fmt: skip


def cached(vm: Any, fn: Any, args: Any, kwargs: Any) -> Any:
    """A call of a function under functools.lru_cache with data, perhaps on an object: what its cache gives, outside the trace too."""
    own = args[:1] if args and not calls.is_data(args[0]) else ()
    known = [vm.world.known.get(id(x)) for x in own]
    if not all(map(calls.is_data, (*args[len(own) :], *kwargs.values()))) or any(k is None or k.real is not k.value for k in known):
        raise Break(f"a call of {calls.title(fn)}, which keeps its results, with objects")
    if own and vm.world.overlay:
        raise Break(f"a call of {calls.title(fn)}, which keeps its results, after something was written")
    source = vm.world.constant(fn)
    with DisableTorchFunction(), trace.tracing(None):
        got = fn(*args, **kwargs)
    if calls.is_constant(got) and not own:
        return got
    if own:
        source = known[0].source.child("{0}({}, *{1}, **{2})", f"{calls.title(fn)}", fn, args[1:], kwargs)
    else:
        source = source.child("{}(*{0}, **{1})", f"{calls.title(fn)}", args, kwargs)
    return vm.world.enter(got, source)


def stateless(vm: Any, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A layer of torch.nn made in a trace: one without parameters, or one that holds others; None for classes that are neither."""
    if not calls.ours(lookup_module(cls)) or not _plain(args, kwargs, issubclass(cls, (Sequential, ModuleList, ModuleDict))):
        return None
    with DisableTorchFunction():
        made = cls(*args, **kwargs)
    own = [t for table in ("_parameters", "_buffers") for t in vars(made)[table].values() if t is not None]
    inside = [m for m in made.children() if vm.world.source_of(m) is None and id(m) not in vm.layers]
    if own or inside:
        return None
    vm.layers[id(made)] = made
    vm._noted(made)
    return made


def lookup_module(cls: type) -> str:
    """Where the class gets its `__init__` and `__setattr__` from."""
    owner = next(c for c in cls.__mro__ if "__init__" in vars(c))
    return owner.__module__ if calls.lookup(cls, "__setattr__") is calls.MODULE_SETATTR else ""


def _plain(args: Any, kwargs: Any, holds: bool) -> bool:
    def plain(v: Any) -> bool:
        if holds and isinstance(v, Module):
            return True
        if holds and isinstance(v, (list, tuple)):
            return all(map(plain, v))
        if holds and isinstance(v, dict):
            return all(isinstance(k, str) for k in v) and all(map(plain, v.values()))
        return calls.is_data(v)

    return all(map(plain, (*args, *kwargs.values())))
