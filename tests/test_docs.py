"""The documents name files and functions that exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/design.md", "docs/flow.md")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_are_named_exist(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    named = {path for path in re.findall(r"`([\w./]+\.(?:py|json|toml|md))`", text) if "<" not in path}
    linked = set(re.findall(r"\]\(([\w./]+\.\w+)(?:#\w+)?\)", text))
    files = [
        p.relative_to(ROOT).as_posix()
        for folder in ("tocha", "tests", "bench", "tools", "docs", ".ci")
        for p in (ROOT / folder).rglob("*")
    ]
    files += [p.name for p in ROOT.iterdir()]
    missing = [n for n in named if not any(f == n or f.endswith("/" + n) for f in files)]
    missing += [n for n in linked if not ((ROOT / document).parent / n).exists()]
    assert not missing


def test_functions_that_are_placed_in_a_file_are_there():
    text = " ".join((ROOT / "docs" / "flow.md").read_text(encoding="utf-8").split())
    placed = re.findall(r"`(?:\w+\.)?(\w+)`(?: \([^)]*\))? (?:in|of) `(tocha/[\w/]+\.py)`", text)
    assert len(placed) >= 5
    for name, path in placed:
        source = (ROOT / path).read_text(encoding="utf-8")
        assert re.search(rf"^\s*(def|class) {name}\b|^{name} =|^\s*\"{name}\",", source, re.MULTILINE), f"{name} in {path}"
