"""torch.utils.data.dataloader."""

from tocha.data.collate import default_collate as default_collate
from tocha.data.collate import default_convert as default_convert
from tocha.data.dataloader import DataLoader as DataLoader
from tocha.data.dataloader import _BaseDataLoaderIter as _BaseDataLoaderIter
from tocha.data.dataloader import _InfiniteConstantSampler as _InfiniteConstantSampler
from tocha.data.dataloader import _SingleProcessDataLoaderIter as _SingleProcessDataLoaderIter
from tocha.data.fetch import _DatasetKind as _DatasetKind
from tocha.data.worker import get_worker_info as get_worker_info


def __getattr__(name: str) -> object:
    # Worker processes are loaded on first use: their module is the heavy part.
    if name == "_MultiProcessingDataLoaderIter":
        from tocha.data.multiprocess import _MultiProcessingDataLoaderIter

        return _MultiProcessingDataLoaderIter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
