"""Nested inputs split over devices, nested outputs joined (torch docs: torch.nn.parallel.scatter_gather)."""

from __future__ import annotations

from typing import Any

import tocha

__all__ = ["gather", "scatter", "scatter_kwargs"]


def scatter(inputs: Any, target_gpus: list[Any], dim: int = 0) -> list[Any]:
    """One version of `inputs` a device: tensors in chunks along `dim`, other values as they are."""
    n = len(target_gpus)

    def split(value: Any) -> list[Any]:
        if isinstance(value, tocha.Tensor):
            return [part.to(device) for part, device in zip(value.chunk(n, dim), target_gpus)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return [type(value)(*parts) for parts in zip(*map(split, value))]
        if isinstance(value, (tuple, list)) and value:
            return [type(value)(parts) for parts in zip(*map(split, value))]
        if isinstance(value, dict) and value:
            return [type(value)(zip(value, parts)) for parts in zip(*map(split, value.values()))]
        return [value] * n

    return split(inputs)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: list[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Positional and keyword arguments for each device that gets a part of the batch."""
    args = scatter(inputs, target_gpus, dim)
    named = scatter(kwargs or {}, target_gpus, dim)
    n = min(len(args) if inputs else len(target_gpus), len(named) if kwargs else len(target_gpus))
    return tuple(args[:n]), tuple(named[:n])


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """Join the outputs of all devices on `target_device`: tensors concatenated along `dim`."""
    first = outputs[0]
    if isinstance(first, tocha.Tensor):
        moved = [out.to(target_device) for out in outputs]
        if first.dim() == 0:  # a vector of one value a device, as for losses
            return tocha.stack(moved)
        return tocha.cat(moved, dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([out[key] for out in outputs], target_device, dim)) for key in first)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(gather(parts, target_device, dim) for parts in zip(*outputs)))
    return type(first)(gather(parts, target_device, dim) for parts in zip(*outputs))
