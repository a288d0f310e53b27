"""Whole graphs on disk: a second process compiles and traces nothing, other graphs get other entries, and what is no good counts for nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha.aot import journal, kept, runtime
from tocha.inductor import cache, memo

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json
import tocha as torch, tocha.nn.functional as F
from tocha._inductor import schedule
from tocha.aot import runtime
from tocha.inductor import jit, memo
memo.sources = lambda: "sources"  # which may be edited meanwhile
counts = {}
def counting(module, name):
    old = getattr(module, name)
    counts[name] = 0
    def new(*args, **kwargs):
        counts[name] += 1
        return old(*args, **kwargs)
    setattr(module, name, new)
counting(jit, "compile_object")
counting(runtime, "capture")
counting(runtime, "partition")
counting(schedule, "schedule")
@torch.compile
def f(x, w, b, y):
    h = F.relu(F.linear(x, w, b))
    y += h.detach().sum()
    return F.cross_entropy(h * 0.5, torch.arange(32) % 48), h.t(), x
torch.manual_seed(0)
x, w, b = torch.randn(32, 64), torch.randn(48, 64, requires_grad=True), torch.randn(48, requires_grad=True)
y = torch.zeros(3)
loss, h, same = f(x, w, b, y)
(loss + h.exp().mean()).backward()
assert same is x and h.stride() == (1, 48)
print(json.dumps([counts, loss.item(), w.grad.tolist(), b.grad.tolist(), y.tolist()]))
"""


def process(folder: Path) -> Any:
    """What a fresh process that uses the folder as its cache counts and computes."""
    given = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME"} | {"TOCHA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    got = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=given, timeout=120)
    assert got.returncode == 0, got.stderr
    return json.loads(got.stdout)


def test_a_second_process_traces_and_compiles_nothing(tmp_path: Path) -> None:
    first, second = process(tmp_path), process(tmp_path)
    assert min(first[0].values()) > 0 and set(second[0].values()) == {0}
    assert second[1:] == first[1:]


class Counting:
    """Calls of compiled functions that forget what was compiled before, and how often they were traced."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.traced = 0
        self.kernels = folder / "kernels"
        old = runtime.capture

        def capture(*args: Any) -> Any:
            self.traced += 1
            return old(*args)

        monkeypatch.setattr(runtime, "capture", capture)
        monkeypatch.setattr(memo, "sources", lambda: "sources")  # which may be edited meanwhile
        monkeypatch.setenv("TOCHA_CACHE_DIR", str(folder))

    def entries(self) -> list[Path]:
        """The files that hold whole graphs."""
        return [p for p in self.kernels.iterdir() if b'"Runner"' in p.read_bytes()]

    def __call__(self, function: Callable[..., Any], *inputs: Any, **options: Any) -> bool:
        """Whether the function was traced; its results and gradients are compared with its own."""
        torch._dynamo.reset()
        before = self.traced
        found = []
        for f in (function, torch.compile(function, **options)):
            given = [t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad) for t in inputs]
            out = f(*given)
            if out.requires_grad:
                out.sum().backward()
            found.append([out, *[t.grad for t in given]])
        for want, got in zip(*found, strict=True):
            assert (want is None) is (got is None)
            if want is not None:
                torch.testing.assert_close(got, want)
        return self.traced > before


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(tmp_path, monkeypatch)


def plain(x: Any) -> Any:
    return (x * 2.0).exp() + 1


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_what_a_graph_depends_on_is_in_its_key(call: Counting) -> None:
    def other(x: Any) -> Any:
        return (x * 3.0).exp() + 1

    def zero(x: Any) -> Any:
        return 1 / (x * 0.0)

    def negative(x: Any) -> Any:
        return 1 / (x * -0.0)

    def product(x: Any) -> Any:
        return x @ x.t()

    def made(x: Any) -> Any:
        return x + torch.ones(4)

    different: list[tuple[Any, Any]] = [
        (plain, X), (other, X), (zero, X.abs() + 1), (negative, X.abs() + 1), (plain, X.double()), (plain, X.t().contiguous().t()), (plain, X[:2]),
        (plain, X.clone().requires_grad_()), (product, X), (made, X),
    ]  # fmt: skip
    for again in (False, True):
        assert [call(f, x) for f, x in different] == [not again] * len(different)
        with torch.no_grad():
            assert call(plain, X) is not again
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert call(product, X) is not again
        torch.set_default_dtype(torch.float64)
        try:
            assert call(made, X) is not again
        finally:
            torch.set_default_dtype(torch.float32)
        assert call(product, X, options={"max_autotune": True}) is not again
        with torch._inductor.config.patch(emulate_precision_casts=True):
            assert call(product, X) is not again


def test_tensors_on_one_memory_are_not_apart() -> None:
    a, b = torch.ones(3), torch.ones(3)
    assert len({kept.key("f", pair) for pair in ([a, b], [a, a], [b, a.view(3)])}) == 2
    assert kept.key(None, [a]) is None


def test_gradients_of_gradients(call: Counting) -> None:
    def cubed(x: Any) -> Any:
        return (x * x * x).sum()

    for again in (False, True):
        before = call.traced
        torch._dynamo.reset()
        x = torch.arange(1.0, 3.0).requires_grad_()
        out = torch.compile(cubed)(x)
        (first,) = torch.autograd.grad(out, x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert first.tolist() == [3.0, 12.0] and second.tolist() == [6.0, 12.0]
        torch.compile(cubed)(x).backward()
        assert x.grad.tolist() == [3.0, 12.0] and (call.traced > before) is not again


def test_what_is_no_good_counts_for_nothing(call: Counting) -> None:
    x = X.clone().requires_grad_()
    assert call(plain, x) and not call(plain, x)
    whole = {p: p.read_bytes() for p in call.kernels.iterdir()}
    forward, backward = sorted(call.entries(), key=lambda p: b'"Traced"' not in p.read_bytes())
    for path in (forward, backward):
        for content in (b"", whole[path][:-9], whole[forward if path is backward else backward]):
            path.write_bytes(content)
            assert call(plain, x) and not call(plain, x)
        entry = whole[path][32:].decode()
        wrong = ["[]", "{}", "null", '["tuple"]', '["tuple", null, null, null, null]', '["no such kind"]']
        wrong += [entry.replace(name, "no_such_name") for name in ('"Runner"', '"Wrapper"', '"empty"', '"dtype"', '"call"')]
        wrong += [re.sub(r'"object": "\w+"', f'"object": "{"0" * 40}"', entry)]
        for data in wrong:
            cache.write(path.stem, data.encode())
            assert call(plain, x) and not call(plain, x)


def test_an_object_that_is_gone_takes_its_graph_with_it(call: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(plain, X) and not call(plain, X)
    for path in call.kernels.iterdir():
        if b"ELF" in path.read_bytes()[32:40] or b'"Runner"' not in path.read_bytes():
            path.unlink()
    assert not call(plain, X)  # this process has the code
    monkeypatch.setattr(memo, "_by_object", {})
    assert call(plain, X)


def test_what_words_do_not_determine_is_not_kept(call: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    library = torch.library.Library("kept_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    functions: list[Any] = [
        lambda x: torch.ops.kept_test.twice(x) + 1,
        lambda x: torch.cond(x[0, 0] > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)),
    ]
    for function in functions:
        assert [call(function, X), call(function, X)] == [True, True]
    assert not call.kernels.exists() or not call.entries()
    monkeypatch.setenv("TOCHA_COMPILE", "strict")
    assert [call(plain, X), call(plain, X)] == [True, True]


def test_who_listens_sees_all_of_it_made(call: Counting) -> None:
    assert call(plain, X) and not call(plain, X)
    events: list[Any] = []
    journal.listeners.append(events.append)
    try:
        assert call(plain, X)
    finally:
        journal.listeners.remove(events.append)
    (made,) = [e.data["made"] for e in events if e.kind == "compiled"]
    assert "kernel_" in made.code and made.wrapper.kernels


def test_constants_products_and_what_follows_them(call: Counting) -> None:
    rng = np.random.default_rng(0)
    x, w, b = (torch.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in ((20, 70), (70, 40), (40,)))
    image, filters = (torch.from_numpy(rng.standard_normal(s).astype(np.float32)) for s in ((1, 8, 30, 30), (16, 8, 3, 3)))
    for again in (False, True):
        assert call(lambda x, w, b: F.gelu(x @ w + b) * torch.as_tensor([2.0, 3.0]).sum(), x, w, b) is not again
        assert call(lambda x, w: sum(((x[i : i + 5] @ w).tanh() for i in range(16)), torch.zeros(5, 40)), x, w) is not again
        assert call(lambda x, w: F.relu(F.conv2d(x, w)), image.requires_grad_(), filters.requires_grad_()) is not again


def test_functions_whose_forwards_are_equal_keep_their_own_backwards(call: Counting) -> None:
    def flows(x: Any) -> Any:
        return (x * 2) * x

    def stops(x: Any) -> Any:
        return (x * 2).detach() * x

    def by_a_switch(x: Any) -> Any:
        with torch.no_grad():
            y = x * 2
        return y * x

    x = X.clone().requires_grad_()
    for again in (False, True):
        assert [call(f, x) for f in (flows, stops, by_a_switch)] == [not again] * 3
