"""torch.jit without TorchScript: scripted code is the code itself."""

from __future__ import annotations

import pytest

import tocha as torch


def test_scripted_code_runs_as_it_is_written() -> None:
    @torch.jit.script
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(torch.ones(2)).tolist() == [2.0, 2.0]
    layer = torch.nn.Linear(1, 1)
    assert torch.jit.script(layer) is layer
    assert not torch.jit.is_scripting()


def test_what_needs_a_compiled_program_is_refused() -> None:
    with pytest.raises(RuntimeError, match="there is no TorchScript here"):
        torch.jit.save(torch.nn.Linear(1, 1), "model.pt")
