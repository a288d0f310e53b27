"""Tensors shared between processes."""

import sys

import pytest

import tocha as torch
import tocha.multiprocessing as mp

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="descriptors are not sent on Windows")


def _write(x, y, done):
    x.mul_(2)
    y[0, 0] = 9.0
    done.put("written")


def _fail(index):
    if index == 1:
        raise ValueError("the reason")


def _exit(index):
    sys.exit(7)


def _echo(inbox, outbox, stop):
    outbox.put(inbox.get() + 1)
    stop.wait(20)


def test_sharing_moves_all_views_together():
    x = torch.arange(6.0)
    view, storage = x.view(2, 3)[:, 1], x.untyped_storage()
    assert not x.is_shared() and not view.is_shared()
    assert x.share_memory_() is x
    assert x.is_shared() and view.is_shared() and storage.is_shared()
    x.add_(1)
    assert view.tolist() == [2.0, 5.0] and view.data_ptr() == x.data_ptr() + 4
    assert x.untyped_storage().data_ptr() == storage.data_ptr() == x.data_ptr()
    address = x.data_ptr()
    assert x.share_memory_().data_ptr() == address
    y = torch.arange(6.0).view(2, 3).t()
    y.share_memory_()
    assert y.stride() == (1, 3) and y.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    model = torch.nn.Linear(2, 2)
    assert all(p.is_shared() and p.requires_grad for p in model.share_memory().parameters())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.slow
def test_changes_are_seen_by_both_processes(method):
    context = mp.get_context(method)
    x = torch.ones(3).share_memory_()
    y = torch.zeros(2, 2)
    y.share_memory_()
    done = context.Queue()
    process = context.Process(target=_write, args=(x, y.t(), done))
    process.start()
    assert done.get(timeout=60) == "written"
    process.join()
    assert x.tolist() == [2.0, 2.0, 2.0] and y.tolist() == [[9.0, 0.0], [0.0, 0.0]]


@pytest.mark.slow
def test_queues_carry_tensors_both_ways():
    context = mp.get_context("fork")
    inbox, outbox, stop = context.Queue(), context.Queue(), context.Event()
    process = context.Process(target=_echo, args=(inbox, outbox, stop))
    process.start()
    x = torch.arange(4.0)[1:]
    inbox.put(x)
    got = outbox.get(timeout=60)
    stop.set()
    process.join()
    assert got.tolist() == [2.0, 3.0, 4.0] and got.is_shared() and x.is_shared()


@pytest.mark.slow
def test_spawn_reports_failures():
    with pytest.raises(mp.ProcessRaisedException, match="the reason") as caught:
        mp.start_processes(_fail, nprocs=2, start_method="fork")
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 7") as exited:
        mp.spawn(_exit, nprocs=1)
    assert exited.value.exit_code == 7
    assert mp.start_processes(_fail, nprocs=1, start_method="fork") is None


def _roundtrip(obj):
    """Pickled for another process and back, in this one."""
    from multiprocessing.reduction import ForkingPickler

    return ForkingPickler.loads(ForkingPickler.dumps(obj))


def test_what_is_pickled():
    x = torch.arange(6.0, dtype=torch.float64).view(2, 3).t()
    y = _roundtrip(x)
    y[0, 0] = 5.0
    assert x[0, 0] == 5.0 and y.stride() == (1, 3) and y.dtype is torch.float64
    p = _roundtrip(torch.nn.Parameter(torch.ones(2)))
    assert type(p) is torch.nn.Parameter and p.requires_grad and p.is_leaf
    assert _roundtrip(torch.ones(0, 3)).shape == (0, 3) and _roundtrip(torch.ones(2, device="meta")).is_meta
    assert _roundtrip(torch.tensor(2.5, dtype=torch.bfloat16)).item() == 2.5
    s = torch.ones(2).untyped_storage()
    t = _roundtrip(s)
    t[0] = 7
    assert s[0] == 7
    with pytest.raises(RuntimeError, match="non-leaf tensor"):
        _roundtrip(torch.ones(2, requires_grad=True) * 2)


def test_strategies():
    assert mp.get_sharing_strategy() in mp.get_all_sharing_strategies()
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy(before)
    with pytest.raises(ValueError, match="invalid sharing strategy"):
        mp.set_sharing_strategy("cloud")
