"""torch.cond and while_loop on tensors: one graph with graphs in it, eager's values and gradients, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tests._dynamo.helpers import check
from tocha import nn
from tocha._dynamo.testing import CompileCounter
from tocha._higher_order_ops import map, scan, while_loop

W = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)


class Gated(nn.Module):
    """Chooses a layer by its input; layers and closures are operands of the branches."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def forward(self, x: Any) -> Any:
        h = x * 2
        return torch.cond(x.sum() > 0, lambda x: self.a(x) + h, lambda x: self.b(x), (x,)).sin()


def two_results(x: Any) -> Any:
    def positive(d: Any) -> Any:
        return {"a": d["x"] * W, "b": (d["x"].exp(), 3)}

    return torch.cond(x.mean() > 0, positive, lambda d: {"a": d["x"].cos(), "b": (d["x"] + W.sum(), 3)}, ({"x": x},))


def inner(x: Any) -> Any:
    return torch.cond(x.mean() > 1, lambda x: x * W, lambda x: x.exp(), (x,))


def nested(x: Any) -> Any:
    return torch.cond(x.sum() > 0, inner, lambda x: x.neg(), (x,)) * 2


def detached(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.detach() * 2, lambda x: x.sin(), (x,)) + x


def same_twice(x: Any) -> Any:
    def twice(x: Any) -> Any:
        y = x.sin()
        return y, y * 1

    a, b = torch.cond(x.sum() > 0, twice, lambda x: (x.cos(), x.exp()), (x,))
    return a * b


def dropping(x: Any) -> Any:
    y = torch.cond(x.sum() > 0, lambda x: F.dropout(x, 0.5), lambda x: x.exp(), (x,))
    return y + torch.rand(3)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "layers": Gated(), "two results": two_results, "nested": nested, "detached": detached, "same twice": same_twice, "dropping": dropping,
}  # fmt: skip


def leaves(out: Any) -> list[Any]:
    return [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_cond(name: str, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    f = FUNCTIONS[name]
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    weights = [W, *(f.parameters() if isinstance(f, nn.Module) else ())]
    with caplog.at_level(logging.INFO, "torch._dynamo"):
        for shift in (-3.0, 0.4, 3.0, -3.0):
            x = (torch.tensor([0.1, 0.2, 0.3]) + shift).requires_grad_()
            torch.manual_seed(3)
            want = f(x)
            torch.manual_seed(3)
            got = compiled(x)
            assert torch.utils._pytree.tree_flatten(want)[1] == torch.utils._pytree.tree_flatten(got)[1]
            for a, b in zip(leaves(want), leaves(got), strict=True):
                torch.testing.assert_close(b.detach(), a.detach())
            for ours, theirs in zip(
                torch.autograd.grad(sum(t.sum() for t in leaves(got)), [x, *weights], allow_unused=True),
                torch.autograd.grad(sum(t.sum() for t in leaves(want)), [x, *weights], allow_unused=True), strict=True,
            ):  # fmt: skip
                # A tensor that only the other branch uses has a gradient of zeros.
                ours, theirs = (torch.zeros(()) if g is None else g for g in (ours, theirs))
                torch.testing.assert_close(ours, theirs.expand_as(ours))
    assert "runs eagerly" not in caplog.text


def test_both_sides_are_in_one_graph() -> None:
    counter = CompileCounter()
    compiled = torch.compile(Gated(), backend=counter)
    for x in (torch.ones(3), -torch.ones(3)):
        compiled(x)
    assert counter.frame_count == 1


def test_gradients_of_gradients() -> None:
    x = torch.tensor([0.3, -0.7, 2.0], requires_grad=True)
    out = torch.compile(lambda x: torch.cond(x.sum() > 0, lambda x: x**3, lambda x: x.sin(), (x,)).sum(), fullgraph=True)(x)
    (slope,) = torch.autograd.grad(out, x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), x)[0], 6 * x.detach())


def collatz(n: Any, x: Any) -> Any:
    """Steps of 3n+1 down to 1, and what a captured tensor did to x meanwhile."""
    w = W.detach()

    def body(n: Any, steps: Any, x: Any, kept: Any) -> Any:
        n = torch.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, (n,))
        return n, steps + 1, (x * w).sin(), kept

    return while_loop(lambda n, steps, x, kept: n > 1, body, (n, torch.zeros_like(n), x, x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_while_loop(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    compiled, x = torch.compile(collatz, backend=backend, fullgraph=True), torch.tensor([1.0, 2.0, 3.0])
    with caplog.at_level(logging.INFO, "torch._dynamo"):
        for start, steps in ((6, 8), (27, 111), (1, 0)):
            want, got = collatz(torch.tensor(start), x), compiled(torch.tensor(start), x)
            assert got[1].item() == steps
            for a, b in zip(want, got, strict=True):
                torch.testing.assert_close(b, a)
    assert "runs eagerly" not in caplog.text
    got[2].zero_()  # nothing returned is the memory of an input
    assert x.tolist() == got[3].tolist() == [1, 2, 3]


def test_gradients_through_a_while_loop() -> None:
    def f(x: Any) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * x), (torch.tensor(0), x))[1].sum()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    torch.compile(f, fullgraph=True)(x).backward()
    assert x.grad.tolist() == [8, 8 * 2.0**7]


def test_scan_and_map_with_decisions_inside() -> None:
    def step(carry: Any, x: Any) -> Any:
        carry = torch.cond(x.sum() > 0, lambda c, x: c + x, lambda c, x: c * x, (carry, x))
        return carry, carry * 2

    def f(x: Any) -> Any:
        return scan(step, torch.ones(3), x), map(
            lambda r, s: torch.cond(r.sum() > s, torch.sin, torch.cos, (r,)), x, torch.tensor(0.5)
        )

    check(f, torch.randn(5, 3), fullgraph=True)


def _writes(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.add_(1) * 2, lambda x: x * 2, (x,))


def _writes_around(x: Any) -> Any:
    y = x * 1
    out = torch.cond(x.sum() > 0, lambda x: y.add_(1) * 2, lambda x: x * 2, (x,))
    return out, y


def _returns_an_input(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x, lambda x: x * 2, (x,))


def _appends(x: Any) -> Any:
    seen: list[int] = []

    def noting(x: Any) -> Any:
        seen.append(1)
        return x * 3

    return torch.cond(x.sum() > 0, noting, lambda x: x * 2, (x,)), seen


def _counts(x: Any) -> Any:
    count = 0

    def counting(x: Any) -> Any:
        nonlocal count
        count += 1
        return x * 3

    return torch.cond(x.sum() > 0, counting, lambda x: x * 2, (x,)), count


def _unlike(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x.double(), lambda x: x * 2, (x,))


def _grows(x: Any) -> Any:
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.double()), (torch.zeros(()), x.double()[:1].float()))


NOTES: list[int] = []


def _appends_outside(x: Any) -> Any:
    def noting(x: Any) -> Any:
        NOTES.append(1)
        return x * 3

    return torch.cond(x.sum() > 0, noting, lambda x: x * 2, (x,)), len(NOTES)


REFUSED = {
    _writes: "writes in place to a tensor from outside it.*write to a clone",
    _writes_around: "writes in place to a tensor from outside it",
    _returns_an_input: r"returns a tensor from outside, or a view.*clone\(\)",
    _appends: "changes what it didn't make",
    _counts: "changes what it didn't make",
    _appends_outside: "changes what it didn't make",
    _unlike: "return unlike things.*float64.*float32",
    _grows: "the carried tensors are",
}


@pytest.mark.parametrize("f", REFUSED, ids=lambda f: f.__name__)
def test_what_a_branch_may_not_do(f: Callable[..., Any]) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match=REFUSED[f]):
        torch.compile(f, backend="eager", fullgraph=True)(torch.ones(3))


@pytest.mark.parametrize("f", [f for f in REFUSED if f not in (_grows, _appends_outside)], ids=lambda f: f.__name__)
@pytest.mark.parametrize("sign", [1, -1])
def test_without_fullgraph_it_runs_in_plain_python(f: Callable[..., Any], sign: int) -> None:
    check(f, sign * torch.ones(3), graphs=None)
