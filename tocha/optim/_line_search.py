"""A line search for the strong Wolfe conditions: bracket, then zoom by cubic interpolation.

Source: Nocedal & Wright, Numerical Optimization (2006), algorithms 3.5 and 3.6; equation 3.59 for the
interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Point(NamedTuple):
    """A trial step along the direction: its length, the loss, the flat gradient (n,) and the slope there."""

    t: float
    loss: float
    grad: Any
    slope: float


def cubic_minimum(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """The minimiser, within `bounds`, of the cubic with the losses and slopes of two points; their middle
    if it has none.
    """
    low, high = bounds if bounds is not None else (min(a.t, b.t), max(a.t, b.t))
    left, right = (a, b) if a.t <= b.t else (b, a)
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1**2 - a.slope * b.slope
    # Written so that NaN, too, takes the middle.
    if not square >= 0:
        return (low + high) / 2.0
    d2 = square**0.5
    divisor = right.slope - left.slope + 2 * d2
    if divisor == 0:
        return (low + high) / 2.0
    t = right.t - (right.t - left.t) * ((right.slope + d2 - d1) / divisor)
    return min(max(t, low), high)


def strong_wolfe(
    evaluate: Callable[[float], Point],
    start: Point,
    t: float,
    direction_norm: float,
    c1: float = 1e-4,
    c2: float = 0.9,
    tolerance_change: float = 1e-9,
    max_ls: int = 25,
) -> tuple[Point, int]:
    """The accepted point and the number of evaluations.

    `start` is the point at step 0, `t` the first trial, `direction_norm` the largest entry of the direction.
    """

    def too_high(p: Point) -> bool:
        return p.loss > start.loss + c1 * p.t * start.slope

    def flat_enough(p: Point) -> bool:
        return abs(p.slope) <= -c2 * start.slope

    previous, new = start, evaluate(t)
    evals, rounds, done = 1, 0, False
    bracket = [start, new]
    while rounds < max_ls:
        bracket = [previous, new]
        if too_high(new) or (rounds > 1 and new.loss >= previous.loss):
            break
        if flat_enough(new):
            bracket, done = [new], True
            break
        if new.slope >= 0:
            break
        bounds = (new.t + 0.01 * (new.t - previous.t), new.t * 10)
        t = cubic_minimum(previous, new, bounds)
        previous, new = new, evaluate(t)
        evals += 1
        rounds += 1
    else:
        bracket = [start, new]

    stalled = False
    bracket = _best_first(*bracket) if len(bracket) == 2 else bracket
    while not done and rounds < max_ls:
        best, other = bracket
        left, right = min(best.t, other.t), max(best.t, other.t)
        if (right - left) * direction_norm < tolerance_change:
            break
        t = cubic_minimum(best, other)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:
            if stalled or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        new = evaluate(t)
        evals += 1
        rounds += 1
        if too_high(new) or new.loss >= best.loss:
            bracket = _best_first(best, new)
            continue
        if flat_enough(new):
            done = True
        elif new.slope * (other.t - best.t) >= 0:
            other = best
        bracket = [new, other]
    return bracket[0], evals


def _best_first(a: Point, b: Point) -> list[Point]:
    return [a, b] if a.loss <= b.loss else [b, a]
