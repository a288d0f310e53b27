"""Checks the size budgets: lines of a file, code lines of the core, its kernels, the compiler, the operators and the whole package.

Code lines are lines that hold a token other than a comment, docstrings left out.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MAX_FILE_LINES = 600
MAX_PACKAGE = 76_000

# Folders and modules that share a budget: the machinery an eager call goes through; what takes its large calls to compiled kernels; the
# compiler's stages, from a function to machine code; and the library of operators (about eleven lines for each of torch's 850, most
# of them reading arguments and explaining errors as torch does).
BUDGETS: dict[str, tuple[frozenset[str], int]] = {
    "core": (
        frozenset("""tensor storage sharing dtypes device dispatch prims autograd backends threads settings""".split()),
        13_000,
    ),
    "kernels": (frozenset({"native"}), 3_700),
    "compiler": (frozenset("fx aot _inductor inductor _dynamo _functorch _higher_order_ops compiler".split()), 23_500),
    "ops": (frozenset({"ops"}), 10_500),
}
CHECKED = ("tocha", "tests", "tools", "bench")

_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def docstring_lines(tree: ast.Module) -> set[int]:
    """Numbers of the lines that docstrings take."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            lines.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return lines


def code_lines(source: str) -> int:
    """Count of lines of `source` that hold code."""
    used: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT:
            used.update(range(token.start[0], token.end[0] + 1))
    return len(used - docstring_lines(ast.parse(source)))


def part_of(path: Path) -> str:
    """Name of the module or folder directly under tocha/ that `path` belongs to; `native` for the front of the CPU's kernels."""
    part = path.relative_to(ROOT / "tocha").parts[0].removesuffix(".py")
    return "native" if part in ("backends", "prims") and path.name.lstrip("_").startswith("native") else part


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verbose", "-v", action="store_true", help="print code lines of each part")
    args = parser.parse_args(argv)

    faults: list[str] = []
    parts: Counter[str] = Counter()
    for folder in CHECKED:
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            length = source.count("\n") + (not source.endswith("\n") and bool(source))
            if length > MAX_FILE_LINES:
                faults.append(f"{path.relative_to(ROOT)}: {length} lines, at most {MAX_FILE_LINES}")
            if folder == "tocha":
                parts[part_of(path)] += code_lines(source)

    totals = {name: sum(parts[part] for part in members) for name, (members, _) in BUDGETS.items()}
    totals["package"] = sum(parts.values())
    limits = {name: limit for name, (_, limit) in BUDGETS.items()} | {"package": MAX_PACKAGE}
    faults += [f"{name}: {totals[name]} code lines, at most {limits[name]}" for name in limits if totals[name] > limits[name]]

    if args.verbose:
        for part, count in parts.most_common():
            print(f"{count:7} {part}")
    print("code lines:", ", ".join(f"{name} {totals[name]} of {limits[name]}" for name in limits))
    for fault in faults:
        print("over budget:", fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
