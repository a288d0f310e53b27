"""torch.accelerator where there is no accelerator."""

import pytest

import tocha as torch


@pytest.mark.skipif(torch.accelerator.is_available(), reason="there is an accelerator")
@pytest.mark.parametrize(
    "name",
    ["memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_stats", "get_memory_info", "empty_cache",
     "reset_peak_memory_stats"],
)  # fmt: skip
def test_memory_of_no_accelerator_is_an_error(name):
    with pytest.raises(RuntimeError, match="none is available"):
        getattr(torch.accelerator, name)()
