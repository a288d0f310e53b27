"""Gradients of gradients through compiled functions equal eager's."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn


def compiled(function: Any) -> Any:
    return torch.compile(function, fullgraph=True)


def penalty(critic: Callable[..., Any], x: Any, weights: list[Any]) -> list[Any]:
    """WGAN-GP's (Gulrajani et al. 2017): how far the norm of the critic's gradient is from 1; its gradients, and the critic's own."""
    torch.manual_seed(7)
    out = critic(x)
    (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = ((slope.flatten(1).norm(2, 1) - 1) ** 2).mean() + out.mean()
    return [slope, *torch.autograd.grad(loss, [x, *weights], allow_unused=True), torch.rand(2)]


@pytest.mark.parametrize(
    ("critic", "shape"),
    [
        (nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)), (4, 6)),
        (nn.Sequential(nn.Conv2d(2, 4, 3), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(64, 1)), (3, 2, 6, 6)),
        (nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.5), nn.Softplus(), nn.Linear(8, 1)), (4, 6)),  # draws the same again
        (nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Sigmoid(), nn.Linear(8, 1)), (4, 6)),  # writes to buffers
        (nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 1)), (4, 6)),
    ],
)
def test_gradient_penalty(critic: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, other = torch.randn(shape, requires_grad=True), copy.deepcopy(critic)
    call = compiled(other)
    for _ in range(2):
        expected = penalty(critic, x, [*critic.parameters()])
        for got, want in zip(penalty(call, x, [*other.parameters()]), expected, strict=True):
            assert (got is None) == (want is None)
            if got is not None:
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)
    for a, b in zip(critic.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_higher_orders() -> None:
    x = torch.tensor([0.3, -0.7], dtype=torch.float64, requires_grad=True)
    out = compiled(lambda x: torch.sin(x) * x.exp())(x)
    for expected in (  # of sin(x) exp(x): multiplied by sqrt(2), turned by 45 degrees each time
        lambda x, n=n: 2 ** (n / 2) * torch.sin(x + n * torch.pi / 4) * x.exp() for n in (1, 2, 3)
    ):  # fmt: skip
        (out,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        torch.testing.assert_close(out, expected(x))


def test_gradients_of_a_linear_function_by_what_it_is_given() -> None:
    x, w, g = (torch.randn(3, requires_grad=True) for _ in range(3))
    (slope,) = torch.autograd.grad(compiled(lambda x, w: x + w * 2)(x, w), w, g, create_graph=True)
    assert torch.autograd.grad(slope.sum(), g)[0].tolist() == [2, 2, 2]


def test_hooks_of_an_input_are_called_once() -> None:
    x, seen = torch.ones(3, requires_grad=True), []
    x.register_hook(lambda g: seen.append(g.tolist()))
    y = x * 1
    y.register_hook(lambda g: seen.append(g.tolist()))
    compiled(lambda y: (y**3).sum())(y).backward(create_graph=True)
    assert seen == [[3, 3, 3], [3, 3, 3]]
    x.grad.sum().backward()
    assert x.grad.tolist() == [9, 9, 9]


def test_a_cut_graph_and_autocast_around_it() -> None:
    def f(x: Any, w: Any) -> Any:
        h = F.linear(x, w).float().tanh()
        torch._dynamo.graph_break()
        return F.linear(h, w).float().tanh().sum()

    torch.manual_seed(0)
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    found = []
    for function in (f, torch.compile(f)):
        with torch.autocast("cpu"):
            out = function(x, w)
        (slope,) = torch.autograd.grad(out, x, create_graph=True)  # outside autocast
        found.append([slope, *torch.autograd.grad((slope**2).sum(), [x, w])])
    for want, got in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=0.03, atol=0.03)


def test_an_input_changed_since_is_an_error() -> None:
    w, x = torch.ones(3, requires_grad=True), torch.ones(3)
    out = compiled(lambda w, x: (w * x).exp().sum())(w, x)
    x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out, w, create_graph=True)


def test_what_cannot_run_again_is_refused_in_words() -> None:
    def f(w: Any, x: Any) -> Any:
        out = (w * x.clone()).sum()
        x.add_(1)
        return out * 2

    w, x = torch.ones(3, requires_grad=True), torch.ones(3)
    out = compiled(f)(w, x)
    with pytest.raises(RuntimeError, match="double backward of this function: it overwrites an input"):
        torch.autograd.grad(out, w, create_graph=True)
    assert torch.autograd.grad(out, w)[0].tolist() == [2, 2, 2]


def test_freed_once_backward_ran() -> None:
    w = torch.ones(3, requires_grad=True)
    out = compiled(lambda w: (w * w).sum())(w)
    torch.autograd.grad(out, w)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, w, create_graph=True)


def test_an_input_that_is_written_to_is_not_kept_alive_by_its_own_history() -> None:
    def f(w: Any, x: Any) -> Any:
        out = (w * x.clone()).sum()
        x.mul_(w)
        return out

    w, x = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True) * 2
    out = compiled(f)(w, x)
    watched = weakref.ref(x)
    gc.disable()
    try:
        del x, out
        assert watched() is None
    finally:
        gc.enable()


def test_views_of_a_detached_result() -> None:
    w = torch.ones(2, 2, requires_grad=True)

    def f(w: Any) -> Any:
        h = w.exp()
        return h.detach(), h.sum(), h.detach().view(4)

    h, total, flat = compiled(f)(w)
    assert flat.untyped_storage().data_ptr() == h.untyped_storage().data_ptr()
    (slope,) = torch.autograd.grad(total, w, create_graph=True)
    (again,) = torch.autograd.grad(slope.sum(), w)
    torch.testing.assert_close(again, w.detach().exp())
