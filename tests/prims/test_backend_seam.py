"""Kernels and fronts use the backend's namespace, `xp`, for everything and never ask which backend it is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tocha

PACKAGE = Path(tocha.__file__).parent
SOURCES = sorted(p for folder in ("prims", "ops", "dispatch") for p in (PACKAGE / folder).glob("*.py"))
BACKENDS = {"cpu", "cuda", "meta"}
# Functions whose answer itself depends on the kind of device, as torch documents it: no kernel is chosen.
FACTS = {
    ("convert.py", "type"): "torch.FloatTensor or torch.cuda.FloatTensor",
    ("linalg.py", "_check_driver"): "`driver=` is an argument for CUDA only",
    ("memory.py", "get_device"): "-1 on the CPU",
    ("memory.py", "pin_memory"): "memory of the CPU can be pinned",
}


def asks(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The function and line of each question for the backend: `xp.name`, `xp is cpu`, `x.is_cuda`, `namespace(…) is …`."""

    def walk(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.FunctionDef):
            function = node.name
        if isinstance(node, ast.Attribute):
            of_namespace = (isinstance(node.value, ast.Name) and node.value.id == "xp") or is_lookup(node.value)
            if node.attr == "is_cuda" or (node.attr in ("name", "__name__") and of_namespace):
                yield function, node.lineno
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any((isinstance(s, ast.Name) and s.id == "xp") or is_lookup(s) for s in sides) and any(
                isinstance(s, ast.Name) and s.id in BACKENDS for s in sides
            ):
                yield function, node.lineno
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(tree, "")


def is_lookup(node: ast.AST) -> bool:
    """Whether an expression gets a namespace: `namespace(a)`, `for_device(d)` or `(xp := …)`."""
    if isinstance(node, ast.NamedExpr):
        return node.target.id == "xp" or is_lookup(node.value)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("namespace", "for_device")


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_kernel_asks_for_its_backend(path: Path) -> None:
    found = [(function, line) for function, line in asks(ast.parse(path.read_text())) if (path.name, function) not in FACTS]
    assert not found, (
        f"{path.name} asks which backend it runs on: put the choice behind a function of tocha.backends (cpu, cuda, meta)"
    )


def test_facts_are_still_asked_for() -> None:
    used = {(p.name, function) for p in SOURCES for function, _ in asks(ast.parse(p.read_text()))}
    assert set(FACTS) <= used


@pytest.mark.parametrize(
    "line",
    [
        "if xp.name == 'cpu': pass", "if 'cuda' != xp.name: pass", "x = a if xp is meta else b", "if input.is_cuda: pass",
        "if namespace(a) is cpu: pass", "if (xp := namespace(a)).name != 'meta': pass", "if namespace(a).name == 'cpu': pass",
    ],
)  # fmt: skip
def test_questions_are_recognised(line: str) -> None:
    assert list(asks(ast.parse(f"def kernel(xp, input):\n  {line}")))


def test_uses_of_the_namespace_are_no_questions() -> None:
    kernel = "def kernel(xp, input, dim):\n  if prim.name == 'sum' or xp.size(input) == 0: return xp.total(input, dim, False)"
    assert not list(asks(ast.parse(kernel)))
