"""Values of tensors in a graph that may not break: numbers that it computes with and returns, and what is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
from tests._dynamo.helpers import check


class Meter:
    def __init__(self) -> None:
        self.last = 0.0


def noted(x: Any, meter: Meter) -> Any:
    loss = (x * x).mean()
    meter.last = loss.item()
    return loss, {"loss": loss.item() * 2, "count": (x > 0).sum().item()}


NUMBERS: dict[str, Callable[[Any], Any]] = {
    "returned": lambda x: (x * 2, x.sum().item(), x.max().double().item(), x.argmax().item(), (x > 0).any().item()),
    "a factor": lambda x: x * x.sum().item() - x.double() / x.max().item(),
    "a divisor": lambda x: x / (x > 0).sum().item(),
    "arithmetic": lambda x: (x * (2 * x.max().item() + 1) / 3, -x.min().item() / 2, 1 - (x > 0).sum().item()),
    "float": lambda x: x * float(x.sum()) + float((x > 0).sum()),
    "int": lambda x: (x * int((x > 0).sum()), int(x.argmax()), x.long() * int(x.argmax())),
}


@pytest.mark.parametrize("backend", [None, "inductor"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str, backend: str | None) -> None:
    f, x = NUMBERS[name], torch.tensor([1.5, -2.25, 3.0])
    if backend is None:
        check(f, x, fullgraph=True)
        return
    want, got = f(x), torch.compile(f, fullgraph=True)(x)
    for a, b in zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]:
        assert type(a) is type(b) and torch.allclose(torch.as_tensor(a).double(), torch.as_tensor(b).double())


def test_notes_of_a_loss() -> None:
    check(noted, torch.tensor([1.5, -2.25]), Meter(), fullgraph=True)


def test_other_calls_need_no_other_graph() -> None:
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(lambda x: x * x.sum().item(), backend=counter, fullgraph=True)
    for value in (1.0, 2.0, 3.0):
        assert compiled(torch.full((2,), value)).tolist() == [2 * value * value] * 2
    assert counter.frame_count == 1


def test_by_configuration() -> None:
    for on, graphs in ((False, 2), (True, 1)):
        with torch._dynamo.config.patch(capture_scalar_outputs=on):
            check(NUMBERS["a divisor"], torch.tensor([1.0, 2.0]), graphs=graphs)


REFUSED = {
    "after a write": (lambda x: x.add_(1) * (2 if x.sum().item() > 0 else 3), "after the graph wrote to its inputs.*keep shapes fixed"),
    "a write after": (lambda x: x.mul_(2 if x.sum().item() > 0 else 3), "gt of a number that exists only when.*torch.where"),
    "after a draw": (lambda x: (x + torch.rand(3))[x > 0], "or drew random numbers"),
    "autocast": (lambda x: torch.autocast("cpu")(lambda: x[x > 0])(), "under autocast"),
    "a length": (lambda x: [x * i for i in range(int((x > 0).sum()))], "range"),
    "text": (lambda x: f"{x.sum().item():.2f}", "text of a Scalar"),
    "truncation": (lambda x: x * int(x.sum()), "of a float that exists only when"),
    "another type": (lambda x: x.long() * x.sum().item(), "int64 tensor and a number that exists only when"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    f, words = REFUSED[name]
    with pytest.raises(torch._dynamo.exc.Unsupported, match=words):
        torch.compile(f, backend="eager", fullgraph=True)(torch.tensor([1.0, -2.0, 3.0]))
    check(f, torch.tensor([1.0, -2.0, 3.0]), graphs=None)


def positives(x: Any) -> Any:
    y = x[x > 0]
    return (y * y).sum() / y.shape[0]


def first(x: Any, n: Any) -> Any:
    k = n.item()
    torch._check(k >= 0, lambda: "negative")
    torch._check(k <= x.shape[0])
    return x[:k] * k, torch.zeros(k, 2) + x[0]


BY_EXAMPLE: dict[str, Callable[[Any], Any]] = {
    "a comparison": lambda x: x * 2 if x.sum().item() > 0 else x - 1,
    "a comparison of two": lambda x: x * 2 if x.max().item() > -x.min().item() else x,
    "a known branch": lambda x: x * (x > 0).sum().item() if (x > 0).sum().item() >= 0 else x,
    "a size": lambda x: torch.zeros(int((x > 0).sum())) + x.sum(),
    "a bound": lambda x: x[: int((x > 0).sum())] * 2,
    "an index": lambda x: x[x.argmax().item()] - x[int((x > 0).sum()) - 1],
    "a list": lambda x: x[x.argsort().tolist()[0]] * x.tolist()[1],
    "nonzero": lambda x: torch.nonzero(x) + 1,
    "a mask": positives,
    "unique": lambda x: torch.unique(x.sign(), return_counts=True),
    "where": lambda x: x[torch.where(x > 0)[0]].cumsum(0),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", BY_EXAMPLE)
def test_by_example(name: str, backend: str) -> None:
    """One graph; calls for which the answers are others are right too."""
    f = BY_EXAMPLE[name]
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    for values in ([1.5, -2.25, 3.0], [2.5, -1.0, 0.5], [-1.0, -5.0, 0.5], [4.0, 3.0, 2.0], [1.5, -2.25, 3.0]):
        x, y = (torch.tensor(values, requires_grad=True) for _ in range(2))
        want, got = f(x), compiled(y)
        for a, b in zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]:
            torch.testing.assert_close(b, a)
            if a.requires_grad:
                a.sum().backward(retain_graph=True)
                b.sum().backward(retain_graph=True)
        if x.grad is not None:
            torch.testing.assert_close(y.grad, x.grad)


def test_by_example_is_one_graph_that_checks_itself() -> None:
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(first, backend=counter, fullgraph=True)
    x = torch.tensor([1.0, 2.0, 3.0])
    for k in (2, 3, 1, 0):
        got = compiled(x, torch.tensor(k))
        assert got[0].tolist() == [v * k for v in (1.0, 2.0, 3.0)[:k]] and got[1].tolist() == [[1.0, 1.0]] * k
    assert counter.frame_count == 1
    with pytest.raises(RuntimeError, match="negative"):
        compiled(x, torch.tensor(-1))
    with pytest.raises(RuntimeError, match="Expected cond"):
        compiled(x, torch.tensor(4))
    with pytest.raises(RuntimeError, match="negative"):  # in the call that is captured
        torch.compile(first, backend="eager", fullgraph=True)(x, torch.tensor(-1))


def test_without_fullgraph_values_break() -> None:
    for f in (positives, BY_EXAMPLE["a comparison"]):
        check(f, torch.tensor([1.0, -2.0, 3.0]), graphs=2)


def test_checks() -> None:
    def f(x: Any) -> Any:
        torch._check(x.shape[0] == 3, lambda: f"wants 3, got {x.shape[0]}")
        torch._check_tensor_all(x > 0, lambda: "not positive")
        return x * 2

    good, bad = torch.ones(3), torch.tensor([1.0, -1.0, 1.0])
    for call in (f, torch.compile(f, fullgraph=True)):
        assert call(good).tolist() == [2, 2, 2]
        with pytest.raises(RuntimeError, match="not positive"):
            call(bad)
    with pytest.raises(RuntimeError, match="wants 3, got 2"):
        f(good[:2])
    for check_, error in ((torch._check_index, IndexError), (torch._check_value, ValueError), (torch._check_type, TypeError)):
        with pytest.raises(error, match="Expected cond to be True"):
            check_(False)
    for wrong in (good > 0, 1):
        with pytest.raises(TypeError, match="cond must be a bool"):
            torch._check(wrong)
    with pytest.raises(RuntimeError):
        torch._check_is_size(5, max=4)
