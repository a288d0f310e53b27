"""Forward mode: dual tensors carry a tangent through every primitive.

Each primitive's product with a tangent is made of its own vjp, which is linear in the incoming gradient: the derivative of
w ↦ vjp(w)·t with respect to w is the tangent of the output. View primitives are linear, so their tangent is the same
view of the tangent, and in-place changes reach it.
"""

from __future__ import annotations

from typing import Any

from tocha.autograd.graph import version_of
from tocha.autograd.mode import state, transform_grad
from tocha.dispatch.interpret import pop, push
from tocha.dispatch.override import HOLLOW, NO_DISPATCH, Hollow, stacks
from tocha.dispatch.prim import Prim
from tocha.tensor import Tensor, wrap_as

#: Primitives whose output is linear in their one tensor, run on the tangent as they are.
_LINEAR = frozenset(("clone", "cast", "to_device", "neg", "flip", "roll", "repeat", "tril", "triu", "sum", "mean", "unsafe_view"))


class Dual(Hollow):
    """A tensor with a tangent, of the forward level numbered `level`."""

    tangent: Tensor
    level: int

    @property
    def primal(self) -> Tensor:
        """The value without its tangent."""
        return self.inner

    def detach(self) -> Tensor:
        return self.primal.detach()

    def assign_in_place(self, value: Tensor, operator: str) -> Tensor:
        """Write value and tangent into this tensor's."""
        from tocha.dispatch.inplace import assign

        mine = isinstance(value, Dual) and value.level == self.level
        assign(self.primal, value.primal if mine else value, operator)
        tangent = value.tangent if mine else self.tangent.new_zeros(self.tangent.shape)
        assign(self.tangent, tangent.to(self.tangent.dtype), operator)
        return self


HOLLOW.add(Dual)
NO_DISPATCH.add(Dual)


def dual(primal: Tensor, tangent: Tensor, level: int) -> Dual:
    """`primal` with a tangent."""
    out: Dual = wrap_as(Dual, primal._a)
    out._vc = version_of(primal)
    out.inner, out.tangent, out.level = primal, tangent, level
    return out


class ForwardLevel:
    """One level of forward mode."""

    def __init__(self, level: int) -> None:
        self.level = level

    def holds(self, a: Any) -> bool:
        """Whether `a` has a tangent of this level."""
        return isinstance(a, Dual) and a.level == self.level

    def like(self, source: Any, got: Tensor) -> Tensor:
        """A tensor newly made like a dual one has a tangent of zeros, to be written to."""
        return dual(got, got.new_zeros(got.shape), self.level) if self.holds(source) and got._a.dtype.kind in "fcV" else got

    def run(self, prim: Prim, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """Primal and tangent of the results."""
        mine = [self.holds(a) for a in args]
        if not any(mine):
            return prim(*args, **params)
        primals = [a.primal if m else a for a, m in zip(args, mine, strict=True)]
        if prim.family == "view" or (prim.name in _LINEAR and len(args) == 1):
            return self._pair(prim(*primals, **params), prim(args[0].tangent, **params))
        if prim.vjp is None:
            return prim(*primals, **params)
        outs, tangents = self._push(prim, primals, [a.tangent for a, m in zip(args, mine, strict=True) if m], mine, params)
        return self._pair(outs, tangents)

    def _pair(self, outs: Any, tangents: Any) -> Any:
        if isinstance(outs, tuple):
            pairs = zip(outs, tangents, strict=True)
            return tuple(o if t is None else dual(o, t, self.level) for o, t in pairs)
        return outs if tangents is None else dual(outs, tangents, self.level)

    @staticmethod
    def _push(prim: Prim, primals: list[Any], given: list[Tensor], mine: list[bool], params: dict[str, Any]) -> tuple[Any, Any]:
        """(outputs, their tangents)."""
        recording = bool(state.grad) and any(isinstance(x, Tensor) and x.requires_grad for x in (*primals, *given))
        with transform_grad():
            xs = [_leaf(x, recording) if m else x for x, m in zip(primals, mine, strict=True)]
            got = prim(*xs, **params)
            inputs = [x for x, m in zip(xs, mine, strict=True) if m]
            outs = got if isinstance(got, tuple) else (got,)
            tangents = tuple(_tangent(o, inputs, given, recording) for o in outs)
        if not recording:
            outs = tuple(o.detach() for o in outs)
        return (outs, tangents) if isinstance(got, tuple) else (outs[0], tangents[0])


def _leaf(x: Tensor, recording: bool) -> Tensor:
    return x.view_as(x) if recording and x.requires_grad else x.detach().requires_grad_()


def _tangent(out: Tensor, inputs: list[Tensor], given: list[Tensor], recording: bool) -> Tensor | None:
    from tocha.autograd.engine import grad

    if not out.requires_grad:
        return None
    zeros = out.detach().new_zeros(out.shape)
    w = zeros.requires_grad_()
    back = grad(out, inputs, w, create_graph=True, retain_graph=True, allow_unused=True)
    pairs = [(b, t) for b, t in zip(back, given, strict=True) if b is not None and b.requires_grad]
    if not pairs:
        return zeros.detach()
    found = grad([b for b, _ in pairs], w, [t for _, t in pairs], create_graph=recording, allow_unused=True)[0]
    return zeros.detach() if found is None else found


def enter() -> ForwardLevel:
    """Start a level; `leave` ends it."""
    level = ForwardLevel(len(stacks.interpreters))
    push(level)
    return level


leave = pop


def current() -> ForwardLevel | None:
    """The innermost forward level of this thread."""
    return next((i for i in reversed(stacks.interpreters) if isinstance(i, ForwardLevel)), None)


def apply_function(cls: Any, args: tuple[Any, ...], level: ForwardLevel) -> Any:
    """A custom Function on dual tensors: its forward on the primals, its jvp on the tangents."""
    primals = tuple(a.primal if level.holds(a) else a for a in args)
    if cls.jvp is _no_jvp():
        raise RuntimeError(
            f"Trying to use forward AD with {cls.__name__} that does not support it because it has not been implemented yet: "
            "define a static jvp(ctx, *grad_inputs) on it"
        )
    top = stacks.interpreters.pop()
    try:
        ctx, got = cls._run(primals)
        outs = got if isinstance(got, (tuple, list)) else (got,)
        tangents = cls.jvp(ctx, *[a.tangent if level.holds(a) else None for a in args])
    finally:
        stacks.interpreters.append(top)
    tangents = tangents if isinstance(tangents, tuple) else (tangents,)
    paired = [
        dual(o, t, level.level) if isinstance(o, Tensor) and t is not None else o for o, t in zip(outs, tangents, strict=True)
    ]
    return tuple(paired) if isinstance(got, (tuple, list)) else paired[0]


def _no_jvp() -> Any:
    from tocha.autograd.function import Function

    return Function.jvp
