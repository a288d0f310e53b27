"""Operators of captured graphs whose operands are graphs: what `tocha._dynamo.subgraphs` records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.aot.trace import TraceArray
from tocha.tensor import Tensor

Function = Callable[..., tuple[Any, ...]]


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
