"""Kernels are compiled at once here, into a cache of the test run's own, and serve arrays of any size."""

from collections.abc import Iterator

import pytest

from tocha.backends import native


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOCHA_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_COMPILE", "strict")
    monkeypatch.setattr(native, "LEAST", dict.fromkeys(native.LEAST, 1))
