"""Results with out= that kernels write straight to the memory that is asked for."""

import numpy as np
import pytest

import tocha as torch
from tocha.backends import native_out


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(before)


def _written(monkeypatch, call, out):
    """Whether the result came into `out` without a copy."""
    from tocha.dispatch import inplace

    found = []
    version = out._version
    with monkeypatch.context() as patch:
        patch.setattr(inplace, "store", lambda target, value: found.append(value) or target.__setitem__(..., value))
        assert call(out) is out
    assert out._version == version + 1
    return not found


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("count", [2, 9])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_joins(monkeypatch, threads, dim, count, dtype):
    parts = [torch.randn(16, 40, 130).mul(3).to(getattr(torch, dtype)) for _ in range(count)]
    values = [p.to(torch.complex128).numpy() for p in parts]
    for join, whole in ((torch.cat, np.concatenate(values, dim)), (torch.stack, np.stack(values, dim))):
        out = torch.empty(whole.shape, dtype=parts[0].dtype)
        assert _written(monkeypatch, lambda o, join=join: join(parts, dim, out=o), out)
        assert (out.to(torch.complex128).numpy() == whole).all()
        assert torch.equal(join(parts, dim), out)


def test_moves(monkeypatch, threads):
    x, rows = torch.randn(300, 400), torch.randint(-300, 300, (500,))
    calls = [
        lambda out=None: torch.index_select(x, 0, rows % 300, out=out),
        lambda out=None: torch.index_select(x, 1, rows % 300, out=out),
        lambda out=None: torch.gather(x, 1, (rows % 300).expand(300, 500), out=out),
        lambda out=None: torch.cumsum(x, 1, out=out),
        lambda out=None: torch.tril(x, out=out),
    ]
    for call in calls:
        expected = call()
        out = torch.full_like(expected, 7)
        assert _written(monkeypatch, lambda o, call=call: call(out=o), out)
        assert torch.equal(out, expected)


def test_what_reads_the_same_memory_is_copied_there(monkeypatch):
    x = torch.arange(40000.0).reshape(200, 200)
    expected = np.cumsum(x.numpy(), 0)
    assert not _written(monkeypatch, lambda o: torch.cumsum(x, 0, out=o), x)
    assert (x.numpy() == expected).all()


def test_other_memory_orders_types_and_shapes_are_copied(monkeypatch):
    a, b = torch.randn(200, 150), torch.randn(200, 150)
    whole = np.concatenate([a.numpy(), b.numpy()], 1)
    turned = torch.empty(300, 200).t()
    assert not _written(monkeypatch, lambda o: torch.cat([a, b], 1, out=o), turned)
    wide = torch.empty(200, 300, dtype=torch.float64)
    assert not _written(monkeypatch, lambda o: torch.cat([a, b], 1, out=o), wide)
    assert (turned.numpy() == whole).all() and (wide.numpy() == whole).all()
    with pytest.warns(UserWarning, match="was resized"):
        torch.cat([a, b], 1, out=(small := torch.empty(200, 299)))
    assert (small.numpy() == whole).all()


def test_a_call_that_fails_leaves_the_target_as_it_was():
    x, out = torch.randn(300, 400), torch.full((300, 400), 7.0)
    index = torch.zeros(300, 400, dtype=torch.int64)
    index[299, 399] = 300
    with pytest.raises(RuntimeError, match="out of bounds"):
        torch.gather(x, 0, index, out=out)
    assert (out == 7).all()
    assert not native_out.expects((300, 400), np.dtype(np.float32))  # the next call's result is its own
    assert torch.cumsum(x, 0).data_ptr() != out.data_ptr()


def test_a_kernel_that_gives_up_leaves_the_result_to_numpy(monkeypatch):
    x, index = torch.randn(300, 400), torch.randint(0, 300, (300, 400))
    expected = np.take_along_axis(x.numpy(), index.numpy(), 0)
    monkeypatch.setattr("tocha.backends._native_index._move", lambda *args: None)
    out = torch.zeros(300, 400)
    assert not _written(monkeypatch, lambda o: torch.gather(x, 0, index, out=o), out)
    assert (out.numpy() == expected).all()
