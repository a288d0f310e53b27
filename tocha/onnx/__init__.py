"""torch.onnx: not there yet; names that libraries look for raise RuntimeError when called."""

from __future__ import annotations

from typing import Any

__all__ = ["export", "is_in_onnx_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic"]


def is_in_onnx_export() -> bool:
    """Whether a model is being exported: False."""
    return False


def export(*args: Any, **kwargs: Any) -> Any:
    """RuntimeError: there is no exporter."""
    raise RuntimeError(
        "torch.onnx.export: there is no ONNX exporter here; save the state_dict and export where torch is installed"
    )


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Any, opset_version: int) -> None:
    """Remember how an operator is to be exported: nothing reads it, since there is no exporter."""
    _SYMBOLICS[symbolic_name, opset_version] = symbolic_fn


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Forget it."""
    _SYMBOLICS.pop((symbolic_name, opset_version), None)


_SYMBOLICS: dict[tuple[str, int], Any] = {}
