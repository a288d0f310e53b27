"""Short ways of small calls give what the general ones do: values, shared memory, versions and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha import nn


def test_views_share_memory_and_history() -> None:
    x = torch.arange(6.0).reshape(2, 1, 3).requires_grad_()
    for got, shape in (
        (x.squeeze(1), (2, 3)), (x.squeeze(-2), (2, 3)), (x.squeeze(0), (2, 1, 3)), (x.squeeze(1).t(), (3, 2)),
        (x.view_as(torch.empty(3, 2)), (3, 2)), (x.reshape_as(torch.empty(6)), (6,)), (x.expand_as(torch.empty(2, 4, 3)), (2, 4, 3)),
    ):  # fmt: skip
        assert got.shape == shape
        assert got._is_view()
        assert got.data_ptr() == x.data_ptr()
    assert x.squeeze(1).grad_fn.name() == "SqueezeBackward1"
    (x.squeeze(1).t() * torch.tensor([[1.0], [2], [3]])).sum().backward()
    assert x.grad.tolist() == [[[1, 2, 3]], [[1, 2, 3]]]
    assert (x.size(-1), x.size(0), x.size(), x.numel(), x.dim()) == (3, 2, torch.Size([2, 1, 3]), 6, 3)
    for call in (lambda: x.squeeze(3), lambda: x.size(3), lambda: x.expand_as(torch.empty(3))):
        with pytest.raises((IndexError, RuntimeError)):
            call()
    with pytest.raises(TypeError):
        x.numel(1)


def test_in_place_ways_write_memory_and_count_versions() -> None:
    x = torch.tensor([0.0, 0.5, -0.5])
    memory = x.numpy()
    calls: list[tuple[Any, list[float]]] = [
        (lambda: x.erfinv_(), [0.0, 0.4769362762, -0.4769362762]), (lambda: x.sigmoid_(), [0.5, 0.6170242, 0.3829758]),
        (lambda: x.clamp_(0.4, 0.6), [0.5, 0.6, 0.4]), (lambda: x.lerp_(torch.ones(3), 0.5), [0.75, 0.8, 0.7]),
        (lambda: x.addcdiv_(torch.ones(3), torch.tensor([1.0, 2, 4])), [1.75, 1.3, 0.95]), (lambda: x.clamp_min_(1.0), [1.75, 1.3, 1.0]),
        (lambda: x.masked_fill_(torch.tensor([True, False, True]), -math.inf), [-math.inf, 1.3, -math.inf]),
        (lambda: x.copy_(torch.tensor([1.0, 2, 3])), [1, 2, 3]), (lambda: x.pow_(2), [1, 4, 9]),
    ]  # fmt: skip
    for i, (call, want) in enumerate(calls, 1):
        assert call() is x
        assert memory.tolist() == pytest.approx(want, abs=1e-6)
        assert x._version == i


def test_parameters_without_recording() -> None:
    p = nn.Parameter(torch.ones(3))
    with pytest.raises(RuntimeError, match="leaf Variable"):
        p.mul_(2)
    with torch.no_grad():
        assert p.mul_(2).erfinv_().copy_(torch.zeros(3)).add_(1) is p
    assert p.tolist() == [1, 1, 1]
    y = p * 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (y.exp_() * y.copy_(torch.ones(3))).sum().backward()


def test_copies_that_take_the_general_way() -> None:
    x = torch.arange(6.0)
    x[1:].copy_(x[:-1].clone())
    assert x.tolist() == [0, 0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1).expand(3).copy_(torch.ones(3))
    grad = torch.ones(2, requires_grad=True)
    target = torch.zeros(2)
    target.copy_(grad * 3).sum().backward()
    assert grad.grad.tolist() == [3, 3]
    assert torch.zeros(2, dtype=torch.int64).copy_(torch.tensor([1.7, 2.2])).tolist() == [1, 2]
    np.testing.assert_array_equal(torch.zeros(2, 3).masked_fill_(torch.tensor([True, False, True]), 2.5).numpy()[1], [2.5, 0, 2.5])


@pytest.mark.parametrize("n", [5, 6000])
def test_scatters_write_memory(n: int) -> None:
    rng = np.random.default_rng(0)
    places, values = rng.integers(0, 7, (n, 3)), rng.standard_normal((n, 3)).astype(np.float32)
    wanted, added = np.zeros((7, 3), np.float32), np.ones((7, 3), np.float64)
    for row, at in zip(values, places, strict=True):
        for column in range(3):
            wanted[at[column], column] = row[column]
            added[at[column], column] += row[column]
    index, source = torch.from_numpy(places), torch.from_numpy(values)
    x = torch.zeros(7, 3)
    memory = x.numpy()
    assert x.scatter_(0, index, source) is x
    np.testing.assert_array_equal(memory, wanted)
    np.testing.assert_array_equal(x.scatter_(0, index, 2.5).numpy(), np.where(wanted != 0, 2.5, 0))
    np.testing.assert_allclose(x.fill_(1).scatter_add_(0, index, source).numpy(), added, rtol=1e-4, atol=1e-4)
    rows = np.ones((7, 3))
    np.add.at(rows, places[:, 0], values)
    np.testing.assert_allclose(x.fill_(1).index_add_(0, index[:, 0], source).numpy(), rows, rtol=1e-4, atol=1e-4)
    columns = np.ones((3, 7))
    np.add.at(columns, (slice(None), places[:, 1]), values.T)
    y = torch.ones(3, 7)
    np.testing.assert_allclose(y.index_add_(1, index[:, 1], source.t()).numpy(), columns, rtol=1e-4, atol=1e-4)
    assert x._version == 6
    before = memory.copy()
    for wrong in (-1, 7):
        places[n // 2, 1] = places[n // 2, 0] = wrong
        calls: list[tuple[Any, Any]] = [
            (lambda: x.scatter_(0, index, source), RuntimeError), (lambda: x.scatter_add_(0, index, source), RuntimeError),
            (lambda: x.index_add_(0, index[:, 0], source), RuntimeError),
        ]  # fmt: skip
        for call, error in calls:
            with pytest.raises(error, match="out of"):
                call()
    np.testing.assert_array_equal(memory, before)


def test_scatters_that_take_the_general_way() -> None:
    leaf = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        leaf.scatter_(0, torch.tensor([0]), torch.tensor([2.0]))
    y = leaf * 1
    y.scatter_(0, torch.tensor([1]), 5.0).sum().backward()
    assert leaf.grad.tolist() == [1, 0, 1]
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError, match="single memory location"):
        x.scatter_(0, torch.tensor([0, 1]), x[2:])
    with pytest.raises(RuntimeError, match=r"self\.dtype to be equal to src\.dtype"):
        x.scatter_(0, torch.tensor([0]), torch.tensor([1]))
    assert torch.zeros(4)[::2].scatter_(0, torch.tensor([1]), 3.0).tolist() == [0, 3]
    assert torch.zeros(2).scatter_(0, torch.tensor(1), torch.tensor(3.0)).tolist() == [0, 3]
    assert torch.zeros(2).scatter_(0, torch.tensor([1]), torch.tensor(3.0)).tolist() == [0, 3]
    assert torch.zeros(2).scatter_(0, torch.tensor(1), 3.0).tolist() == [0, 3]
    assert torch.zeros(3).scatter_(0, torch.tensor([1]), 3.0, reduce="add").tolist() == [0, 3, 0]


@pytest.mark.parametrize("n", [4, 3000])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_negative_log_likelihood_of_rows(n: int, reduction: str) -> None:
    rng = np.random.default_rng(1)
    x, target = rng.standard_normal((n, 5)), rng.integers(0, 5, n)
    for ignored in (-100, 2):  # with some ignored it isn't the short way
        kept = target != ignored
        each = np.where(kept, -x[np.arange(n), target], 0)
        share = 1 / kept.sum() if reduction == "mean" else 1.0
        want = each if reduction == "none" else each.sum() * share
        leaf = torch.from_numpy(x).requires_grad_()
        got = torch.nn.functional.nll_loss(leaf, torch.from_numpy(target), ignore_index=ignored, reduction=reduction)
        np.testing.assert_allclose(got.detach().numpy(), want, rtol=1e-12)
        (got * 3).sum().backward()
        slope = np.zeros((n, 5))
        slope[np.arange(n), target] = np.where(kept, -3 * share, 0)
        np.testing.assert_allclose(leaf.grad.numpy(), slope, rtol=1e-12)
    with pytest.raises(IndexError, match="out of bounds"):
        torch.nn.functional.nll_loss(torch.from_numpy(x), torch.full((n,), 5))


def test_sizes_below_minus_one_are_refused() -> None:
    """NumPy would take them for -1."""
    for sizes in ((-2,), (2, -3)):
        with pytest.raises(RuntimeError, match="invalid shape dimension"):
            torch.arange(4).view(*sizes)
        with pytest.raises(RuntimeError, match="invalid shape dimension"):
            torch.arange(4).reshape(sizes)
    assert torch.arange(4).view(2, -1).tolist() == [[0, 1], [2, 3]]


def test_few_elements_are_recorded() -> None:
    """Values, gradients and names of nodes, by position and by name of the argument."""
    ramp = [[1.0, 2, 3], [4, 5, 6]]
    index, mask = torch.tensor([[2, 0], [1, 1]]), torch.tensor([[True, False, True]] * 2)
    calls: list[tuple[Any, Any, Any, str]] = [
        (lambda x: x.sum(), 21, [[1, 1, 1]] * 2, "Sum"), (lambda x: x.sum(dim=0, keepdim=True), [[5, 7, 9]], [[1, 1, 1]] * 2, "Sum"),
        (lambda x: x.mean(-1), [2, 5], [[1 / 3] * 3] * 2, "Mean"), (lambda x: x.mean(1, True), [[2], [5]], [[1 / 3] * 3] * 2, "Mean"),
        (lambda x: x.amax(dim=-1), [3, 6], [[0, 0, 1]] * 2, "Amax"), (lambda x: x.amin(0), [1, 2, 3], [[1, 1, 1], [0, 0, 0]], "Amin"),
        (lambda x: torch.cat([x, x], dim=1), [r * 2 for r in ramp], [[2, 2, 2]] * 2, "Cat"),
        (lambda x: torch.stack((x, x), dim=1), [[r, r] for r in ramp], [[2, 2, 2]] * 2, "Stack"),
        (lambda x: torch.gather(x, 1, index), [[3, 1], [5, 5]], [[1, 0, 1], [0, 2, 0]], "Gather"),
        (lambda x: torch.where(mask, x, x * 10), [[1, 20, 3], [4, 50, 6]], [[1, 10, 1]] * 2, "Where"),
        (lambda x: x[torch.tensor([1, -1])], [ramp[1], ramp[1]], [[0, 0, 0], [2, 2, 2]], "Index"),
        (lambda x: 1 - x, [[0, -1, -2], [-3, -4, -5]], [[-1, -1, -1]] * 2, "Sub"), (lambda x: x.clone(), ramp, [[1, 1, 1]] * 2, "Clone"),
        (lambda x: x.t().contiguous(), [[1, 4], [2, 5], [3, 6]], [[1, 1, 1]] * 2, "Clone"),
        (lambda x: x.as_strided((2, 2), (1, 2)), [[1, 3], [2, 4]], [[1, 1, 1], [1, 0, 0]], "AsStrided"),
        (lambda x: x.flatten(0), [1, 2, 3, 4, 5, 6], [[1, 1, 1]] * 2, "View"),
        (lambda x: x.unsqueeze(1), [[r] for r in ramp], [[1, 1, 1]] * 2, "Unsqueeze"),
        (lambda x: x * torch.ones(2, 2, 3), [ramp, ramp], [[2, 2, 2]] * 2, "Mul"), (lambda x: x.to(torch.float64), ramp, [[1, 1, 1]] * 2, "ToCopy"),
        (lambda x: torch.cat(x.split([1, 2], 1), 1), ramp, [[1, 1, 1]] * 2, "Cat"),
        (lambda x: torch.stack(x.unbind(1)), [[1, 4], [2, 5], [3, 6]], [[1, 1, 1]] * 2, "Stack"),
    ]  # fmt: skip
    for call, want, slope, name in calls:
        x = torch.tensor(ramp, requires_grad=True)
        with torch.no_grad():
            assert call(x).tolist() == want
        got = call(x)
        assert got.tolist() == want
        assert got.grad_fn.name().startswith(name)
        got.sum().backward()
        np.testing.assert_allclose(x.grad.numpy(), slope, rtol=1e-6)


def test_few_elements_refuse_as_many_do() -> None:
    x = torch.zeros(2, 3)
    calls: list[tuple[Any, Any, str]] = [
        (lambda: torch.cat([x, torch.zeros(3, 2)], 1), RuntimeError, "Sizes of tensors must match"),
        (lambda: torch.stack([x, torch.zeros(3, 2)]), RuntimeError, "equal size"),
        (lambda: torch.gather(x, 1, torch.tensor([[3], [0]])), RuntimeError, "out of bounds"),
        (lambda: torch.gather(x, 1, torch.tensor([[-1], [0]])), RuntimeError, "out of bounds"),
        (lambda: x.as_strided((2, 4), (3, 1)), RuntimeError, "out of bounds"), (lambda: torch.zeros(2, -1), RuntimeError, "negative dimension"),
        (lambda: torch.tensor([1, 2**70]), (RuntimeError, OverflowError, ValueError), "[Oo]verflow"),
        (lambda: torch.bernoulli(x + 2), RuntimeError, "in \\[0, 1\\]"),
        (lambda: x.sum(2), IndexError, "out of range"), (lambda: x.flatten(1, 0), RuntimeError, "start_dim"),
    ]  # fmt: skip
    for call, error, text in calls:
        with pytest.raises(error, match=text):
            call()


def test_new_tensors_take_the_types_asked_for() -> None:
    for got, dtype, values in (
        (torch.tensor([1, 2]), torch.int64, [1, 2]), (torch.tensor([1.5, -0.0]), torch.float32, [1.5, 0]),
        (torch.tensor(True), torch.bool, True), (torch.tensor([1, 2.5]), torch.float32, [1, 2.5]), (torch.tensor([True, 2]), torch.int64, [1, 2]),
        (torch.zeros(2), torch.float32, [0, 0]), (torch.ones((2,)), torch.float32, [1, 1]), (torch.tensor([1e39]), torch.float32, [math.inf]),
        (torch.ones(2, dtype=torch.int32), torch.int32, [1, 1]), (torch.zeros(1).double().new_ones(2), torch.float64, [1, 1]),
        (torch.zeros_like(torch.tensor([3])), torch.int64, [0]), (torch.ones_like(torch.tensor([True])), torch.bool, [True]),
    ):  # fmt: skip
        assert got.dtype is dtype
        assert got.tolist() == values
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.tensor([0.1]).dtype is torch.zeros(1).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.device("meta"):
        assert torch.zeros(2).is_meta
        assert torch.tensor([1.0]).is_meta
    seeded = []
    for options in ({}, {"generator": torch.default_generator}):
        torch.manual_seed(3)
        seeded.append(torch.bernoulli(torch.full((9,), 0.5), **options).tolist())
    assert seeded[0] == seeded[1]
