"""torch._dynamo.utils: counters, and what libraries ask of it."""

from __future__ import annotations

import collections
from typing import Any

__all__ = ["CompileProfiler", "counters", "is_compile_supported"]

#: What was captured: counters["frames"], ["stats"], ["graph_break"][reason], ["recompiles"][reason].
counters: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)


def is_compile_supported(device_type: Any) -> bool:
    """Whether code for this kind of device can be compiled."""
    return str(device_type) == "cpu"


class CompileProfiler:
    """A backend that counts graphs and runs them eagerly."""

    def __init__(self) -> None:
        self.frame_count = self.op_count = 0

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Any:
        self.frame_count += 1
        self.op_count += sum(n.op in ("call_function", "call_method", "call_module") for n in gm.graph.nodes)
        return gm.forward

    def report(self) -> str:
        """What was compiled, and why graphs broke."""
        breaks = "\n".join(f"  {n} × {why}" for why, n in counters["graph_break"].most_common())
        return f"{self.frame_count} graphs, {self.op_count} operations\ngraph breaks:\n{breaks or '  none'}"
