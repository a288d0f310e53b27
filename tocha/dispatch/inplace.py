"""In-place and out= forms: write a computed value into an existing tensor and give it that value's history."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.autograd import views
from tocha.autograd.graph import UNCOUNTED, Node, refuse_outside_inference, version_of
from tocha.autograd.mode import no_grad, state
from tocha.autograd.names import named
from tocha.autograd.views import edge_of, refresh, replay
from tocha.backends import cpu, geometry, namespace, native
from tocha.backends.lazy import Lazy, resolved
from tocha.device import device
from tocha.dispatch.overlap import check_out, has_history, one_memory
from tocha.dispatch.override import HOLLOW, INTERPRETERS, NO_DISPATCH, alias_as, in_memory
from tocha.dispatch.promote import REAL_NP, SMALL, WEAK
from tocha.tensor import Tensor, View

_ndarray = np.ndarray
_INF = float("inf")


def check_writable(target: Tensor, operator: str, one_value: bool = False) -> None:
    """Raise before anything is computed if `target` may not be changed in place; elements that share memory may, if
    they all get one value."""
    if target.__class__ in HOLLOW:
        check_writable(target.inner, operator, one_value)
        return
    check_history(target, operator, target._rg)
    if not one_value and overlaps_itself(target):
        raise RuntimeError(_OVERLAP.format(operator))


_OVERLAP = (
    "{}: unsupported operation: more than one element of the written-to tensor refers to a single memory location. Please "
    "clone() the tensor before performing the operation."
)


def check_history(target: Tensor, operator: str, differentiable: Any) -> None:
    """Raise if `target` may not be changed, or not with recording on if it or the new value requires grad (`differentiable`)."""
    if target._vc is UNCOUNTED:
        refuse_outside_inference(operator)
    if not differentiable or not state.grad:
        return
    view = target._view
    if view is not None:
        if view.kind != "normal":
            raise RuntimeError(f"{operator}: {views.refusal(view.kind, 'is being modified inplace')}")
        if target._rg and view.base._node is None:
            raise RuntimeError(
                f"{operator}: a view of a leaf Variable that requires grad is being used in an in-place operation."
            )
    elif target._rg and target._node is None:
        raise RuntimeError(f"{operator}: a leaf Variable that requires grad is being used in an in-place operation.")


def overlaps_itself(target: Tensor) -> bool:
    """Whether elements of a tensor lie on one place of memory (as far as torch looks: dimensions of stride 0)."""
    a = target._a
    return 0 in a.strides and a.size > 0 and any(step == 0 and size > 1 for step, size in zip(a.strides, a.shape, strict=True))


def assign(target: Tensor, value: Tensor, operator: str, since: int | None = None) -> Tensor:
    """Copy `value` into `target` (of the same shape, and a type it casts to) and rebase target's history onto it. `since`: the stamp at
    which a composite began that made `value` of target."""
    if INTERPRETERS and hasattr(target, "assign_in_place"):
        return target.assign_in_place(value, operator)
    if INTERPRETERS and hasattr(value, "assign_in_place"):
        raise RuntimeError(
            f"{operator} is not possible inside vmap or forward-mode differentiation, because the value depends on a mapped (or dual) "
            "input and the target does not. Write it out of place, or make the target from such an input (x.new_zeros(...) + 0 * x)"
        )
    if value._a.shape != target._a.shape:
        raise RuntimeError(
            f"{operator}: output with shape {list(target.shape)} doesn't match the broadcast shape {list(value.shape)}"
        )
    if value._a.dtype is not target._a.dtype:
        if not dtypes.can_cast(value.dtype, target.dtype):
            raise RuntimeError(
                f"{operator}: result type {value.dtype.name} can't be cast to the desired output type {target.dtype.name}"
            )
        value = value.to(target.dtype)
    if value._rg:
        check_history(target, operator, True)
    if value._node is not None:
        _keep_old(target, value._node, since)
    if target.__class__ in NO_DISPATCH:
        store(target._a, value._a)
    else:
        with no_grad():
            ask_copy(target, value)
    mutated(target, value, operator)
    if value._node is not None and operator != "copy_":  # whose source lives on
        _hold_once(target, value, value._node)
    return target


def overwrite(target: Tensor, into: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], operator: str) -> bool:
    """Have the rule that `into` names write to the target's memory if all operands are CPU tensors of its type and shape, or
    numbers, and no gradient is recorded; otherwise change nothing and return False."""
    a = target._a
    if target.__class__ is not Tensor or a.__class__ is not _ndarray or a.dtype not in WEAK or INTERPRETERS:
        return False
    if (state.grad and has_history(target)) or (target._vc is UNCOUNTED and not state.inference) or not a.flags.writeable or 0 in a.strides:
        return False
    arrays: list[Any] = []
    for x in (*args, *kwargs.values()):
        if x.__class__ is Tensor:
            b = x._a
            if b.__class__ is not _ndarray or b.dtype is not a.dtype or b.shape != a.shape or (state.grad and x._rg):
                return False
            if x is not target and one_memory(b, a):
                return False
            arrays.append(b)
        elif x is None or (-SMALL <= x <= SMALL if x.__class__ is int else x.__class__ is float and a.dtype in REAL_NP and _fits(x)):
            arrays.append(x)
        else:
            return False
    try:
        call = into(*arrays) if not kwargs else into(*arrays[: len(args)], **dict(zip(kwargs, arrays[len(args) :], strict=True)))
    except TypeError:
        return False  # the general way raises in words
    if call is None or (a.dtype not in REAL_NP and (call[0].promote == "float" or "integral" in call[0].refuse)):
        return False
    rule, operands, params = call
    if a.size < rule.native_least or rule.by_kernel(operands, a.dtype, a.dtype, params, a) is None:
        state.run(a.__setitem__, ..., state.run(rule.impl, cpu, *operands, **params))
    version_of(target).bump(operator)
    return True


def _fits(x: float) -> bool:
    """Whether a number keeps its sense in float32."""
    return -1e38 <= x <= 1e38 or x in (_INF, -_INF)


def ask_copy(target: Tensor, value: Tensor) -> None:
    """Have a subclass with __torch_dispatch__ change its own data."""
    from tocha.dispatch.interpret import ask_classes
    from tocha.dispatch.overload import find

    ask_classes(find("aten", "copy_", "default"), (target, value), {})


def _keep_old(target: Tensor, node: Node, since: int | None) -> None:
    """An operator about to overwrite its own operand saves a copy of it (as torch does for x.mul_(w)); so do all nodes that a composite
    has made `since`, which may have saved views of it too."""
    copies: dict[int, Tensor] = {}

    def kept(s: Any) -> Any:
        own = s is target
        if not own and since is not None and s.__class__ is Tensor and s._view is not None and s._vc is target._vc:
            own = s._node is not None and s._node.order < since
        if own and id(s) not in copies:
            copies[id(s)] = old = alias_as(Tensor, s)
            old._a, old._vc, old._view = s._a.copy(), None, None
        return copies[id(s)] if own else s

    nodes = [node]
    for n in nodes:
        if getattr(n, "saved", None):
            n.saved = tuple([kept(s) for s in n.saved])  # type: ignore[attr-defined]
        if since is not None:
            nodes += [e for e in n.edges if isinstance(e, Node) and e.order < since and e not in nodes]


def _hold_once(target: Tensor, value: Tensor, node: Node) -> None:
    """Let a node that saved its output hold the memory that this was copied to, not a second one; later writes there are seen by version."""
    plan = getattr(node, "plan", None)
    if plan is None or node.packed or not plan.outputs or target._vc is None or target._a.__class__ is not value._a.__class__:  # type: ignore[attr-defined]
        return
    for position, number in plan.outputs:
        if number == value._nr and node.saved[position] is value._a:  # type: ignore[attr-defined]
            node.saved = (*node.saved[:position], target._a, *node.saved[position + 1 :])  # type: ignore[attr-defined]
            node.output_versions = {**(node.output_versions or {}), number: (target._vc, target._vc.stamp)}


def store(target: Any, value: Any) -> None:
    """Array assignment on any backend."""
    if target.__class__ is _ndarray:
        if (
            target.flags.c_contiguous
            and getattr(value, "strides", None) != target.strides
            and native.copy_transposed(target, value)
        ):
            return
        state.run(target.__setitem__, ..., value)
    elif target.__class__ is Lazy:
        store(target.raw, target.applied(resolved(value)))
    else:
        namespace(target).store(target, resolved(value))


def mutated(target: Tensor, value: Tensor | None, operator: str) -> None:
    """Book an in-place change that has been made: version, and the history `value` brings (None: no gradient)."""
    rebase = state.grad and (target._rg or (value is not None and value._rg))
    if rebase and target._view is not None:
        refresh(target)
    version_of(target).bump(operator)
    if not rebase:
        return
    old, number = target._node, target._nr
    if target._view is None:
        _take_history(target, value, operator)
    else:
        _rebase_base(target, target._view, value)
    if target.retains_grad and old is not None and old.hooks is not None and target._node is not old:
        old.hooks.retain.pop(number, None)  # `.grad` is that of the tensor's present value
        target.retain_grad()


def _take_history(target: Tensor, value: Tensor | None, operator: str) -> None:
    if value is not None and value._rg:
        edge = edge_of(value)
        if isinstance(edge, Node) and operator != "copy_":
            target._node, target._nr = edge, value._nr
        else:  # the source lives on with its own hooks and versions; and a tensor that was written to is no leaf
            old = (target._node,) if operator == "copy_" and target._node is not None else ()
            numbers = (value._nr, *((target._nr,) if old else ()))
            target._node, target._nr = CopyBackwards((edge, *old), numbers if any(numbers) else None), 0
    else:
        old = (target._node,) if target._node is not None else ()
        target._node, target._nr = _overwritten(operator)(old, (target._nr,) if old and target._nr else None), 0
    target._rg = True
    _register_version(target)


def _register_version(target: Tensor) -> None:
    node = target._node
    if node is not None and target._vc is not None:
        # as saved after this change: only later ones spoil what the node needs
        node.output_versions = {**(node.output_versions or {}), target._nr: (target._vc, target._vc.stamp)}


def _rebase_base(target: Tensor, view: View, value: Tensor | None) -> None:
    """base := base with the view's part replaced by value. The view's own node is then made anew from the base."""
    views.settle(target)
    base = view.base
    differentiable = value is not None and value._rg
    edges = (edge_of(base) if base._rg else None, edge_of(value) if value is not None and differentiable else None)
    numbers = (base._nr, value._nr if value is not None else 0)
    base._node = CopySlices(edges, numbers if any(numbers) else None, view, value is not None)
    base._nr = 0
    base._rg = True
    target._rg = True
    view.version = -1
    refresh(target)


@functools.cache
def _overwritten(operator: str) -> type[Overwritten]:
    """The class of `Overwritten` nodes that an operator leaves, named as torch does."""
    stem = "".join(part.capitalize() for part in operator.split("_"))
    return named(Overwritten, f"{stem}Backward{2 if operator in ('fill_', 'bernoulli_') else 0}")


class Overwritten(Node):
    """History of a tensor whose values were replaced by ones that need no gradient; that of the old ones is 0."""

    __slots__ = ()

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        return [grad.new_zeros(grad.shape) for _ in self.edges]


class CopyBackwards(Node):
    """History of a tensor that was overwritten with another's values: all of the gradient is theirs."""

    __slots__ = ()

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        return (grad, *(grad.new_zeros(grad.shape) for _ in self.edges[1:]))


class CopySlices(Node):
    """base with the part seen through a view replaced by a value: the gradient splits the same way."""

    __slots__ = ("geometry", "has_value", "view")

    def __init__(self, edges: Any, numbers: Any, view: View, has_value: bool) -> None:
        super().__init__(edges, numbers)
        self.view = View(None, view.chain, 0, "normal")  # type: ignore[arg-type]
        self.has_value = has_value
        looks_at_storage = any(prim.name == "as_strided" for prim, _ in view.chain)
        self.geometry = geometry(view.base._a) if looks_at_storage else None

    def name(self) -> str:
        return "torch::autograd::CopySlices"

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        base_edge, value_edge = self.edges
        if self.geometry is not None:
            from tocha.ops.shape import laid_out

            grad = laid_out(grad, self.geometry)
        value_grad = replay(grad, self.view).clone() if value_edge is not None else None
        if base_edge is None:
            return None, value_grad
        base_grad = grad.clone() if self.geometry is None else laid_out(grad, self.geometry)
        replay(base_grad, self.view).zero_()
        return base_grad, value_grad


def write_out(
    name: str, function: Callable[..., Any], out: Any, args: tuple[Any, ...], kwargs: dict[str, Any], strict: bool = False
) -> Any:
    """Run `function` and write its results into `out` (a tensor, or one for each result), resizing them if needed."""
    outs = out if isinstance(out, (tuple, list)) else (out,)
    listed = args[0] if name in _JOINS and args and isinstance(args[0], (list, tuple)) else ()
    tensors = [a for a in (*args, *listed, *kwargs.values(), *outs) if isinstance(a, Tensor)]
    for o in outs:
        if not isinstance(o, Tensor):
            raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(o).__name__}")
    if state.grad and any(t._rg for t in tensors) and not (len(outs) == 1 and outs[0]._a.dtype.kind in "biu"):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
            "requires grad."
        )
    for o in outs:
        if o._vc is UNCOUNTED:
            refuse_outside_inference(name)
        if name not in _ONE_VALUE and overlaps_itself(o):
            raise RuntimeError(_OVERLAP.format(name))
    if not in_memory(*tensors):
        raise RuntimeError(f"{name}(): out= can't be used inside vmap or forward-mode differentiation, or with wrapper tensors")
    if name in _FACTORIES:
        kwargs = {**kwargs, "device": device_of_out(name, kwargs.get("device"), outs[0])}
    check_out(name, function, outs, (*args, *kwargs.values()))
    got = function(*args, **kwargs)
    results = got if isinstance(got, (tuple, list)) else (got,)
    if not isinstance(got, tuple) and outs is out and not isinstance(got, list):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    strict = strict or isinstance(got, tuple) or (name in _TYPED_FOR_NUMBERS and not any(isinstance(a, Tensor) for a in args[1:]))
    if len(results) != len(outs):
        raise TypeError(f"{name}(): out= takes {len(results)} tensor(s), got {len(outs)}")
    for r, o in zip(results, outs, strict=True):
        if strict and r.dtype is not o.dtype:
            raise RuntimeError(f"{name}(): Expected out tensor to have dtype {r.dtype}, but got {o.dtype} instead")
        if not dtypes.can_cast(r.dtype, o.dtype):
            error = TypeError if name in _JOINS else RuntimeError
            raise error(f"{name}(): result type {r.dtype.name} can't be cast to the desired output type {o.dtype.name}")
        if r.device != o.device:
            raise RuntimeError(f"{name}(): Expected out tensor to be on {r.device}, but it is on {o.device}")
    for r, o in zip(results, outs, strict=True):
        if name in _KEEPS_SHAPE and r._a.size == o._a.size:
            r = r.reshape(o.shape)
        resize_output(name, o, r._a.shape)
        store(o._a, r._a if r._a.dtype is o._a.dtype else r.to(o.dtype)._a)
        version_of(o).bump(name)
    if hasattr(got, "_fields"):
        return type(got)(*outs)
    return out


def device_of_out(name: str, asked: Any, out: Tensor) -> Any:
    """Where a factory makes what goes into out=: there. RuntimeError if another device is asked for."""
    where = out.device
    if asked is not None and device(asked).type != where.type:
        raise RuntimeError(f"{name}(): device type {device(asked).type} does not match device type of out parameter ({where.type})")
    return where


#: Operators that make their result where out= is.
_FACTORIES = frozenset(("arange", "empty", "eye", "full", "linspace", "logspace", "ones", "zeros"))
#: Operators that give all elements of out= one value, so that elements may share memory.
_ONE_VALUE = frozenset(("empty", "full", "ones", "zeros"))
_JOINS = frozenset(("cat", "column_stack", "concat", "concatenate", "dstack", "hstack", "row_stack", "stack", "vstack"))
#: Operators whose out= must have the result's type unless a bound is a tensor.
_TYPED_FOR_NUMBERS = frozenset(("clamp", "clamp_max", "clamp_min", "clip"))
#: Operators that fill out= in its own shape if it has as many elements as they have values.
_KEEPS_SHAPE = frozenset(("arange", "linspace", "logspace"))
#: Operators that give out= their shape without a warning.
_SHAPED_ANEW = frozenset((
    "addbmm", "bernoulli", "empty", "eye", "full", "linspace", "logspace", "multinomial", "ones", "rand", "randint", "randn", "randperm",
    "zeros",
))  # fmt: skip


def resize_output(name: str, out: Tensor, shape: tuple[int, ...]) -> None:
    """Give `out` the result's shape; a non-empty tensor of another shape draws torch's warning."""
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if out._a.shape == shape:
        return
    if out._a.size and name not in _SHAPED_ANEW:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not match "
            f"the required output shape {list(shape)}. This behavior is deprecated ({name}).",
            UserWarning,
            stacklevel=4,
        )
    version = version_of(out)
    before = version.value
    out.resize_(shape)
    version.value = before  # the write that follows counts


def fill_by_mask(input: Any, mask: Any, value: Any, rounded: Callable[[Any, Any], Any]) -> bool:
    """`input[mask] = value` of one value where places can't be counted now (in a graph) or had better not be (on a GPU); False if it isn't
    that. `rounded(value, input)` reads a number."""
    a, lead = mask._a, len(mask._a.shape)
    if a.__class__ is _ndarray or a.dtype.kind != "b" or not lead or a.shape != input._a.shape[:lead]:
        return False
    if isinstance(value, Tensor):
        if value._a.size != 1 or value.ndim > 1:
            return False
        value = value.reshape(()).to(input.dtype)
    elif not isinstance(value, (int, float, complex)):
        return False
    else:
        value = rounded(value, input)
    input.masked_fill_(mask.reshape(*a.shape, *(1,) * (input.ndim - lead)), value)
    return True
