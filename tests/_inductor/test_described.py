"""Kernels found by what they compute: equal parts of graphs share one, a second process writes none, and other parts never get it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph, described
from tocha.aot import runtime
from tocha.inductor import cache, entry, memo

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
import tocha as torch, tocha.nn.functional as F
from tocha._inductor import compile_graph, described
from tocha.aot import runtime
from tocha.inductor import jit, memo
from tocha.inductor.templates import epilogue
memo.sources = lambda: "sources"  # which may be edited meanwhile
counts = {"compiled": 0, "written": 0, "finishers": 0}
def counting(module, name, kind):
    old = getattr(module, name)
    def new(*args, **kwargs):
        counts[kind] += 1
        return old(*args, **kwargs)
    setattr(module, name, new)
counting(jit, "compile_object", "compiled")
counting(described.Part, "_as_data", "written")
counting(epilogue, "finisher", "finishers")
def f(x, w, b):
    for _ in range(3):
        x = F.layer_norm(F.gelu(F.linear(x, w, b)) + x, (256,))
    return [x.softmax(-1), (x * 2).sum(0), torch.sigmoid(x[:, 3:])]
torch.manual_seed(0)
args = torch.randn(128, 256), torch.randn(256, 256) / 16, torch.randn(256)
with torch.no_grad():
    call = runtime.compile(f, args, compile_graph)
    found = counts | {"kernels": len(call.forward.wrapper.kernels)}
    for got, want in zip(call(*args), f(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    found["sum"], found["compiled"] = float(sum(t.double().sum() for t in call(*args))), counts["compiled"]
print(json.dumps(found))
"""


def process(folder: Path) -> dict[str, Any]:
    """What a fresh process that uses the folder as its cache counts."""
    given = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"}
    given |= {"TOCHA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT), "TOCHA_COMPILE": "strict"}
    got = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=given, timeout=120)
    assert got.returncode == 0, got.stderr
    return dict(json.loads(got.stdout))


def notes(folder: Path) -> list[Path]:
    return [p for p in (folder / "kernels").iterdir() if p.read_bytes()[32:].startswith(b"{")]


@pytest.mark.slow
def test_a_second_process_writes_nothing(tmp_path: Path) -> None:
    first, second = process(tmp_path), process(tmp_path)
    assert first["compiled"] > 0
    assert 0 < first["written"] < first["kernels"]  # layers share theirs
    assert second == first | {"compiled": 0, "written": 0, "finishers": 0}


@pytest.mark.slow
def test_notes_that_are_no_good_count_for_nothing(tmp_path: Path) -> None:
    first = process(tmp_path)
    found = notes(tmp_path)
    assert len(found) > 4
    whole = [json.loads(p.read_bytes()[32:]) for p in found]
    bad = [b"", b"{", b"[1, 2]", json.dumps({}).encode(), json.dumps(whole[0] | {"object": "0" * 40}).encode()]
    bad += [json.dumps(n | {"imports": ["no_such_function"]}).encode() for n in whole[:1]]
    bad += [json.dumps(n | {"data": [1]}).encode() for n in whole]
    for path, text in zip(found, bad, strict=False):
        path.unlink()
        os.environ["TOCHA_CACHE_DIR"], before = str(tmp_path), os.environ.get("TOCHA_CACHE_DIR")
        cache.write(path.stem, text)
        os.environ.pop("TOCHA_CACHE_DIR")
        if before is not None:
            os.environ["TOCHA_CACHE_DIR"] = before
    second = process(tmp_path)
    assert second["compiled"] == 0 and second["written"] > 0 and second["sum"] == first["sum"]
    assert process(tmp_path) == first | {"compiled": 0, "written": 0, "finishers": 0}


@pytest.mark.slow
def test_processes_at_once_and_a_folder_that_is_no_use(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(process, [tmp_path / "shared"] * 2))
    assert found[0]["sum"] == found[1]["sum"]
    assert process(tmp_path / "shared")["compiled"] == 0
    (tmp_path / "file").write_text("")
    assert process(tmp_path / "file" / "below")["sum"] == found[0]["sum"]


def test_a_note_is_for_these_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))
    made: list[int] = []

    def make() -> tuple[Any, Any]:
        from tocha.inductor import pointwise

        made.append(1)
        part = pointwise.make("noted", lambda o, x: o.add(x, x), ("f64",), "f64", "f64", {}, 1, "11")
        return entry.build(part.kernel, part.grain), {"a": 1}

    for sources, count in (("one", 1), ("one", 1), ("two", 2), ("one", 2), ("", 3), ("", 4)):
        monkeypatch.setattr(memo, "sources", lambda s=sources: s)
        assert memo.builtin("what", make, bool)[1] == {"a": 1} and len(made) == count
    monkeypatch.setattr(memo, "sources", lambda: "one")
    assert memo.builtin(None, make, bool)[1] == {"a": 1} and len(made) == 5
    assert memo.builtin("else", make, bool)[1] == {"a": 1} and len(made) == 6


def words_of(function: Any, *inputs: Any) -> list[str]:
    """The words of the parts that a function's kernels compute."""
    found: list[str] = []
    old = described.Part.words

    def noting(self: described.Part) -> str | None:
        got = old(self)
        assert got is not None
        found.append(got)
        return got

    described.Part.words = noting  # type: ignore[method-assign]
    try:
        with torch.no_grad():
            call = runtime.compile(function, inputs, compile_graph)
            for got, want in zip(call(*inputs), function(*inputs), strict=True):
                torch.testing.assert_close(got, want, equal_nan=True)
    finally:
        described.Part.words = old  # type: ignore[method-assign]
    return found


X, Y = torch.linspace(-2, 2, 12).reshape(3, 4), torch.linspace(1, 3, 12).reshape(3, 4)
DIFFERENT: list[tuple[Any, ...]] = [
    (lambda x, y: [x * y], X, Y),
    (lambda x, y: [x + y], X, Y),
    (lambda x, y: [x - y], X, Y),
    (lambda x, y: [x * y], X.double(), Y.double()),
    (lambda x, y: [x * y], X.half(), Y.half()),
    (lambda x, y: [x * y], X.bfloat16(), Y.bfloat16()),
    (lambda x, y: [x * y], X.t(), Y.t()),
    (lambda x, y: [x * y], X[:2], Y[:2]),
    (lambda x, y: [x * y], X, Y[:1]),
    (lambda x, y: [x * 0.0 + y], X, Y),
    (lambda x, y: [x * -0.0 + y], X, Y),
    (lambda x, y: [x * 2.0 + y], X, Y),
    (lambda x, y: [x + y * 2.0], X, Y),
    (lambda x, y: [F.softplus(x, 1.0) + y], X, Y),
    (lambda x, y: [F.softplus(x, 2.0) + y], X, Y),
    (lambda x, y: [x.t() * y.t()], X, Y),
    (lambda x, y: [x[:, 1:] * y[:, 1:]], X, Y),
    (lambda x, y: [x[:, :-1] * y[:, :-1]], X, Y),
    (lambda x, y: [(x * y).sum(1)], X, Y),
    (lambda x, y: [(x * y).sum(0)], X, Y),
    (lambda x, y: [(x * y).amax(1)], X, Y),
    (lambda x, y: [(x * y).mean(1)], X, Y),
    (lambda x, y: [x * y, (x * y).exp()], X, Y),
    (lambda x, y: [(x * y).exp()], X, Y),
    (lambda x, y: [torch.where(x > 1, x, y)], X, Y),
    (lambda x, y: [torch.where(x > 2, x, y)], X, Y),
    (lambda x, y: [torch.where(x >= 1, x, y)], X, Y),
    (lambda x, y: [torch.full((3, 4), 2.0) * x * y], X, Y),
]  # fmt: skip


def test_other_parts_have_other_words() -> None:
    seen: dict[tuple[str, ...], int] = {}
    for number, (function, *inputs) in enumerate(DIFFERENT):
        words = tuple(words_of(function, *inputs))
        assert not words or words not in seen, (number, seen.get(words))
        assert words == tuple(words_of(function, *inputs))
        seen[words] = number
    assert len(seen) > len(DIFFERENT) - 4  # halves may be served by eager kernels


def test_equal_layers_share_a_kernel() -> None:
    def layers(x: Any) -> list[Any]:
        for _ in range(3):
            x = torch.tanh(x.cumsum(1)) * 3 + x
        return [x]

    words = words_of(layers, X)
    assert len(words) == 3 and len(set(words)) == 1
