"""Native kernels over lists of arrays (tocha.inductor.lists): made when asked for, kept by rule, types and options.

A rule is asked for with the numbers of this call; its kernel takes them as arguments and serves all calls for which the rule's branches
come out the same. A kernel is compiled when it is wanted for the third time: what runs once or twice isn't worth it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.backends import native

ON = os.environ.get("TOCHA_EAGER") != "numpy"
ndarray = np.ndarray
COUNTERS = frozenset((np.dtype(np.float32), np.dtype(np.float64)))  # types in which steps are counted
_WANTED, _VARIANTS = 3, 8


def alike(row: Sequence[Any]) -> bool:
    """Whether arrays are NumPy's, of one type and shape, the first can be written to and shares no memory with the second."""
    first = row[0]
    if first.__class__ is not ndarray or not first.flags.writeable:
        return False
    dtype, shape = first.dtype, first.shape
    for a in row:
        if a.__class__ is not ndarray or a.dtype is not dtype or a.shape != shape:
            return False
    return len(row) == 1 or not np.may_share_memory(first, row[1])


class _Kernel:
    """`run` is None while the kernel is being compiled and where it can't be; `params` name the numbers it takes."""

    def __init__(self) -> None:
        self.run: Callable[..., bool] | None = None
        self.params: tuple[str, ...] = ()
        self.guards: Any = None
        self.pending, self.wanted = True, 0


_kernels: dict[Any, list[_Kernel]] = {}


def find(
    name: str,
    rule: Callable[..., tuple[Any, ...]],
    names: Sequence[str],
    written: Sequence[str],
    dtype: Any,
    params: dict[str, Any],
) -> _Kernel | None:
    """The kernel of `rule(o, half, elements…, **params)` over lists of `dtype` arrays called `names`; None where there is none (yet).

    `half` is the type to round to after each operation, None for float32 and float64. Floats in `params` may differ from call to call.
    """
    key = (name, dtype, *names, *[v for v in params.values() if v.__class__ is not float])
    known = _kernels.get(key) if ON else None
    if known is None:
        modules = native.inductor() if ON else None
        if modules is None:
            return None
        if _forget_pending not in modules.service.on_fork:
            modules.service.on_fork.append(_forget_pending)
        known = _kernels[key] = []
    for kernel in known:
        if kernel.pending:
            _want(kernel, name, rule, names, written, dtype, params)
            return kernel if kernel.run is not None and _serves(kernel, params) else None
        if kernel.run is not None and _serves(kernel, params):
            return kernel
    if len(known) >= _VARIANTS or any(kernel.run is None for kernel in known):
        return None
    known.append(_Kernel())
    try:
        return find(name, rule, names, written, dtype, params)
    except BaseException:  # an interrupt, after which it may be asked for again
        known[:] = [kernel for kernel in known if kernel.run is not None]
        raise


def _serves(kernel: _Kernel, params: dict[str, Any]) -> bool:
    modules = native.inductor()
    return modules is not None and modules.lower.holds(kernel.guards, params)


def _want(
    kernel: _Kernel, name: str, rule: Any, names: Sequence[str], written: Sequence[str], dtype: Any, params: dict[str, Any]
) -> None:
    """Have the kernel compiled if it is wanted often enough and isn't asked for yet."""
    modules = native.inductor()
    assert modules is not None
    service = modules.service
    kernel.wanted += 1
    if kernel.wanted != (1 if service.now() else _WANTED):
        return
    from tocha.inductor import lists
    from tocha.inductor.loop_ir import FLOATS, HALVES, Buffer

    def make() -> Any:
        type = modules.lower.NP_TYPES.get(dtype)
        if type not in (*HALVES, *FLOATS):
            raise modules.lower.Unsupported(f"{name} of {dtype}")
        half = type in HALVES
        made = lists.make(
            name, lambda o, *x, **numbers: rule(o, dtype if half else None, *x, **numbers), [Buffer(n, type) for n in names], written,
            "f32" if half else type, params,
        )  # fmt: skip
        return made, lists.build(made.kernel, [dtype] * len(names), made.grain)

    def put(result: Any) -> None:
        if result is not service.FAILED:
            made, run = result
            kernel.guards, kernel.params, kernel.run = made.guards, made.params, run
        kernel.pending = False

    service.request(make, put)


def _forget_pending() -> None:
    """In a child after fork: nobody compiles what was asked for."""
    for known in _kernels.values():
        known[:] = [kernel for kernel in known if not kernel.pending]


# ---- reductions


_CHUNK = 32768  # elements to a partial result
_JOIN = {"abs_max": np.maximum}


def reduced(name: str, arrays: list[Any]) -> Any:
    """The results of reduction `name` (tocha.inductor.reduce.KINDS) of each array, none of them empty, in the type it is accumulated in; None if
    they aren't all dense and of one type that a kernel takes, and until the kernel is compiled."""
    modules = native.inductor() if ON else None
    dtype = arrays[0].dtype
    if modules is None or modules.lower.NP_TYPES.get(dtype) not in _SUMMED:
        return None
    counts = [-(-a.size // _CHUNK) for a in arrays]
    wide = dtype if name == "abs_max" and dtype in COUNTERS else np.dtype(np.float32 if name == "abs_max" else np.float64)
    run = native.built(("reduce_list", name, dtype), lambda: _reduction(modules, name, dtype, wide))
    partial = np.empty(sum(counts), wide)
    if run is None or not run(arrays, partial):
        return None
    if len(partial) == len(arrays):
        return partial
    return _JOIN.get(name, np.add).reduceat(partial, [0, *itertools.accumulate(counts[:-1])])


_SUMMED = frozenset(("f16", "bf16", "f32", "f64"))


def _reduction(modules: Any, name: str, dtype: Any, wide: Any) -> Callable[..., bool]:
    from tocha.inductor import lists

    return lists.build_reduction(modules.reduce.chunks(name, modules.lower.NP_TYPES[dtype], _CHUNK), [dtype, wide], _CHUNK)
