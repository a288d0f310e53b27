"""Inductor: graphs of primitives to native code.

    simplify  →  schedule (what is stored, which loops are one)  →  epilogues (which of them a product does)
              →  kernels (loop IR)  →  wrapper (Python that calls them)

`tocha.inductor` below it is the loop IR with its printers, templates, threads and cache, which eager kernels are made of too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tocha._inductor import config
from tocha._inductor.decompose import decompose
from tocha._inductor.epilogues import fuse
from tocha._inductor.freeze import freeze
from tocha._inductor.nodes import Wraps
from tocha._inductor.options import compile, list_mode_options, list_options
from tocha._inductor.row_kernels import Alone
from tocha._inductor.samples import by_samples
from tocha._inductor.schedule import schedule
from tocha._inductor.simplify import simplify
from tocha._inductor.wrapper import Runner, wrap_up
from tocha.fx import Graph, Node
from tocha.inductor import service


def compile_graph(graph: Graph, constants: Mapping[int, Any] | None = None) -> Runner:
    """Compile a graph of primitives (tocha.aot). The result maps a list of arrays to a list of new arrays.

    `constants`: arrays that never change, by the number of their placeholder (tocha._inductor.freeze)."""
    service.be_patient()
    if constants:
        freeze(graph, constants)
    simplify(graph)
    by_samples(graph, compile_graph)
    graph.lint()
    given_memory: set[Node] = set()
    while True:  # nodes that turn out to need memory get it, at most each once
        try:
            plan = schedule(graph, given_memory)
            fuse(plan)
            return Runner(wrap_up(graph, plan))
        except Wraps as wraps:
            if wraps.node in given_memory:
                raise AssertionError(f"inductor: {wraps.node.format_node()} can't be read though it has memory") from None
            given_memory.add(wraps.node)
        except Alone as alone:
            for node in alone.nodes:
                node.meta["alone"] = True


compile_graph.prepare = decompose  # type: ignore[attr-defined]

__all__ = ["compile", "compile_graph", "config", "list_mode_options", "list_options"]
