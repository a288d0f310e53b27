"""torch.export: a module's whole computation for one set of inputs as a graph that needs none of its Python (torch docs: torch.export)."""

from __future__ import annotations

from tocha.export.capture import export
from tocha.export.dims import Dim, dims
from tocha.export.files import load, save
from tocha.export.program import ExportedProgram
from tocha.export.signature import ExportGraphSignature

__all__ = ["Dim", "ExportGraphSignature", "ExportedProgram", "dims", "export", "load", "register_dataclass", "save"]


def register_dataclass(cls: type, *, serialized_type_name: str | None = None) -> None:
    """Let a dataclass be an input or output: it is a container of its fields."""
    from tocha.utils._pytree import register_dataclass as register

    register(cls)
