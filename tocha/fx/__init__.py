"""Graphs of calls: recorded, changed, printed as Python, run (torch docs: torch.fx). The compiler's stages hand them on."""

from __future__ import annotations

from tocha.fx.codegen import PythonCode
from tocha.fx.graph import Graph
from tocha.fx.graph_module import GraphModule
from tocha.fx.interpreter import Interpreter, Transformer
from tocha.fx.node import Node, map_aggregate, map_arg
from tocha.fx.proxy import Proxy, TraceError, Tracer, symbolic_trace, wrap

__all__ = [
    "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "PythonCode", "TraceError", "Tracer", "Transformer", "map_aggregate", "map_arg",
    "symbolic_trace", "wrap",
]  # fmt: skip
