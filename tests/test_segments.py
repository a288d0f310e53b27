"""segment_reduce, embedding_bag's raw form, streams, functionalize. Values from torch 2.13."""

import math

import pytest

import tocha as torch

D = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
N, I = math.nan, math.inf  # noqa: E741
CASES = [
    ("sum", [[1, 2], [0, 0], [15, 18]], [[3, 4], [2, 2], [17, 20]], [[1, 1], [1, 1], [1, 1], [1, 1]]),
    (
        "mean",
        [[1, 2], [N, N], [5, 6]],
        [[3, 4], [2, 2], [17 / 3, 20 / 3]],
        [[1, 1], [1 / 3, 1 / 3], [1 / 3, 1 / 3], [1 / 3, 1 / 3]],
    ),
    ("max", [[1, 2], [-I, -I], [7, 8]], [[2, 2], [2, 2], [7, 8]], [[1, 1], [0, 0], [0, 0], [1, 1]]),
    ("min", [[1, 2], [I, I], [3, 4]], [[1, 2], [2, 2], [2, 2]], [[1, 1], [1, 1], [0, 0], [0, 0]]),
    ("prod", [[1, 2], [1, 1], [105, 192]], [[2, 4], [2, 2], [210, 384]], [[1, 1], [35, 48], [21, 32], [15, 24]]),
]


@pytest.mark.parametrize(("reduce", "plain", "started", "slope"), CASES)
def test_segment_reduce(reduce, plain, started, slope):
    lengths = torch.tensor([1, 0, 3])
    x = D.clone().requires_grad_()
    out = torch.segment_reduce(x, reduce, lengths=lengths)
    for got, expected in zip(out.tolist(), plain, strict=True):
        assert got == pytest.approx(expected, nan_ok=True)
    assert torch.segment_reduce(D, reduce, offsets=torch.tensor([0, 1, 1, 4])).nan_to_num().equal(out.nan_to_num())
    for got, expected in zip(torch.segment_reduce(D, reduce, lengths=lengths, initial=2.0).tolist(), started, strict=True):
        assert got == pytest.approx(expected)
    (grad,) = torch.autograd.grad(out.nan_to_num(0, 0, 0).sum(), x)
    for got, expected in zip(grad.tolist(), slope, strict=True):
        assert got == pytest.approx(expected)


def test_segments_of_rows():
    rows = torch.arange(8.0).reshape(2, 4)
    got = torch.segment_reduce(rows, "sum", lengths=torch.tensor([[1, 3], [2, 2]]), axis=1)
    assert got.tolist() == [[0.0, 6.0], [9.0, 13.0]]


def test_segment_reduce_refuses():
    for options, text in (
        ({}, "must be defined"),
        ({"lengths": torch.tensor([1, 2])}, "sum to"),
        ({"indices": torch.tensor([1])}, "indices"),
    ):
        with pytest.raises(RuntimeError, match=text):
            torch.segment_reduce(D, "sum", **options)
    assert torch.segment_reduce(D, "sum", lengths=torch.tensor([1, 2]), unsafe=True).tolist() == [[1, 2], [8, 10]]


def test_embedding_bag():
    w = torch.arange(12.0).reshape(4, 3)
    indices, offsets = torch.tensor([0, 1, 2]), torch.tensor([0, 2])
    assert torch.embedding_bag(w, indices, offsets)[0].tolist() == [[3, 5, 7], [6, 7, 8]]
    out, bag, size, at = torch.embedding_bag(w, indices, offsets, False, 2)
    assert [v.tolist() for v in (out, bag, size, at)] == [[[3, 4, 5], [6, 7, 8]], [0, 0, 1], [2, 1], [[1, 1, 1], [2, 2, 2]]]


def test_streams_of_the_cpu():
    stream, event = torch.Stream(device="cpu"), torch.Event(device="cpu")
    assert isinstance(stream, torch.Stream)
    assert isinstance(event, torch.Event)
    assert event.query()
    assert not isinstance(event, torch.Stream)


def test_functionalize_keeps_results_and_changes():
    def f(x):
        y = x.view(-1)
        y.add_(1)
        return x * 2

    x = torch.zeros(2, 2)
    assert torch.func.functionalize(f)(x).tolist() == [[2, 2], [2, 2]]
    assert x.tolist() == [[1, 1], [1, 1]]
    with pytest.raises(RuntimeError, match="remove"):
        torch.func.functionalize(f, remove="views")
