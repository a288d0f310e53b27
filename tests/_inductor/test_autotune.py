"""max-autotune: what took less time is taken, in every process, and nothing is timed otherwise."""

from __future__ import annotations

import time
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import autotune, calls


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))


def test_the_quickest_way_is_found_and_remembered() -> None:
    called: list[str] = []

    def way(name: str, seconds: float) -> Any:
        return lambda: (called.append(name), time.sleep(seconds))

    ways = {"slow": way("slow", 0.01), "quick": way("quick", 0.0)}
    assert autotune.fastest("a choice", ways) == "quick"
    assert {"slow", "quick"} == set(called)
    called.clear()
    assert autotune.fastest("a choice", ways) == "quick" and not called
    assert autotune.fastest("another choice", ways) == "quick" and called


def test_a_name_that_is_no_way_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune.cache, "read", lambda key: b"\xff elsewhere")
    assert autotune.fastest("a choice", {"only": lambda: None}) == "only"


@pytest.mark.parametrize("chosen", ["direct", "winograd"])
def test_a_convolution_is_computed_as_was_found(chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(autotune, "fastest", lambda what, ways: asked.append([way() for way in ways.values()]) or chosen)
    used: list[bool] = []
    monkeypatch.setattr(calls, "_convolution", lambda node, packed, quick, old=calls._convolution: used.append(quick) or old(node, packed, quick))
    torch.manual_seed(0)
    x, w = torch.randn(2, 16, 14, 14), torch.randn(16, 16, 3, 3) / 12
    with torch.no_grad():
        got = torch.compile(lambda x, w: F.conv2d(x, w, padding=1), mode="max-autotune")(x, w)
        torch.testing.assert_close(got, F.conv2d(x, w, padding=1), rtol=1e-4, atol=1e-5)
    (results,) = asked
    assert [r.shape for r in results] == [(2, 16, 14, 14)] * 2
    assert used[-1] is (chosen == "winograd")


def test_nothing_is_timed_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "fastest", lambda what, ways: pytest.fail("timed"))
    x, w = torch.randn(2, 16, 14, 14), torch.randn(16, 16, 3, 3)
    with torch.no_grad():
        for how in ({}, {"mode": "default"}, {"mode": "reduce-overhead"}, {"options": {"max_autotune": False}}):
            torch.compile(lambda x, w: F.conv2d(x, w, padding=1), **how)(x, w)


def test_the_option_asks_for_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(autotune, "fastest", lambda what, ways: asked.append(what) or "direct")
    x, w = torch.randn(2, 16, 14, 14), torch.randn(16, 16, 3, 3)
    with torch.no_grad():
        torch.compile(lambda x, w: F.conv2d(x, w, padding=1), options={"max_autotune": True})(x, w)
        with torch._inductor.config.patch(max_autotune=True):
            torch.compile(lambda x, w: F.conv2d(x, w, padding=1) + 1)(x, w)
    assert len(asked) == 2
