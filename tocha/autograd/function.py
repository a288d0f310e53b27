"""Custom autograd functions: the user's forward and backward as one node of the tape.

As in torch, the context handed to `forward` *is* the node (`y.grad_fn`), so attributes set on it live as long as the
graph. Source: torch docs, "Extending torch.autograd".
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tocha.autograd.graph import Node, Version, check_saved, check_unchanged, next_order, version_of
from tocha.autograd.mode import INFERENCE_USED, no_grad, state
from tocha.autograd.packed import Packed
from tocha.dispatch.override import stacks, user_code
from tocha.tensor import Tensor, View, wrap


class _Saved:
    """A tensor given to save_for_backward: itself, or (an output, to avoid a cycle) its array and output number."""

    __slots__ = ("array", "number", "order", "packed", "tensor", "version")

    def __init__(self, tensor: Tensor, number: int | None) -> None:
        self.version: Version | None = version_of(tensor)
        self.order = next_order()
        self.number = number
        self.packed: Packed | None = None
        self.tensor: Tensor | None = None if number is not None else tensor
        self.array = tensor._a
        if state.saved_hooks:
            self.packed = Packed(tensor, number)
            self.tensor = self.array = None

    def unpack(self, node: FunctionCtx) -> Tensor:
        if self.packed is not None:
            return self.packed.unpack(node)
        if self.version is not None and self.version.changed_since(self.order):
            mark = _Mark(node, self.order)
            shown = wrap(self.array) if self.tensor is None and self.array is not None else self.tensor
            check_unchanged(self.version, mark, shown)  # type: ignore[arg-type]
        if self.tensor is not None:
            return self.tensor
        assert self.number is not None
        out = wrap(self.array)
        out._rg, out._node, out._nr, out._vc = True, node, self.number, self.version
        return out


class _Mark:
    """A node's name with the order at which one of its tensors was saved."""

    def __init__(self, node: Node, order: int) -> None:
        self.name, self.order = node.name, order


class FunctionCtx(Node):
    """The context of a custom Function, and its node on the tape."""

    __slots__ = ()
    _function: type[Function]

    def __init__(self) -> None:
        super().__init__(())
        self._to_save: tuple[Any, ...] = ()
        self._saved: tuple[Any, ...] | None = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._materialize = True
        self._metas: list[Any] = []
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for backward, checked there for in-place changes."""
        self._to_save = tensors

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep tensors for jvp (read back as saved_tensors too)."""
        if not self._to_save:
            self._to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward changed in place (they must be returned)."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (default) or None for outputs without a gradient."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        if self._saved is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                "already been freed). Saved intermediate values of the graph are freed when you call .backward() or "
                "autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time."
            )
        return tuple(s.unpack(self) if isinstance(s, _Saved) else s for s in self._saved)

    saved_variables = saved_tensors

    def name(self) -> str:
        return type(self).__name__

    def release(self) -> None:
        self._saved = None

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        grads = list(grad) if self.outputs > 1 else [grad]
        if self._materialize:
            for i, g in enumerate(grads):
                if g is None and self._metas[i] is not None:
                    grads[i] = self._metas[i]()
        with user_code():
            got = self._function._run_backward(self, grads)
        return self._checked(got if isinstance(got, tuple) else (got,))

    def _checked(self, got: Sequence[Any]) -> list[Tensor | None]:
        expected = len(self.edges)
        results = list(got)
        while len(results) > expected and results[-1] is None:
            results.pop()
        if len(results) != expected:
            raise RuntimeError(
                f"function {self.name()} returned an incorrect number of gradients (expected {expected}, got {len(got)})"
            )
        for i, g in enumerate(results):
            if g is not None:
                results[i] = self._fitting(g, i)
        return results

    def _fitting(self, g: Any, i: int) -> Tensor:
        """The gradient for input i in that input's shape and type; RuntimeError for what torch refuses."""
        if not isinstance(g, Tensor):
            raise RuntimeError(f"expected Variable or None (got {type(g).__name__})")
        meta = self._input_metas[i]  # type: ignore[attr-defined]
        if meta is None:
            raise RuntimeError(
                f"function {self.name()} returned a gradient different than None at position {i + 1}, but the corresponding "
                "forward input was not a Variable"
            )
        if self.edges[i] is None:
            return g
        shape, dtype, device = meta
        if tuple(g.shape) != shape:
            g = self._expand_or_refuse(g, shape, i)
        if g.dtype is not dtype:
            if not g.dtype.is_floating_point and g.dtype.is_complex != dtype.is_complex:
                raise RuntimeError(
                    f"Function {self.name()} returned an invalid gradient at index {i} - got type {g.dtype} for an input of type {dtype}: "
                    "Expected isFloatingType(grad.scalar_type()) || (input_is_complex == grad_is_complex) to be true, but got false. "
                    + ("Take .real of it." if g.dtype.is_complex else "Cast it to the input's type.")
                )
            g = g.to(dtype)
        if g.device != device:
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - expected device {device} but got {g.device}"
            )
        return g

    def _expand_or_refuse(self, g: Tensor, shape: tuple[int, ...], i: int) -> Tensor:
        try:
            return g.sum_to_size(shape)
        except RuntimeError:
            raise RuntimeError(
                f"Function {self.name()} returned an invalid gradient at index {i} - got {list(g.shape)} but expected shape "
                f"compatible with {list(shape)}"
            ) from None


class BackwardCFunction(FunctionCtx):
    """The node class that each Function's own one derives from."""

    __slots__ = ()


class FunctionMeta(type):
    """Gives each Function class the class of its nodes, named as torch names it."""

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> None:
        super().__init__(name, bases, namespace)
        cls._backward_cls = type(
            name + "Backward", (BackwardCFunction,), {"_function": cls, "__module__": namespace.get("__module__")}
        )


class Function(metaclass=FunctionMeta):
    """Base of user-defined differentiable functions: static `forward(ctx, ...)` (or `forward(...)` with
    `setup_context(ctx, inputs, output)`) and `backward(ctx, *grads)`; call `apply` (torch docs: torch.autograd.Function)."""

    _backward_cls: type[FunctionCtx]
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{type(self)} should not be instantiated. Methods on autograd functions are all static, so you should invoke them on "
            "the class itself. Instantiating an autograd function will raise an error in a future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd function with "
            "static forward method. (Example: https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set generate_vmap_rule=True."
        )

    @classmethod
    def _run_backward(cls, ctx: FunctionCtx, grads: list[Any]) -> Any:
        if cls.backward is Function.backward and cls.vjp is not Function.vjp:
            return cls.vjp(ctx, *grads)
        return cls.backward(ctx, *grads)

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Run forward and put one node for it on the tape. TypeError for keyword arguments."""
        if kwargs:
            raise TypeError(f"{cls.__name__}.apply() takes no keyword arguments (got {', '.join(kwargs)})")
        if stacks.interpreters:
            got = _under_interpreter(cls, args)
            if got is not None:
                return got
        return cls._run(args)[1]

    @classmethod
    def _run(cls, args: tuple[Any, ...]) -> tuple[FunctionCtx, Any]:
        """(the context, the outputs)."""
        ctx = cls._backward_cls()
        tracked = [isinstance(a, Tensor) and bool(a._rg) for a in args]
        recording = bool(state.grad) and any(tracked)
        ctx.needs_input_grad = tuple(t and recording for t in tracked)
        with no_grad():
            if cls.setup_context is not Function.setup_context:
                got = cls.forward(*args)
                cls.setup_context(ctx, args, got)
            else:
                got = cls.forward(ctx, *args)
        # Any other container is one output that isn't a tensor: what is in it has no history.
        outs = list(got) if isinstance(got, tuple) else [got]
        if not all(any(t is o for o in outs) for t in ctx._dirty):
            raise RuntimeError("Some elements marked as dirty during the forward method were not returned as output.")
        results = _attach(ctx, args, outs, recording)
        return ctx, tuple(results) if isinstance(got, tuple) else results[0]


def _under_interpreter(cls: type[Function], args: tuple[Any, ...]) -> Any:
    """The call inside vmap or forward mode, whose tensors a Function must not see; None if it has none of those."""
    from tocha.dispatch import dual, vmap

    top = stacks.interpreters[-1]
    if isinstance(top, vmap.Vmap) and any(isinstance(a, vmap.Batched) and a.level == top.level for a in args):
        return vmap.apply_function(cls, args, top)
    if isinstance(top, dual.ForwardLevel) and any(map(top.holds, args)):
        return dual.apply_function(cls, args, top)
    return None


def _attach(ctx: FunctionCtx, args: tuple[Any, ...], outs: list[Any], recording: bool) -> list[Any]:
    from tocha.autograd.views import edge_of

    needs = ctx.needs_input_grad
    if recording:
        ctx.edges = tuple(edge_of(a) if n else None for a, n in zip(args, needs, strict=True))
        ctx.output_numbers = tuple(a._nr if n else 0 for a, n in zip(args, needs, strict=True))
        ctx._input_metas = [(tuple(a.shape), a.dtype, a.device) if isinstance(a, Tensor) else None for a in args]  # type: ignore[attr-defined]
        ctx.outputs = len(outs)
        ctx.order = next_order()
        if state.anomaly is not None:
            state.anomaly.remember(ctx)
    results = []
    for number, out in enumerate(outs):
        if not isinstance(out, Tensor):
            results.append(out)
            ctx._metas.append(None)
            continue
        differentiable = out._a.dtype.kind not in "biu" and not any(out is t for t in ctx._non_differentiable)
        ctx._metas.append(_zeros_like_later(out))
        if any(out is t for t in ctx._dirty):
            version_of(out).bump(ctx.name())
            if recording and differentiable:
                _rebase_dirty(ctx, out, number)
        elif recording and differentiable:
            out = _fresh_output(out, args)
            out._node, out._nr, out._rg = ctx, number, True
        elif any(out is a for a in args):
            out = out.detach() if not differentiable else out
        results.append(out)
    _save(ctx, outs, results, recording)
    return results


def _rebase_dirty(ctx: FunctionCtx, out: Tensor, number: int) -> None:
    from tocha.dispatch.inplace import check_writable, mutated

    check_writable(out, ctx.name())
    if out._view is None:
        out._node, out._nr, out._rg = ctx, number, True
        ctx.output_versions = {**(ctx.output_versions or {}), number: (version_of(out), ctx.order)}
    else:
        value = wrap(out._a)
        value._node, value._nr, value._rg = ctx, number, True
        mutated(out, value, ctx.name())


def _fresh_output(out: Tensor, args: tuple[Any, ...]) -> Tensor:
    """An input handed back unchanged, or another tensor with a history, becomes a new tensor on the same memory. Views
    are marked: written to, they would bypass the function's backward."""
    if any(out is a for a in args):
        with no_grad():
            out = out.view_as(out)
    elif out._node is not None or out._rg is True:
        out = out.detach()
    if out._view is not None:
        view = out._view
        out._view = View(view.base, view.chain, view.version, "custom")
    return out


def _zeros_like_later(out: Tensor) -> Callable[[], Tensor]:
    shape, dtype, device = tuple(out.shape), out.dtype, out.device

    def zeros() -> Tensor:
        from tocha.ops.creation import make

        return make(shape, dtype, device, 0)

    return zeros


def _save(ctx: FunctionCtx, outs: list[Any], results: list[Any], recording: bool) -> None:
    if not recording:
        ctx._saved = tuple(ctx._to_save)
        ctx._to_save = ()
        return
    if INFERENCE_USED:
        check_saved(ctx._to_save)
    saved: list[Any] = []
    for place, t in enumerate(ctx._to_save):
        if t is None:
            saved.append(None)
            continue
        if not isinstance(t, Tensor):
            raise TypeError(f"save_for_backward can only save variables, but argument {place} is of type {type(t).__name__}")
        number = next((i for i, o in enumerate(outs) if o is t), None)
        number = number if number is not None and isinstance(results[number], Tensor) and results[number]._node is ctx else None
        saved.append(_Saved(results[number] if number is not None else t, number))
    ctx._saved = tuple(saved)
    ctx._to_save = ()


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a backward that can't itself be differentiated: asking for its gradient raises (torch docs)."""

    @functools.wraps(backward)
    def wrapper(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            got = backward(ctx, *grads)
        if not state.grad or not any(isinstance(g, Tensor) and g._rg for g in grads):
            return got
        outs = got if isinstance(got, tuple) else (got,)
        marked = [_Refuse.apply(*[g for g in grads if isinstance(g, Tensor)], o) if isinstance(o, Tensor) else o for o in outs]
        return tuple(marked) if isinstance(got, tuple) else marked[0]

    return wrapper


class InplaceFunction(Function):
    """A Function that remembers whether it is to work in place; kept for old code."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


class _Refuse(Function):
    """Passes its last input through and refuses to be differentiated."""

    @staticmethod
    def forward(ctx: Any, *tensors: Tensor) -> Tensor:
        return tensors[-1].clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")
