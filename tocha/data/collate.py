"""Samples to batches: which function makes a batch of which type.

Source: torch docs, torch.utils.data._utils.collate.
"""

from __future__ import annotations

import collections.abc
import copy
import re
from collections.abc import Callable
from typing import Any

import numpy

import tocha
from tocha.tensor import Tensor

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

CollateMap = dict[Any, Callable[..., Any]]

#: Kinds of NumPy arrays that have no tensor: strings, bytes, objects.
_TEXT_OR_OBJECT = re.compile(r"[SaUO]")
_ACCEPTED = "batch must contain tensors, numpy arrays, numbers, dicts or lists"


def default_convert(data: Any) -> Any:
    """NumPy arrays inside `data` as tensors, everything else as it is."""
    elem_type = type(data)
    if isinstance(data, Tensor):
        return data
    if isinstance(data, (numpy.ndarray, numpy.generic)) and not isinstance(data, (numpy.str_, numpy.bytes_)):
        if elem_type is numpy.ndarray and _TEXT_OR_OBJECT.search(data.dtype.str):
            return data
        return tocha.as_tensor(data)
    if isinstance(data, collections.abc.Mapping):
        return _same_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if _is_namedtuple(data):
        return elem_type(*(default_convert(value) for value in data))
    if isinstance(data, tuple):
        return [default_convert(value) for value in data]
    if isinstance(data, collections.abc.Sequence) and not isinstance(data, (str, bytes)):
        return _same_sequence(data, [default_convert(value) for value in data])
    return data


def _is_namedtuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _same_mapping(like: Any, items: dict[Any, Any]) -> Any:
    """`items` as a mapping of the type of `like`, or a dict where the type can't be made."""
    try:
        if isinstance(like, collections.abc.MutableMapping):
            # A copy keeps what the constructor does not take, such as the factory of a defaultdict.
            out = copy.copy(like)
            out.update(items)
            return out
        return type(like)(items)
    except TypeError:
        return items


def _same_sequence(like: Any, items: list[Any]) -> Any:
    """`items` as a sequence of the type of `like`, or a list where the type can't be made."""
    try:
        if isinstance(like, collections.abc.MutableSequence):
            out = copy.copy(like)
            for i, item in enumerate(items):
                out[i] = item
            return out
        return type(like)(items)
    except TypeError:
        return items


def collate(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """A batch of the samples in `batch`: by `collate_fn_map` for the type of the first, else element by
    element.

    Raises TypeError for types that neither the map nor containers cover, RuntimeError for sequences of
    different lengths.
    """
    elem = batch[0]
    elem_type = type(elem)
    if collate_fn_map is not None:
        if elem_type in collate_fn_map:
            return collate_fn_map[elem_type](batch, collate_fn_map=collate_fn_map)
        for known, function in collate_fn_map.items():
            if isinstance(elem, known):
                return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(elem, collections.abc.Mapping):
        columns = {key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in elem}
        return _same_mapping(elem, columns)
    if _is_namedtuple(elem):
        return elem_type(*(collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)))
    if isinstance(elem, collections.abc.Sequence):
        if any(len(sample) != len(elem) for sample in batch):
            lengths = sorted({len(sample) for sample in batch})
            raise RuntimeError(f"each element in list of batch should be of equal size, but sizes are {lengths}")
        items = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)]
        return items if isinstance(elem, tuple) else _same_sequence(elem, items)
    raise TypeError(f"default_collate: {_ACCEPTED}; found {elem_type}")


def collate_tensor_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Tensors of one shape (...), as (batch, ...)."""
    return tocha.stack(list(batch), 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """NumPy arrays of one shape (...), as a tensor (batch, ...)."""
    elem = batch[0]
    if _TEXT_OR_OBJECT.search(elem.dtype.str):
        raise TypeError(f"default_collate: {_ACCEPTED}; found {elem.dtype}")
    return collate([tocha.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """NumPy scalars, as a tensor (batch,) of their dtype."""
    return tocha.as_tensor(numpy.asarray(batch))


def collate_float_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Python floats, as a float64 tensor (batch,)."""
    return tocha.as_tensor(batch, dtype=tocha.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Python integers or booleans, as an int64 or bool tensor (batch,)."""
    return tocha.as_tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: CollateMap | None = None) -> Any:
    """Strings stay a list."""
    return batch


#: The function for each type of sample; add to it for types of one's own.
default_collate_fn_map: CollateMap = {
    Tensor: collate_tensor_fn,
    numpy.ndarray: collate_numpy_array_fn,
    (numpy.bool_, numpy.number, numpy.object_): collate_numpy_scalar_fn,
    float: collate_float_fn,
    int: collate_int_fn,
    str: collate_str_fn,
    bytes: collate_str_fn,
}


def default_collate(batch: Any) -> Any:
    """A batch of samples: tensors stacked, numbers as tensors, containers element by element, strings as
    a list.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
