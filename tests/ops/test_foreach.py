"""Operators on lists of tensors."""

from __future__ import annotations

import pytest

import tocha
from tocha import tensor


def test_a_list_with_a_number_a_list_and_a_tensor() -> None:
    x = [tensor([1.0, 2.0]), tensor([3.0])]
    assert [t.tolist() for t in tocha._foreach_mul(x, 2)] == [[2.0, 4.0], [6.0]]
    assert [t.tolist() for t in tocha._foreach_add(x, x, alpha=2)] == [[3.0, 6.0], [9.0]]
    assert [t.tolist() for t in tocha._foreach_mul(x, tensor(3.0))] == [[3.0, 6.0], [9.0]]
    assert [t.tolist() for t in tocha._foreach_pow(2.0, x)] == [[2.0, 4.0], [8.0]]


def test_scalars_for_each_tensor() -> None:
    x = [tensor([1.0]), tensor([1.0])]
    assert [t.tolist() for t in tocha._foreach_addcmul(x, x, x, [1.0, 2.0])] == [[2.0], [3.0]]
    assert [t.tolist() for t in tocha._foreach_addcdiv(x, x, x, tensor([1.0, 3.0]))] == [[2.0], [4.0]]


def test_in_place_forms_return_nothing_and_write() -> None:
    x = [tensor([1.0]), tensor([4.0])]
    assert tocha._foreach_sqrt_(x) is None
    assert tocha._foreach_lerp_(x, [tensor([3.0]), tensor([4.0])], 0.5) is None
    assert tocha._foreach_maximum_(x, 2.5) is None
    assert [t.tolist() for t in x] == [[2.5], [3.0]]
    tocha._foreach_zero_(x)
    assert [t.tolist() for t in x] == [[0.0], [0.0]]


def test_lists_must_match_and_not_be_empty() -> None:
    with pytest.raises(RuntimeError, match="same number of tensors, got 1 and 2"):
        tocha._foreach_add([tensor([1.0])], [tensor([1.0]), tensor([1.0])])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        tocha._foreach_add([], 1)
    with pytest.raises(TypeError, match="tuple of Tensors"):
        tocha._foreach_neg(tensor([1.0]))


def test_norms_and_extremes() -> None:
    x = [tensor([3.0, 4.0]), tensor([1.0])]
    assert [t.item() for t in tocha._foreach_norm(x)] == [5.0, 1.0]
    assert [t.item() for t in tocha._foreach_max(x)] == [4.0, 1.0]
