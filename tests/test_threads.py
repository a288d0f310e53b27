"""The number of threads reaches BLAS."""

import pytest

import tocha as torch


def test_set_num_threads_is_what_get_num_threads_says() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert torch.get_num_threads() == before


def test_zero_threads_are_refused() -> None:
    with pytest.raises(RuntimeError, match="positive"):
        torch.set_num_threads(0)
