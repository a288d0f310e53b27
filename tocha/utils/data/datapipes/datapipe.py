"""Data sets that others wrap: `pipe.batch(2)` is `Batcher(pipe, 2)` once Batcher is registered as "batch"."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from tocha.data.dataset import Dataset, IterableDataset

C = TypeVar("C", bound=type)

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe"]


class _Functions:
    """Registered classes answer as methods."""

    functions: ClassVar[dict[str, Callable[..., Any]]]

    def __getattr__(self, name: str) -> Any:
        found = type(self).functions.get(name) if not name.startswith("__") else None
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return functools.partial(found, self)

    @classmethod
    def register_function(cls, name: str, function: Callable[..., Any]) -> None:
        """Make `pipe.name(...)` call `function(pipe, ...)`."""
        if name in cls.functions:
            raise Exception(f"Unable to add DataPipe function name {name} as it is already taken")
        cls.functions[name] = function

    @classmethod
    def register_datapipe_as_function(cls, name: str, cls_to_register: Any, enable_df_api_tracing: bool = False) -> None:
        """Make `pipe.name(...)` construct `cls_to_register(pipe, ...)`."""
        cls.register_function(name, cls_to_register)


class IterDataPipe(_Functions, IterableDataset):  # type: ignore[type-arg]
    """A data set to iterate over (torch docs: torch.utils.data.datapipes)."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class MapDataPipe(_Functions, Dataset):  # type: ignore[type-arg]
    """A data set to index."""

    functions: ClassVar[dict[str, Callable[..., Any]]] = {}


class functional_datapipe:
    """Decorate a pipe class to be the method `name` of all pipes of its kind."""

    def __init__(self, name: str, enable_df_api_tracing: bool = False) -> None:
        self.name = name

    def __call__(self, cls: C) -> C:
        if not issubclass(cls, (IterDataPipe, MapDataPipe)):
            raise TypeError("`functional_datapipe` can only decorate IterDataPipe or MapDataPipe")
        cls.register_datapipe_as_function(self.name, cls)
        return cls
