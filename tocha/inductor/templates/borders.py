"""Outputs of a convolution at a map's border, apart from those inside: most of their taps may read padding alone.

Of a 3 x 3 convolution of 7 x 7 maps that reads one row and column of padding, 18 % of the multiply-adds are by zeros. Where it pays, borders are
phases of their own (`conv`), without those taps. They go round the map like a pinwheel's sails, each with one corner, so that with eight
maps nearly all vectors are full.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tocha.inductor.templates.gemm import Geometry

if TYPE_CHECKING:
    from tocha.inductor.templates.conv import Line

Shape = tuple[int, ...]
_WORTH = 0.97  # of the cost without


@dataclass(frozen=True)
class Part:
    """A phase, or a part of one: number among the phase's taps and place along each dimension of those it has; how many weights of a row and channel
    the phase has, and those before it; first output, that one's position in a box, outputs along each dimension; tiles at most."""

    taps: tuple[tuple[int, Any], ...]
    stored: int
    before: int
    first: Shape
    start: Shape
    outputs: Shape
    tiles: int

    @staticmethod
    def of(number: int, phases: list[Any], tiles: int) -> Part:
        """All of a phase."""
        counts = [math.prod([len(taps) for _, _, taps in phase]) for phase in phases]
        firsts, outputs, taps = zip(*phases[number], strict=True)
        return Part(tuple(enumerate(itertools.product(*taps))), counts[number], sum(counts[:number]), firsts, (0, 0, 0), outputs, tiles)


def gather(width: int, g: Geometry) -> int:
    """The cost of putting a tile's columns together for a tap, in multiply-adds of vectors, from rows of `width` outputs."""
    return 3 * (2 + g.columns // width)


def trimmed(lines: list[Line], whole: Part, size: list[int], plane: list[int] | None, rows: int, g: Geometry) -> list[Part]:
    """The parts of a phase whose box, of `size`, is all of its maps; [] where that doesn't pay. `plane`: the box's, if tiles aren't gathered."""
    if lines[0].outputs > 1 or any(line.step > 1 or line.out_step > 1 for line in lines):
        return []

    def part(*ranges: tuple[int, int]) -> Part:
        def meets(taps: Any) -> bool:
            reads = [line.origins[0] + tap[2] for line, tap in zip(lines, taps, strict=True)]
            return all(r + end > 0 and r + low < line.size for r, (low, end), line in zip(reads, ranges, lines, strict=True))

        first, outputs = tuple([low for low, _ in ranges]), tuple([end - low for low, end in ranges])
        taps, tiles = tuple([tap for tap in whole.taps if meets(tap[1])]), -(-size[0] * math.prod(outputs) // g.columns)
        return Part(taps, whole.stored, whole.before, first, first, outputs, tiles)

    def cost(parts: list[Part]) -> int:
        vectors = [-(-size[0] * math.prod(part.outputs) // g.lanes) * rows for part in parts]
        return sum(len(part.taps) * (n + part.tiles * gather(part.outputs[2], g)) for part, n in zip(parts, vectors, strict=True))

    _, high, wide = whole.outputs
    cuts = [[(0, line.outputs), _inner(line)] for line in lines[1:]]
    found = []
    for (h0, h1), (w0, w1) in itertools.product(*cuts):
        sails = [((h0, h1), (w0, w1)), ((0, h0), (0, w1)), ((0, h1), (w1, wide)), ((h1, high), (w0, wide)), ((h0, high), (0, w0))]
        found.append([part((0, 1), *ranges) for ranges in sails if all(low < end for low, end in ranges)])
    best = min(found, key=cost)
    plain = cost(found[0]) if plane is None else len(whole.taps) * -(-size[0] * math.prod(plane) // g.lanes) * rows
    return best if cost(best) < _WORTH * plain else []


def _inner(line: Line) -> tuple[int, int]:
    """The outputs whose taps all read the map; all outputs, if there are none."""
    shifts = [shift for _, _, shift in line.phases[0][2]]
    low, end = max(0, -line.origins[0] - min(shifts)), min(line.outputs, line.size - line.origins[0] - max(shifts))
    return (low, end) if low < end else (0, line.outputs)
