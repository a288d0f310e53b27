"""Operators of libraries (tocha.library) in graphs of primitives: nodes that run a registered kernel on arrays, as an eager call does.

    node ::= call(Call, tensors…) -> outputs…, then new values of the tensors that the operator writes to
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tocha.amp.autocast_mode import autocast
from tocha.aot import trace
from tocha.autograd.mode import no_grad
from tocha.backends.meta import MetaArray
from tocha.dispatch.autocast import current
from tocha.library import CustomOpDef
from tocha.tensor import Tensor, wrap
from tocha.utils._pytree import tree_flatten, tree_unflatten


class Call:
    """A call in a node's arguments, shown short: its arguments but for tensors, and what it returns, as its fake says."""

    def __init__(self, op: CustomOpDef, args: tuple[Any, ...]) -> None:
        self.op, (leaves, self.spec) = op, tree_flatten(args)
        self.given = [x for x in leaves if isinstance(x, Tensor)]
        self.leaves = [... if isinstance(x, Tensor) else x for x in leaves]
        changed = [x for x in tree_flatten(op.written(args))[0] if isinstance(x, Tensor)]
        self.writes = [i for i, t in enumerate(self.given) if any(t is x for x in changed)]
        self.cast = "cpu", current().dtypes["cpu"], current().enabled["cpu"], False
        outs, self.returned = tree_flatten(op.run_fake(self.arguments([MetaArray(*_form(t._a)) for t in self.given])))
        if not all(isinstance(o, Tensor) or o is None for o in outs):
            raise NotImplementedError(f"{op._qualname} returns what is no tensor, which only its kernel knows")
        self.outs = [MetaArray(*_form(o._a)) if isinstance(o, Tensor) else o for o in outs]
        self.like = [o for o in self.outs if isinstance(o, MetaArray)]
        self.like += [MetaArray(*_form(self.given[i]._a)) for i in self.writes]

    def arguments(self, arrays: Any) -> Any:
        """The operator's arguments with these arrays for its tensors."""
        made = iter(arrays)
        return tree_unflatten([wrap(next(made)) if x is ... else x for x in self.leaves], self.spec)

    def __repr__(self) -> str:
        return self.op._qualname


def _form(a: Any) -> tuple[Any, ...]:
    return a.shape, a.dtype, a.strides


def call(made: Call, *arrays: Any) -> tuple[Any, ...]:
    """The kernel's results, in memory of their own."""
    arrays = tuple([a.copy("K") if i in made.writes else a for i, a in enumerate(arrays)])
    with no_grad(), autocast(*made.cast):
        got = [x for x in tree_flatten(made.op.run(made.arguments(arrays)))[0] if isinstance(x, Tensor)]
    outs = [x.resolve_conj().resolve_neg()._a for x in got]
    if [(a.shape, a.dtype) for a in outs] != [(a.shape, a.dtype) for a in made.like[: len(made.like) - len(made.writes)]]:
        raise RuntimeError(
            f"{made!r} returned {[f'{a.dtype}{list(a.shape)}' for a in outs]}, its fake implementation "
            f"{[f'{a.dtype}{list(a.shape)}' for a in made.like]}: register_fake must give the shapes and types of the results"
        )
    taken = list(arrays)
    for i, a in enumerate(outs):
        outs[i] = a.copy("K") if any(np.may_share_memory(a, b) for b in taken) else a
        taken.append(outs[i])
    return *outs, *[arrays[i] for i in made.writes]


call.impure = True  # type: ignore[attr-defined]  # it may draw random numbers


def enter(op: CustomOpDef, args: tuple[Any, ...]) -> Any:
    """The results of an operator in a trace."""
    made = Call(op, args)
    given, made.given = made.given, []
    node = trace.graph().call_function(call, (made, *[trace._node_of(t._a) for t in given]))
    if made.like:
        node.meta["val"] = tuple(made.like)
    parts = [trace.made(trace.graph().call_function(operator.getitem, (node, i)), a) for i, a in enumerate(made.like)]
    for i, new in zip(made.writes, parts[len(parts) - len(made.writes) :], strict=True):
        trace.store(given[i]._a, new)
    outs = iter(parts)
    return tree_unflatten([wrap(next(outs)) if isinstance(o, MetaArray) else o for o in made.outs], made.returned)
