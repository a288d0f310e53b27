"""torch.func's transforms in a trace: `vmap(f)(x)`, `grad(f)(x)`, … The function becomes a graph within the graph, which the node transforms.

transform(name, options, graph, structures, operands, others)
"""

from __future__ import annotations

from typing import Any

from tocha import func
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break, NotDynamic
from tocha._dynamo.subgraphs import Captured, attribute, lifted_by, on_memory, whole
from tocha._higher_order_ops import graphs
from tocha.aot import trace
from tocha.backends.meta import MetaArray
from tocha.dispatch.override import DisableTorchFunction
from tocha.func._vmap import _read
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_flatten, tree_unflatten


class Transformed:
    """A transformed function of the trace."""

    def __init__(self, name: str, fn: Any, options: dict[str, Any]) -> None:
        self.name, self.fn, self.options = name, fn, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return call_transformed(self, args, kwargs)


def call_transformed(made: Transformed, args: Any, kwargs: Any) -> Any:
    """Replaced by its rule."""
    raise NotImplementedError


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


def _examples(made: Transformed, args: tuple[Any, ...], leaves: list[Any]) -> list[Tensor]:
    """What the function is given, for each tensor: of vmap a slice."""
    dims: list[Any] = [None] * len(leaves)
    if made.name == "vmap":
        _, _, dims, _ = _read(made.fn, made.options.get("in_dims", 0), args, {})
    found = []
    for x, d in zip(leaves, dims, strict=True):
        if isinstance(x, Tensor):
            shape = tuple([n for i, n in enumerate(x._a.shape) if i != d])
            found.append(on_memory(trace.placeholder("x", MetaArray(shape, x._a.dtype)), x.requires_grad or made.name != "vmap"))
    return found


@rule(call_transformed)
@whole
def _call(vm: Any, args: Any, kwargs: Any) -> Any:
    made, given, named = args
    if named or vm.recorder.varying:
        raise NotDynamic if vm.recorder.varying else Break(f"torch.func.{made.name} of a function with keyword arguments")
    leaves, spec = tree_flatten(given)
    if not all(isinstance(x, (Tensor, int, float)) for x in leaves):
        raise Break(f"torch.func.{made.name} of a function of objects", "give tensors and numbers")
    with DisableTorchFunction():
        fresh = _examples(made, given, leaves)
    inside = iter(fresh)
    arguments = tree_unflatten([next(inside) if isinstance(x, Tensor) else x for x in leaves], spec)
    captured = Captured(vm, f"torch.func.{made.name}", made.fn, arguments, fresh, watched=(), shares=True)
    captured.close(captured.leaves)
    lifted = lifted_by([captured])
    tensors = [x for x in leaves if isinstance(x, Tensor)]
    graph = attribute(vm, f"{made.name}_body", captured, lifted)
    recorder = vm.recorder
    shown = graphs.TransformSpec(made.name, tuple(made.options.items()), tuple([None if isinstance(x, Tensor) else x for x in leaves]),
                                 spec, captured.spec)  # fmt: skip
    node = recorder.graph.call_function(
        graphs.transform, (shown, graph, tuple([recorder.argument(t) for t in tensors]), tuple(lifted))
    )
    recorder.calls += 1
    with DisableTorchFunction():
        result = graphs.apply_transform(shown, recorder.modules[graph.target], tensors, _stand_ins(vm, lifted))
    outs, out_spec = tree_flatten(result)
    node.meta["example_value"] = tuple([o for o in outs if isinstance(o, Tensor)])
    recorder.bind(node.meta["example_value"], node)
    return tree_unflatten(outs, out_spec)


def _stand_ins(vm: Any, nodes: list[Any]) -> list[Tensor]:
    """The tensors of the trace that are at nodes of the present graph."""
    found = {dict.get(vm.recorder.nodes, id(t)): t for t in vm.recorder.kept}
    return [found[n] for n in nodes]
