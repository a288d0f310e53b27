"""The recorder: fakes for tensors, and a graph of the torch-level calls made on them.

A fake is a tensor without data (`tocha.aot.trace`): it runs every operator, write and view, with autograd's bookkeeping, as an eager
one would. While recording, a mode sees each public call and enters it into the graph, whoever makes it.
"""

from __future__ import annotations

import contextlib
import operator
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tocha import dtypes
from tocha._dynamo import examples, sizes
from tocha._dynamo.exc import Break, NotDynamic
from tocha._dynamo.frame import NULL
from tocha.amp.autocast_mode import autocast
from tocha.aot import trace
from tocha.aot.trace import TraceArray
from tocha.autograd import mode
from tocha.device import Size, device, layout, memory_format
from tocha.dispatch.override import NO_DISPATCH, PLAIN, alias_as, overloaded, stacks
from tocha.fx import Graph, GraphModule, Node
from tocha.overrides import BaseTorchFunctionMode
from tocha.tensor import Tensor, wrap_as

#: Calls that reach outside the graph.
_OUTSIDE = frozenset(
    (
        "backward", "register_hook", "register_post_accumulate_grad_hook", "retain_grad", "data_ptr", "is_shared", "__deepcopy__",
        "__reduce_ex__", "__setstate__", "numpy", "__array__", "tolist", "item", "untyped_storage", "storage", "share_memory_", "set_",
        "resize_", "resize_as_", "__dlpack__", "requires_grad_", "as_subclass", "_make_subclass", "vmap", "pin_memory",
    )
)  # fmt: skip
_OPERATORS: dict[str, Callable[..., Any]] = {
    "__add__": operator.add, "__sub__": operator.sub, "__mul__": operator.mul, "__truediv__": operator.truediv,
    "__floordiv__": operator.floordiv, "__mod__": operator.mod, "__pow__": operator.pow, "__matmul__": operator.matmul,
    "__and__": operator.and_, "__or__": operator.or_, "__xor__": operator.xor, "__lshift__": operator.lshift,
    "__rshift__": operator.rshift, "__lt__": operator.lt, "__le__": operator.le, "__eq__": operator.eq, "__ne__": operator.ne,
    "__gt__": operator.gt, "__ge__": operator.ge, "__neg__": operator.neg, "__pos__": operator.pos, "__invert__": operator.invert,
    "__abs__": operator.abs, "__getitem__": operator.getitem, "__setitem__": operator.setitem, "__iadd__": operator.iadd,
    "__isub__": operator.isub, "__imul__": operator.imul, "__itruediv__": operator.itruediv, "__ifloordiv__": operator.ifloordiv,
    "__imod__": operator.imod, "__ipow__": operator.ipow, "__iand__": operator.iand, "__ior__": operator.ior, "__ixor__": operator.ixor,
}  # fmt: skip
_REFLECTED = {f"__r{name[2:]}": op for name, op in _OPERATORS.items()}
_WRITES = frozenset(name for name in _OPERATORS if name.startswith("__i") and name != "__invert__") | {"__setitem__"}
#: Functions that give a tensor another shape or place on the tape.
_RESHAPING = frozenset("unsqueeze_ squeeze_ t_ transpose_ swapaxes_ swapdims_ as_strided_ detach_ unflatten_".split())
#: What to do about values that exist only when a graph runs.
REMEDY = "keep shapes fixed (masks, torch.where) and compute with tensors, or leave out fullgraph=True"
#: Functions of tensors that return no tensor, and the same whatever the sizes are.
_SIZELESS = frozenset("dim ndimension is_floating_point is_complex is_tensor element_size get_device is_inference is_signed".split())
_CONSTANTS = (
    int, float, complex, str, bytes, bool, type(None), type(...), dtypes.dtype, device, layout, memory_format, Size, range, np.generic, np.dtype,
)  # fmt: skip


def _nobody(*call: Any) -> Any:
    return NULL


class Recorder(BaseTorchFunctionMode):
    """Makes fakes of tensors and records what is done with them. `inputs` are the real tensors, in the placeholders' order."""

    def __init__(self) -> None:
        self.graph = self.root = Graph()
        self.nodes: dict[int, Node] = {}
        self.root_nodes = self.nodes
        self.modules: dict[str, GraphModule] = {}  # graphs within the graph
        self.inputs: list[Tensor] = []
        self.kept: list[Any] = []  # fakes, so that their ids stay theirs
        self.calls = self.checks = 0
        self.contexts: list[Any] = []  # autocasts entered and not yet left
        self.outer: set[int] = set()  # memory of inputs
        self.writes = False  # whether the graph writes to it
        self.varying = False  # whether some sizes are only examples
        self.fullgraph = False
        self.scalars = False  # whether numbers that only the graph knows may be asked for
        self.examples = self.by_example = False  # whether they may be decided by an example, and one was
        self.vm: Any = None  # the trace, while it runs
        self.grad = bool(mode.state.grad)
        self.modes: list[Any] = []  # of functions, entered in the trace
        self.opened: list[tuple[Any, int]] = []  # contexts entered and not yet left, and when
        self.ask: Callable[..., Any] = _nobody  # who is asked about a call before it is recorded
        self.where: Callable[[], str] | None = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls made inside, and leave the grad mode as it was."""
        before, disabled = mode.is_grad_enabled(), stacks.subclass_functions_disabled
        try:
            with trace.tracing(trace.Scratch()), self:
                yield
        finally:
            while self.contexts:
                self.contexts.pop().__exit__(None, None, None)
            stacks.subclass_functions_disabled, self.ask, self.vm = disabled, _nobody, None  # the trace isn't kept alive by a cycle
            if mode.is_grad_enabled() != before:
                mode._set_grad(before)

    def fake(self, t: Tensor, wish: str) -> Tensor:
        """The stand-in of a real tensor, an input of the graph."""
        if type(t) not in PLAIN or type(t) not in NO_DISPATCH:
            raise Break(f"a tensor of class {type(t).__name__}, which has its own __torch_function__ or __torch_dispatch__")
        if t._a.__class__ is not np.ndarray:
            raise Break(f"a tensor on {t.device}, or lazily conjugated: only CPU tensors are captured")
        if any(s < 0 for s in t._a.strides):
            raise Break("a tensor with negative strides")
        fake: Tensor = wrap_as(type(t), trace.placeholder("x", t._a))
        if t.requires_grad:
            fake._rg = True
            if not t.is_leaf:
                made = fake.view_as(fake)
                fake._node, fake._nr = made._node, made._nr
        node = self.root.placeholder(re.sub(r"_(modules|parameters|buffers)\b|\W+", "_", wish).strip("_") or "x")
        node.target = node.name
        node.meta["example_value"] = fake
        self.root_nodes[id(fake)] = node
        self.inputs.append(t)
        self.kept.append(fake)
        self.outer.add(id(fake._a.buffer))
        return fake

    def face(self, kind: type, t: Tensor, is_input: bool = False) -> Any:
        """A fake as an instance of a subclass with a __torch_function__."""
        nodes = self.root_nodes if is_input else self.nodes
        node = nodes.get(id(t))
        if node is None:
            raise Break("a tensor from outside what was captured is used")
        out = alias_as(kind, t)
        nodes[id(out)] = node
        self.kept.append(out)
        return out

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        got = self.ask(func, types, args, kwargs)
        if got is not NULL:
            return got
        name = func.__name__
        if name in _OUTSIDE:
            raise Break(f"Tensor.{name}() reaches outside the graph")
        if kwargs.get("requires_grad"):
            raise Break("a leaf that requires gradients is made")
        if name in ("__set__", "__delete__"):
            raise Break("a tensor's attribute is set")
        if name == "__iter__":
            return iter(self.__torch_function__(METHODS.unbind, types, (args[0], 0)))
        if self.examples:
            args, kwargs = examples.given(self.vm, args, REMEDY), {k: examples.given(self.vm, v, REMEDY) for k, v in kwargs.items()}
        before = self.nodes_of(args, kwargs)
        self.check_faces(name, args, kwargs)
        if self.varying:
            args, kwargs = sizes.concrete(args), sizes.concrete(kwargs)
        memory = [
            (t._a.buffer, t._a.buffer.version) for t in tensors_in([*args, *kwargs.values()]) if t._a.__class__ is TraceArray
        ]
        try:
            out = func(*args, **kwargs)
        except trace.DataDependent:
            if not self.examples:
                raise
            out = examples.result(self.vm, func, args, kwargs, REMEDY)
        self.record(func, name, before, out, [b for b, version in memory if b.version != version])
        return out

    def overridden(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a mode of the program's or a `__torch_function__` of an argument's class is to be asked."""
        if stacks.functions_disabled:
            return False
        return bool(self.modes or overloaded((*args, *kwargs.values())))

    def check_faces(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The graph has a plain alias of a subclass's instance: what is done to the instance as an object it can't do."""
        kinds = [type(t) for t in tensors_in([*args[:1], kwargs.get("out")]) if type(t) not in PLAIN]
        written = kinds and (writes_by_name(name) or kwargs.get("out") is not None)
        if written and (name in _RESHAPING or any(t._rg for t in tensors_in([*args, *kwargs.values()]))):
            raise Break(f"{name} on a {kinds[0].__name__} changes its shape or its gradient")

    def nodes_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Arguments as the graph has them."""
        return tuple([self.argument(a) for a in args]), {k: self.argument(v) for k, v in kwargs.items()}

    def argument(self, a: Any) -> Any:
        kind = a.__class__
        if isinstance(a, Tensor):
            node = self.nodes.get(id(a))
            if node is None:
                raise Break("a tensor from outside what was captured is used")
            return node
        if isinstance(a, _CONSTANTS):
            return a
        if kind is sizes.VaryingSize:
            return a.node
        if kind is sizes.Sizes:
            return tuple([self.argument(x) for x in a])
        if kind is tuple or kind is list:
            return kind([self.argument(x) for x in a])
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return kind(*[self.argument(x) for x in a])
        if kind is dict:
            return {k: self.argument(v) for k, v in a.items()}
        if kind is slice:
            return slice(self.argument(a.start), self.argument(a.stop), self.argument(a.step))
        if getattr(kind, "of_graph", False):
            raise Break(
                "a number that exists only when the graph runs is given to a function (as a size, an index or a bound)", REMEDY
            )
        raise Break(f"a {kind.__name__} is given to a function of the graph")

    def record(self, func: Any, name: str, given: tuple[Any, Any], out: Any, wrote: list[Any]) -> None:
        """Enter a call and its result."""
        args, kwargs = given
        self.writes = self.writes or any(id(b) in self.outer for b in wrote)
        writes = (
            bool(wrote) or writes_by_name(name) or kwargs.get("out") is not None
        )
        if not writes and not any(self.is_new(t) for t in tensors_in(out)):
            if self.varying and name not in _SIZELESS and not tensors_in(out):
                raise NotDynamic(name)
            return
        graph = self.graph
        if name == "__get__":
            node = graph.call_function(getattr, (args[0], property_name(func.__self__)), {})
        elif name in _OPERATORS and not kwargs:
            node = graph.call_function(_OPERATORS[name], args, {})
        elif name in _REFLECTED and len(args) == 2 and not kwargs:
            node = graph.call_function(_REFLECTED[name], args[::-1], {})
        elif getattr(func, "__qualname__", "").startswith("Tensor.") and args and isinstance(args[0], Node):
            node = graph.call_method(name, args, kwargs)
        else:
            node = graph.call_function(func, args, kwargs)
        self.calls += 1
        node.meta["writes"] = writes
        node.meta["example_value"] = out
        node.stack_trace = None if self.where is None else self.where()
        self.bind(out, node)
        if self.varying and out.__class__ in (tuple, list):
            self.check(sizes.check_length, node, len(out))

    @contextlib.contextmanager
    def subgraph(self, scope: Scope) -> Iterator[None]:
        """Record what is inside in a graph of its own."""
        outer = self.graph, self.nodes, self.modules
        self.graph, self.nodes, self.modules = scope.graph, scope, scope.modules
        try:
            yield
        finally:
            self.graph, self.nodes, self.modules = outer

    def check(self, function: Any, node: Any, expected: Any) -> None:
        """Enter a check that the graph makes when it runs."""
        self.graph.call_function(function, (node, expected), {})
        self.checks += 1

    def is_new(self, t: Tensor) -> bool:
        return id(t) not in self.nodes

    def bind(self, out: Any, node: Node) -> None:
        """Say which node a result is; containers' elements are taken apart."""
        if isinstance(out, Tensor):
            if out._a.__class__ is np.ndarray:
                out._a = trace.lift(out._a)  # made of numbers alone
            if out._a.__class__ is not TraceArray:
                raise Break("a result is a tensor from outside what was captured")
            if self.is_new(out):
                self.nodes[id(out)] = node
                self.kept.append(out)
        elif isinstance(out, (tuple, list)):
            for i, item in enumerate(out):
                if any(self.is_new(t) for t in tensors_in(item)):
                    self.bind(item, self.graph.call_function(operator.getitem, (node, i), {}))

    def set_grad(self, on: bool) -> None:
        """Switch gradients on or off, now and when the graph runs."""
        if mode.state.inference:
            raise Break("the grad mode is set in inference mode")
        mode._set_grad(on)
        self.graph.call_function(set_grad_mode, (on,), {})

    def enter_autocast(self, context: Any) -> None:
        """Enter an autocast made in the trace, now and when the graph runs."""
        context.__enter__()
        self.contexts.append(context)
        self.graph.call_function(enter_autocast, autocast_arguments(context), {})

    def exit_autocast(self, context: Any) -> None:
        """Leave it."""
        if not self.contexts or self.contexts[-1] is not context:
            raise Break("an autocast from outside what was captured is left")
        self.contexts.pop().__exit__(None, None, None)
        self.graph.call_function(exit_autocast, (), {})

    def close(self) -> list[tuple[Any, ...]]:
        """Leave what is open, in the graph too; the arguments of those to enter again after it, outermost first."""
        still_open = []
        while self.contexts:
            still_open.append(self.contexts[-1])
            self.exit_autocast(self.contexts[-1])
        return still_open[::-1]

    def module(self, outputs: list[Tensor]) -> GraphModule:
        """The graph as a module that returns the outputs, with the grad mode as it found it."""
        if mode.is_grad_enabled() != self.grad:
            self.graph.call_function(set_grad_mode, (self.grad,), {})
        self.graph.output(tuple([self.nodes[id(t)] for t in outputs]))
        return GraphModule(dict(self.modules), self.graph)


def writes_by_name(name: str) -> bool:
    """Whether a function is named as those are that write to their first argument."""
    return (name.endswith("_") and not name.endswith("__")) or name in _WRITES


class Scope(dict[int, Node]):
    """The nodes of a graph within a graph, by their tensors' ids: those of the graph around become inputs when asked for."""

    def __init__(self, outer: dict[int, Node]) -> None:
        super().__init__()
        self.outer, self.graph = outer, Graph()
        self.modules: dict[str, GraphModule] = {}
        self.given: list[Node] = []
        self.lifted: dict[Node, Node] = {}  # nodes around, and what stands for them

    def __missing__(self, key: int) -> Node:
        node = self.outer[key]
        if node not in self.lifted:
            self.lifted[node] = self.placeholder(node.name)
        self[key] = self.lifted[node]
        return self[key]

    def get(self, key: int, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or key in self.outer

    def placeholder(self, wish: str) -> Node:
        made: Node = self.graph.placeholder(wish)
        made.target = made.name
        return made

    def input(self, t: Tensor) -> None:
        """Make a tensor an input of its own."""
        self[id(t)] = self.placeholder("x")
        self.given.append(self[id(t)])

    def module(self, lifted: list[Node], outputs: list[Any]) -> GraphModule:
        """The graph, whose inputs are its own and then these nodes."""
        inputs = [*self.given, *[self.lifted.get(n) or self.placeholder(n.name) for n in lifted]]
        for node in reversed(inputs):
            next(iter(self.graph.nodes)).prepend(node)
        self.graph.output(tuple(outputs))
        return GraphModule(dict(self.modules), self.graph)


def set_grad_mode(on: bool) -> None:
    """torch._C._set_grad_enabled, as a node of graphs."""
    mode._set_grad(on)


def autocast_arguments(context: Any) -> tuple[Any, ...]:
    """What an autocast is made of."""
    return context.device, context.fast_dtype, context._enabled, context._cache_enabled


class _Open(threading.local):
    """Autocasts that graphs of this thread have entered."""

    def __init__(self) -> None:
        self.contexts: list[Any] = []


_open = _Open()


def enter_autocast(*arguments: Any) -> None:
    """torch.amp.autocast_mode._enter_autocast, as a node of graphs."""
    context = autocast(*arguments)
    context.__enter__()
    _open.contexts.append(context)


def exit_autocast() -> None:
    """torch.amp.autocast_mode._exit_autocast, as a node of graphs."""
    _open.contexts.pop().__exit__(None, None, None)


enter_autocast.impure = exit_autocast.impure = True  # type: ignore[attr-defined]


def leave_modes(grad: int) -> None:
    """After a graph that raised: the modes as they were before it."""
    while _open.contexts:
        exit_autocast()
    if bool(mode.state.grad) is not bool(grad) and not mode.state.inference:
        mode._set_grad(bool(grad))


set_grad_mode.impure = True  # type: ignore[attr-defined]
METHODS: Any = Tensor  # operators are attached to it at run time
_property_names: dict[int, str] = {}


def property_name(found: Any) -> str:
    """The name under which Tensor has a property."""
    if not _property_names:
        _property_names.update({id(v): k for c in Tensor.__mro__ for k, v in vars(c).items() if isinstance(v, property)})
    return _property_names[id(found)]


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in a result."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_in(item)]
    return []
