"""One kernel for many sizes, where a graph's sizes vary.

A graph is planned anew for new sizes, which takes Python some milliseconds; its kernels then mostly differ in numbers (extents, strides). The
first kernel of a form keeps its numbers as constants. Once another one differs in some of them, those, and only those, become sizes that a call
passes: what never varies stays a constant, to which LLVM can fit the code.

    skeleton ::= a kernel whose numbers, but 0, 1 and -1, are sizes, in the order in which they are met
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from tocha._inductor.kernels import Built
from tocha.inductor import entry, jit
from tocha.inductor.loop_ir import Const, Kernel, Size, walk
from tocha.inductor.pointwise import Renamer

_MOST = 1024


@dataclasses.dataclass
class _Family:
    """The kernels of one skeleton: the numbers of the first, which of them (by place) are passed, and the builtin of all."""

    numbers: tuple[int, ...]
    passed: tuple[int, ...]
    builtin: Any
    loads: list[jit.Loaded]


_families: dict[Kernel, _Family] = {}


def shared(built: Built) -> tuple[Any, Built]:
    """The builtin of a kernel's family, and the kernel's work as that takes it. Call it under `jit.LOCK`."""
    kernel = dataclasses.replace(built.kernel, name="fused")
    every = [n for n in walk((*kernel.body, *kernel.finish)) if isinstance(n, Const) and n.type == "index"]
    found = [n for n in every if n.value not in (0, 1, -1)]
    numbers = tuple([int(n.value) for n in found])
    skeleton = _passing(kernel, found, range(len(found)))
    family = _families.get(skeleton)
    if family is None:
        if len(_families) >= _MOST:
            _families.clear()
        family = _families[skeleton] = _family(kernel, built.grain, numbers, ())
    elif others := {i for i, n in enumerate(numbers) if n != family.numbers[i]}.difference(family.passed):
        passed = tuple(sorted(others.union(family.passed)))
        family = _families[skeleton] = _family(_passing(kernel, found, passed), built.grain, numbers, passed)
    else:
        jit.note(family.loads)
    if not family.passed:
        return family.builtin, built
    work = [built.work, built.grain] if isinstance(built.work, int) else built.work.tolist()
    return family.builtin, dataclasses.replace(built, work=np.array([*work, *[numbers[i] for i in family.passed]], np.int64))


def _passing(kernel: Kernel, found: list[Any], places: Any) -> Kernel:
    """The kernel with its numbers at these places as sizes."""
    sizes = {found[i]: Size(f"number{i}") for i in places}
    made: Kernel = Renamer(sizes)(kernel)
    return dataclasses.replace(made, sizes=(*kernel.sizes, *sizes.values()))


def _family(kernel: Kernel, grain: int, numbers: tuple[int, ...], passed: tuple[int, ...]) -> _Family:
    loads: list[jit.Loaded] = []
    with jit.noting(loads):
        builtin = entry.build(kernel, grain)
    return _Family(numbers, passed, builtin, loads)
