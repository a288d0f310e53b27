"""A module run on several devices of one process (torch docs: torch.nn.DataParallel)."""

from tocha.nn.parallel.data_parallel import DataParallel, data_parallel
from tocha.nn.parallel.scatter_gather import gather, scatter, scatter_kwargs

__all__ = ["DataParallel", "data_parallel", "gather", "scatter", "scatter_kwargs"]
