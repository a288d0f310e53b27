"""torch.func's transforms in a trace: `vmap(f)(x)`, `grad(f)(x)`, … The function becomes a graph within the graph, which the node transforms.

transform(name, options, graph, structures, operands, others)
"""

from __future__ import annotations

import operator
from typing import Any

from tocha import func
from tocha._dynamo import calls
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break, NotDynamic
from tocha._dynamo.frame import NULL
from tocha._dynamo.guards import check_keys
from tocha._dynamo.subgraphs import Captured, attribute, lifted_by, on_memory, whole
from tocha._dynamo.world import changed
from tocha._higher_order_ops import graphs
from tocha.aot import trace
from tocha.backends.meta import MetaArray
from tocha.dispatch.override import PLAIN, DisableTorchFunction
from tocha.func._vmap import _read
from tocha.nn.utils.stateless import _untie
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_unflatten


class Transformed:
    """A transformed function of the trace."""

    def __init__(self, name: str, fn: Any, options: dict[str, Any]) -> None:
        self.name, self.fn, self.options = name, fn, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """In plain Python; a trace has the rule below."""
        return getattr(func, self.name)(self.fn, **self.options)(*args, **kwargs)


def _transforms(*names: str) -> None:
    for name in names:

        @rule(getattr(func, name))
        def transform(vm: Any, args: Any, kwargs: Any, name: str = name) -> Any:
            fn, *rest = args
            order = {"vmap": ("in_dims", "out_dims", "randomness"), "jacrev": ("argnums",)}.get(name, ("argnums", "has_aux"))
            made = Transformed(name, fn, {**dict(zip(order, rest, strict=False)), **kwargs})
            vm._noted(made)
            return made


_transforms("vmap", "grad", "grad_and_value", "jacrev", "jacfwd", "hessian")


class Pull:
    """The function beside `vjp`'s or `linearize`'s result; `run` is it on stand-ins, the graph's has the node of this object."""

    of_graph = True

    def __init__(self, run: Any) -> None:
        self.run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Only a trace has such objects; there the rule below is called."""
        raise NotImplementedError


def _examples(name: str, options: dict[str, Any], fn: Any, args: Any, leaves: list[Any]) -> list[Tensor]:
    """What the function is given, for each tensor: of vmap a slice."""
    dims: list[Any] = [None] * len(leaves)
    if name == "vmap":
        _, _, dims, _ = _read(fn, options.get("in_dims", 0), *args)
    found = []
    for x, d in zip(leaves, dims, strict=True):
        if isinstance(x, Tensor):
            shape = tuple([n for i, n in enumerate(x._a.shape) if i != d])
            found.append(on_memory(trace.placeholder("x", MetaArray(shape, x._a.dtype)), x.requires_grad or name != "vmap"))
    return found


def _given(vm: Any, name: str, args: Any) -> tuple[list[Any], Any]:
    """Leaves and structure of what a transformed function is called with."""
    if vm.recorder.varying:
        raise NotDynamic
    leaves, spec = tree_flatten(args)
    if not all(type(x) in PLAIN or calls.is_data(x) for x in leaves):
        raise Break(f"torch.func.{name} of a function of objects", "give tensors and data")
    return leaves, spec


def _transformed(vm: Any, name: str, fn: Any, options: dict[str, Any], args: Any, more: Any = ()) -> Any:
    """A transform of `fn` entered into the graph. `args`: (positional, keyword) arguments of fn; `more`: a jvp's tangents."""
    leaves, spec = _given(vm, name, (args, more))
    own, own_spec = tree_flatten(args)
    with DisableTorchFunction():
        fresh = _examples(name, options, fn, args, own)
    inside = iter(fresh)
    given, named = tree_unflatten([next(inside) if isinstance(x, Tensor) else x for x in own], own_spec)
    captured = Captured(vm, f"torch.func.{name}", fn, given, fresh, watched=(), shares=True, kwargs=named)
    captured.close(captured.leaves)
    lifted = lifted_by([captured])
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    graph = attribute(vm, f"{name}_body", captured, lifted)
    recorder = vm.recorder
    shown = graphs.TransformSpec(
        name, tuple(options.items()), tuple([... if isinstance(x, Tensor) else x for x in leaves]), spec, captured.spec
    )
    node = recorder.graph.call_function(
        graphs.transform, (shown, graph, tuple([recorder.argument(t) for t in tensors]), tuple(lifted))
    )
    with DisableTorchFunction():
        result = graphs.apply_transform(shown, recorder.modules[graph.target], tensors, _stand_ins(vm, lifted))
    return _entered(vm, node, result)


def _entered(vm: Any, node: Any, result: Any) -> Any:
    """A node's result in the trace, of which tensors and functions are the node's."""
    recorder = vm.recorder
    recorder.calls += 1
    outs, spec = tree_flatten(result)
    outs = [Pull(o) if callable(o) and not isinstance(o, Tensor) else o for o in outs]
    node.meta["example_value"] = tuple([o for o in outs if isinstance(o, (Tensor, Pull))])
    recorder.bind(node.meta["example_value"], node)
    for i, o in enumerate(node.meta["example_value"]):
        if isinstance(o, Pull):
            recorder.nodes[id(o)] = recorder.graph.call_function(operator.getitem, (node, i), {})
            vm._noted(o)
    return tree_unflatten(outs, spec)


@rule(Transformed.__call__)
@whole
def _call(vm: Any, args: Any, kwargs: Any) -> Any:
    made, *given = args
    return _transformed(vm, made.name, made.fn, made.options, (tuple(given), kwargs))


def _pulling(name: str) -> None:
    @rule(getattr(func, name))
    @whole
    def transform(vm: Any, args: Any, kwargs: Any) -> Any:
        return _transformed(vm, name, args[0], kwargs, (args[1:], {}))


_pulling("vjp")
_pulling("linearize")


@rule(func.jvp)
@whole
def _jvp(vm: Any, args: Any, kwargs: Any) -> Any:
    fn, primals, tangents = args
    return _transformed(vm, "jvp", fn, kwargs, (tuple(primals), {}), tuple(tangents))


@rule(Pull.__call__)
@whole
def _pull(vm: Any, args: Any, kwargs: Any) -> Any:
    pull, *given = args
    leaves, spec = _given(vm, "vjp", tuple(given))
    node = vm.recorder.graph.call_function(
        graphs.pull, (vm.recorder.nodes[id(pull)], graphs.Structure(spec), tuple(vm.recorder.argument(leaves)))
    )
    with DisableTorchFunction():
        result = pull.run(*given)
    return _entered(vm, node, result)


def _stand_ins(vm: Any, nodes: list[Any]) -> list[Tensor]:
    """The tensors of the trace that are at nodes of the present graph, and what pulls back."""
    found = {dict.get(vm.recorder.nodes, id(t)): t for t in (*vm.recorder.kept, *vm.world.kept)}
    return [getattr(found[n], "run", found[n]) for n in nodes]


@rule(func.functional_call)
@whole
def _functional_call(vm: Any, args: Any, kwargs: Any) -> Any:
    """The module's call while the trace takes these tensors for its attributes."""
    module, given, own, named = _call_arguments(*args, **kwargs)
    tables = given if isinstance(given, (list, tuple)) else (given,)
    values = {k: v for t in tables for k, v in vm.mapping(t).items()}
    tied = _untie(module, values) if kwargs.get("tie_weights", True) else values
    if len(values) < sum(map(len, tables)) or not all(isinstance(v, Tensor) for v in values.values()) or kwargs.get("strict"):
        raise Break("torch.func.functional_call with names given twice, what is no tensor, or strict")
    overlay, places = vm.world.overlay, {path: _place(vm, module, path) for path in tied}
    before = dict(overlay)
    overlay.update({place: tied[path] for path, place in places.items()})
    for of in {of for of, _ in places.values()}:
        owner = vm.world.known[of].real
        for table in ("_parameters", "_buffers"):
            check_keys(vm.world.known[of].source.attribute(table), owner.__dict__[table])
            overlay[of, table] = {n: v if v is None else vm.getattr(owner, n) for n, v in owner.__dict__[table].items()}
    shown = [(key, dict(overlay[key])) for key in overlay if isinstance(key[1], str) and key[1] in ("_parameters", "_buffers")]
    try:
        result = vm.nested(module, own if isinstance(own, tuple) else () if own is None else (own,), named)
        last = {path: overlay.pop(place, NULL) for path, place in places.items()}
        if any(changed(overlay.pop(key, {}), [*table.items()]) for key, table in shown) or any(v is NULL for v in last.values()):
            raise Break("torch.func.functional_call of a module that looks into its tables")
    finally:
        for key in (*places.values(), *[key for key, _ in shown]):
            overlay.pop(key, None)
        overlay.update({key: v for key, v in before.items() if key not in overlay})
    for table in tables:
        for path in [p for p in table if last[p] is not values[p]]:
            vm.setitem(table, path, last[path])
    return result


def _call_arguments(module: Any, tables: Any, args: Any = None, kwargs: Any = None, **how: Any) -> tuple[Any, Any, Any, Any]:
    return module, tables, args, kwargs


def _place(vm: Any, module: Any, path: str) -> tuple[int, str]:
    """The place of a module's tensor among what the trace has written."""
    *outer, name = path.split(".")
    for part in outer:
        module = vm.getattr(module, part)
    if vm.world.source_of(module) is None or not any(name in module.__dict__[t] for t in ("_parameters", "_buffers")):
        raise Break(f"torch.func.functional_call with {path}, which is no tensor of a module from before")
    return id(module), name
