"""The sampler of one process among several.

Source: torch docs, torch.utils.data.distributed.DistributedSampler.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tocha

from .sampler import Sampler

__all__ = ["DistributedSampler"]


def _process_group() -> Any:
    import tocha.distributed as dist

    if not dist.is_available():
        raise RuntimeError("Requires distributed package to be available: give num_replicas and rank instead")
    return dist


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on, of a permutation that all processes share.

    The list is filled up from its start, or with `drop_last` cut, to the same length for all. Call
    `set_epoch` before each epoch, or all epochs have the same order.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None:
            num_replicas = _process_group().get_world_size()
        if rank is None:
            rank = _process_group().get_rank()
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0
        self.drop_last = drop_last
        n = len(dataset)
        self.num_samples = n // num_replicas if drop_last else math.ceil(n / num_replicas)
        self.total_size = self.num_samples * num_replicas
        self.shuffle = shuffle
        self.seed = seed

    def __iter__(self) -> Iterator[int]:
        n = len(self.dataset)
        if self.shuffle:
            generator = tocha.Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = tocha.randperm(n, generator=generator).tolist()
        else:
            indices = list(range(n))
        if self.drop_last:
            indices = indices[: self.total_size]
        elif indices:
            times = math.ceil(self.total_size / len(indices))
            indices = (indices * times)[: self.total_size]
        if len(indices) != self.total_size:
            raise AssertionError(f"Number of indices ({len(indices)}) does not match total_size ({self.total_size})")
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Choose the permutation of this epoch."""
        self.epoch = epoch
