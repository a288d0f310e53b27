"""What a graph is compiled to: a Python function, and the globals that it calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tocha.aot.data import Made, Opaque
from tocha.fx.graph_module import compile_source


@dataclasses.dataclass
class Wrapper:
    """`source` is the function `forward(inputs)`, `names` its globals, `kernels` what was built; `made` says of each what to keep of it."""

    source: str
    names: dict[str, Any]
    kernels: list[Any]
    inputs: list[tuple[str, tuple[int, ...]]] = dataclasses.field(default_factory=list)  # their names and strides
    made: dict[str, Any] = dataclasses.field(default_factory=dict)


def empty(shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> Any:
    """A new array with these strides, of which none is negative."""
    out = np.empty(shape, dtype)
    if out.strides == strides or not out.size:
        return out
    reach = dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    return np.ndarray(shape, dtype, np.empty(reach // dtype.itemsize, dtype), 0, strides)


class Runner:
    """A compiled graph."""

    def __init__(self, wrapper: Wrapper) -> None:
        self.wrapper, self.code = wrapper, wrapper.source
        self.call = compile_source(wrapper.source, wrapper.names)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        return self.call(inputs)

    def described(self) -> Made:
        """What makes the graph in another process. Opaque."""
        w = self.wrapper
        made, w.made = w.made, {}  # which would keep nodes alive
        if int in map(type, made.values()):
            raise Opaque("an address")
        return Made(Runner, (Wrapper(w.source, made, [], w.inputs),))

    def bind(self, fixed: dict[int, Any]) -> Any:
        """The function of the other inputs where some, by number, are always these arrays; None if one isn't laid out as expected."""
        names = self.wrapper.inputs
        if any(a.strides != names[i][1] for i, a in fixed.items()):
            return None
        taken = [names[i][0] for i in fixed]
        rest = "".join(f"{name}, " for i, (name, _) in enumerate(names) if i not in fixed)
        skipped = tuple(f"    if {name}.strides != " for name in taken)
        lines = [line for line in self.code.splitlines()[2:] if not line.startswith(skipped)]
        text = "".join(f"    {line}\n" for line in [f"    {rest}= inputs" if rest else "    pass", *lines])
        source = f"def forward({', '.join(taken)}):\n    def bound(inputs):\n{text}    return bound\n"
        return compile_source(source, self.wrapper.names)(*fixed.values())
