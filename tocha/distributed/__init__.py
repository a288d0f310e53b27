"""torch.distributed as in a build without it: `is_available()` is False, and nothing can be initialised."""

from __future__ import annotations

from typing import Any

__all__ = ["is_available", "is_initialized"]


def is_available() -> bool:
    """False: there are no process groups."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False


is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = is_nccl_available


def _refuse(name: str) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"torch.distributed.{name}: distributed isn't available in tocha; is_available() is False")

    call.__name__ = name
    return call


init_process_group = _refuse("init_process_group")
get_rank = _refuse("get_rank")
get_world_size = _refuse("get_world_size")
barrier = _refuse("barrier")
