"""Nested containers as flat lists and back (torch.utils._pytree): tuples, lists, dicts, named tuples and registered types."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

PyTree = Any
Flatten = Callable[[Any], tuple[list[Any], Any]]
Unflatten = Callable[[list[Any], Any], Any]


@dataclasses.dataclass(frozen=True)
class SequenceKey:
    """A step of a path: an item of a list or tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        return sequence[self.idx]


@dataclasses.dataclass(frozen=True)
class MappingKey:
    """A step of a path: an item of a dictionary."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        return mapping[self.key]


@dataclasses.dataclass(frozen=True)
class GetAttrKey:
    """A step of a path: an attribute."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        return getattr(obj, self.name)


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


#: For types whose children have names: the keys of the children, in order.
_KEYS: dict[type, Callable[[Any], list[Any]]] = {
    **{kind: lambda x: [MappingKey(k) for k in x] for kind in (dict, OrderedDict, defaultdict)},
    **{kind: lambda x: [SequenceKey(i) for i in range(len(x))] for kind in (list, tuple, deque)},
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
    cls: type, flatten_fn: Flatten, unflatten_fn: Unflatten, *, serialized_type_name: str | None = None,
    flatten_with_keys_fn: Any = None, **unused: Any,
) -> None:  # fmt: skip
    """Make `cls` a container: flatten to (children, context) and back; `flatten_with_keys_fn` gives (key, child) pairs."""
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = (flatten_fn, unflatten_fn)
    if flatten_with_keys_fn is not None:
        _KEYS[cls] = lambda x: [key for key, _ in flatten_with_keys_fn(x)[0]]


def register_dataclass(
    cls: type, *, field_names: Any = None, drop_field_names: Any = None, serialized_type_name: Any = None
) -> None:
    """Make a dataclass a container of its fields; fields that are None when flattened are dropped if named so."""
    dropped = set(drop_field_names or ())
    names = [n for n in (field_names or [f.name for f in dataclasses.fields(cls)]) if n not in dropped]
    register_pytree_node(
        cls,
        lambda x: ([getattr(x, n) for n in names], None),
        lambda items, _: cls(**dict(zip(names, items, strict=True))),
        flatten_with_keys_fn=lambda x: ([(GetAttrKey(n), getattr(x, n)) for n in names], None),
    )


def register_constant(cls: type) -> None:
    """Make values of `cls` part of the structure rather than leaves."""
    register_pytree_node(cls, lambda x: ([], x), lambda _, value: value)


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
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(leaves)} but the spec refers to a pytree that holds "
            f"{treespec.num_leaves} items"
        )
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
    others = [_leaves_like(spec, r, is_leaf) for r in rests]
    return tree_unflatten([func(*xs) for xs in zip(leaves, *others, strict=True)], spec)


def tree_map_only(types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`func` on leaves of the given types."""
    return tree_map(lambda x: func(x) if isinstance(x, types) else x, tree, is_leaf=is_leaf)


def _leaves_like(spec: TreeSpec, tree: PyTree, is_leaf: Callable[[Any], bool] | None) -> list[Any]:
    """Leaves of another tree of this structure (where the first has leaves it may go on deeper)."""
    if spec.is_leaf():
        return [tree]
    found = _node(tree)
    children = found[1](tree)[0] if found is not None else ()
    if found is None or found[0] is not spec.type or len(children) != len(spec.children_specs):
        raise ValueError(f"tree_map: trees differ in structure: {type(tree).__name__} where {spec.type.__name__} was expected")
    return [leaf for s, c in zip(spec.children_specs, children, strict=True) for leaf in _leaves_like(s, c, is_leaf)]


def tree_iter(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> Iterable[Any]:
    """The leaves, one by one."""
    return iter(tree_leaves(tree, is_leaf))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((list(args), kwargs))


def tree_map_(func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`func` on every leaf for its effect; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only_(types: Any, func: Callable[[Any], Any], tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> PyTree:
    """`func` on leaves of the given types for its effect; returns the tree itself."""
    tree_map_only(types, func, tree, is_leaf)
    return tree


def tree_all_only(types: Any, pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether all leaves of the given types satisfy `pred`."""
    return all(pred(x) for x in tree_leaves(tree) if isinstance(x, types))


def tree_any_only(types: Any, pred: Callable[[Any], bool], tree: PyTree) -> bool:
    """Whether some leaf of the given types satisfies `pred`."""
    return any(pred(x) for x in tree_leaves(tree) if isinstance(x, types))


def _keys(tree: PyTree) -> list[Any]:
    cls = type(tree)
    if cls in _KEYS:
        return _KEYS[cls](tree)
    if _is_namedtuple(tree):
        return [GetAttrKey(name) for name in cls._fields]
    return [SequenceKey(i) for i in range(len(SUPPORTED_NODES[cls][0](tree)[0]))]


def tree_flatten_with_path(
    tree: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """((path, leaf) pairs, structure); a path is a tuple of keys."""
    pairs: list[tuple[tuple[Any, ...], Any]] = []

    def go(x: Any, path: tuple[Any, ...]) -> None:
        found = None if is_leaf is not None and is_leaf(x) else _node(x)
        if found is None:
            pairs.append((path, x))
            return
        for key, child in zip(_keys(x), found[1](x)[0], strict=True):
            go(child, (*path, key))

    go(tree, ())
    return pairs, tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) pairs."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable[..., Any], tree: PyTree, *rests: PyTree, is_leaf: Callable[[Any], bool] | None = None
) -> PyTree:
    """`func(path, leaf, ...)` on every leaf."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [_leaves_like(spec, r, is_leaf) for r in rests]
    return tree_unflatten([func(*pair, *xs) for pair, *xs in zip(pairs, *others, strict=True)], spec)


def keystr(kp: Iterable[Any]) -> str:
    """A path in Python's notation: ['a'][0].name"""
    return "".join(map(str, kp))


def key_get(obj: Any, kp: Iterable[Any]) -> Any:
    """What a path leads to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def treespec_leaf() -> TreeSpec:
    """The structure of a leaf."""
    return LeafSpec


def tree_is_leaf(tree: PyTree, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether a value is a leaf."""
    return (is_leaf is not None and is_leaf(tree)) or _node(tree) is None


def is_namedtuple(obj: Any) -> bool:
    """Whether a value is a named tuple, or a class of them."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether a value is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple_class(cls: type) -> bool:
    """Whether a class is one of named tuples."""
    fields = getattr(cls, "_fields", None)
    return isinstance(cls, type) and issubclass(cls, tuple) and isinstance(fields, tuple) and hasattr(cls, "_make")


def is_structseq(obj: Any) -> bool:
    """Whether a value is a result with named fields, or a class of them."""
    return is_structseq_class(obj if isinstance(obj, type) else type(obj))


def is_structseq_instance(obj: Any) -> bool:
    """Whether a value is a result with named fields, as torch.max's."""
    return is_structseq_class(type(obj))


def is_structseq_class(cls: type) -> bool:
    """Whether a class is one of results with named fields."""
    return isinstance(cls, type) and issubclass(cls, tuple) and getattr(cls, "__module__", "") == "torch.return_types"


def _dict_flatten_with_keys(d: dict[Any, Any]) -> tuple[list[tuple[Any, Any]], Any]:
    values, context = SUPPORTED_NODES[type(d)][0](d)
    return [(MappingKey(k), v) for k, v in zip(d, values, strict=True)], context


def _list_flatten_with_keys(d: list[Any]) -> tuple[list[tuple[Any, Any]], Any]:
    return [(SequenceKey(i), v) for i, v in enumerate(d)], None


def _broadcast_to_and_flatten(tree: PyTree, treespec: TreeSpec, is_leaf: Callable[[Any], bool] | None = None) -> list[Any] | None:
    return broadcast_to(tree, treespec)


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
