"""Nested containers: flattening, paths, registration."""

import collections

import pytest

import tocha as torch
from tocha.utils import _pytree as pt

TREE = {"b": [1, (2, 3)], "a": collections.OrderedDict(x=4)}


def test_leaves_and_structure():
    leaves, spec = pt.tree_flatten(TREE)
    assert leaves == [1, 2, 3, 4] and spec.num_leaves == 4 and pt.tree_unflatten(leaves, spec) == TREE
    assert pt.tree_map(lambda x, y: x + y, TREE, TREE)["b"] == [2, (4, 6)]
    assert pt.tree_structure([1, (2,)]) == pt.tree_structure([3, (4,)]) != pt.tree_structure([3, [4]])
    assert pt.tree_leaves(None) == [None] and pt.tree_leaves({1, 2}) == [{1, 2}]
    with pytest.raises(ValueError):
        pt.tree_unflatten([1], spec)
    with pytest.raises(ValueError):
        pt.tree_map(lambda x, y: x, [1, 2], [1])


def test_paths():
    pairs, _ = pt.tree_flatten_with_path(TREE)
    assert [(pt.keystr(p), x) for p, x in pairs] == [("['b'][0]", 1), ("['b'][1][0]", 2), ("['b'][1][1]", 3), ("['a']['x']", 4)]
    assert all(pt.key_get(TREE, p) == x for p, x in pairs)
    point = collections.namedtuple("point", "p q")
    assert [pt.keystr(p) for p, _ in pt.tree_leaves_with_path(point(1, [2]))] == [".p", ".q[0]"]
    assert pt.tree_map_with_path(lambda p, x: len(p) + x, [1, [2]]) == [2, [4]]
    assert pt.is_namedtuple_instance(point(1, 2)) and not pt.is_namedtuple_instance((1, 2))
    assert pt.is_structseq_instance(torch.max(torch.ones(2, 2), 0))


def test_selections():
    assert pt.tree_map_only(int, lambda x: -x, [1, "a"]) == [-1, "a"]
    assert pt.tree_all_only(int, lambda x: x > 0, [1, "a"]) and not pt.tree_any_only(int, lambda x: x > 1, [1, "a"])
    assert pt.arg_tree_leaves(1, [2], k=3) == [1, 2, 3]
    tree = [1, [2]]
    assert pt.tree_map_(lambda x: None, tree) is tree


def test_registered_types():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    pt.register_pytree_node(
        Pair,
        lambda c: ([c.a, c.b], None),
        lambda children, _: Pair(*children),
        flatten_with_keys_fn=lambda c: ([(pt.GetAttrKey("a"), c.a), (pt.GetAttrKey("b"), c.b)], None),
    )
    assert pt.tree_map(lambda x: x + 1, Pair(1, 2)).b == 3
    assert [pt.keystr(p) for p, _ in pt.tree_leaves_with_path([Pair(1, 2)])] == ["[0].a", "[0].b"]
    with pytest.raises(ValueError, match="already registered"):
        pt.register_pytree_node(Pair, lambda c: ([], None), lambda c, _: None)
