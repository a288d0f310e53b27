"""Memory of CPU arrays: what is counted, kept, refused, and said when there is none; whose arrays it is that are counted."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy._core.multiarray import get_handler_name

import tocha as torch
from tocha.backends import _cpu_memory as memory

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="memory is mapped as these systems do")


def in_a_process(program: str, **settings: str) -> str:
    got = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        env={**os.environ, **settings},
    )
    assert got.returncode == 0, got.stderr
    return got.stdout


@pytest.fixture
def counted():
    """The bytes allocated since."""
    gc.collect()
    before = torch.cpu.memory_allocated()
    yield lambda: torch.cpu.memory_allocated() - before
    torch.cpu.set_memory_limit(None)
    torch.cpu.empty_cache()


@pytest.mark.parametrize("size", [1, 255, 256, 1000, 12345, MIB, 8 * MIB, 9 * MIB])
def test_a_tensor_is_counted_while_it_lives(counted, size):
    x = torch.ones(size)
    assert counted() == 4 * size
    view = x[size // 2 :]
    del x
    assert counted() == 4 * size
    del view
    assert counted() == 0


@pytest.mark.parametrize("size", [256, 1000, 12345, MIB, 20 * MIB])
def test_blocks_of_a_kibibyte_and_more_begin_on_a_cache_line(size):
    torch.cpu.memory_allocated()
    for make in (torch.empty, torch.zeros, torch.ones):
        assert make(size).data_ptr() % 64 == 0


@pytest.mark.parametrize("size", [65536, MIB, 7 * MIB])
def test_large_blocks_begin_at_eight_places_of_a_page(size):
    torch.cpu.memory_allocated()
    places = [torch.empty(size).data_ptr() % 4096 for _ in range(8)]
    assert sorted(places) == list(range(0, 4096, 512))


def test_peaks_hold_until_they_are_reset(counted):
    start = torch.cpu.memory_allocated()
    torch.cpu.reset_peak_memory_stats()
    x, y = torch.ones(MIB), torch.ones(2 * MIB)
    del x, y
    assert 12 * MIB <= torch.cpu.max_memory_allocated() - start < 12 * MIB + 1024
    assert torch.cpu.max_memory_reserved() >= torch.cpu.max_memory_allocated()
    torch.cpu.reset_peak_memory_stats()
    assert torch.cpu.max_memory_allocated() == start


def test_large_blocks_are_kept_for_the_next_of_their_size_until_the_cache_is_emptied(counted):
    torch.cpu.empty_cache()
    assert torch.cpu.memory_stats()["inactive_split_bytes.all.current"] == 0
    x = torch.ones(10 * MIB)
    place = x.data_ptr()
    del x
    assert 40 * MIB <= torch.cpu.memory_stats()["inactive_split_bytes.all.current"] <= 41 * MIB
    x = torch.empty(10 * MIB - 1000)
    assert x.data_ptr() == place
    assert torch.cpu.memory_stats()["inactive_split_bytes.all.current"] == 0
    del x
    reserved = torch.cpu.memory_reserved()
    torch.cpu.empty_cache()
    assert reserved - torch.cpu.memory_reserved() >= 40 * MIB


def test_zeros_are_zero_on_memory_that_was_used_before(counted):
    for size in (300, MIB, 10 * MIB):
        torch.ones(size)
        assert not torch.zeros(size).any()


def test_more_sizes_than_are_kept(counted):
    for size in range(9 * MIB, 9 * MIB + 50 * 2 * MIB, 2 * MIB):
        torch.empty(size)
    stats = torch.cpu.memory_stats()
    assert 0 < stats["inactive_split_bytes.all.current"] <= 1 << 30
    assert counted() == 0


def test_arrays_without_elements_and_resized_ones_are_freed_as_they_were_made(counted):
    arrays = [np.empty((1000, 0)) for _ in range(10)]
    del arrays
    a = np.arange(10)
    for size in (100, 5, 100_000, 6 * MIB, 7 * MIB, 50):
        a.resize(size, refcheck=False)
        assert a[:5].tolist() == [0, 1, 2, 3, 4] and a.size == size
    del a
    assert counted() == 0


def test_the_limit_refuses_what_goes_beyond_it_and_says_who_holds_memory(counted):
    held = torch.ones(3, MIB)
    torch.cpu.set_memory_limit(torch.cpu.memory_allocated() + 10 * MIB)
    refused = torch.cpu.memory_stats()["num_ooms"]
    kept = torch.ones(2 * MIB)
    with pytest.raises(RuntimeError) as raised:
        torch.ones(MIB)
    text = str(raised.value)
    assert "Unable to allocate 4.00 MiB for an array with shape (1048576,)" in text
    assert "12.00 MiB: tensor of shape (3, 1048576), float32" in text and "limit" in text
    assert isinstance(raised.value, torch.OutOfMemoryError) and isinstance(raised.value, MemoryError)
    assert torch.cpu.memory_stats()["num_ooms"] == refused + 1
    with pytest.raises(RuntimeError):
        held + held
    del kept
    assert torch.ones(MIB).sum() == MIB
    torch.cpu.set_memory_limit(None)
    assert (held + held).sum() == 6 * MIB
    with pytest.raises(ValueError, match="set_memory_limit: size"):
        torch.cpu.set_memory_limit(-1)


def test_more_than_the_machine_has_is_a_runtime_error():
    with pytest.raises(RuntimeError, match=r"Unable to allocate 256\. TiB"):
        torch.empty(1 << 46)
    with pytest.raises(RuntimeError, match="CPU out of memory"):
        torch.ones(1 << 23, 1) + torch.ones(1 << 23)
    with pytest.raises(RuntimeError, match=r"Storage size calculation overflowed with sizes=\[4611686018427387904\]"):
        torch.zeros(1 << 62)


def test_what_tensors_held_before_counting_began_is_counted_and_numpy_keeps_its_own_error():
    out = in_a_process("""
        import numpy as np
        import tocha as torch
        x, raw = torch.empty(1000, 1000), np.ones(3_000_000)
        print(torch.cpu.memory_allocated())
        views = x[1:], x.t()
        print(torch.cpu.memory_allocated())
        del raw
        print(torch.cpu.memory_allocated())
        del x, views
        print(torch.cpu.memory_allocated())
        try:
            np.empty(1 << 46)
        except MemoryError as error:
            print(type(error).__name__)
    """)
    assert out.split() == ["4000000", "4000000", "4000000", "0", "MemoryError"]


def test_arrays_made_in_other_threads_are_counted_and_freed_anywhere(counted):
    made = []

    def work():
        for _ in range(200):
            made.append(torch.ones(300) + 1)
            made.append(torch.ones(9 * MIB))
            made.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(made) == 800
    assert {get_handler_name(x._a) for x in made} == {memory.NAME}
    assert counted() >= 800 * 1200
    made.clear()
    assert counted() == 0


def test_a_fork_has_its_own_figures():
    out = in_a_process("""
        import os
        import tocha as torch
        x = torch.ones(1 << 20)
        torch.cpu.memory_allocated()
        y = torch.ones(9 << 20)
        sizes = [torch.cpu.memory_allocated()]
        child = os.fork()
        if not child:
            del x, y
            z = torch.ones(9 << 20)
            os._exit(torch.cpu.memory_allocated() >> 20)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), torch.cpu.memory_allocated() >> 20)
    """)
    assert out.split() == ["36", "40"]


def test_numpy_s_arrays_from_before_outlive_the_change_of_handlers():
    out = in_a_process("""
        import numpy as np
        before = [np.ones(n) for n in (3, 300, 30_000, 9_000_000)]
        import tocha as torch
        torch.cpu.memory_allocated()
        after = [a + 1 for a in before]
        before[0].resize(10_000, refcheck=False)
        del before
        print([float(a[-1]) for a in after], torch.cpu.memory_allocated() > 8 * 9_000_000)
    """)
    assert out.strip() == "[2.0, 2.0, 2.0, 2.0] True"


def test_tensors_are_counted_from_the_first_kernel_on():
    out = in_a_process(
        """
        import tocha as torch
        from numpy._core.multiarray import get_handler_name
        x = torch.ones(200_000)
        names = [get_handler_name(x._a)]
        names += [get_handler_name((x * 2)._a) for _ in range(2)]
        names += [get_handler_name(torch.softmax(x, 0)._a), get_handler_name(torch.ones(3).add(1)._a)]
        print(*names)
    """
    )
    assert out.split() == ["default_allocator", "tocha", "tocha", "tocha", "tocha"]
