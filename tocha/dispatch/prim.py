"""What a primitive is, and how a call of one goes on the tape.

A primitive is data: a kernel on raw arrays and a rule for gradients. The *names* in their signatures are the contract:

    @prim("layer_norm", family="norm", outputs=("out", "mean", "rstd"), vjp=_layer_norm_vjp)
    def layer_norm(xp, input, weight, bias, *, axes, eps): ...        # xp: the backend's namespace
    def _layer_norm_vjp(g, input, weight, mean, rstd, *, axes, needs): ...  # ordinary operators on tensors

Positional parameters after `xp` are tensors (or None), keyword-only ones are static. A vjp asks by name for what it
needs, and only that is saved: a tensor argument (`input`; `*indices` gives the tuple of them), an output (`out`, `mean`),
`input_shape`, `input_dtype`, a static parameter, or `needs` (which arguments want a gradient). `vjp` is one function returning a gradient for every
tensor argument, or a tuple with one function per argument, of which only those wanted are run (and `joint`, single functions
by which arguments want one).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.autograd.graph import MARKS, UNCOUNTED, Node, check_saved, check_unchanged, left_out, marked, next_order, version_of
from tocha.autograd.mode import INFERENCE_USED, state
from tocha.autograd.views import edge_of
from tocha.backends.meta import MetaArray
from tocha.backends.native import LEAST, PRIMS
from tocha.backends.strides import in_rows
from tocha.dtypes import FROM_NP
from tocha.tensor import Tensor, View, wrap

ARGUMENT, OUTPUT, SHAPE, DTYPE, PARAMETER, NEEDS, ALL_ARGUMENTS, ALL_SHAPES, ALL_DTYPES = range(9)
REGISTRY: dict[str, Prim] = {}


class Prim:
    """One primitive. Calling it is `bind(self, ...)`."""

    __slots__ = (
        "__dict__", "arguments", "batch", "doc", "family", "fit", "half", "impl", "infer", "joint", "name", "native", "outputs",
        "parameters", "plans", "scalar", "tags", "variadic", "vjp",
    )  # fmt: skip

    def __init__(
        self, name: str, family: str, impl: Callable[..., Any], vjp: Any = None, outputs: tuple[str, ...] = ("out",),
        infer: Callable[..., Any] | None = None, batch: Callable[..., Any] | None = None, half: str = "float32",
        tags: tuple[str, ...] = (), joint: dict[tuple[bool, ...], Callable[..., Any]] | None = None,
    ) -> None:  # fmt: skip
        self.name, self.family, self.impl, self.vjp, self.outputs = name, family, impl, vjp, outputs
        self.infer, self.batch, self.tags, self.joint = infer, batch, frozenset(tags), joint or {}
        # Tags: "random" draws numbers; "dynamic": the shape of the result depends on values; "raises": the kernel checks values.
        # "float32": half-precision inputs are computed in float32 and rounded once, as torch does; "native": the
        # kernel moves elements and works on any type.
        self.half = half
        self.scalar: Callable[..., Any] | None = None
        self.native = LEAST[PRIMS[name]] if name in PRIMS else 0  # from how many elements on there is a kernel on the CPU
        self.fit = False  # gradients are summed and cast back to the argument's shape and type (pointwise)
        self.doc = impl.__doc__ or ""
        self.__name__, self.__module__ = name, "prims"  # how graphs print it
        spec = inspect.getfullargspec(impl)
        self.variadic = spec.varargs
        self.arguments: tuple[str, ...] = tuple(spec.args[1:])
        self.parameters: tuple[str, ...] = tuple(spec.kwonlyargs)
        self.impl = in_rows(name, impl)
        self.plans: dict[int, Plan] = {}  # by the wanted gradients: bit i for argument i, and one bit above
        self.node_class = type(_node_name(name), (PrimNode,), {"__slots__": (), "__module__": "torch"})
        if name in REGISTRY:
            raise ValueError(f"primitive {name!r} is registered twice")
        REGISTRY[name] = self

    def __repr__(self) -> str:
        return f"<prim {self.name}>"

    def __reduce__(self) -> Any:
        return _by_name, (self.name,)

    def __call__(self, *args: Any, **params: Any) -> Any:
        """`dispatch.bind.bind(self, ...)`, which replaces this method to save a call."""
        raise NotImplementedError

    def plain(self, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
        """The call with no interpreter to ask."""
        from tocha.dispatch.bind import bind_plain

        return bind_plain(self, args, params)

    def tied(self) -> Prim:
        """Make the nodes of all its calls `TiedNode`s; the primitive itself."""
        self.node_class = self.tied_class
        return self

    @functools.cached_property
    def tied_class(self) -> type[PrimNode]:
        return type(self.node_class.__name__, (TiedNode,), {"__slots__": (), "__module__": "torch"})

    def plan(self, needs: Any) -> Plan:
        """What to save and which rules to run when the arguments in `needs` want gradients."""
        key = sum(need << i for i, need in enumerate((*needs, True)))
        found = self.plans.get(key)
        if found is None:
            found = self.plans[key] = Plan(self, needs)
        return found


# Names of backward nodes where torch calls the operator something else.
_NODE_NAMES = {
    "true_divide": "div", "pow_scalar": "pow", "cast": "to_copy", "conv": "convolution", "vector_norm": "linalg_vector_norm",
    "nll": "nll_loss", "mse": "mse_loss", "max_dim": "max", "min_dim": "min", "constant_pad": "constant_pad_nd",
}  # fmt: skip


def _node_name(prim: str) -> str:
    """The class name of a primitive's nodes, as torch prints them: true_divide gives DivBackward0."""
    return "".join(part.capitalize() for part in _NODE_NAMES.get(prim, prim).split("_")) + "Backward0"


def _by_name(name: str) -> Prim:
    return REGISTRY[name]


def prim(name: str, family: str, **options: Any) -> Callable[[Callable[..., Any]], Prim]:
    """Decorate a kernel to make it a primitive (see the module's text)."""

    def register(impl: Callable[..., Any]) -> Prim:
        return Prim(name, family, impl, **options)

    return register


class Plan:
    """For one primitive and one set of wanted gradients: the values to save, and each rule with the positions of its
    arguments among them."""

    __slots__ = (
        "holds", "in_order", "joint", "needs", "node_class", "outputs", "prim", "rules", "save", "sources", "special", "tensors", "totals",
        "variadic",
    )  # fmt: skip

    def __init__(self, prim: Prim, needs: tuple[bool, ...]) -> None:
        self.prim = prim
        self.node_class = prim.node_class
        sources: dict[tuple[int, Any], int] = {}
        rules: list[tuple[Any, Any, tuple[int, ...], tuple[tuple[str, int], ...]]] = []
        joint = prim.vjp if callable(prim.vjp) else prim.joint.get(needs)
        functions = list(enumerate(prim.vjp)) if joint is None else [(None, joint)]
        self.joint = joint is not None
        self.totals: list[Any] = []  # beside each rule: what gives its gradient summed, if anything does
        for i, function in functions:
            if function is None or (i is not None and not needs[i]):
                continue
            names, by_keyword = _signature(function)
            positions = [sources.setdefault(_source(prim, n, needs), len(sources)) for n in names]
            keywords = {n: sources.setdefault(_source(prim, n, needs), len(sources)) for n in by_keyword}
            if isinstance(function, Prim):
                self.totals.append(None)
            elif prim.scalar is not None:
                from tocha.dispatch.fused import fused, total

                rule = (prim.name if i is None else f"{prim.name}_{i}", function, len(names), tuple(by_keyword))
                function = fused(*rule)
                self.totals.append(total(*rule))
            rules.append((i, function, tuple(positions), tuple(keywords.items())))
        self.rules = tuple(rules)
        self.sources = tuple(sources)
        self.needs = needs
        self.save: Any = None  # `saver`'s, once it was asked
        self.tensors = tuple(p for p, (kind, _) in enumerate(self.sources) if kind == ARGUMENT)
        self.variadic = any(kind == ALL_ARGUMENTS for kind, _ in self.sources)
        self.holds = any(kind in (ARGUMENT, OUTPUT, ALL_ARGUMENTS) for kind, _ in self.sources)  # tensors, to be freed
        self.special = self.variadic or any(kind == OUTPUT for kind, _ in self.sources)
        self.in_order = all(not by_name and places == tuple(range(len(self.sources))) for _, _, places, by_name in rules)
        self.outputs = tuple((p, key) for p, (kind, key) in enumerate(self.sources) if kind == OUTPUT)

    def saver(self) -> Callable[[Sequence[Any], Sequence[Tensor], dict[str, Any]], tuple[Any, ...]]:
        """What gives the values to save of a call's arguments, outputs and parameters."""
        self.save = _saver(self.sources)
        return self.save

    def narrowed(self, wanted: Sequence[bool], values: Sequence[Any]) -> tuple[Plan, Sequence[Any]]:
        """The plan for the gradients among its own that are `wanted`, and that plan's values among `values`; itself if they don't suffice."""
        needs = tuple([a and b for a, b in zip(self.needs, wanted, strict=False)])
        if needs == self.needs:
            return self, values
        plan, own = self.prim.plan(needs), dict(zip(self.sources, values, strict=True))
        if any(kind != NEEDS and (kind, key) not in own for kind, key in plan.sources):
            return self, values
        return plan, [needs if kind == NEEDS else own[kind, key] for kind, key in plan.sources]


#: How a value to save is had, by its kind. Every recorded call saves, so they make one expression.
_SAVED = {
    ARGUMENT: "args[{}]", OUTPUT: "held(outs[{}])", SHAPE: "None if args[{0}] is None else args[{0}]._a.shape",
    DTYPE: "None if args[{0}] is None else dtypes[args[{0}]._a.dtype]", PARAMETER: "params[{!r}]", NEEDS: "{}", ALL_ARGUMENTS: "tuple(args[{}:])",
    ALL_SHAPES: "tuple([a._a.shape for a in args[{}:]])", ALL_DTYPES: "tuple([dtypes[a._a.dtype] for a in args[{}:]])",
}  # fmt: skip


@functools.cache
def _saver(sources: tuple[tuple[int, Any], ...]) -> Any:
    values = "".join([f"({_SAVED[kind].format(key)}), " for kind, key in sources])
    return eval(f"lambda args, outs, params: ({values})", {"held": _held, "dtypes": FROM_NP})


def _held(out: Tensor) -> Any:
    return out._a if out.__class__ is Tensor else out.detach()


def _signature(function: Callable[..., Any]) -> tuple[Sequence[str], Sequence[str]]:
    """Names of what a rule takes beside the gradient, by position and by keyword. A rule may be a primitive itself."""
    if isinstance(function, Prim):
        return function.arguments[1:], function.parameters
    spec = inspect.getfullargspec(function)
    return spec.args[1:], spec.kwonlyargs


def _source(prim: Prim, name: str, needs: tuple[bool, ...]) -> tuple[int, Any]:
    """Where a vjp's parameter called `name` comes from."""
    if name == "needs":
        return NEEDS, needs
    if name in prim.arguments:
        return ARGUMENT, prim.arguments.index(name)
    if name in prim.outputs:
        return OUTPUT, prim.outputs.index(name)
    if name in prim.parameters:
        return PARAMETER, name
    stem, _, suffix = name.rpartition("_")
    if suffix in ("shape", "dtype"):
        if stem in prim.arguments:
            return (SHAPE if suffix == "shape" else DTYPE), prim.arguments.index(stem)
        if stem == prim.variadic:
            return (ALL_SHAPES if suffix == "shape" else ALL_DTYPES), len(prim.arguments)
    if name == prim.variadic:
        return ALL_ARGUMENTS, len(prim.arguments)
    raise TypeError(
        f"the vjp of {prim.name} asks for {name!r}, which is no argument {prim.arguments}, "
        f"output {prim.outputs} or parameter {prim.parameters}"
    )


class PrimNode(Node):
    """The tape's record of one primitive call."""

    __slots__ = ("fit", "packed", "plan", "saved")
    packed: bool
    plan: Plan
    saved: tuple[Any, ...] | None
    fit: tuple[tuple[tuple[int, ...], Any, bool] | None, ...] | None

    def release(self) -> None:
        if self.plan.holds:
            self.saved = None

    def apply_for(self, grad: Any, wanted: Sequence[bool]) -> Sequence[Tensor | None]:
        return self.apply(grad, wanted)

    def apply(self, grad: Any, wanted: Sequence[bool] | None = None) -> Sequence[Tensor | None]:
        values: Any = self.saved
        if values is None:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed): {self.name()} has freed what it saved. Specify retain_graph=True if you need to "
                "backward through the graph a second time."
            )
        order = self.order
        plan = self.plan
        for p in plan.tensors:
            version = getattr(values[p], "_vc", None)
            if version is not None and version.stamp < order:
                check_unchanged(version, self, values[p])
        if plan.special:
            values = self._unpack(values) if self.packed or plan.variadic else self._with_outputs(list(values))
        elif self.packed:
            values = self._unpack(values)
        if wanted is not None:
            plan, values = plan.narrowed(wanted, values)
        if plan.joint:
            _, function, positions, keywords = plan.rules[0]
            if plan.in_order:
                got = function(grad, *values)
            else:
                got = function(grad, *[values[p] for p in positions], **{n: values[p] for n, p in keywords})
            grads: list[Tensor | None] = [got] if isinstance(got, Tensor) else list(got)
        else:
            grads = [None] * len(self.edges)
            if self.fit is not None and plan.totals:
                return self._fitted(plan, grad, values, grads)
            for i, function, positions, keywords in plan.rules:
                if keywords:
                    grads[i] = function(grad, *[values[p] for p in positions], **{n: values[p] for n, p in keywords})
                else:
                    grads[i] = function(grad, *[values[p] for p in positions])
        if self.fit is not None:
            return [g if g is None or f is None else _fit(g, f) for g, f in zip(grads, self.fit, strict=False)]
        return grads

    def _fitted(self, plan: Plan, grad: Any, values: Any, grads: list[Any]) -> list[Any]:
        """The gradients of a pointwise call whose arguments were broadcast or promoted."""
        assert self.fit is not None
        for (i, function, positions, keywords), total in zip(plan.rules, plan.totals, strict=True):
            given = [values[p] for p in positions]
            target = self.fit[i]
            found = None
            if target is not None:
                if total is not None and grad._a.shape != target[0] and grad._a.dtype is target[1] and not target[2]:
                    found = total(target[0], grad, given)
                found = _fit(function(grad, *given, **{n: values[p] for n, p in keywords}), target) if found is None else found
            grads[i] = function(grad, *given, **{n: values[p] for n, p in keywords}) if found is None else found
        return grads

    def __getattr__(self, name: str) -> Any:
        """`_saved_self`, `_saved_other`, `_saved_result`, `_saved_<argument>` … (torch docs: autograd mechanics, saved tensors)."""
        sources = self.plan.sources if name.startswith("_saved_") else ()
        for position, source in enumerate(sources):
            if name in _saved_names(self.plan.prim, *source):
                if self.saved is None:
                    raise RuntimeError(f"{self.name()} has freed what it saved: specify retain_graph=True to keep it")
                values = list(self.saved)
                return (self._unpack(values) if self.packed or self.plan.variadic else self._with_outputs(values))[position]
        raise AttributeError(f"{self.name()} has no attribute {name}")

    def _unpack(self, values: Any) -> list[Any]:
        """Saved outputs become tensors with this node as their history again; packed values go through their hook."""
        values = [_unpacked(v, self) for v in values]
        for p, (kind, _) in enumerate(self.plan.sources):
            if kind == ALL_ARGUMENTS:
                for v in values[p]:
                    if isinstance(v, Tensor):
                        check_unchanged(v._vc, self, v)
        return self._with_outputs(values)

    def _with_outputs(self, values: list[Any]) -> list[Any]:
        for position, number in self.plan.outputs:
            value = values[position]
            if isinstance(value, Tensor):  # came out of an unpack hook
                continue
            out = wrap(value)
            out._rg, out._node, out._nr = True, self, number
            if self.output_versions is not None and number in self.output_versions:
                out._vc, saved_at = self.output_versions[number]
                check_unchanged(out._vc, self, out, saved_at)
            values[position] = out
        return values


def _saved_names(prim: Prim, kind: int, key: Any) -> tuple[str, ...]:
    """What torch and we call a saved value: the first argument is `self`, the second `other`, a single output `result`."""
    if kind == ARGUMENT:
        return f"_saved_{prim.arguments[key]}", f"_saved_{('self', 'other')[key] if key < 2 else None}"
    if kind == OUTPUT:
        return f"_saved_{prim.outputs[key]}", "_saved_result"
    return (f"_saved_{key}",)


class Tie(Node):
    """An identity that has a second edge, along which it sends zeros."""

    __slots__ = ()

    def apply(self, grad: Any) -> Sequence[Tensor | None]:
        return grad, grad.new_zeros(grad.shape)


class TiedNode(PrimNode):
    """The node of a call that is linear in its arguments almost everywhere, as rectifiers and pooling are. torch's rules for the gradient
    read the argument there, and so a second derivative of zeros arrives at it; here recorded gradients get an edge to the argument."""

    __slots__ = ()

    def apply(self, grad: Any, wanted: Sequence[bool] | None = None) -> Sequence[Tensor | None]:
        grads = super().apply(grad, wanted)
        if not state.grad:
            return grads
        # Under an interpreter (vmap, forward mode) gradients stay as they are: tocha.func has zeros for what isn't connected.
        return [
            self._tied(g, i) if g.__class__ is Tensor and edge is not None else g
            for i, (g, edge) in enumerate(zip(grads, self.edges, strict=False))
        ]

    def _tied(self, grad: Any, i: int) -> Tensor:
        numbers = self.output_numbers
        node = Tie((edge_of(grad) if grad._rg else None, self.edges[i]), (grad._nr, 0 if numbers is None else numbers[i]))
        out = grad.detach()
        out._rg, out._node = True, node
        return out


def tie(out: Tensor) -> Tensor:
    """out, the node of whose call becomes a `TiedNode`: for primitives of which only some calls are such."""
    node = out._node
    if isinstance(node, PrimNode) and out._view is None:
        node.__class__ = node.plan.prim.tied_class
    return out


def _fit(g: Tensor, target: tuple[tuple[int, ...], Any, bool]) -> Tensor:
    """The gradient summed over broadcast dimensions and cast, to the argument's shape and type (and to the CPU, where 0-d
    arguments of computations on another device may lie)."""
    shape, np_dtype, to_cpu = target
    if g._a.dtype is not np_dtype:
        if g._a.dtype.kind == "c" and np_dtype.kind != "c":
            g = g.real
        g = g.to(FROM_NP[np_dtype])
    g = g if g._a.shape == shape else g.sum_to_size(shape)
    return g.to("cpu") if to_cpu else g


_new_node = PrimNode.__new__
_new = object.__new__


def record(prim: Prim, args: Sequence[Any], outs: Sequence[Tensor], params: dict[str, Any]) -> None:
    """Put a call on the tape: outs get a node leading to those of `args` that require grad."""
    out = outs[0]
    if len(args) == 1 == len(outs) and state.grad == 1 and not INFERENCE_USED and not prim.fit and out._node is None:
        if out._a.dtype.kind not in "biu":
            plan = prim.plans.get(3) or prim.plan((True,))
            record_two(plan, (plan.save or plan.saver())(args, outs, params), args[0], None, 1, out)
        return
    edges: list[Node | Tensor | None] = []
    numbers: Any = None
    needs, bit = 0, 1
    for a in args:
        if isinstance(a, Tensor) and a._rg:
            needs |= bit
            if a._view is None and a._extra is None:
                edges.append(a._node or a)
            else:
                edges.append(edge_of(a))
            if a._nr:
                numbers = numbers or [0] * len(args)
                numbers[len(edges) - 1] = a._nr
        else:
            edges.append(None)
        bit += bit
    plan = prim.plans.get(needs + bit) or prim.plan(tuple([needs >> i & 1 == 1 for i in range(len(args))]))
    saved = (plan.save or plan.saver())(args, outs, params)
    if INFERENCE_USED and marked(args):
        if left_out(args) and prim.name not in ("clone", "cast"):  # those two make normal tensors
            return
        check_saved(saved)
    node: PrimNode = _new_node(plan.node_class)
    node.edges = tuple(edges)
    node.output_numbers = None if numbers is None else tuple(numbers)
    node.outputs = len(outs)
    node.hooks = node.output_versions = node.fit = None
    node.packed = False
    node.plan = plan
    node.saved = saved
    node.order = next_order()
    for _, number in plan.outputs if len(outs) > 1 else ():
        if outs[number]._a.dtype.kind in "biu":  # indices, which know no node that could hear of changes
            node.output_versions = {**(node.output_versions or {}), number: (version_of(outs[number]), node.order)}
    if prim.fit:
        node.fit = targets(args, outs[0]._a)
    if state.grad == 2:
        _slow_record(node, args, outs)
    for number in range(len(outs)):
        out = outs[number]
        if out._a.dtype.kind not in "biu" and out._node is None:
            out._rg = True
            out._node = node
            out._nr = number


def targets(args: Sequence[Any], out: Any) -> Any:
    """Shapes and types that gradients of a pointwise call must be brought to, None if they all have the output's."""
    for a in args:
        if isinstance(a, Tensor) and (a._a.shape != out.shape or a._a.dtype is not out.dtype or _on_cpu(a, out)):
            return tuple([(b._a.shape, b._a.dtype, _on_cpu(b, out)) if isinstance(b, Tensor) else None for b in args])
    return None


def _on_cpu(a: Tensor, out: Any) -> bool:
    """Whether a is on the CPU and the result on a GPU."""
    return a._a.__class__ is np.ndarray and out.__class__ is not np.ndarray and out.__class__ is not MetaArray


def record_two(plan: Plan, saved: tuple[Any, ...], input: Any, other: Any, need: int, out: Tensor) -> None:
    """`record` for the commonest case, a pointwise call of one or two arguments and no hooks: `need` is 1 if input
    wants a gradient, plus 2 if other does."""
    if INFERENCE_USED and (getattr(input, "_vc", None).__class__ in MARKS or getattr(other, "_vc", None).__class__ in MARKS):
        if left_out((input, other)):
            return
        check_saved(saved)
    node: PrimNode = _new_node(plan.node_class)
    first: Any = None
    second: Any = None
    numbers = None
    if need & 1:
        first = (input._node or input) if input._view is None and input._extra is None else edge_of(input)
        if input._nr:
            numbers = (input._nr, 0)
    if need & 2:
        second = (other._node or other) if other._view is None and other._extra is None else edge_of(other)
        if other._nr:
            numbers = (numbers[0] if numbers else 0, other._nr)
    node.edges = (first,) if other is None else (first, second)
    node.output_numbers = numbers
    node.outputs = 1
    node.hooks = node.output_versions = node.fit = None
    node.packed = False
    node.plan = plan
    node.saved = saved
    node.order = next_order()
    out._rg = True
    out._node = node


def _slow_record(node: PrimNode, args: Sequence[Any], outs: Sequence[Tensor]) -> None:
    """Saved-tensor hooks and anomaly mode."""
    if state.anomaly is not None:
        state.anomaly.remember(node)
    if state.saved_hooks and node.saved is not None:
        from tocha.autograd.packed import Packed

        packed: list[Any] = []
        for (kind, key), value in zip(node.plan.sources, node.saved, strict=True):
            if kind == ARGUMENT and isinstance(value, Tensor):
                value = Packed(value, None)
            elif kind == ALL_ARGUMENTS:
                value = tuple(Packed(v, None) if isinstance(v, Tensor) else v for v in value)
            elif kind == OUTPUT:
                value = Packed(outs[key], key)
            packed.append(value)
        node.saved, node.packed = tuple(packed), True


def _unpacked(value: Any, node: Node) -> Any:
    if value.__class__ is tuple:
        return tuple(_unpacked(v, node) for v in value)
    return value.unpack(node) if hasattr(value, "unpack_hook") else value


def view_of(
    base: Tensor, array: Any, prim: Prim, params: dict[str, Any], kind: str = "normal", then: tuple[Prim, dict[str, Any]] | None = None
) -> Tensor:
    """A view of `base` on `array`, in the books and, unless it is one of several or there is a second view upon the first (`then`), on the
    tape: shared version counter, root and chain."""
    out = _new(Tensor)
    out._a, out._rg, out._nr = array, False, 0
    out._grad = out._node = out._view = out._extra = None
    out._vc = version = base._vc or version_of(base)
    if version is UNCOUNTED:
        return out
    parent, mode = base._view, state.grad
    step = ((prim, params),) if then is None else ((prim, params), then)
    out._view = view = _new(View)
    view.version = version.value
    view.kind = made = kind if mode else "inference" if state.inference else "no_grad"
    if parent is None:
        view.base, view.chain = base, step
    else:
        view.base, view.chain = parent.base, (*parent.chain, *step)
        view.kind = parent.kind if parent.kind != "normal" else made
    wanted = base._rg and prim.vjp is not None
    if array.dtype.kind not in "biu" and (wanted or not view.base._rg):
        out._rg = view
    if wanted and mode and kind == "normal" and then is None:
        record(prim, (base,), (out,), params)
    return out
