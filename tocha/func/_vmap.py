"""vmap: map a function over a dimension of its inputs (torch docs: torch.func.vmap)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from tocha.dispatch.vmap import Batched, Vmap, batched, enter, leave
from tocha.tensor import Tensor
from tocha.utils._pytree import TreeSpec, broadcast_to, tree_flatten, tree_unflatten


def vmap(
    func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable[..., Any]:
    """A function that applies `func` to every slice of its inputs along `in_dims` and stacks the results at `out_dims`.

    `in_dims`: an int, None (not mapped) or a structure of them matching the positional inputs; keyword inputs are not
    mapped. `chunk_size` bounds how many examples run at once.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        leaves, spec, dims, size = _read(func, in_dims, args, kwargs)
        if chunk_size is None or chunk_size >= size:
            return _run(func, leaves, spec, dims, size, out_dims, randomness)
        outs = []
        for start in range(0, size, chunk_size):
            n = min(chunk_size, size - start)
            part = [x if d is None else x.narrow(d, start, n) for x, d in zip(leaves, dims, strict=True)]
            outs.append(_run(func, part, spec, dims, n, out_dims, randomness))
        return _join(outs, out_dims)

    return wrapped


def _read(func: Any, in_dims: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], TreeSpec, list[Any], int]:
    """Flat inputs, their structure, the mapped dimension of each (counted from 0) and the batch size."""
    name = getattr(func, "__name__", repr(func))
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}): expected `in_dims` to be int or a (potentially nested) tuple, got: {type(in_dims)}"
        )
    if not args and not kwargs:
        raise ValueError(f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap over a "
                         "function with no inputs.")  # fmt: skip
    leaves, spec = tree_flatten((args, kwargs))
    flat_args, args_spec = tree_flatten(args)
    dims = broadcast_to(tuple(in_dims) if isinstance(in_dims, list) else in_dims, args_spec)
    if dims is None:
        raise ValueError(f"vmap({name}, in_dims={in_dims}): in_dims is not compatible with the structure of inputs")
    dims += [None] * (len(leaves) - len(flat_args))
    if isinstance(in_dims, int):
        dims = [d if isinstance(x, Tensor) else None for d, x in zip(dims, leaves, strict=True)]
    sizes = set()
    for i, (x, d) in enumerate(zip(leaves, dims, strict=True)):
        if d is None:
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"vmap({name}, in_dims={in_dims}): Got in_dim={d} for an input but the input is of type {type(x)}; it must be None"
            )
        if x.ndim == 0 or not -x.ndim <= d < x.ndim:
            raise ValueError(
                f"vmap({name}, in_dims={in_dims}): Got in_dim={d} for some input, but that input is a Tensor of dimensionality {x.ndim}"
            )
        dims[i] = d % x.ndim
        sizes.add(x.shape[d])
    if not sizes:
        raise ValueError(f"vmap({name}, in_dims={in_dims}): at least one input must be mapped over")
    if len(sizes) > 1:
        raise ValueError(f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}")
    return leaves, spec, dims, sizes.pop()


def _run(
    func: Callable[..., Any], leaves: list[Any], spec: TreeSpec, dims: list[Any], size: int, out_dims: Any, randomness: str
) -> Any:
    moved = [x if d is None else x.movedim(d, 0) for x, d in zip(leaves, dims, strict=True)]
    arrays = [x._a if d is not None else None for x, d in zip(moved, dims, strict=True)]
    level = enter(size, randomness)
    try:
        given = [x if d is None else batched(x, level.level) for x, d in zip(moved, dims, strict=True)]
        args, kwargs = tree_unflatten(given, spec)
        got = func(*args, **kwargs)
    finally:
        leave()
    for x, m, d, a in zip(leaves, moved, dims, arrays, strict=True):
        if d is not None and m._a is not a and (d == 0 or m.ndim == x.ndim):
            from tocha.ops.geometry import take

            take(x, m.movedim(0, d) if d else m, "vmap")  # func reshaped its input in place
    return _unwrap(got, level, out_dims)


def _unwrap(got: Any, level: Vmap, out_dims: Any) -> Any:
    outs, spec = tree_flatten(got)
    dims = broadcast_to(out_dims, spec)
    if dims is None:
        raise ValueError(f"vmap: out_dims={out_dims} is not compatible with the structure of the outputs")
    results = []
    for out, d in zip(outs, dims, strict=True):
        if not isinstance(out, Tensor):
            raise ValueError(
                f"vmap: `func` must only return Tensors, got type {type(out)}. Did you mean to set out_dims= to None for output?"
            )
        if isinstance(out, Batched) and out.level == level.level:
            if d is None:
                raise ValueError("vmap: out_dims is None for an output that depends on a mapped input")
            value = out.value
        elif d is None:
            results.append(out)
            continue
        else:
            value = out.unsqueeze(0).expand(level.size, *out.shape)
        results.append(value if d == 0 else value.movedim(0, d))
    return tree_unflatten(results, spec)


def _join(parts: list[Any], out_dims: Any) -> Any:
    from tocha.ops.shape import cat

    spec = tree_flatten(parts[0])[1]
    dims = broadcast_to(out_dims, spec) or []
    columns = zip(*(tree_flatten(p)[0] for p in parts), strict=True)
    return tree_unflatten([c[0] if d is None else cat(list(c), d) for c, d in zip(columns, dims, strict=True)], spec)
