"""The cache of compiled kernels: warm starts compile nothing, and nothing about the directory is ever an error."""

import errno
import io
import os
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tocha.inductor import cache, jit

ROOT = Path(__file__).parents[2]
MODULES = 3  # the kernel, the pool of threads, the memory of arrays
KERNEL = """
    import numpy as np
    from tocha.backends import native
    from tocha.dispatch.prim import REGISTRY
    from tocha.inductor import jit
    import tocha
    compiled, compile_object = [], jit.compile_object
    jit.compile_object = lambda *args: compiled.append(1) or compile_object(*args)
    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    rule = REGISTRY["silu"]
    out = native.pointwise(rule, [x], x.dtype, x.dtype, {}, rule.broadcast, "rule")
    np.testing.assert_allclose(out, x / (1 + np.exp(-x.astype("d"))), rtol=1e-6)
    print(len(compiled))
"""


def compiled_in_a_process(folder: Path | None, program: str = KERNEL, **settings: str) -> int:
    """How many modules a fresh process compiles to run one kernel, or another program."""
    given = {"TOCHA_COMPILE": "now", "TOCHA_NATIVE_MIN": "1", "PYTHONPATH": str(ROOT), **settings}
    environment = {k: v for k, v in os.environ.items() if k not in ("TOCHA_CACHE_DIR", "XDG_CACHE_HOME")} | given
    if folder is not None:
        environment["TOCHA_CACHE_DIR"] = str(folder)
    got = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert got.returncode == 0, got.stderr
    assert got.stderr == ""
    return int(got.stdout)


def test_a_warm_start_compiles_nothing(tmp_path: Path) -> None:
    assert compiled_in_a_process(tmp_path) == MODULES
    assert compiled_in_a_process(tmp_path) == 0


def test_damaged_files_are_compiled_again(tmp_path: Path) -> None:
    compiled_in_a_process(tmp_path)
    files = sorted((tmp_path / "kernels").iterdir())
    assert len(files) == MODULES
    files[0].write_bytes(files[0].read_bytes()[:-100])
    content = bytearray(files[1].read_bytes())
    content[len(content) // 2] ^= 255
    files[1].write_bytes(content)
    assert compiled_in_a_process(tmp_path) == 2
    assert compiled_in_a_process(tmp_path) == 0


def test_a_directory_that_cannot_be_used_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert compiled_in_a_process(tmp_path / "file") == MODULES
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    assert compiled_in_a_process(locked) == MODULES


def test_files_that_others_may_write_are_not_run(tmp_path: Path) -> None:
    if not hasattr(os, "getuid"):
        pytest.skip("no file owners here")
    compiled_in_a_process(tmp_path)
    (tmp_path / "kernels").chmod(0o777)
    assert compiled_in_a_process(tmp_path) == MODULES


def test_processes_that_start_together_with_nothing_cached_share_what_they_compile(tmp_path: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        counts = list(pool.map(lambda _: compiled_in_a_process(tmp_path), range(3)))
    assert all(count <= MODULES for count in counts)
    assert sorted(f.suffix for f in (tmp_path / "kernels").iterdir()) == [".o"] * MODULES
    assert compiled_in_a_process(tmp_path) == 0


def test_no_home_and_none_that_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for home in (str(tmp_path / "file" / "home"), "/proc/nowhere"):
        assert compiled_in_a_process(None, HOME=home) == MODULES


@pytest.mark.parametrize("step", ["write", "replace"])
def test_a_full_disk_leaves_nothing_behind(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    class Full(io.FileIO):
        write = full  # type: ignore[assignment]

    if step == "write":
        monkeypatch.setattr(os, "fdopen", lambda handle, mode: Full(handle, mode))
    else:
        monkeypatch.setattr(os, "replace", full)
    cache.write("key", b"content")
    assert list(cache.directory().iterdir()) == []
    monkeypatch.undo()
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))
    cache.write("key", b"content")
    assert cache.read("key") == b"content"


def test_kernels_of_other_versions_and_processors_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = []
    monkeypatch.setattr(cache, "read", lambda key: keys.append(key))
    monkeypatch.setattr(jit, "_only_cached", True)

    def key(text: str = "source") -> str:
        with pytest.raises(jit.NotCached):
            jit.load(text, (), {})
        return keys[-1]

    triple, cpu, features = jit.host()
    found = [key(), key("source ")]
    for host in ((triple, "generic", features), (triple, cpu, features + ",+imagined"), ("aarch64-linux", cpu, features)):
        monkeypatch.setattr(jit, "host", lambda host=host: host)
        found.append(key())
    monkeypatch.setattr(jit, "versions", lambda: "tocha 0 llvmlite 0")
    found.append(key())
    assert len(set(found)) == 6


TRAINING = """
    import tocha as torch
    from tocha import nn
    from tocha.inductor import jit
    compiled, compile_object = [], jit.compile_object
    jit.compile_object = lambda *args: compiled.append(1) or compile_object(*args)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    optimizer = torch.optim.AdamW(model.parameters())
    x, y = torch.randn(64, 1, 8, 8), torch.randint(10, (64,))
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    torch.cpu.memory_allocated()
    print(len(compiled))
"""


@pytest.mark.slow
def test_training_compiles_nothing_the_second_time(tmp_path: Path) -> None:
    assert compiled_in_a_process(tmp_path, TRAINING, TOCHA_NATIVE_MIN="") > 5
    assert compiled_in_a_process(tmp_path, TRAINING, TOCHA_NATIVE_MIN="") == 0


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


def test_a_file_under_another_name_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path))
    cache.write("a" * 40, b"one kernel")
    cache.write("b" * 40, b"another")
    one, another = (tmp_path / "kernels" / f"{letter * 40}.o" for letter in "ab")
    one.write_bytes(another.read_bytes())
    assert cache.read("a" * 40) is None and cache.read("b" * 40) == b"another"
