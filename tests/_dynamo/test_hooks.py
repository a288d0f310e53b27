"""Hooks on tensors that are registered in compiled functions."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import tocha as torch
from tests._dynamo.helpers import check
from tocha import nn
from tocha.utils.checkpoint import checkpoint

X, W = torch.tensor([1.0, 2.0]), torch.tensor([0.5, -3.0], requires_grad=True)


def gradients(function: Any, **options: Any) -> list[Any]:
    """Values and gradients, of the function and of it compiled, one call after another."""
    found = []
    for call in (function, torch.compile(function, **options)):
        x = X.clone().requires_grad_()
        W.grad = None
        for _ in range(2):
            out = call(x)
            out = out if isinstance(out, torch.Tensor) else out[0]
            out.sum().backward()
        found.append((out.detach(), x.grad, W.grad))
    return found


def scaled(g: Any, k: float) -> Any:
    return g * k * W


def on_what_is_computed(x: Any) -> Any:
    h = x.exp() * W
    h.register_hook(lambda g: (g * 10).clamp(-2, 30))
    return (h * h).sin()


def on_a_result(x: Any) -> Any:
    h = x * 3
    h.register_hook(functools.partial(scaled, k=2.0))
    return h


def on_a_view(x: Any) -> Any:
    h = x * 3
    v = h[:1]
    v.register_hook(lambda g: g * 10)
    return h.sum() + v.sum()


def before_a_write(x: Any) -> Any:
    h = x * 3
    h.register_hook(lambda g: g * 10)
    h.mul_(x)
    return h * h


def that_only_looks(x: Any) -> Any:
    h = x * 3
    h.register_hook(lambda g: None)
    return h * h


def several(x: Any) -> Any:
    h = x.tanh()
    for k in (2, 3):
        h.register_hook(lambda g, k=k: g * k + g.sum())
    return h.exp()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", [on_what_is_computed, on_a_result, on_a_view, before_a_write, that_only_looks, several])
def test_hooks_are_captured(function: Any, backend: str) -> None:
    want, got = gradients(function, backend=backend, fullgraph=True)
    torch.testing.assert_close(got, want)


def test_gradients_of_gradients() -> None:
    def f(x: Any) -> Any:
        h = x.exp()
        h.register_hook(lambda g: g * g)
        return (h * h).sum()

    found = []
    for call in (f, torch.compile(f, fullgraph=True)):
        x = X.clone().requires_grad_()
        (slope,) = torch.autograd.grad(call(x), x, create_graph=True)
        found.append(torch.autograd.grad(slope.sum(), x)[0])
    torch.testing.assert_close(*found)


def test_on_inputs_and_parameters() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.seen = nn.Parameter(torch.ones(2)), [0]

        def forward(self, x: Any) -> Any:
            def count(p: Any, seen: Any = self.seen) -> None:
                seen[0] += 1

            self.w.register_post_accumulate_grad_hook(count)
            return x * self.w, x.register_hook(lambda g: g * 10)

    found = []
    for compiled in (False, True):
        layer = Layer()
        call = torch.compile(layer, fullgraph=True) if compiled else layer
        x = X.clone().requires_grad_()
        out, handle = call(x)
        out.sum().backward()
        first = x.grad.clone()
        out, other = call(x)
        handle.remove()
        other.remove()
        out.sum().backward()
        found.append([first, x.grad, layer.w.grad, torch.tensor(layer.seen)])
    torch.testing.assert_close(*found)
    assert found[0][0].tolist() == [10, 10]


def test_a_hook_with_effects_is_registered_between_graphs() -> None:
    seen: list[Any] = []

    def f(x: Any) -> Any:
        h = x * 3
        h.register_hook(lambda g: seen.append(g.tolist()))
        return h * 2

    want, got = gradients(f)
    torch.testing.assert_close(got, want)
    assert seen == [[2, 2]] * 4
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(f, fullgraph=True)(X.clone().requires_grad_())


def test_handles() -> None:
    def removed(x: Any) -> Any:
        h = x * 3
        h.register_hook(lambda g: g * 10).remove()
        return h

    def returned(x: Any) -> Any:
        h = x * 3
        return h, h.register_hook(lambda g: g * 10)

    def written(x: Any) -> Any:
        h = x * 1
        torch._dynamo.graph_break()
        h.register_hook(lambda g: g * 10)
        h.mul_(x)
        return h

    for f in (removed, returned, written):
        want, got = gradients(f)
        torch.testing.assert_close(got, want)
    torch.compile(returned)(X.clone().requires_grad_())[1].remove()


def test_a_tensor_without_gradients_has_no_hooks() -> None:
    check(lambda x: x.register_hook(lambda g: g), X, graphs=None)
    check(lambda x: (x * 2).register_hook(lambda g: g), X, graphs=None)


def test_a_hook_in_a_branch() -> None:
    def f(x: Any) -> Any:
        h = x * 3

        def branch(y: Any) -> Any:
            h.register_hook(lambda g: g * 10)
            return y * h

        return torch.cond(x.sum() > 0, branch, lambda y: y * h * 2, (x,)) + h

    want, got = gradients(f)
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("calls", [1, 12])
def test_hooks_on_saved_tensors_are_given_what_a_graph_saves(calls: int) -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))
    compiled = torch.compile(model)
    for _ in range(calls):
        packed: list[Any] = []
        shown: list[Any] = []

        def pack(t: Any, packed: list[Any] = packed) -> int:
            packed.append(t.detach().clone())
            return len(packed) - 1

        def unpack(i: int, packed: list[Any] = packed, shown: list[Any] = shown) -> Any:
            shown.append(i)
            return packed[i]

        x = X.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            out = compiled(x)
        assert out.grad_fn.saved == []  # the graph keeps nothing beside the hooks
        (got,) = torch.autograd.grad(out.sum(), x)
        torch.testing.assert_close(got, torch.autograd.grad(model(x).sum(), x)[0])
        assert sorted(shown) == list(range(len(packed)))
        assert 5 <= len(packed) <= 12


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_around_compiled_layers(reentrant: bool) -> None:
    layers = [nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Dropout(0.5), nn.Linear(2, 2)) for _ in range(2)]
    found = []
    for compiled in (False, True):
        x = X.clone().requires_grad_()
        calls = [torch.compile(m) if compiled else m for m in layers]
        for _ in range(3):
            torch.manual_seed(0)
            h = x
            for call in calls:
                h = checkpoint(call, h, use_reentrant=reentrant)
            h.sum().backward()
        found.append([x.grad, *[p.grad.clone() for m in layers for p in m.parameters()]])
        for m in layers:
            m.zero_grad()
    torch.testing.assert_close(*found)


class Counting(nn.Module):
    def __init__(self, by_attribute: bool) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.calls, self.by_attribute = 0, by_attribute

    def forward(self, x: Any) -> Any:
        if self.by_attribute:
            self.calls += 1
        return self.norm(x).exp()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_inside_compiled_functions(reentrant: bool) -> None:
    rows = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0]])
    x = rows.clone().requires_grad_()
    for by_attribute, runs in ((False, 3), (True, 6)):  # writes to buffers once a step, objects as in eager mode: both as in torch.compile
        layer = Counting(by_attribute)
        call = torch.compile(lambda x, layer=layer: checkpoint(layer, x, use_reentrant=reentrant).sum())
        for _ in range(3):
            call(x).backward()
        assert layer.calls == 6 * by_attribute and layer.norm.num_batches_tracked.item() == runs
        torch.testing.assert_close(layer.norm.running_mean, rows.mean(0) * (1 - 0.9**runs))
    plain, y = Counting(False), rows.clone().requires_grad_()
    for _ in range(6):
        plain(y).sum().backward()
    torch.testing.assert_close(x.grad, y.grad)


def test_gradients_of_gradients_under_hooks_on_saved_tensors() -> None:
    found = []
    for call in (several, torch.compile(several)):
        x = X.clone().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.numpy().copy(), torch.from_numpy):
            out = call(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        found.append([slope, torch.autograd.grad((slope**2).sum(), x)[0]])
    torch.testing.assert_close(*found)


def test_what_a_captured_hook_reads_is_of_the_time_of_the_call() -> None:
    held = {"number": 2.0, "tensor": torch.ones(2)}

    def f(x: Any) -> Any:
        h = x * 3
        h.register_hook(lambda g: g * held["number"] * held["tensor"])
        return h

    x = X.clone().requires_grad_()
    compiled = torch.compile(f, fullgraph=True)
    first, second = compiled(x), compiled(x)
    held["number"] = 5.0
    first.sum().backward()
    assert x.grad.tolist() == [6, 6]
    assert torch.autograd.grad(compiled(x).sum(), x)[0].tolist() == [15, 15]
    held["tensor"].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second.sum().backward()
