"""`torch.compile(…, check=True)`: a graph's first calls also run operator by operator, and the first operator that differs is named."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tocha import random
from tocha._dynamo.backends import Backend
from tocha._dynamo.exc import CheckFailed
from tocha.aot.runtime import memory_of
from tocha.fx import Graph, GraphModule
from tocha.tensor import Tensor

#: How many calls of each graph are checked.
CALLS = 3
_TOLERANCES = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-3, "complex64": 1e-3}


def checked(backend: Backend) -> Backend:
    """The backend with its graphs' first calls checked: CheckFailed where results or written inputs aren't eager's. Gradients and
    inputs that share memory aren't looked at."""

    def compile_checked(gm: Any, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        made, done = backend(gm, example_inputs, **options), 0

        def call(*inputs: Any) -> Any:
            nonlocal done
            if done >= CALLS or len(set(map(memory_of, inputs))) < len(inputs):
                return made(*inputs)
            done += 1
            first, state = _copies(inputs), random.get_rng_state()
            copies, got = _copies(inputs), made(*inputs)
            after = random.get_rng_state()
            random.set_rng_state(state)
            want = gm.forward(*copies)
            if not all(_close(a, b) for a, b in zip([*got, *inputs], [*want, *copies], strict=True)):
                raise CheckFailed(f"torch.compile(check=True): {_difference(backend, gm, first, options, state)}")
            random.set_rng_state(after)
            return got

        return call

    return compile_checked


def _copies(inputs: Sequence[Tensor]) -> list[Tensor]:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in inputs]


def _close(a: Any, b: Any) -> bool:
    if not isinstance(b, Tensor):
        return bool(a == b)
    tolerance = _TOLERANCES.get(b.dtype.name, 1e-6)
    return a.shape == b.shape and a.dtype is b.dtype and bool(a.detach().isclose(b.detach(), tolerance, tolerance, True).all())


def _difference(backend: Backend, gm: Any, inputs: list[Tensor], options: dict[str, Any], state: Any) -> str:
    """What differs first when every operator's result is asked for."""
    graph, nodes = Graph(), []
    copied: dict[Any, Any] = {}
    for node in gm.graph.nodes:
        if node.op != "output":
            copied[node] = graph.node_copy(node, copied.__getitem__)
            nodes += [node] if isinstance(node.meta.get("example_value"), Tensor) and node.op != "placeholder" else []
    graph.output(tuple([copied[n] for n in nodes]))
    module = GraphModule(dict(gm.named_children()), graph)
    module.meta.update(gm.meta)
    random.set_rng_state(state)
    got = backend(module, inputs, **options)(*_copies(inputs))
    random.set_rng_state(state)
    for node, a, b in zip(nodes, got, module.forward(*_copies(inputs)), strict=True):
        if not _close(a, b):
            return f"{node.format_node()} differs from eager mode's (at {node.stack_trace})"
    return "a result differs from eager mode's, though each operator's own agrees: fused with others it doesn't"
