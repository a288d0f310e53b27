"""torch.export.graph_signature: what each input and output of an exported graph is."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class InputKind(enum.Enum):
    """What an input of the graph is."""

    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()


class OutputKind(enum.Enum):
    """What an output of the graph is."""

    USER_OUTPUT = enum.auto()


@dataclasses.dataclass(frozen=True)
class TensorArgument:
    """A tensor, by its node's name."""

    name: str


@dataclasses.dataclass(frozen=True)
class ConstantArgument:
    """A value that is the same in every run."""

    name: str
    value: Any


@dataclasses.dataclass(frozen=True)
class InputSpec:
    """An input; `target` is the name of the module's parameter, buffer or constant."""

    kind: InputKind
    arg: Any
    target: str | None = None
    persistent: bool | None = None


@dataclasses.dataclass(frozen=True)
class OutputSpec:
    """An output."""

    kind: OutputKind
    arg: Any
    target: str | None = None


@dataclasses.dataclass
class ExportGraphSignature:
    """Inputs and outputs of an exported graph in order. The graph writes to buffers in place, so that no output is a buffer's new value."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(s.target for s in self.input_specs if s.kind is kind and s.target is not None)

    def _by_input(self, kind: InputKind) -> dict[str, str]:
        return {s.arg.name: s.target for s in self.input_specs if s.kind is kind and s.target is not None}

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the lifted parameters."""
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        """Names of the lifted buffers."""
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        """Those of them that aren't in the state dict."""
        return tuple(
            s.target for s in self.input_specs if s.kind is InputKind.BUFFER and not s.persistent and s.target is not None
        )

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        """Names of other tensors of the module."""
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        """The arguments' leaves: names of nodes, or constant values."""
        return tuple(_shown(s.arg) for s in self.input_specs if s.kind is InputKind.USER_INPUT)

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        """The results' leaves: names of nodes, or constant values."""
        return tuple(_shown(s.arg) for s in self.output_specs)

    @property
    def inputs_to_parameters(self) -> dict[str, str]:
        """Parameter names by node."""
        return self._by_input(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> dict[str, str]:
        """Buffer names by node."""
        return self._by_input(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> dict[str, str]:
        """Constants' names by node."""
        return self._by_input(InputKind.CONSTANT_TENSOR)

    def __str__(self) -> str:
        lines = ["# inputs"]
        for s in self.input_specs:
            lines.append(
                f"{s.arg.name}: {s.kind.name}"
                + (f" target={s.target!r}" if s.target is not None else "")
                + (f" persistent={s.persistent}" if s.persistent is not None else "")
            )
        lines += ["", "# outputs", *[f"{getattr(s.arg, 'name', '')}: {s.kind.name}" for s in self.output_specs]]
        return "\n".join(lines) + "\n"


def _shown(arg: Any) -> Any:
    return arg.value if isinstance(arg, ConstantArgument) else arg.name
