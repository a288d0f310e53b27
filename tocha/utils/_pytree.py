"""Nested containers as flat lists and back (torch.utils._pytree): tuples, lists, dicts, named tuples and registered types."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

PyTree = Any
Flatten = Callable[[Any], tuple[list[Any], Any]]
Unflatten = Callable[[list[Any], Any], Any]

SUPPORTED_NODES: dict[type, tuple[Flatten, Unflatten]] = {
    tuple: (lambda x: (list(x), None), lambda items, _: tuple(items)),
    list: (lambda x: (list(x), None), lambda items, _: list(items)),
    dict: (lambda x: (list(x.values()), list(x)), lambda items, keys: dict(zip(keys, items, strict=True))),
    OrderedDict: (lambda x: (list(x.values()), list(x)), lambda items, keys: OrderedDict(zip(keys, items, strict=True))),
    defaultdict: (
        lambda x: (list(x.values()), (x.default_factory, list(x))),
        lambda items, c: defaultdict(c[0], zip(c[1], items, strict=True)),
    ),
    deque: (lambda x: (list(x), x.maxlen), lambda items, n: deque(items, maxlen=n)),
}


@dataclasses.dataclass(frozen=True)
class TreeSpec:
    """The structure of a tree without its leaves; `type` None stands for a leaf."""

    type: Any
    context: Any
    children_specs: list[TreeSpec]

    @property
    def num_leaves(self) -> int:
        return 1 if self.type is None else sum(c.num_leaves for c in self.children_specs)

    def is_leaf(self) -> bool:
        return self.type is None


LeafSpec = TreeSpec(None, None, [])


def register_pytree_node(
    cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, *, serialized_type_name: str | None = None, **unused: Any
) -> None:
    """Make `cls` a container: flatten to (children, context) and back."""
    SUPPORTED_NODES[cls] = (flatten_fn, unflatten_fn)


_register_pytree_node = register_pytree_node


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(type(x), "_fields")


def _node(x: Any) -> tuple[Any, Flatten, Unflatten] | None:
    cls = type(x)
    if cls in SUPPORTED_NODES:
        return (cls, *SUPPORTED_NODES[cls])
    if _is_namedtuple(x):
        return cls, lambda t: (list(t), cls), lambda items, c: c(*items)
    return None


def tree_flatten(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """(leaves, structure)."""
    leaves: list[Any] = []

    def go(x: Any) -> TreeSpec:
        found = None if is_leaf is not None and is_leaf(x) else _node(x)
        if found is None:
            leaves.append(x)
            return LeafSpec
        children, context = found[1](x)
        return TreeSpec(found[0], context, [go(c) for c in children])

    return leaves, go(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The tree with this structure and these leaves."""
    items = iter(leaves)

    def go(spec: TreeSpec) -> Any:
        if spec.type is None:
            return next(items)
        children = [go(c) for c in spec.children_specs]
        if spec.type in SUPPORTED_NODES:
            return SUPPORTED_NODES[spec.type][1](children, spec.context)
        return spec.context(*children)

    return go(treespec)


def tree_leaves(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`func` on every leaf (with the corresponding leaves of other trees)."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_flatten(r, is_leaf)[0] for r in rests]
    return tree_unflatten([func(*xs) for xs in zip(leaves, *others, strict=True)], spec)


def tree_map_only(types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`func` on leaves of the given types."""
    return tree_map(lambda x: func(x) if isinstance(x, types) else x, tree, is_leaf=is_leaf)


def tree_any(pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether some leaf satisfies `pred`."""
    return any(map(pred, tree_leaves(tree)))


def tree_all(pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether all leaves satisfy `pred`."""
    return all(map(pred, tree_leaves(tree)))


def broadcast_to(tree: PyTree, spec: TreeSpec) -> list[Any] | None:
    """Leaves of a prefix tree (one value, or a tree as deep as it goes) repeated to match `spec`; None if it doesn't fit."""
    if spec.type is None:
        return [tree]
    found = _node(tree)
    if found is None:
        return [tree] * spec.num_leaves
    children = found[1](tree)[0]
    if found[0] is not spec.type or len(children) != len(spec.children_specs):
        return None
    out: list[Any] = []
    for child, s in zip(children, spec.children_specs, strict=True):
        part = broadcast_to(child, s)
        if part is None:
            return None
        out.extend(part)
    return out
