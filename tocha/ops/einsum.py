"""einsum: equations are planned once (which dimensions to sum, to multiply and to keep, pair by pair) and run as batched matrix
products (torch docs: torch.einsum)."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import Any

from tocha.dispatch.registry import op
from tocha.ops.arguments import check_tensor
from tocha.ops.matmul import matmul
from tocha.tensor import Tensor

_LETTERS = string.ascii_uppercase + string.ascii_lowercase  # the order of torch's sublist format
Labels = tuple[str, ...]


@functools.lru_cache(maxsize=512)
def _parse(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[Labels, ...], Labels]:
    """Labels of every operand's dimensions and of the output. Dimensions of '...' get labels '.0', '.1', … counted from the right."""
    left, arrow, right = equation.partition("->")
    terms = [t.strip() for t in left.split(",")]
    if len(terms) != len(ranks):
        more = "fewer" if len(terms) < len(ranks) else "more"
        raise RuntimeError(
            f"einsum(): {'more' if more == 'fewer' else 'fewer'} operands were provided than specified in the equation '{equation}'"
        )
    inputs = tuple(_labels(t, rank, equation) for t, rank in zip(terms, ranks, strict=True))
    dots = sorted({x for labels in inputs for x in labels if x[0] == "."}, key=lambda x: -int(x[1:]))
    used = [x for labels in inputs for x in labels if x[0] != "."]
    if not arrow:
        return inputs, (*dots, *sorted((x for x in set(used) if used.count(x) == 1), key=_LETTERS.index))
    output: list[str] = []
    text = right.replace(" ", "")
    i = 0
    while i < len(text):
        if text[i] == ".":
            if text[i : i + 3] != "...":
                raise RuntimeError(f"einsum(): found '.' for output that is not part of any ellipsis in '{equation}'")
            output += dots
            i += 3
            continue
        if text[i] not in _LETTERS:
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {i} in the output of '{equation}', subscripts must be in [a-zA-Z]"
            )
        if text[i] in output:
            raise RuntimeError(f"einsum(): output subscript {text[i]} appears more than once in the output")
        if text[i] not in used:
            raise RuntimeError(f"einsum(): output subscript {text[i]} does not appear in the equation for any input operand")
        output.append(text[i])
        i += 1
    return inputs, tuple(output)


def _labels(term: str, rank: int, equation: str) -> Labels:
    text = term.replace(" ", "")
    if text.count(".") not in (0, 3) or ("." in text and "..." not in text):
        raise RuntimeError(f"einsum(): found '.' in '{equation}' that is not part of any ellipsis")
    named = text.replace("...", "")
    for c in named:
        if c not in _LETTERS:
            raise RuntimeError(f"einsum(): invalid subscript '{c}' in '{equation}', subscripts must be in [a-zA-Z]")
    extra = rank - len(named)
    if extra < 0 or (extra and "..." not in text):
        raise RuntimeError(
            f"einsum(): the number of subscripts in the equation ({len(named)}) does not match the number of dimensions ({rank}) for operand "
            f"'{term}' {'and no ellipsis was given' if extra > 0 else ''}"
        )
    found: list[str] = []
    i = 0
    while i < len(text):
        if text[i] == ".":
            found += [f".{d}" for d in range(extra - 1, -1, -1)]
            i += 3
        else:
            found.append(text[i])
            i += 1
    return tuple(found)


def _once(x: Tensor, labels: Labels) -> tuple[Tensor, Labels]:
    """Repeated labels replaced by the diagonal."""
    while len(set(labels)) < len(labels):
        twice = next(c for c in labels if labels.count(c) > 1)
        first = labels.index(twice)
        second = labels.index(twice, first + 1)
        if x._a.shape[first] != x._a.shape[second]:
            raise RuntimeError(
                f"einsum(): subscript {twice} is repeated for an operand but the sizes don't match, {x._a.shape[first]} != {x._a.shape[second]}"
            )
        x = x.diagonal(0, first, second)
        labels = (*(c for c in labels if c != twice), twice)
    return x, labels


def _summed(x: Tensor, labels: Labels, keep: set[str]) -> tuple[Tensor, Labels]:
    """Dimensions that nothing else needs, summed."""
    away = tuple(i for i, c in enumerate(labels) if c not in keep)
    if not away:
        return x, labels
    return x.sum(away, dtype=x.dtype), tuple(c for c in labels if c in keep)


def _pair(x: Tensor, a: Labels, y: Tensor, b: Labels, keep: set[str]) -> tuple[Tensor, Labels]:
    """Two operands into one: a batched matrix product, dimensions in `keep` kept."""
    sizes = dict(zip(a, x._a.shape, strict=True))
    for i, c in enumerate(b):
        n = y._a.shape[i]
        if c in sizes and sizes[c] != n:  # a size of 1 broadcasts: sum it away, or let the other's size stand
            if n == 1:
                y, b = y.squeeze(i), (*b[:i], *b[i + 1 :])
                return _pair(x, a, y, b, keep)
            x, a = x.squeeze(a.index(c)), tuple(d for d in a if d != c)
            return _pair(x, a, y, b, keep)
        sizes[c] = n
    x, a = _summed(x, a, keep | set(b))
    y, b = _summed(y, b, keep | set(a))
    both = [c for c in a if c in b]
    batch = [c for c in both if c in keep]
    inner = [c for c in both if c not in keep]
    rows, columns = [c for c in a if c not in both], [c for c in b if c not in both]
    if not inner:  # nothing is summed: a broadcast product
        order = [*batch, *rows, *columns]
        left = x.permute(*(a.index(c) for c in [*batch, *rows])) if a else x
        right = y.permute(*(b.index(c) for c in [*batch, *columns])) if b else y
        left = left.reshape([sizes[c] for c in [*batch, *rows]] + [1] * len(columns))
        right = right.reshape([sizes[c] for c in batch] + [1] * len(rows) + [sizes[c] for c in columns])
        return left * right, tuple(order)
    n, m, k, p = (math.prod([sizes[c] for c in group]) for group in (batch, rows, inner, columns))
    left = x.permute(*(a.index(c) for c in [*batch, *rows, *inner])).reshape((n, m, k) if batch else (m, k))
    right = y.permute(*(b.index(c) for c in [*batch, *inner, *columns])).reshape((n, k, p) if batch else (k, p))
    order = [*batch, *rows, *columns]
    return matmul(left, right).reshape([sizes[c] for c in order]), tuple(order)


def _next_pair(operands: list[tuple[Tensor, Labels]], output: Labels) -> tuple[int, int]:
    """The two operands whose product is smallest."""
    best, found = None, (0, 1)
    for i in range(len(operands)):
        for j in range(i + 1, len(operands)):
            elsewhere = set(output).union(*(labels for k, (_, labels) in enumerate(operands) if k not in (i, j)))
            sizes = dict(zip(operands[i][1], operands[i][0]._a.shape, strict=True))
            for c, n in zip(operands[j][1], operands[j][0]._a.shape, strict=True):
                sizes[c] = max(n, sizes.get(c, 1))
            cost = math.prod([n for c, n in sizes.items() if c in elsewhere]) - operands[i][0]._a.size - operands[j][0]._a.size
            if best is None or cost < best:
                best, found = cost, (i, j)
    return found


def _from_sublists(args: tuple[Any, ...]) -> tuple[str, list[Tensor]]:
    """einsum(x, [0, 1], y, [1, 2], [0, 2]) as an equation."""

    def text(sublist: Sequence[Any]) -> str:
        for c in sublist:
            if c is not Ellipsis and not 0 <= c < 52:
                raise ValueError(f"einsum: not within the valid range [0, 52): subscript {c}")
        return "".join("..." if c is Ellipsis else _LETTERS[c] for c in sublist)

    pairs = list(zip(args[0::2], args[1::2], strict=False))
    equation = ",".join(text(s) for _, s in pairs)
    if len(args) % 2:
        equation += "->" + text(args[-1])
    return equation, [x for x, _ in pairs]


@op("torch")
def einsum(*args: Any) -> Tensor:
    """Sums of products of dimensions named by letters: `einsum("bij,bjk->bik", x, y)`, or by lists of numbers (torch docs:
    torch.einsum)."""
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    if isinstance(args[0], str):
        equation, operands = args[0], list(args[1:])
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
    else:
        equation, operands = _from_sublists(args)
    for i, x in enumerate(operands):
        check_tensor(x, "einsum", "operands", i + 1)
        if x._a.dtype is not operands[0]._a.dtype:
            raise RuntimeError(
                f"einsum(): expected all operands to have one dtype, but got {operands[0].dtype.name} and {x.dtype.name}"
            )
    labels, output = _parse(equation, tuple(x._a.ndim for x in operands))
    _check_sizes(operands, labels)
    left = [_once(x, names) for x, names in zip(operands, labels, strict=True)]
    while len(left) > 1:
        i, j = (0, 1) if len(left) == 2 else _next_pair(left, output)
        (x, a), (y, b) = left[i], left[j]
        rest = [t for k, t in enumerate(left) if k not in (i, j)]
        keep = set(output).union(*(names for _, names in rest))
        left = [_pair(x, a, y, b, keep), *rest]
    x, a = _summed(left[0][0], left[0][1], set(output))
    missing = [c for c in output if c not in a]
    for c in missing:  # a size of 1 that was squeezed
        x, a = x.unsqueeze(-1), (*a, c)
    order = tuple(a.index(c) for c in output)
    return x if order == tuple(range(len(order))) and x is not operands[0] else x.permute(*order)


def _check_sizes(operands: Sequence[Tensor], labels: Sequence[Labels]) -> None:
    sizes: dict[str, int] = {}
    for i, (x, names) in enumerate(zip(operands, labels, strict=True)):
        for d, (c, n) in enumerate(zip(names, x._a.shape, strict=True)):
            have = sizes.get(c, 1)
            if n != have and have != 1 and n != 1:
                raise RuntimeError(
                    f"einsum(): subscript {c} has size {n} for operand {i} (dimension {d}) which does not broadcast with previously seen size {have}"
                )
            sizes[c] = max(n, have) if n else 0
