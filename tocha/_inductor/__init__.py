"""Inductor: graphs of primitives to native code.

    simplify  →  schedule (what is stored, which loops are one)  →  epilogues (which of them a product does)
              →  kernels (loop IR)  →  wrapper (Python that calls them)

`tocha.inductor` below it is the loop IR with its printers, templates, threads and cache, which eager kernels are made of too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tocha._inductor import config
from tocha._inductor.options import compile, list_mode_options, list_options
from tocha._inductor.runner import Runner
from tocha.fx import Graph, Node
from tocha.inductor import service


def compile_graph(graph: Graph, constants: Mapping[int, Any] | None = None) -> Runner:
    """Compile a graph of primitives (tocha.aot). The result maps a list of arrays to a list of new arrays.

    `constants`: arrays that never change, by the number of their placeholder (tocha._inductor.freeze)."""
    # Loaded here: a graph that another process compiled does without.
    from tocha._inductor import epilogues, freeze, nodes, row_kernels, samples, schedule, simplify, wrapper

    service.be_patient()
    if constants:
        freeze.freeze(graph, constants)
    simplify.simplify(graph)
    samples.by_samples(graph, compile_graph)
    graph.lint()
    given_memory: set[Node] = set()
    while True:  # nodes that turn out to need memory get it, at most each once
        try:
            plan = schedule.schedule(graph, given_memory)
            epilogues.fuse(plan)
            return Runner(wrapper.wrap_up(graph, plan))
        except nodes.Wraps as wraps:
            if wraps.node in given_memory:
                raise AssertionError(f"inductor: {wraps.node.format_node()} can't be read though it has memory") from None
            given_memory.add(wraps.node)
        except row_kernels.Alone as alone:
            for node in alone.nodes:
                node.meta["alone"] = True


def _prepare(graph: Graph) -> None:
    from tocha._inductor.decompose import decompose

    decompose(graph)


compile_graph.prepare = _prepare  # type: ignore[attr-defined]


def freezing(constants: Mapping[int, Any], **about: bool) -> Callable[[Graph], Any]:
    """The inductor's compiler for graphs whose placeholders of these numbers are constants. `about` them: `varying` says that they come in
    many sizes (tocha._inductor.varying), `max_autotune` that choices are timed (tocha._inductor.autotune)."""

    def compiler(graph: Graph) -> Any:
        graph.meta.update(about)
        return compile_graph(graph, None if graph.meta.get("part") == "backward" else constants)

    compiler.prepare = compile_graph.prepare  # type: ignore[attr-defined]
    return compiler


__all__ = ["compile", "compile_graph", "config", "freezing", "list_mode_options", "list_options"]
