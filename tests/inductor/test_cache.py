"""The cache of compiled kernels: warm starts compile nothing, and nothing about the directory is ever an error."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tocha.inductor import cache

ROOT = Path(__file__).parents[2]
KERNEL = """
    import numpy as np
    from tocha.backends import native
    from tocha.dispatch.prim import REGISTRY
    from tocha.inductor import jit
    import tocha
    compiled, compile_object = [], jit.compile_object
    jit.compile_object = lambda text: compiled.append(1) or compile_object(text)
    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    rule = REGISTRY["silu"]
    out = native.pointwise(rule, [x], x.dtype, x.dtype, {}, rule.broadcast, "rule")
    np.testing.assert_allclose(out, x / (1 + np.exp(-x.astype("d"))), rtol=1e-6)
    print(len(compiled))
"""


def compiled_in_a_process(folder: Path, **settings: str) -> int:
    """How many modules a fresh process compiles to run one kernel."""
    environment = {**os.environ, "TOCHA_CACHE_DIR": str(folder), "TOCHA_COMPILE": "now", "TOCHA_NATIVE_MIN": "1", "PYTHONPATH": str(ROOT), **settings}
    got = subprocess.run([sys.executable, "-c", textwrap.dedent(KERNEL)], capture_output=True, text=True, env=environment, timeout=60)
    assert got.returncode == 0, got.stderr
    assert got.stderr == ""
    return int(got.stdout)


def test_a_warm_start_compiles_nothing(tmp_path: Path) -> None:
    assert compiled_in_a_process(tmp_path) == 2  # the kernel and the pool of threads
    assert compiled_in_a_process(tmp_path) == 0


def test_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    compiled_in_a_process(tmp_path)
    files = sorted((tmp_path / "kernels").iterdir())
    assert len(files) == 2
    files[0].write_bytes(files[0].read_bytes()[:-100])
    content = bytearray(files[1].read_bytes())
    content[len(content) // 2] ^= 255
    files[1].write_bytes(content)
    assert compiled_in_a_process(tmp_path) == 2
    assert compiled_in_a_process(tmp_path) == 0


def test_a_directory_that_cannot_be_used_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert compiled_in_a_process(tmp_path / "file") == 2
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    assert compiled_in_a_process(locked) == 2


def test_files_that_others_may_write_are_not_run(tmp_path: Path) -> None:
    if not hasattr(os, "getuid"):
        pytest.skip("no file owners here")
    compiled_in_a_process(tmp_path)
    (tmp_path / "kernels").chmod(0o777)
    assert compiled_in_a_process(tmp_path) == 2


def test_the_oldest_files_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "LIMIT", 4000)
    for number in range(8):
        cache.write(f"{number:02x}", bytes(1000))
        os.utime(cache.directory() / f"{number:02x}.o", (number, number))
    cache.write("00ff", bytes(1000))
    kept = {f.name for f in cache.directory().iterdir()}
    assert "00ff.o" in kept and "07.o" in kept and "00.o" not in kept and "01.o" not in kept
    assert cache.usage()[1] <= 4000


def test_keys_tell_their_parts_apart() -> None:
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")


def test_what_is_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path / "new" / "folder"))
    assert cache.read("key") is None
    cache.write("key", b"content")
    assert cache.read("key") == b"content"
    assert [f.name for f in cache.directory().iterdir()] == ["key.o"]
