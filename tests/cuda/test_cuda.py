"""torch.cuda answers on every machine; what needs a device is tested where one is."""

import pytest

import tocha as torch

needs_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
without_device = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")


@without_device
def test_answers_without_a_device():
    assert torch.cuda.device_count() == 0
    assert not torch.cuda.is_initialized()
    assert not torch.cuda.is_bf16_supported()
    assert torch.cuda.memory_allocated() == 0
    torch.cuda.manual_seed(1)
    torch.cuda.manual_seed_all(1)
    torch.cuda.empty_cache()
    with torch.cuda.device(None), torch.cuda.device(-1):
        pass


@without_device
@pytest.mark.parametrize("name", ["init", "current_device", "synchronize", "get_device_name", "mem_get_info"])
def test_says_what_is_missing(name):
    with pytest.raises((AssertionError, RuntimeError), match=r"CuPy|no CUDA device"):
        getattr(torch.cuda, name)()


@needs_device
def test_current_device_and_context():
    last = torch.cuda.device_count() - 1
    assert torch.cuda.current_device() == 0
    with torch.cuda.device(last):
        assert torch.cuda.current_device() == last
    assert torch.cuda.current_device() == 0
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(last + 1)
    with pytest.raises(ValueError, match="Expected a cuda device"):
        torch.cuda.set_device("cpu")


@needs_device
def test_properties():
    found = torch.cuda.get_device_properties(0)
    assert found.name == torch.cuda.get_device_name("cuda:0")
    assert torch.cuda.get_device_capability() == (found.major, found.minor)
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total


@needs_device
def test_memory_is_counted():
    before = torch.cuda.memory_allocated()
    x = torch.zeros(1024, 1024, device="cuda")
    assert torch.cuda.memory_allocated() - before >= x.numel() * 4
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    del x
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() == before


@needs_device
def test_seeds_repeat():
    torch.cuda.manual_seed(3)
    state = torch.cuda.get_rng_state()
    a = torch.rand(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(a, torch.rand(4, device="cuda"))
    assert torch.cuda.initial_seed() == 3
