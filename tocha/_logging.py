"""torch._logging: which parts of the compiler's log are written. TOCHA_LOGS and TORCH_LOGS name the same parts."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["getArtifactLogger", "set_logs"]

_LOGGERS = ("dynamo", "aot", "inductor")


def set_logs(*, all: int | None = None, modules: dict[str, int | bool] | None = None, **parts: int | bool | None) -> None:
    """Write these parts from now on, and no others: `set_logs(guards=True, recompiles=True, output_code=True)`; `dynamo`, `aot` and
    `inductor` take a level of `logging`, at INFO or below all of their parts. Parts of torch that tocha has no log of are ignored."""
    from tocha._dynamo import report

    chosen = {name for name, value in parts.items() if value and (name not in _LOGGERS or value <= logging.INFO)}
    report.chosen.clear()
    report.chosen.update(report.PARTS if all is not None and all <= logging.INFO else chosen)
    report.listen()


def getArtifactLogger(module_qname: str, artifact_name: str) -> Any:
    """The logger of a part in a module."""
    return logging.getLogger(f"{module_qname}.__{artifact_name}")
