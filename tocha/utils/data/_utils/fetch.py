"""torch.utils.data._utils.fetch."""

from tocha.data.fetch import _BaseDatasetFetcher as _BaseDatasetFetcher
from tocha.data.fetch import _IterableDatasetFetcher as _IterableDatasetFetcher
from tocha.data.fetch import _MapDatasetFetcher as _MapDatasetFetcher
