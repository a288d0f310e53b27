"""Operators over the elements a mask keeps; values from torch 2.13."""

from __future__ import annotations

from typing import Any

import pytest

import tocha
from tests.ops.values import inf, nan
from tocha import masked, tensor

X = tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
MASK = tensor([[True, False, True], [False, False, False]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sum", [4.0, 0.0]), ("prod", [3.0, 1.0]), ("amax", [3.0, -inf]), ("amin", [1.0, inf]), ("mean", [2.0, nan]),
        ("argmax", [2.0, 0.0]), ("median", [1.0, nan]), ("std", [1.4142135, nan]), ("var", [2.0, nan]),
        ("logsumexp", [3.126928, -inf]),
    ],
)  # fmt: skip
def test_reductions(name: str, expected: list[float]) -> None:
    got = getattr(masked, name)(X, 1, mask=MASK)
    assert got.tolist() == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: masked.norm(X, 2.0, 1, mask=MASK), [3.1622777, 0.0]),
        (lambda: masked.softmax(X, 1, mask=MASK)[0], [0.1192029, 0.0, 0.8807971]),
        (lambda: masked.log_softmax(X, 1, mask=MASK)[0], [-2.126928, -inf, -0.126928]),
        (lambda: masked.cumsum(X, 1, mask=MASK)[0], [1.0, 1.0, 4.0]),
        (lambda: masked.cumprod(X, 1, mask=MASK)[0], [1.0, 1.0, 3.0]),
        (lambda: masked.normalize(X, 2.0, 1, mask=MASK)[0], [0.3162278, 0.0, 0.9486833]),
    ],
)
def test_results_of_the_inputs_shape(call: Any, expected: list[float]) -> None:
    assert call().tolist() == pytest.approx(expected, nan_ok=True)


def test_types_follow_the_input() -> None:
    assert masked.sum(tensor([1, 2], dtype=tocha.int32)).dtype is tocha.int64
    assert masked.amax(tensor([1, 2], dtype=tocha.int32)).dtype is tocha.int32
    with pytest.raises(ValueError, match="Could not infer output dtype"):
        masked.mean(tensor([1, 2]))


def test_gradient_reaches_only_what_is_kept() -> None:
    x = X.clone().requires_grad_()
    masked.mean(x, mask=MASK).backward()
    assert x.grad.tolist() == [[0.5, 0.0, 0.5], [0.0, 0.0, 0.0]]  # type: ignore[union-attr]
