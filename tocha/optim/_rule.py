"""Update rules, stated once: `rule(o, param, grad, states…, **numbers) -> (param, states…)`, a function of operations `o`.

`OnTensors` has them on tensors, in place; `tocha.prims.native_rows` runs the same rule natively for all parameters at once. What an operation
returns stands for its first operand, which on tensors is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tocha
from tocha.prims.native_rows import Rule, alike, fused_update
from tocha.tensor import Tensor

from ._common import add_quotient_, add_scaled_, real_views, regularised, scale_, snapshot

__all__ = ["OnTensors", "Rule", "alike", "fused_update", "update"]


def update(
    rule: Rule,
    columns: dict[str, list[Any]],
    numbers: Callable[..., dict[str, Any]],
    counters: Sequence[list[Any]],
    operations: OnTensors,
    *,
    keep: bool,
    has_complex: bool,
) -> None:
    """Apply `rule` to every row of `columns` with `numbers(step, …)` of its counters, the first of which counts the steps, this one included.

    With `keep` counters are tensors in `numbers`, for gradients or a captured graph; else they are numbers, and what can run natively does."""
    steps, *others = counters
    for i in range(len(steps)) if keep else fused_update(rule, columns, numbers, steps, others):
        row = [column[i] for column in columns.values()]
        steps[i].add_(1)
        now = [counter[i].clone() if keep else counter[i].item() for counter in counters]
        rule.apply(operations, *(real_views(*row) if has_complex else row), **numbers(*now))


class OnTensors:
    """The operations on tensors, in place on the first operand where it is one of the row's or a temporary.

    `differentiable`: the step is recorded, so what later operations need is copied first.
    """

    def __init__(self, differentiable: bool = False) -> None:
        self.differentiable = differentiable

    regularised = staticmethod(regularised)

    def copy(self, x: Any) -> Any:
        return x.clone()

    def kept(self, x: Any) -> Any:
        """x as it is now, whatever happens to it later."""
        return snapshot(x, self.differentiable)

    def scale(self, x: Any, factor: Any) -> Any:
        """x *= factor."""
        scale_(x, factor)
        return x

    def lerp(self, x: Any, y: Any, weight: Any) -> Any:
        """x += weight * (y - x)."""
        return x.lerp_(y, weight)

    def add_product(self, x: Any, y: Any, z: Any, value: Any) -> Any:
        """x += value * y * z."""
        return x.addcmul_(y, z, value=value)

    def add_quotient(self, x: Any, y: Any, z: Any, value: Any) -> Any:
        """x += value * y / z."""
        add_quotient_(x, y, z, value)
        return x

    def add_scaled(self, x: Any, y: Any, factor: Any) -> Any:
        """x += factor * y, of float32 rounded once: in float64 the product is exact."""
        if x.dtype is tocha.float32 and not isinstance(factor, Tensor) and alike([x, y]):
            return x.copy_(y.double().mul_(tocha.full((), factor, dtype=x.dtype).item()).add_(x))
        add_scaled_(x, y, factor)
        return x

    def plus_scaled(self, x: Any, y: Any, factor: Any) -> Any:
        """x + factor * y, anew."""
        return x.add(y, alpha=factor)

    def mean_square(self, x: Any, y: Any, old: Any, new: Any) -> Any:
        """x = old * x + new * y²."""
        if isinstance(new, Tensor):
            return x.lerp_(y.square(), new.to(x.dtype))
        return x.mul_(old).addcmul_(y, y, value=new)

    def maximum(self, x: Any, y: Any) -> Any:
        """x = max(x, y), NaN winning."""
        if self.differentiable:
            return x.copy_(tocha.maximum(x.clone(), y.clone()))
        return tocha.maximum(x, y, out=x)

    def root(self, x: Any) -> Any:
        """The square root, anew."""
        return x.sqrt()

    def deviation(self, x: Any, mean: Any) -> Any:
        """The square root of x - mean², anew."""
        return x.addcmul(mean, mean, value=-1).sqrt()

    def plus(self, x: Any, number: Any) -> Any:
        """x + number, of a temporary x."""
        return x + number if self.differentiable else x.add_(number)

    def over(self, x: Any, number: Any) -> Any:
        """x / number, of a temporary x."""
        return x / number if self.differentiable else x.div_(number)

    def shifted(self, x: Any, number: Any) -> Any:
        """x + number, anew."""
        return x.add(number)

    def scaled(self, x: Any, number: Any) -> Any:
        """x * number, anew."""
        return x * number

    def divided(self, x: Any, number: Any) -> Any:
        """x / number, anew."""
        return x / number

    def inverse(self, number: Any, x: Any) -> Any:
        """number / x, anew."""
        return number / x

    def magnitude(self, x: Any) -> Any:
        """|x|, anew."""
        return x.abs()

    def times(self, x: Any, y: Any) -> Any:
        """x * y, of a temporary x."""
        return x * y if self.differentiable else x.mul_(y)

    def quotient(self, x: Any, y: Any) -> Any:
        """x / y, of a temporary x."""
        return x / y if self.differentiable else x.div_(y)

    def product(self, x: Any, y: Any) -> Any:
        """x * y, anew."""
        return x * y

    def replace(self, x: Any, y: Any) -> Any:
        """x = y."""
        return x.copy_(y)

    def toward(self, x: Any, y: Any, share: Any) -> Any:
        """x += (y - x) * share."""
        return x.add_(y.sub(x).mul_(share))

    def scale_by_sign(self, x: Any, sign: Any, up: Any, down: Any) -> Any:
        """x *= up where `sign` is above 0, down where it is below; the factors are rounded to x's type."""
        factor = tocha.ones_like(sign).masked_fill_(sign > 0, up).masked_fill_(sign < 0, down)
        return x.copy_(x.clone() * factor) if self.differentiable else x.mul_(factor)

    def clamp(self, x: Any, low: Any, high: Any) -> Any:
        """x = min(max(x, low), high)."""
        return x.copy_(x.clone().clamp(low, high)) if self.differentiable else x.clamp_(low, high)

    def zero_below(self, x: Any, sign: Any) -> Any:
        """0 where `sign` is below 0, else x; anew."""
        return x.masked_fill(sign < 0, 0)

    def sign(self, x: Any) -> Any:
        """-1, 0 or 1, anew."""
        return x.sign()
