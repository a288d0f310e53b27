"""Custom autograd.Functions in a trace: forward and backward become graphs within the graph. So do hooks on what the trace computes.

    Function.apply(…) -> graphs.function(spec, forward graph, backward graph, tensors)
    x.register_hook(f) -> graphs.hook(x, graph, others)

Both are captured when the call is, so whatever Python decides in them is guarded as everything else. `ctx` is a plain object of the trace.
"""

from __future__ import annotations

from typing import Any

from tocha._dynamo import calls
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break, NotDynamic
from tocha._dynamo.recorder import METHODS
from tocha._dynamo.subgraphs import Captured, attribute, lifted_by, on_memory, stand_in, whole
from tocha._higher_order_ops import graphs
from tocha.autograd import mode
from tocha.autograd.function import Function
from tocha.dispatch.override import PLAIN, DisableTorchFunction
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_unflatten


class Context:
    """What a Function's forward and backward see as `ctx`."""

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Any, ...] = ()
        self._fixed: tuple[Any, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keep tensors for backward."""
        self.saved_tensors = tensors

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Say which outputs have no gradient."""
        self._fixed = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros or None where there is no gradient."""
        self._materialize = value


def _static(cls: type, name: str) -> Any:
    found = calls.lookup(cls, name)
    if not isinstance(found, staticmethod):
        raise Break(f"a Function whose {name} is no static method")
    fn = found.__func__
    wrapped: Any = getattr(fn, "__wrapped__", fn)
    return wrapped if fn.__globals__.get("__name__") == Function.__module__ else fn  # under once_differentiable


@rule(Function.apply.__func__)  # type: ignore[attr-defined]
@whole
def _apply(vm: Any, args: Any, kwargs: Any) -> Any:
    cls, *given = args
    if kwargs or vm.recorder.varying:
        raise NotDynamic if vm.recorder.varying else Break("a Function is applied to keyword arguments")
    for name in ("forward", "backward", "setup_context", "jvp", "vmap"):
        vm.world.constant(cls).check(f"{name} is as it was", "getattr({v}, {c0}) is {c1}", name, getattr(cls, name))
    tensors = [a for a in given if isinstance(a, Tensor)]
    with DisableTorchFunction():
        needs = tuple([isinstance(a, Tensor) and a.requires_grad for a in given])
        recording = mode.is_grad_enabled() and any(needs)
    ctx = Context(needs)
    vm._noted(ctx)
    forward = _forward(vm, cls, ctx, given)
    results = [x for x in forward.leaves if isinstance(x, Tensor)]
    captured = [forward, *([_backward(vm, cls, ctx, given, results)] if recording else [])]
    recorder = vm.recorder
    nodes = list(dict.fromkeys([*[recorder.argument(t) for t in tensors], *lifted_by(captured)]))
    spec = graphs.FunctionSpec(
        len(results), tuple([nodes.index(recorder.argument(a)) if isinstance(a, Tensor) else -1 for a in given]),
        tuple([i for i, r in enumerate(results) if any(r is f for f in ctx._fixed)]),
        tuple([i for i, n in enumerate(nodes) if n in captured[-1].scope.lifted]),
    )  # fmt: skip
    graph = [attribute(vm, name, c, nodes) for name, c in zip(("function_forward", "function_backward"), captured, strict=False)]
    node = recorder.graph.call_function(graphs.function, (spec, *graph, *([None] if len(graph) == 1 else []), tuple(nodes)))
    recorder.calls += 1
    with DisableTorchFunction():
        outs = [
            on_memory(r._a, recording and i not in spec.fixed and (r._a.dtype.kind in "fc" or r.is_floating_point()))
            for i, r in enumerate(results)
        ]
    node.meta["example_value"] = tuple(outs)
    recorder.bind(tuple(outs), node)
    made = iter(outs)
    leaves = [next(made) if isinstance(x, Tensor) else x for x in forward.leaves]
    return tree_unflatten(leaves, forward.spec)


def _forward(vm: Any, cls: type, ctx: Context, given: list[Any]) -> Captured:
    """Forward without recording, as eager mode runs it; what it saves comes after its results."""
    old = calls.lookup(cls, "setup_context") is calls.lookup(Function, "setup_context")
    run = _static(cls, "forward")
    with mode.no_grad():
        made = Captured(vm, "autograd.Function", run, (ctx, *given) if old else tuple(given), watched=tuple(given), shares=True)
        if not old:
            out = tree_unflatten(made.leaves, made.spec)
            made.run(_static(cls, "setup_context"), (ctx, tuple(given), out))
        made.close([*[x for x in made.leaves if isinstance(x, Tensor)], *ctx.saved_tensors])
    return made


def _backward(vm: Any, cls: type, ctx: Context, given: list[Any], results: list[Tensor]) -> Captured:
    """Backward, of tensors like those that forward saved and of gradients."""
    saved = ctx.saved_tensors
    with DisableTorchFunction():
        kept = [s if s is None else stand_in(s, False) for s in saved]
        grads = [stand_in(r, False) for r in results]
    ctx.saved_tensors = tuple(kept)
    fresh = [*[k for k in kept if k is not None], *grads]
    made = _later(vm, f"{cls.__name__}.backward", _static(cls, "backward"), (ctx, *grads), fresh)
    if len(made.leaves) < len(given) or any(x is not None for x in made.leaves[len(given) :]):
        raise Break(f"{cls.__name__}.backward returns {len(made.leaves)} gradients for {len(given)} inputs")
    for a, g in zip(given, made.leaves, strict=False):
        if g is not None and not (isinstance(a, Tensor) and isinstance(g, Tensor)):
            raise Break(f"{cls.__name__}.backward returns a gradient for what is no tensor")
    return made


def _later(vm: Any, name: str, fn: Any, args: tuple[Any, ...], fresh: list[Tensor]) -> Captured:
    """A function that backward calls. Of what it reads outside, numbers are those of now and changed tensors an error, as in torch.compile."""
    try:
        with mode.no_grad():
            return Captured(vm, name, fn, args, fresh, clone=True, watched=())
    except Exception as error:  # which the program hasn't raised
        raise Break(f"{name} raises {type(error).__name__} where forward is called: {error}") from error


class Handle:
    """A hook's handle in a trace. The hook is one on a tensor that only the graph has, or `made` by the epilogue."""

    of_graph = True

    def remove(self) -> None:
        """Remove the hook."""


@rule(Handle.remove)
def _remove(vm: Any, args: Any, kwargs: Any) -> Any:
    raise Break("a hook is removed")


def _registering(name: str) -> None:
    @rule(getattr(METHODS, name))
    def register(vm: Any, args: Any, kwargs: Any) -> Any:
        x, fn = args
        outside, nested = vm.world.source_of(x) is not None, vm.recorder.graph is not vm.recorder.root
        with DisableTorchFunction():
            leaf = outside and x.is_leaf
            if type(x) not in PLAIN or nested or not x.requires_grad or (name != "register_hook" and not leaf):
                raise Break(f"Tensor.{name}() of this tensor")
        if not outside:
            return _hook(vm, args, kwargs)
        handle = Handle()
        vm._noted(handle)
        vm.world.hooked.append((x, name, fn, handle))
        return handle


_registering("register_hook")
_registering("register_post_accumulate_grad_hook")


@whole
def _hook(vm: Any, args: Any, kwargs: Any) -> Any:
    x, fn = args
    recorder = vm.recorder
    if recorder.varying:
        raise NotDynamic
    with DisableTorchFunction():
        g = stand_in(x, False)
    made = _later(vm, "a hook", fn, (g,), [g])
    (new,) = made.leaves if len(made.leaves) == 1 else (...,)
    if isinstance(new, Tensor) and (new._a.shape, new._a.dtype) == (x._a.shape, x._a.dtype):
        lifted = lifted_by([made])
        recorder.graph.call_function(graphs.hook, (recorder.argument(x), attribute(vm, "hook", made, lifted), tuple(lifted)))
        recorder.calls += 1
    elif new is not None:
        raise Break("a hook returns something else than a gradient of its tensor's shape and type")
    handle = Handle()
    vm._noted(handle)
    return handle
