"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# The same examples in every run, so that a change passes or fails by what it changes; `--hypothesis-profile=random` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("same")

# A shell that starts a job in the background has it ignore SIGINT, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Files that compile many kernels or move much memory: together two thirds of the suite's time, and left out of `./run test --quick`.
LONG = {
    "inductor": (
        "test_attention", "test_bags", "test_borders", "test_cache", "test_columns", "test_conv", "test_grid", "test_haste", "test_index",
        "test_matmul", "test_moves", "test_norms", "test_optim", "test_pooling", "test_recurrent", "test_reduce", "test_scan", "test_search",
        "test_taps", "test_windows", "test_winograd",
    ),
    "backends": ("test_cpu_memory",),
    "bench": ("test_bench",),
    "dispatch": ("test_fused",),
    "ops": ("test_foreach",),
    "_inductor": ("test_autotune", "test_convolutions", "test_epilogues", "test_programs", "test_rows", "test_varying"),
    "data": ("test_multiprocess",),
    "_dynamo": ("test_bound", "test_programs"),
}  # fmt: skip


class _Absent:
    """Stands for `native.inductor`, asked for by nobody yet, and fails the test that asks."""

    @staticmethod
    def cache_info() -> object:
        return type("Info", (), {"currsize": 0})

    def __call__(self) -> object:
        raise AssertionError("the compiler was asked for")


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has neither loaded the compiler nor made small calls so far."""
    from tocha.backends import native

    monkeypatch.setattr(native, "inductor", _Absent())
    monkeypatch.setattr(native, "_small_calls", 0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of long files as slow."""
    for item in items:
        if item.path.stem in LONG.get(item.path.parent.name, ()):
            item.add_marker(pytest.mark.slow)
