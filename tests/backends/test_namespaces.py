"""Every name that kernels take from their namespace exists on both backends, with a CuPy of version 14 or without.

Names are collected from the source of tocha.prims and tocha.ops (`xp.NAME`) and by running each pointwise rule on a handler
that notes what it is asked for. CuPy's own names are stored in cupy_names.json, so that this needs no CuPy.
"""

from __future__ import annotations

import ast
import inspect
import json
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocha
from tocha.backends import _cuda_flags, _cuda_functions, cpu, cuda
from tocha.prims.pointwise import ALL, Pointwise
from tools.gpu_cases import PARAMETERS

PACKAGE = Path(tocha.__file__).parent
CUPY: dict[str, Any] = json.loads(Path(__file__).with_name("cupy_names.json").read_text())
# Asked only where `xp.name` is "meta" or "cuda", or modules whose names are looked up apart.
ELSEWHERE = {"MetaArray", "on", "run", "store"}
METHODS = {"at", "accumulate", "reduce", "reduceat", "outer"}


def attributes_of_xp(tree: ast.AST) -> list[ast.Attribute]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name) and n.value.id == "xp"]


def sources() -> list[Path]:
    return sorted([*(PACKAGE / "prims").glob("*.py"), *(PACKAGE / "ops").glob("*.py")])


def names_in_sources() -> dict[str, str]:
    found = {}
    for path in sources():
        for node in attributes_of_xp(ast.parse(path.read_text())):
            found.setdefault(node.attr, f"{path.name}:{node.lineno}")
    return found


class Noting:
    """The CPU namespace, noting the names it is asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        self.names.add(name)
        return getattr(cpu, name)


def names_in_rule(rule: Pointwise) -> set[str]:
    handler = Noting()
    parameters = {n: PARAMETERS[n] for n in inspect.getfullargspec(rule.impl).kwonlyargs}
    for dtype in ("f8", "i8") if "complex" in rule.refuse else ("f8", "i8", "c16"):
        operands = [np.full((2, 2), 1, dtype) for _ in rule.arguments]
        try:
            with np.errstate(all="ignore"):
                rule.impl(handler, *operands, **parameters)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            assert dtype != "f8" or "float" in rule.refuse
    return handler.names


def on_cuda(name: str) -> bool:
    own = name in vars(cuda) or name in vars(_cuda_functions) or name in vars(_cuda_flags)
    return own or cuda._SPELLING.get(name, name) in CUPY["cupy"] or name in CUPY["special"] or name in ("fft", "linalg")


SOURCE_NAMES = names_in_sources()


@pytest.mark.parametrize("name", sorted(SOURCE_NAMES))
def test_names_that_kernels_use(name: str) -> None:
    where = SOURCE_NAMES[name]
    if name == "MetaArray":
        return
    assert on_cuda(name), f"{where}: xp.{name} is neither CuPy's nor in the tables of backends.cuda"
    if name not in ELSEWHERE:
        assert hasattr(cpu, name), f"{where}: backends.cpu has no {name}"


@pytest.mark.parametrize("rule", ALL.values(), ids=lambda r: r.name)
def test_names_that_pointwise_rules_use(rule: Pointwise) -> None:
    for name in names_in_rule(rule):
        assert on_cuda(name), f"{rule.name} uses {name}"


@pytest.mark.parametrize("path", sources(), ids=lambda p: p.name)
def test_kernels_use_no_ufunc_methods_and_only_known_transforms(path: Path) -> None:
    """CuPy has `at` and `accumulate` for a few functions and types only: the namespaces have combine_at and scan."""
    tree = ast.parse(path.read_text())
    inner = {id(n): n for n in attributes_of_xp(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node.value) in inner:
            parent = inner[id(node.value)].attr
            assert not (node.attr in METHODS and parent not in ("fft", "linalg")), (
                f"{path.name}:{node.lineno}: xp.{parent}.{node.attr}"
            )
            if parent in ("fft", "linalg"):
                assert node.attr in CUPY[parent], f"{path.name}:{node.lineno}: CuPy has no {parent}.{node.attr}"


def test_own_tables_shadow_nothing_by_accident() -> None:
    """Functions and flags are looked up in one namespace."""

    def own(module: types.ModuleType) -> set[str]:
        return {n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__ and n[0] != "_"}

    public, flags = own(_cuda_functions), own(_cuda_flags)
    assert "add_reduce" in public and "sdp_kernel" in flags
    assert not public & flags
    assert not (public | flags) & own(cuda)


def test_names_that_python_has_stay_pythons_in_the_cpu_namespace():
    assert cpu.max is np.max
    assert "max" not in vars(cpu)
