"""torch.utils.data.datapipes.iter: pipes to iterate over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tocha.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["Batcher", "IterDataPipe", "IterableWrapper", "Mapper"]


class IterableWrapper(IterDataPipe):
    """Any iterable as a pipe."""

    def __init__(self, iterable: Any, deepcopy: bool = True) -> None:
        self.iterable = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self.iterable)

    def __len__(self) -> int:
        return len(self.iterable)


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """`fn` of every item."""

    def __init__(self, datapipe: Any, fn: Callable[[Any], Any]) -> None:
        self.datapipe, self.fn = datapipe, fn

    def __iter__(self) -> Iterator[Any]:
        return map(self.fn, self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of `batch_size` items, the last one shorter unless `drop_last`; `wrapper_class` makes the batches."""

    def __init__(
        self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Callable[[list[Any]], Any] = list
    ) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = datapipe, batch_size, drop_last, wrapper_class

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for item in self.datapipe:
            batch.append(item)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        n = len(self.datapipe)
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
