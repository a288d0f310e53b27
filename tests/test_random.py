from __future__ import annotations

import copy
import pickle

import pytest

import tocha as torch


def test_manual_seed_returns_the_default_generator() -> None:
    assert torch.manual_seed(5) is torch.default_generator
    assert torch.initial_seed() == 5


@pytest.mark.parametrize("seed, kept", [(-1, 2**64 - 1), (-5, 2**64 - 5), (2**64 - 1, 2**64 - 1), (1.7, 1)])
def test_seeds_wrap_to_64_bits(seed: float, kept: int) -> None:
    assert torch.manual_seed(seed).initial_seed() == kept


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_seeds_outside_64_bits_are_refused(seed: int) -> None:
    torch.manual_seed(3)
    with pytest.raises(ValueError, match="Overflow when unpacking long"):
        torch.manual_seed(seed)
    assert torch.initial_seed() == 3


@pytest.mark.parametrize("seed", [1.0, True, "a"])
def test_a_generator_takes_only_ints(seed: object) -> None:
    with pytest.raises(RuntimeError, match="manual_seed expected a long, but got"):
        torch.Generator().manual_seed(seed)


def test_a_new_generator_has_torchs_default_seed() -> None:
    generator = torch.Generator()
    assert generator.initial_seed() == 67280421310721
    assert generator.device == torch.device("cpu")


def test_seed_is_fresh() -> None:
    generator = torch.Generator()
    first = generator.seed()
    assert generator.initial_seed() == first
    assert generator.seed() != first
    assert torch.seed() == torch.initial_seed()


def test_state_round_trip() -> None:
    torch.manual_seed(2)
    torch.randn(3)
    state = torch.get_rng_state()
    assert state.dtype is torch.uint8
    assert state.shape == (5056,)
    a = torch.randn(5)
    torch.set_rng_state(state)
    assert torch.equal(torch.randn(5), a)


def test_bad_states_are_refused() -> None:
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        torch.set_rng_state(torch.zeros(5056))
    with pytest.raises(TypeError, match=r"expected a torch\.ByteTensor, but got int"):
        torch.Generator().set_state(5)
    with pytest.raises(RuntimeError, match="size 5056"):
        torch.set_rng_state(torch.zeros(5, dtype=torch.uint8))


def test_generators_are_independent() -> None:
    torch.manual_seed(0)
    expected = torch.rand(4)
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    assert torch.equal(torch.rand(4, generator=generator), expected)
    assert torch.equal(torch.rand(4), expected)


def test_clone_state_continues_separately() -> None:
    generator = torch.Generator().manual_seed(9)
    torch.randn(3, generator=generator)
    clone = generator.clone_state()
    assert torch.equal(torch.randn(3, generator=generator), torch.randn(3, generator=clone))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies_carry_the_state(duplicate) -> None:
    generator = torch.Generator().manual_seed(9)
    torch.randn(3, generator=generator)
    other = duplicate(generator)
    assert other is not generator
    assert other.initial_seed() == 9
    assert torch.equal(torch.randn(3, generator=other), torch.randn(3, generator=generator))


def test_fork_rng_puts_the_state_back() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(77)
        torch.rand(10)
    assert torch.equal(torch.rand(3), expected)
    before = torch.get_rng_state()
    with torch.random.fork_rng(enabled=False):
        torch.rand(10)
    assert not torch.equal(torch.get_rng_state(), before)


def test_fork_rng_puts_the_state_back_after_an_error() -> None:
    before = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), torch.random.fork_rng():
        torch.rand(10)
        1 / 0  # noqa: B018
    assert torch.equal(torch.get_rng_state(), before)


def test_offsets_belong_to_other_devices() -> None:
    generator = torch.Generator()
    with pytest.raises(RuntimeError, match="does not use offset"):
        generator.get_offset()
    with pytest.raises(RuntimeError, match="does not use offset"):
        generator.set_offset(4)
    with pytest.raises(NotImplementedError, match="graphsafe_get_state"):
        generator.graphsafe_get_state()


def test_generators_of_devices_without_numbers() -> None:
    with pytest.raises(RuntimeError, match="META device type not an accelerator"):
        torch.Generator(device="meta")


def test_cuda_draws_the_cpus_numbers_from_its_own_stream() -> None:
    # Without a device, the stream can still be asked for its numbers.
    from tocha.random import default_for

    cuda = torch.device("cuda", 0)
    try:
        stream = default_for(cuda).engine
    except (RuntimeError, AssertionError) as error:
        pytest.skip(str(error))
    torch.manual_seed(4)
    assert stream.draw32(3).tolist() == torch.default_generator.engine.draw32(3).tolist()
