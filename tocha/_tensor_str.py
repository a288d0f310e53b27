"""torch._tensor_str: the printer under torch's path."""

from __future__ import annotations

from typing import Any

from tocha import printing
from tocha.printing import *  # noqa: F403


def _str(self: Any, *, tensor_contents: Any = None) -> str:
    return str(printing.tensor_repr(self))


def _tensor_str(self: Any, indent: int) -> str:
    """The elements of a tensor as it prints them, indented."""
    text = str(printing.tensor_repr(self.detach().cpu()))
    inner = text[text.index("(") + 1 :].rsplit(")", 1)[0]
    return inner.replace("\n", "\n" + " " * (indent - len("tensor(")))
