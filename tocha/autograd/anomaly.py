"""Anomaly mode: remember where each node was made, and when backward fails or makes a NaN, say which forward line did it."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from typing import Any

from tocha.autograd.graph import _PACKAGE_FOLDER, Node
from tocha.autograd.mode import state


class Anomaly:
    """What `state.anomaly` holds while the mode is on."""

    def __init__(self, check_nan: bool) -> None:
        self.check_nan = check_nan

    def remember(self, node: Node) -> None:
        """Keep the user's part of the stack with the node."""
        frames = [f for f in traceback.extract_stack() if not f.filename.startswith(_PACKAGE_FOLDER)]
        node.metadata["traceback_"] = traceback.format_list(frames)

    def apply(self, node: Node, grad: Any) -> Sequence[Any]:
        """node.apply with its errors explained and its results checked for NaN."""
        try:
            outs = node.apply(grad)
        except Exception:
            warnings.warn(f"Error detected in {node.name()}. {_forward(node)}", UserWarning, stacklevel=4)
            raise
        if self.check_nan:
            for i, g in enumerate(outs):
                if g is not None and bool((g != g).any()):
                    warnings.warn(f"Error detected in {node.name()}. {_forward(node)}", UserWarning, stacklevel=4)
                    raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
        return outs


def _forward(node: Node) -> str:
    lines = node.metadata.get("traceback_")
    if not lines:
        return "No forward pass information available. Enable detect anomaly during forward pass for more information."
    return "Traceback of forward call that caused the error:\n" + "".join(lines)


class set_detect_anomaly:
    """Switch anomaly mode, as a function or a context manager (torch docs: torch.autograd.set_detect_anomaly)."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.previous = state.anomaly
        state.anomaly = Anomaly(check_nan) if mode else None
        state.refresh()

    def __enter__(self) -> None:
        """The mode was switched when this was made."""

    def __exit__(self, *exc: object) -> None:
        state.anomaly = self.previous
        state.refresh()


class detect_anomaly:
    """Anomaly mode inside a with block (torch docs: torch.autograd.detect_anomaly)."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging.",
            UserWarning,
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self.previous = state.anomaly
        state.anomaly = Anomaly(self.check_nan)
        state.refresh()

    def __exit__(self, *exc: object) -> None:
        state.anomaly = self.previous
        state.refresh()


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on in this thread."""
    return state.anomaly is not None


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly mode also looks for NaN."""
    return state.anomaly is not None and state.anomaly.check_nan
