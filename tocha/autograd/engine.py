"""The engine: walk the tape from the outputs and give every leaf its gradient. No recursion, no dependency counts:
nodes are taken youngest first (see autograd.graph), so a node's gradient is complete when its turn comes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tocha.autograd.graph import AccumulateGrad, GradientEdge, Node
from tocha.autograd.mode import state
from tocha.autograd.views import edge_of
from tocha.backends import namespace
from tocha.backends.meta import is_dense
from tocha.device import contiguous_format
from tocha.dispatch.override import hide_overrides, overridable, restore_overrides, user_code
from tocha.tensor import Tensor, wrap

Place = Any  # a Node, or a leaf tensor
Roots = list[tuple[Place, int, Tensor]]


def run(roots: Roots, retain_graph: bool, create_graph: bool, targets: Targets | None = None) -> None:
    """Send the root gradients back through the graph.

    Without `targets` gradients end in the leaves' `.grad`; with them, in `targets`, and leaves stay untouched.
    """
    heap: list[tuple[int, Place]] = []
    grads: dict[Place, Any] = {}
    mode = state.grad
    state.grad = 1 if create_graph and not state.inference else 0
    state.refresh()
    anomaly = state.anomaly
    hide_overrides()
    state.runs.append(Run(roots, targets, retain_graph))
    outs: Any
    g: Any
    try:
        for place, number, grad in roots:
            _send(place, number, grad, grads, heap)
        while heap:
            node = heapq.heappop(heap)[1]
            grad = grads.pop(node)
            if not isinstance(node, Node):  # a leaf that has hooks on its finished gradient
                _at_leaf(node, grad, create_graph, targets, 99)
                continue
            if node.hooks is not None:
                grad = _pre_hooks(node, grad)
            if targets is not None:
                if node in targets.nodes:
                    targets.collect(node, grad)
                if node not in targets.on_path:
                    continue
            wanted = None if targets is None else targets.partial.get(node)
            if anomaly is not None:
                outs = anomaly.apply(node, grad)
            else:
                outs = node.apply(grad) if wanted is None else node.apply_for(grad, wanted)
            if node.hooks is not None and node.hooks.post:
                outs = _post_hooks(node, outs, grad)
            if not retain_graph:
                node.release()
            numbers = node.output_numbers
            if numbers is None:
                for edge, g in zip(node.edges, outs):
                    if edge is None or g is None:
                        continue
                    if edge in grads:
                        _send(edge, 0, g, grads, heap)
                    elif isinstance(edge, Node):
                        if edge.outputs == 1:
                            grads[edge] = g
                            heapq.heappush(heap, (edge.order, edge))
                        else:
                            _send(edge, 0, g, grads, heap)
                    elif edge._extra is None:
                        grads[edge] = g
                    else:
                        _send(edge, 0, g, grads, heap)
            else:
                for edge, number, g in zip(node.edges, numbers, outs, strict=False):
                    if edge is not None and g is not None:
                        _send(edge, number, g, grads, heap)
        outs = g = grad = None  # type: ignore[assignment]  # so that the counts below see only holders outside this function
        while grads:
            leaf = next(iter(grads))
            grad = grads.pop(leaf)
            references = getrefcount(grad)
            if targets is None and leaf._extra is None:
                _accumulate(leaf, grad, create_graph, references)
            else:
                _at_leaf(leaf, grad, create_graph, targets, references)
    finally:
        state.runs.pop()
        restore_overrides()
        state.grad = mode
        state.refresh()


def _send(place: Place, number: int, grad: Tensor, grads: dict[Place, Any], heap: list[tuple[int, Place]]) -> None:
    """Add `grad` to what output `number` of `place` has received. Leaves wait for the end, when every use has sent its
    part; one with post-accumulate hooks (which may free the gradient at once) until its first use in the forward has."""
    held = grads.get(place)
    several = isinstance(place, Node) and place.outputs > 1
    if held is None:
        if isinstance(place, Node):
            heapq.heappush(heap, (place.order, place))
        elif place._extra is not None and place._extra.first_use is not None:
            heapq.heappush(heap, (place._extra.first_use, place))
        if several:
            grads[place] = held = [None] * place.outputs
            held[number] = grad
        else:
            grads[place] = grad
    elif several:
        held[number] = grad if held[number] is None else held[number] + grad
    else:
        grads[place] = held + grad


def _call(hook: Any, *args: Any) -> Any:
    with user_code():
        return hook(*args)


def _pre_hooks(node: Node, grad: Any) -> Any:
    hooks = node.hooks
    assert hooks is not None
    several = node.outputs > 1
    for number, table in hooks.tensor.items():
        for hook in tuple(table.values()):
            given = grad[number] if several else grad
            if given is None:
                continue
            got = _call(hook, given)
            if got is not None:
                _check_hook_result(got, given)
                if several:
                    grad[number] = got
                else:
                    grad = got
    for hook in tuple(hooks.pre.values()):
        got = _call(hook, tuple(grad) if several else (grad,))
        if got is not None:
            got = got if isinstance(got, (tuple, list)) else (got,)
            grad = list(got) if several else got[0]
    for number, reference in hooks.retain.items():
        tensor = reference()
        g = grad[number] if several else grad
        if tensor is not None and g is not None:
            tensor._grad = g if tensor._grad is None else tensor._grad + g
    return grad


def _check_hook_result(got: Any, given: Tensor) -> None:
    if not hasattr(got, "_a"):
        raise TypeError(f"expected a tensor or None from the hook, but got {type(got).__name__}")
    if got.shape != given.shape:
        raise RuntimeError(f"hook has changed the size of value: {list(given.shape)} became {list(got.shape)}")
    if got.dtype is not given.dtype or got.device != given.device:
        raise RuntimeError(
            f"hook has changed the type of value (was {given.dtype} on {given.device}, got {got.dtype} on {got.device})"
        )


def _post_hooks(node: Node, outs: Sequence[Any], grad: Any) -> Sequence[Any]:
    assert node.hooks is not None
    given = tuple(grad) if node.outputs > 1 else (grad,)
    for hook in tuple(node.hooks.post.values()):
        got = _call(hook, tuple(outs), given)
        if got is not None:
            outs = got if isinstance(got, (tuple, list)) else (got,)
    return outs


def _at_leaf(leaf: Tensor, grad: Tensor, create_graph: bool, targets: Targets | None, references: int) -> None:
    """A complete gradient has reached a leaf: run its hooks, then collect or accumulate."""
    extra = leaf._extra
    if extra is not None and extra.backward_hooks:
        references = 99  # a hook may have kept the gradient
        for hook in tuple(extra.backward_hooks.values()):
            got = _call(hook, grad)
            if got is not None:
                _check_hook_result(got, grad)
                grad = got
    if targets is not None:
        if leaf in targets.nodes:
            targets.results[leaf, 0] = grad
        return
    node = extra.accumulate() if extra is not None and extra.accumulate is not None else None
    if node is not None and node.hooks is not None:
        grad, references = _pre_hooks(node, grad), 99
    _accumulate(leaf, grad, create_graph, references)
    if node is not None and node.hooks is not None:
        _post_hooks(node, (), grad)


def _accumulate(leaf: Tensor, grad: Tensor, create_graph: bool, references: int) -> None:
    """leaf.grad += grad, then the leaf's post-accumulate hooks. `references` counts who holds the gradient: 2 is the
    engine's variable and the argument of the count, so nobody else."""
    a, own = grad._a, leaf._a
    if not leaf._rg:  # since it was used, requires_grad_(False)
        return
    if a.dtype is not own.dtype:
        grad = grad.to(leaf.dtype)
        a = grad._a
    if a.shape != own.shape:  # .data gave the leaf another one
        raise RuntimeError(
            f"backward returned an invalid gradient - got {list(a.shape)} but expected shape compatible with {list(own.shape)}"
        )
    if leaf._grad is not None:
        if create_graph:
            leaf._grad = leaf._grad + grad
        else:
            leaf._grad.add_(grad)
    elif (aligned := a.strides == own.strides) and references <= 2 and grad._vc is None and not grad._rg and _owns(grad, a):
        leaf._grad = grad
    elif not aligned and any(n != 1 and s != t for n, s, t in zip(a.shape, a.strides, own.strides, strict=True)):
        leaf._grad = _laid_out(leaf, grad)
    elif create_graph:
        leaf._grad = grad
    else:  # `.grad` is changed in place later: it must not share memory with a gradient someone else holds
        leaf._grad = grad.detach().clone()
    extra = leaf._extra
    if extra is not None and extra.post_accumulate:
        extra.first_use = None
        for hook in tuple(extra.post_accumulate.values()):
            _call(hook, leaf)


def _laid_out(leaf: Tensor, grad: Tensor) -> Tensor:
    """A copy of the gradient with the leaf's strides, as torch keeps `.grad` (programs call `p.grad.view(-1)`); contiguous where
    the leaf's memory has gaps or overlaps."""
    if not is_dense(leaf._a):
        return grad.clone(memory_format=contiguous_format)
    new: Tensor = grad.detach().new_empty_strided(leaf.shape, leaf.stride())
    return new.copy_(grad)


def _owns(grad: Tensor, array: Any) -> bool:
    """Whether nothing but this gradient (and the two callers' variables and the count's argument) holds its memory."""
    if array.__class__ is not np.ndarray:
        return bool(namespace(array).owns_memory(array)) and grad._view is None and getrefcount(array) <= 4
    return array.base is None and getrefcount(array) <= 4 and grad._view is None


class Run:
    """One walk of the engine, for hooks that ask about it."""

    __slots__ = ("_places", "retains", "roots", "targets")

    def __init__(self, roots: Roots, targets: Targets | None, retains: bool) -> None:
        self.roots, self.targets, self.retains = roots, targets, retains
        self._places: set[Place] | None = None

    def reaches(self, place: Place) -> bool:
        """Whether this walk comes to a node or leaf."""
        if self.targets is not None:
            return place in self.targets.on_path or place in self.targets.nodes
        if self._places is None:
            self._places = {root[0] for root in self.roots}
            stack = list(self._places)
            while stack:
                for edge in getattr(stack.pop(), "edges", ()):  # a leaf has none
                    if edge is not None and edge not in self._places:
                        self._places.add(edge)
                        stack.append(edge)
        return place in self._places


class Targets:
    """What `grad()` wants: tensors' nodes, and which nodes lie on a path to one."""

    def __init__(self, wanted: Sequence[tuple[Place, int]], roots: Roots) -> None:
        self.nodes: dict[Place, set[int]] = {}
        for node, number in wanted:
            self.nodes.setdefault(node, set()).add(number)
        self.results: dict[tuple[Place, int], Tensor] = {}
        self.on_path, self.partial = _leading_to(set(self.nodes), [r[0] for r in roots])

    def collect(self, node: Node, grad: Any) -> None:
        for number in self.nodes[node]:
            g = grad[number] if node.outputs > 1 else grad
            if g is not None:
                self.results[node, number] = g


def _leading_to(wanted: set[Place], roots: list[Place]) -> tuple[set[Node], dict[Node, tuple[bool, ...]]]:
    """Nodes from which an edge path leads to something wanted; which edges do, for nodes that have others too."""
    nodes = {r for r in roots if isinstance(r, Node)}
    stack = list(nodes)
    while stack:
        for edge in stack.pop().edges:
            if isinstance(edge, Node) and edge not in nodes:
                nodes.add(edge)
                stack.append(edge)
    leading: set[Node] = set()
    partial = {}
    for node in sorted(nodes, key=lambda n: -n.order):  # oldest first: a node's edges are older than it
        leads = others = False
        for e in node.edges:
            if e is not None:
                if e in wanted or e in leading:
                    leads = True
                else:
                    others = True
        if leads:
            leading.add(node)
            if others:
                partial[node] = tuple([e in wanted or e in leading for e in node.edges])
    return leading, partial


def _prepare_roots(outputs: Sequence[Tensor], grads: Sequence[Any], what: str, batched: bool = False) -> Roots:
    roots: Roots = []
    for out, grad in zip(outputs, grads, strict=True):
        if isinstance(out, GradientEdge):
            if grad is None:
                raise RuntimeError(f"{what}: a GradientEdge as output needs its gradient given, its shape is not known")
            roots.append((_place(out)[0], out.output_nr, grad))
            continue
        if not out._rg:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        if grad is None:
            if out._a.size != 1:
                raise RuntimeError(
                    f"grad can be implicitly created only for scalar outputs, but {what} was called on one of shape "
                    f"{list(out.shape)}: pass gradient= (the gradient of what follows with respect to it)"
                )
            if out._a.dtype.kind == "c":
                raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {out.dtype}")
            grad = _one_like(out)
        elif not hasattr(grad, "_a"):
            raise TypeError(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
        elif grad.shape != out.shape and not batched:
            raise RuntimeError(
                f"Mismatch in shape: grad_output has a shape of {grad.shape} and output has a shape of {out.shape}."
            )
        elif grad._a.dtype.kind == "c" and out._a.dtype.kind != "c":
            raise RuntimeError(
                "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in dtype: "
                f"grad_output has a dtype of {grad.dtype} and output has a dtype of {out.dtype}."
            )
        if grad._a.dtype is not out._a.dtype and out._a.dtype.kind != "c":
            grad = grad.to(out.dtype)
        place = edge_of(out)
        if place is None:
            raise RuntimeError("element 0 of tensors does not require grad and does not have a grad_fn")
        roots.append((place, out._nr, grad))
    return roots


def _one_like(out: Tensor) -> Tensor:
    """A tensor of ones in out's shape, type and place."""
    a = out._a
    if a.__class__ is np.ndarray and out.__class__ is Tensor:
        return wrap(np.ones(a.shape, a.dtype))
    from tocha.dispatch.registry import NAMESPACES

    return NAMESPACES["torch"]["ones_like"](out)


def _sequence(value: Any, length: int) -> tuple[Any, ...]:
    if value is None:
        return (None,) * length
    found = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    if len(found) != length:
        raise RuntimeError(f"got {length} tensors and {len(found)} gradients")
    return found


def backward(
    tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    grad_variables: Any = None, inputs: Any = None,
) -> None:  # fmt: skip
    """Sum of gradients of `tensors` into the leaves' `.grad` (torch docs: torch.autograd.backward)."""
    outputs = (tensors,) if tensors.__class__ is Tensor else _items(tensors)
    roots = _prepare_roots(outputs, _sequence(grad_tensors, len(outputs)), "backward")
    retain = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run(roots, retain, create_graph)
        return
    wanted = _items(inputs)
    if not wanted:
        raise RuntimeError("'inputs' argument to backward() cannot be empty.")
    found = _collect(roots, wanted, retain, create_graph)
    for tensor, g in zip(wanted, found, strict=True):
        if g is not None:
            held = tensor._grad
            tensor._grad = (g if create_graph else g.detach().clone()) if held is None else held + g


def _place(edge: GradientEdge) -> tuple[Place, int]:
    node = edge.node
    return (node.variable if isinstance(node, AccumulateGrad) else node), edge.output_nr


def _collect(roots: Roots, inputs: Sequence[Tensor], retain: bool, create_graph: bool) -> list[Tensor | None]:
    for tensor in inputs:
        if not isinstance(tensor, GradientEdge) and not tensor._rg:
            raise RuntimeError("One of the differentiated Tensors does not require grad")
    places = [_place(t) if isinstance(t, GradientEdge) else (edge_of(t), t._nr) for t in inputs]
    targets = Targets([(place, number) for place, number in places if place is not None], roots)
    run(roots, retain, create_graph, targets)
    return [targets.results.get(place) for place in places]


def _items(value: Any) -> tuple[Any, ...]:
    if value.__class__ is Tensor:
        return (value,)
    return tuple(value) if isinstance(value, (tuple, list)) and not isinstance(value, GradientEdge) else (value,)


@overridable(lambda outputs, inputs, *rest, **options: (*_items(outputs), *_items(inputs)))
def grad(
    outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
    only_inputs: bool = True, allow_unused: bool | None = None, is_grads_batched: bool = False, materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """Gradients of `outputs` with respect to `inputs`, returned (torch docs: torch.autograd.grad)."""
    if allow_unused is False and materialize_grads:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    allow_unused = materialize_grads if allow_unused is None else allow_unused
    outs, ins = _items(outputs), _items(inputs)
    if not ins:
        raise RuntimeError("grad requires non-empty inputs.")
    grads = _sequence(grad_outputs, len(outs))
    retain = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        from tocha.autograd.batched import grad_of_batch

        found = grad_of_batch(outs, ins, grads, retain, create_graph)
    else:
        found = _collect(_prepare_roots(outs, grads, "grad"), ins, retain, create_graph)
    for i, g in enumerate(found):
        if g is None and materialize_grads:
            found[i] = ins[i].detach().new_zeros(ins[i].shape)
        elif g is None and not allow_unused:
            raise RuntimeError(
                "One of the differentiated Tensors appears to not have been used in the graph. Set allow_unused=True if this is "
                "the desired behavior."
            )
    return tuple(found)


def _backward_method(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Accumulate the gradient of this tensor into the leaves (torch docs: Tensor.backward)."""
    a, node = self._a, self._node
    if gradient is None and inputs is None and a.__class__ is np.ndarray and a.size == 1 and a.dtype.kind == "f":
        if node is not None and self._view is None and self.__class__ is Tensor:  # a plain scalar loss
            roots = [(node, self._nr, wrap(np.ones(a.shape, a.dtype)))]
            run(roots, create_graph if retain_graph is None else retain_graph, create_graph)
            return
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


_backward_method.__name__ = "backward"
Tensor.backward = _backward_method  # type: ignore[attr-defined]
