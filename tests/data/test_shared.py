"""Messages with tensors: nothing lost, nothing left behind."""

import gc
import os
import sys

import pytest

import tocha
from tocha.data import shared


def passed(obj):
    payload, descriptor = shared.dumps(obj)
    return shared.loads(payload, descriptor), descriptor


@pytest.mark.parametrize("n", [3, 100_000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "bool", "bfloat16", "float16", "complex64", "uint8"])
def test_values_and_dtypes(n, dtype):
    x = tocha.arange(n).to(getattr(tocha, dtype))
    y, _ = passed({"x": [x, "text"]})
    assert y["x"][0].dtype == x.dtype and tocha.equal(y["x"][0], x) and y["x"][1] == "text"


def test_large_messages_use_a_file_and_small_ones_do_not():
    assert passed(tocha.zeros(10))[1] is None
    assert passed(tocha.zeros(shared.INLINE_BYTES))[1] is not None


def test_result_is_writable_and_apart_from_the_original():
    x = tocha.zeros(100_000)
    y, _ = passed(x)
    y.add_(1)
    assert x.sum().item() == 0 and y.sum().item() == 100_000


def test_layouts():
    x = tocha.arange(24.0).reshape(2, 3, 4)
    for view in (x.permute(2, 0, 1), x[:, ::2], x[..., 0], x[:0], tocha.tensor(5.0), x[:1].expand(3, 3, 4)):
        y, _ = passed(view)
        assert y.shape == view.shape and tocha.equal(y, view)
    assert passed(x.permute(2, 0, 1))[0].stride() == (1, 12, 4)


def test_parameters_and_leaves_keep_requires_grad_and_graphs_are_refused():
    p, _ = passed(tocha.nn.Parameter(tocha.ones(2)))
    assert isinstance(p, tocha.nn.Parameter) and p.requires_grad
    leaf, _ = passed(tocha.ones(2, requires_grad=True))
    assert leaf.requires_grad and leaf.is_leaf
    with pytest.raises(RuntimeError, match="detach"):
        shared.dumps(leaf * 2)


def test_same_tensor_twice_stays_one():
    x = tocha.zeros(3)
    a, b = passed([x, x])[0]
    assert a is b


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts descriptors in /proc")
def test_memory_and_descriptors_go_with_the_tensors():
    def counts():
        gc.collect()
        with open("/proc/self/maps") as maps:
            return len(os.listdir("/proc/self/fd")), maps.read().count("tocha-batch")

    before = counts()
    kept = [passed(tocha.zeros(100_000))[0] for _ in range(5)]
    assert counts()[1] == before[1] + 5
    del kept
    assert counts() == before


@pytest.mark.skipif(sys.version_info >= (3, 13) or sys.platform == "win32", reason="mappings hold no descriptor")
def test_many_kept_batches_do_not_use_up_descriptors(monkeypatch):
    monkeypatch.setattr(shared, "_descriptor_limit", lambda: 0)
    before = len(os.listdir("/proc/self/fd"))
    kept = [passed(tocha.full((100_000,), float(i)))[0] for i in range(5)]
    assert len(os.listdir("/proc/self/fd")) == before
    assert [k[-1].item() for k in kept] == [0.0, 1.0, 2.0, 3.0, 4.0]
