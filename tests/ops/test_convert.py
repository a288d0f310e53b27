"""Tensors over other objects' memory."""

import numpy as np
import pytest

import tocha
import tocha as torch


def test_frombuffer_shares_memory():
    memory = bytearray(range(12))
    x = tocha.frombuffer(memory, dtype=tocha.int32)
    assert x.tolist() == [50462976, 117835012, 185207048]
    x[0] = 1
    assert memory[:4] == b"\x01\0\0\0"
    assert tocha.frombuffer(memory, dtype=tocha.uint8, count=2, offset=8).tolist() == [8, 9]
    assert tocha.frombuffer(memory, dtype=tocha.float32, requires_grad=True).requires_grad


@pytest.mark.parametrize(
    "options",
    [{"offset": 2}, {"count": 4}, {"offset": 12}, {"offset": -1}, {"count": 0}],
)
def test_frombuffer_refuses_what_does_not_fit(options):
    with pytest.raises(ValueError):
        tocha.frombuffer(bytearray(12), dtype=tocha.int32, **options)


def test_frombuffer_of_other_objects():
    with pytest.raises(ValueError, match="buffer protocol"):
        tocha.frombuffer(3, dtype=tocha.uint8)
    with pytest.raises(RuntimeError, match="contiguous"):
        tocha.frombuffer(memoryview(bytearray(8))[::2], dtype=tocha.uint8)
    with pytest.warns(UserWarning, match="not writable"):
        x = tocha.frombuffer(b"abc", dtype=tocha.uint8)
    assert x.tolist() == [97, 98, 99]


def test_the_array_interface_shares_memory_both_ways() -> None:
    x = tocha.arange(6.0).reshape(2, 3).t()
    interface = x.__array_interface__
    assert interface["shape"] == (3, 2)
    view = np.asarray(x)
    view[0, 1] = 50
    assert x[0, 1].item() == 50

    class Exporter:
        __array_interface__ = view.__array_interface__
        owner = view

    shared = tocha.as_tensor(Exporter())
    shared[2, 0] = -1
    assert x[2, 0].item() == -1
    with pytest.raises(RuntimeError, match=r"detach\(\)\.numpy\(\)"):
        np.asarray(tocha.ones(2, requires_grad=True))
    with tocha.no_grad():
        assert np.asarray(tocha.ones(2, requires_grad=True)).tolist() == [1, 1]
    kept = np.asarray(tocha.full((100,), 3.0))  # its tensor is gone
    assert kept.sum() == 300


def test_casts_to_float8_types_without_infinity_saturate() -> None:
    values = torch.tensor([464.1, 500.0, 1e9, float("inf"), -500.0, -float("inf"), 440.0, -0.0])
    want = [448.0, 448.0, 448.0, 448.0, -448.0, -448.0, 448.0, -0.0]
    for source in (values, values.double()):
        assert source.to(torch.float8_e4m3fn).float().tolist() == want
    assert torch.tensor([500.0, float("inf")], dtype=torch.float8_e4m3fn).float().tolist() == [448.0, 448.0]
    assert torch.tensor(np.array([1000]), dtype=torch.float8_e4m3fn).float().tolist() == [448.0]
    written = torch.zeros(3, dtype=torch.float8_e4m3fn)
    written[0] = 470.0
    written[1:] = torch.tensor([600.0, -700.0])
    assert written.float().tolist() == [448.0, 448.0, -448.0]
    assert torch.tensor([float("nan")]).to(torch.float8_e4m3fn).float().isnan().all()
    assert torch.tensor([1e9]).to(torch.float8_e5m2).float().tolist() == [float("inf")]


def test_float8_e8m0fnu_has_neither_sign_nor_zero() -> None:
    values = torch.tensor([-1.0, 3.0, 0.0, -0.0, -500.0, 1e-44, float("inf"), float("nan")])
    assert values.to(torch.float8_e8m0fnu).view(torch.uint8).tolist() == [127, 129, 0, 0, 136, 0, 255, 255]


def test_complex_numbers_without_imaginary_part_become_real_ones() -> None:
    assert float(torch.tensor(1.5 + 0j)) == 1.5
    assert int(torch.tensor(2 + 0j)) == 2
    with pytest.raises(RuntimeError, match="imaginary part"):
        float(torch.tensor(1 + 1j))


def test_an_index_of_the_cpu_means_nothing() -> None:
    x = torch.ones(2)
    assert x.to("cpu:0") is x and x.to("cpu:1") is x
    assert torch.ones(2, device="cpu:1").device == torch.device("cpu")
