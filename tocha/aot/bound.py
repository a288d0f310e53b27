"""Compiled functions some of whose inputs are the same tensors at every call, so that what is done for each of them is done once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from tocha.aot.runtime import Compiled, CompiledBackward, Filled
from tocha.autograd.graph import version_of
from tocha.autograd.mode import INFERENCE_USED, state
from tocha.autograd.views import edge_of
from tocha.tensor import Tensor

T = TypeVar("T")


class _Template(Generic[T]):
    """A list with an entry for each of some inputs. `make` gives them: at each call those of the rest and of the tensors in `also`."""

    def __init__(self, numbers: Sequence[int], fixed: dict[int, Tensor], make: Callable[[Tensor], T], also: Any = ()) -> None:
        self.make = make
        self.known: list[Any] = [make(fixed[i]) if i in fixed else None for i in numbers]
        self.whole, self.closed = tuple(self.known), Filled(self.known)
        rest = {i: place for place, i in enumerate(i for i in range(max(numbers, default=-1) + 1) if i not in fixed)}
        self.open = [(at, rest[i]) for at, i in enumerate(numbers) if i in rest]
        self.again = [(at, fixed[i]) for at, i in enumerate(numbers) if i in also]

    def part(self, rest: Sequence[Tensor]) -> Filled:
        """The list for a call, nothing of it copied."""
        return Filled(self.known, [(at, self.make(rest[place])) for at, place in self.open]) if self.open else self.closed

    def fill(self, rest: Sequence[Tensor]) -> list[T]:
        """The list for a call."""
        filled = self.known.copy()
        for at, place in self.open:
            filled[at] = self.make(rest[place])
        for at, t in self.again:
            filled[at] = self.make(t)
        return filled

    def filled(self, rest: Sequence[Tensor]) -> tuple[T, ...]:
        """The same as a tuple."""
        return tuple(self.fill(rest)) if self.open or self.again else self.whole


class Bound:
    """`bound(*rest)`: a compiled function on the fixed inputs and, in their order, the rest."""

    def __init__(self, made: Compiled, fixed: dict[int, Tensor]) -> None:
        every = range(made.traced.inputs)
        self.made = made
        self.inputs: _Template[Tensor] = _Template(every, fixed, lambda t: t)
        bind = getattr(made.forward, "bind", None)
        self.arrays: _Template[Any] = _Template(every, fixed, lambda t: t._a)
        self.forward = None if bind is None else bind({i: t._a for i, t in fixed.items()})
        if made.again is not None:
            wanted, needed = made.traced.wanted, made.again.needed
            self.edges = _Template(
                wanted, fixed, _edge, [i for i, t in fixed.items() if t._extra is not None or t._view is not None]
            )
            self.numbers = _Template(wanted, fixed, lambda t: t._nr)
            self.numbered = bool(self.numbers.open) or any(self.numbers.known)
            self.saved = _Template(made.saved_inputs, fixed, lambda t: t._a)
            self.pairs = _Template(needed, fixed, _pair)
            self.wanted = len(made.traced.differentiable)
            lists = (self.edges, self.numbers, self.saved, self.pairs)
            self.settled = None if any(x.open or x.again for x in lists) else self._parts(())

    def __call__(self, *rest: Tensor) -> list[Any]:
        made, node = self.made, None
        if made.again is not None and (state.grad or made.always):
            edges, numbers, saved, held = self.settled or self._parts(rest)
            node = CompiledBackward(edges, numbers, self.wanted)
            node.made, node.arrays, node.held, node.done = made, saved, held, 0
            node.rng = made.again.rng() if made.again.draws else None
            if INFERENCE_USED:
                node.checked()
        if self.forward is None:
            arrays = made.forward(self.arrays.fill(rest))
        else:
            arrays = self.forward([rest[0]._a] if len(rest) == 1 else [t._a for t in rest])  # the loop takes 0.1 µs
        return made.finish(() if made.plain else self.inputs_with(rest), arrays, node)

    def _parts(self, rest: Sequence[Tensor]) -> tuple[Any, Any, Filled, Filled]:
        """A call's edges, their numbers, the saved inputs' arrays, and the inputs that running again takes."""
        numbers = self.numbers.filled(rest) if self.numbered else None
        return self.edges.filled(rest), numbers, self.saved.part(rest), self.pairs.part(rest)

    def inputs_with(self, rest: Sequence[Tensor]) -> list[Tensor]:
        """All inputs, in order."""
        return self.inputs.fill(rest)


def _edge(t: Tensor) -> Any:
    return edge_of(t) if t.requires_grad else None


def _pair(t: Tensor) -> Any:
    return version_of(t), t
