"""No module imports one of a layer above it while it is loaded. The import contract allows some such imports by name (a gradient rule
calls operators) without telling a module's head from a function's body; this test does."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Loaded from below all the same: the check for overrides and modes, which imports nothing above tensors, and forward mode's public face.
ALLOWED = frozenset((("autograd", "tocha.dispatch.override"), ("autograd", "tocha.dispatch")))


def layers() -> dict[str, int]:
    """The part of each name directly under tocha/, from the contract: 0 is the highest."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rows = next(c for c in contracts if c["id"] == "layers")["layers"]
    return {name.strip(" ()\n\\"): i for i, row in enumerate(rows) for name in re.split("[:|]", row)}


def at_load(body):
    """Import statements that run when a module is loaded."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from at_load(node.orelse)
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for field in ("body", "orelse", "finalbody", "handlers"):
                if isinstance(inner := getattr(node, field, None), list):
                    yield from at_load(inner)


def upward(source: str, module: tuple[str, ...], is_package: bool, rank: dict[str, int]) -> list[str]:
    """What a module of this name and text imports from layers above its own, with line numbers."""
    package = module if is_package else module[:-1]
    found = []
    for node in at_load(ast.parse(source).body):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        else:
            start = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join((*start, *([node.module] if node.module else [])))
            names = [f"{base}.{a.name}" for a in node.names] if base == "tocha" else [base]
        for name in names:
            parts = name.split(".")
            if parts[0] == "tocha" and rank.get(parts[1] if len(parts) > 1 else "", 99) < rank[module[1]]:
                if (module[1], name) not in ALLOWED:
                    found.append(f"line {node.lineno}: {name}")
    return found


def test_nothing_is_imported_upwards_when_a_module_loads():
    rank, faults = layers(), []
    for path in sorted((ROOT / "tocha").rglob("*.py")):
        parts = ("tocha", *path.relative_to(ROOT / "tocha").with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        module = parts[:-1] if is_package else parts
        if len(module) > 1 and module[1] in rank:
            faults += [
                f"{path.relative_to(ROOT)} {f}" for f in upward(path.read_text(encoding="utf-8"), module, is_package, rank)
            ]
    assert not faults


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from tocha.ops.matmul import mm", ["line 1: tocha.ops.matmul"]),
        ("try:\n    import tocha.ops\nexcept ImportError:\n    from tocha import nn", ["line 2: tocha.ops", "line 4: tocha.nn"]),
        ("class A:\n    from ..ops import load", ["line 2: tocha.ops"]),
        ("def f():\n    from tocha.ops.matmul import mm", []),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tocha import ops", []),
        ("from tocha import dtypes\nfrom tocha.tensor import Tensor\nfrom . import view", []),
    ],
)
def test_what_counts_as_upward(source, found):
    assert upward(source, ("tocha", "prims", "linalg"), False, layers()) == found
