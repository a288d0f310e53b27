"""Gradients of gradients of a compiled function: backward with `create_graph` runs the function once more, operator by operator."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha import autograd, random
from tocha.amp.autocast_mode import autocast
from tocha.aot import run
from tocha.aot.joint import Traced
from tocha.aot.partition import ancestors
from tocha.autograd.graph import Node, Version, check_saved, check_unchanged
from tocha.autograd.mode import INFERENCE_USED, enable_grad, set_grad_enabled
from tocha.backends.meta import MetaArray
from tocha.dispatch.autocast import current
from tocha.tensor import Tensor, wrap


def _may_draw(target: Any) -> bool:
    return "random" in getattr(target, "tags", ()) or (getattr(target, "impure", False) and target is not run.check)


def needs(traced: Traced) -> tuple[list[int], bool, str]:
    """The inputs that gradients depend on, whether random numbers are drawn, and why the function can't run again, if it can't."""
    graph = traced.graph
    reached = ancestors([g for g in graph.output_node().args[0][traced.values + len(traced.mutated) :] if g is not None])
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    read = [i for i in range(traced.inputs) if placeholders[i] in reached]
    needed = [i for i in read if i not in traced.mutated]  # those written to have a history that leads here
    draws = [n for n in graph.nodes if _may_draw(n.target)]
    refusal = ""
    if any(isinstance(a, random.Generator) for n in draws for part in n.args if isinstance(part, tuple) for a in part):
        refusal = "it draws from a generator of its own"
    if len(read) > len(needed):
        refusal = "it overwrites an input that its gradients depend on"
    return needed, bool(draws), refusal


class Again:
    """A captured function, and which of its inputs gradients depend on: only those are held; others may be anything when it runs again."""

    def __init__(
        self, function: Callable[..., Sequence[Any]], traced: Traced, recording: bool, inputs: Sequence[Tensor], known: Any = None
    ) -> None:
        """`known`: what `needs` says of the graph, if that isn't there."""
        self.function, self.traced, self.recording = function, traced, recording
        state = current()
        self.cast, self.dtype = state.enabled["cpu"], state.dtypes["cpu"]
        self.like = [MetaArray(t._a.shape, t._a.dtype, t._a.strides) for t in inputs]
        found: tuple[list[int], bool, str] = known or needs(traced)
        self.needed, self.draws, self.refusal = self.known = found

    def rng(self) -> Any:
        """The state of the random numbers, if the function draws any."""
        return random.get_rng_state() if self.draws else None

    def gradients(
        self, node: Node, tensors: Sequence[tuple[Version, Tensor]], rng: Any, grads: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        """Gradients of the wanted inputs, with a history, by the needed inputs and the random numbers' state of the call."""
        if self.refusal:
            raise RuntimeError(
                f"torch.compile does not support double backward of this function: {self.refusal}. Call the function outside "
                "torch.compile (torch._dynamo.disable) where create_graph=True is needed"
            )
        check_saved([t for _, t in tensors] if INFERENCE_USED else ())
        for version, tensor in tensors:
            check_unchanged(version, node, tensor)
        known = dict(zip(self.needed, [t for _, t in tensors], strict=True))
        with enable_grad():
            starts = [self._start(i, known.get(i)) for i in range(self.traced.inputs)]
            seen = [s.clone() if i in self.traced.mutated else s for i, s in enumerate(starts)]
        with (
            random.fork_rng() if self.draws else contextlib.nullcontext(),
            autocast("cpu", self.dtype, self.cast, False),
            set_grad_enabled(self.recording),
        ):
            if self.draws:
                random.set_rng_state(rng)
            outs = self._outputs(self.function(*seen), seen)
        pairs = [(outs[i], g) for i, g in zip(self.traced.differentiable, grads, strict=True) if g is not None]
        wanted = [starts[i] for i in self.traced.wanted]
        return autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], create_graph=True, allow_unused=True)

    def _start(self, i: int, given: Tensor | None) -> Tensor:
        """Input i, its history leading to the given one's, but without the hooks on that."""
        if given is not None:
            return given.view_as(given) if given.requires_grad else given
        like = self.like[i]
        made = wrap(run.laid_out(np.zeros(like.shape, like.dtype), like.strides))
        return made.requires_grad_() if i in self.traced.wanted else made

    def _outputs(self, results: Sequence[Any], seen: list[Tensor]) -> list[Any]:
        """The values and new values of inputs that the graph returns, in its order."""
        traced = self.traced
        outs: list[Any] = [None] * traced.values
        for r, got in zip(traced.results, results, strict=True):
            if r.kind == "value":
                outs[r.index] = got
            elif r.kind == "value view" and got._view is not None:  # a view of what has no history needs no record
                outs[r.index] = got._view.base
        return [*outs, *[seen[i] for i in traced.mutated]]
