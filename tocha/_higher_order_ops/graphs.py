"""Operators of captured graphs whose operands are graphs: what `tocha._dynamo.subgraphs` records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tocha.aot.trace import TraceArray
from tocha.autograd.function import Function
from tocha.autograd.mode import no_grad
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_leaves, tree_unflatten


def cond(pred: Tensor, true_graph: Any, false_graph: Any, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors that one of the graphs returns, by the truth of `pred`."""
    if pred._a.__class__ is TraceArray:
        from tocha.aot import branches

        return branches.cond(pred, [true_graph.forward, false_graph.forward], operands)
    return tensors_of((true_graph if pred else false_graph).forward(*operands))


def while_loop(cond_graph: Any, body_graph: Any, carried: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`carried` after as many runs of the body as the condition holds; new tensors."""
    if any(t._a.__class__ is TraceArray for t in (*carried, *others)):
        from tocha.aot import branches

        return branches.while_loop(cond_graph.forward, body_graph.forward, carried, others)
    now = carried
    while cond_graph.forward(*now, *others)[0]:
        now = tensors_of(body_graph.forward(*now, *others))
    return tuple([t.clone() for t in now]) if now is carried else now


def tensors_of(result: Any) -> tuple[Tensor, ...]:
    """A graph's results without the numbers among them, which both branches return alike."""
    return tuple([t for t in result if isinstance(t, Tensor)])


class FunctionSpec(NamedTuple):
    """What a custom Function's graphs mean: forward returns `results` tensors and then what it saves; `arguments` are the numbers of the
    Function's arguments among the operands (-1: no tensor), `fixed` the results without a gradient, `read` the operands of backward."""

    results: int
    arguments: tuple[int, ...]
    fixed: tuple[int, ...]
    read: tuple[int, ...]


class _Function(Function):
    @staticmethod
    def forward(ctx: Any, spec: FunctionSpec, forward_graph: Any, backward_graph: Any, *operands: Tensor) -> tuple[Tensor, ...]:
        outs = forward_graph.forward(*operands)
        ctx.spec, ctx.backward_graph, ctx.count = spec, backward_graph, len(operands)
        ctx.save_for_backward(*outs[spec.results :], *[operands[i] for i in spec.read])
        ctx.mark_non_differentiable(*[outs[i] for i in spec.fixed])
        return tuple(outs[: spec.results])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        spec: FunctionSpec = ctx.spec
        saved = ctx.saved_tensors
        kept, read = saved[: len(saved) - len(spec.read)], saved[len(saved) - len(spec.read) :]
        operands = dict(zip(spec.read, read, strict=True))
        got = ctx.backward_graph.forward(
            *[k for k in kept if k is not None], *grads, *[operands.get(i) for i in range(ctx.count)]
        )
        found: list[Any] = [None] * ctx.count
        for i, g in zip(spec.arguments, got, strict=False):
            if g is not None:
                found[i] = g if found[i] is None else found[i] + g
        return None, None, None, *found


def function(spec: FunctionSpec, forward_graph: Any, backward_graph: Any, operands: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """A custom Function captured as graphs; without `backward_graph` no gradient was recorded."""
    if backward_graph is None:
        with no_grad():
            return tuple(forward_graph.forward(*operands)[: spec.results])
    return tuple(_Function.apply(spec, forward_graph, backward_graph, *operands))


def hook(x: Tensor, graph: Any, others: tuple[Tensor, ...]) -> None:
    """Have the graph give the gradient that goes on from x."""
    x.register_hook(lambda g: graph.forward(g, *others)[0])


hook.impure = True  # type: ignore[attr-defined]


class TransformSpec(NamedTuple):
    """A transform of torch.func: its name and options, the leaves of the arguments (... for tensors), and the structures of arguments
    ((positional, keyword), a jvp's tangents) and of the function's result."""

    name: str
    options: tuple[tuple[str, Any], ...]
    leaves: tuple[Any, ...]
    arguments: Any
    result: Any

    def __repr__(self) -> str:
        return f"<{self.name} {dict(self.options)}>"


def apply_transform(spec: TransformSpec, graph: Any, tensors: Sequence[Tensor], others: Sequence[Any]) -> Any:
    """The transformed graph's result."""
    from tocha import func

    def function(*args: Any, **kwargs: Any) -> Any:
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        return tree_unflatten(list(graph.forward(*given, *others)), spec.result)

    left, transform, options = iter(tensors), getattr(func, spec.name), dict(spec.options)
    (args, kwargs), more = tree_unflatten([next(left) if x is ... else x for x in spec.leaves], spec.arguments)
    if spec.name == "jvp":
        return transform(function, args, more, **options)
    if spec.name in ("vjp", "linearize"):
        return transform(function, *args, **options)
    return transform(function, **options)(*args, **kwargs)


def transform(spec: TransformSpec, graph: Any, tensors: tuple[Tensor, ...], others: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors in the transformed graph's result, and the function beside a vjp's or a linearization's."""
    return results_of(apply_transform(spec, graph, tensors, others))


class Structure(NamedTuple):
    """The structure of arguments, as an argument of a node."""

    spec: Any

    def __repr__(self) -> str:
        return "<arguments>"


def pull(function: Any, structure: Structure, leaves: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors in what a function that `transform` gave returns."""
    return results_of(function(*tree_unflatten(list(leaves), structure.spec)))


def results_of(result: Any) -> tuple[Any, ...]:
    """Its tensors and functions."""
    return tuple([x for x in tree_leaves(result) if isinstance(x, Tensor) or callable(x)])
