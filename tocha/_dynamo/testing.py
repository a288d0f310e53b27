"""torch._dynamo.testing: backends that count."""

from __future__ import annotations

from typing import Any

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounter:
    """Runs graphs eagerly; `frame_count` graphs with `op_count` operations in all."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Start counting again."""
        self.frame_count = self.op_count = 0

    def __call__(self, gm: Any, example_inputs: list[Any], **options: Any) -> Any:
        self.frame_count += 1
        self.op_count += sum(n.op in ("call_function", "call_method", "call_module") for n in gm.graph.nodes)
        return gm.forward


class CompileCounterWithBackend(CompileCounter):
    """Counts, keeps the graphs, and compiles them with a named backend."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.backend = backend
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: list[Any], **options: Any) -> Any:
        from tocha._dynamo.backends import lookup_backend

        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        return lookup_backend(self.backend)(gm, example_inputs)


class EagerAndRecordGraphs:
    """Runs graphs eagerly and keeps them."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: list[Any], **options: Any) -> Any:
        self.graphs.append(gm)
        return gm.forward
