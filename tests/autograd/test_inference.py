"""Inference mode: what it marks, and what marked tensors can't be used for outside."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest

import tocha as torch

SAVED = "Inference tensors cannot be saved for backward"
CHANGED = "Inplace update to inference tensor outside InferenceMode"


def made(*shape, **options):
    with torch.inference_mode():
        return torch.ones(*shape, **options)


MAKERS = [
    lambda: torch.zeros(2), lambda: torch.arange(3), lambda: torch.rand(2), lambda: torch.tensor([1, 2]), lambda: torch.empty(2),
    lambda: torch.ones(2) > 0, lambda: torch.ones(2).long(), lambda: torch.ones(2, 2) @ torch.ones(2, 2),
    lambda: torch.cat([torch.ones(2)]), lambda: torch.ones(3).sort()[0], lambda: torch.ones(3).max(0)[1],
    lambda: torch.ones(2, dtype=torch.bfloat16) + 1, lambda: torch.ones(2, device="meta"), lambda: torch.ones(2, 2).split(1)[0],
    lambda: torch.ones(3)[torch.tensor([0])], lambda: torch.ones(2, 2)[0], lambda: torch.ones(2).expand(3, 2),
    lambda: torch.nn.Linear(2, 2)(torch.ones(2)), lambda: torch.nn.Parameter(torch.ones(2)), lambda: torch.ones(2).detach(),
    lambda: torch.func.vmap(lambda x: x * 2)(torch.ones(2)), lambda: torch._foreach_add([torch.ones(2)], 1)[0],
]  # fmt: skip


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_made_inside_is_marked(make):
    assert not make().is_inference()
    with torch.inference_mode():
        x = make()
    assert x.is_inference() and torch.is_inference(x) and not x._is_view()
    with pytest.raises(RuntimeError, match="do not track version counter"):
        x._version  # noqa: B018


def test_views_and_normal_tensors_inside():
    n = torch.ones(3)
    with torch.inference_mode():
        views = [n[0:2], n.view(3), n.detach(), n.data, n.reshape(3), n.to(torch.float32), n.contiguous()]
        assert torch.nn.Parameter(n).is_inference() is False
        n.add_(1)
        views[0].add_(1)
        assert n.clone().is_inference()
    assert [v.is_inference() for v in views] == [False] * 7
    assert n.tolist() == [3, 3, 2] and n._version == 2
    assert views[0].add_(1).tolist() == [4, 4]  # nothing of it requires grad


def test_leaf_may_change_inside():
    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        x.add_(1)
        assert (x * 2).requires_grad is False
    assert x.tolist() == [2, 2] and x._version == 1


def test_views_outside():
    x = made(3)
    for v in (x[0:1], x.view(3), x.reshape(3, 1), x.detach(), x.data, x.unbind()[0], x.split(1)[0]):
        assert v.is_inference() and v._base is None
    for n in (x * 2, x.clone(), x.to(torch.float64), x + torch.ones(3)):
        assert not n.is_inference()


def test_saving_for_backward():
    x, a = made(2), torch.ones(2, requires_grad=True)
    for use in (
        lambda: a * x,
        lambda: x * a,
        lambda: torch.nn.functional.linear(x, a[None]),
        lambda: a[made(2, dtype=torch.int64)],
        lambda: torch.nn.functional.mse_loss(a, x),
        lambda: (a * 1).mul_(x),
        lambda: Times.apply(a, x),
    ):
        with pytest.raises(RuntimeError, match=SAVED):
            use()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t), pytest.raises(RuntimeError, match=SAVED):
        a * x
    out = a + x + torch.cat([a, x])[1:3] + a * x.clone()
    out.sum().backward()
    assert a.grad.tolist() == [2, 3]


class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


CHANGES = [
    lambda x: x.add_(1), lambda x: x.mul_(torch.ones(2)), lambda x: x.__setitem__(0, 5), lambda x: x.copy_(torch.zeros(2)),
    lambda x: torch.add(torch.ones(2), 1, out=x), lambda x: x.unsqueeze_(0), lambda x: x.resize_(1), lambda x: x.set_(torch.zeros(2)),
    lambda x: x.zero_(), lambda x: x.fill_(3), lambda x: x.uniform_(), lambda x: x.clamp_(0, 0.5), lambda x: x.masked_fill_(x > 0, 2),
    lambda x: x.scatter_(0, torch.tensor([0]), 4), lambda x: x.index_put_((torch.tensor([0]),), torch.tensor(7.0)),
    lambda x: torch.nn.functional.dropout(x, inplace=True), lambda x: torch.nn.init.zeros_(x), lambda x: x.cumsum_(0), lambda x: x[0:1].add_(1),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_changes_outside_are_refused(change):
    x = made(2)
    for mode in (torch.enable_grad, torch.no_grad):
        with mode(), pytest.raises(RuntimeError, match=CHANGED):
            change(x)
    assert x.tolist() == [1, 1]
    with torch.inference_mode():
        change(x)


def test_aliases_outside_may_change():
    x = made(2)
    x.data.add_(1)
    x.detach().add_(1)
    assert x.tolist() == [3, 3] and x.data._version == 0
    x.data = torch.zeros(2)
    assert not x.is_inference() and x.add_(1).tolist() == [1, 1]


def test_requires_grad():
    x = made(2)
    for ask in (lambda: x.requires_grad_(), lambda: torch.nn.Parameter(x), lambda: setattr(x, "requires_grad", True)):
        with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor outside InferenceMode"):
            ask()
    assert x.requires_grad_(False) is x
    assert x.clone().requires_grad_().mul(2).requires_grad


def test_parameters_made_inside():
    with torch.inference_mode():
        p = torch.nn.Parameter(torch.ones(2))
        linear = torch.nn.Linear(2, 2)
    assert p.requires_grad and p.is_inference() and linear.weight.is_inference()
    (p + 2).sum().backward()
    assert p.grad.tolist() == [1, 1]
    # a call with nothing but inference tensors isn't recorded
    assert not any(t.requires_grad for t in (p * p, p.exp(), p.sum(), p[0]))
    assert p.clone().requires_grad and p.double().requires_grad
    assert linear(torch.ones(1, 2)).requires_grad
    with pytest.raises(RuntimeError, match=SAVED):
        linear(torch.ones(1, 2, requires_grad=True))
    with pytest.raises(RuntimeError, match=CHANGED):
        torch.optim.SGD([p], lr=0.1).step()


def test_copies():
    x = made(2)
    assert not copy.deepcopy(x).is_inference() and not pickle.loads(pickle.dumps(x)).is_inference()
    with torch.inference_mode():
        assert copy.deepcopy(torch.ones(1)).is_inference()


def test_modes_inside_and_around():
    a = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == (False, True)
        with torch.enable_grad():
            assert torch.is_grad_enabled() and not (a * 2).requires_grad and a[0:1].requires_grad
        with torch.inference_mode(False):
            w = a * 2
            assert (w.requires_grad, w.is_inference(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == (
                True,
                False,
                True,
                False,
            )
        assert torch.ones(1).is_inference() and not torch.is_grad_enabled()
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    with torch.no_grad(), torch.inference_mode(mode=False):
        assert (a * 2).requires_grad


def test_decorators():
    @torch.inference_mode()
    def called(x):
        return x * 2

    @torch.inference_mode
    def bare(x):
        return x * 2

    @torch.inference_mode()
    def pieces():
        yield torch.ones(1)
        yield torch.ones(1)

    assert called(torch.ones(1)).is_inference() and bare(torch.ones(1)).is_inference()
    steps = pieces()
    assert next(steps).is_inference() and not torch.ones(1).is_inference() and next(steps).is_inference()


def test_each_thread_has_its_own_mode():
    found = []
    with torch.inference_mode():
        thread = threading.Thread(target=lambda: found.append((torch.ones(2) + 1).is_inference()))
        thread.start()
        thread.join()
    assert found == [False]


def test_transforms_differentiate_inside():
    with torch.inference_mode():
        x = torch.tensor([1.0, 2.0])
        assert torch.func.grad(lambda x: (x * x).sum())(x).tolist() == [2, 4]
        assert [t.item() for t in torch.func.jvp(lambda x: (x * x).sum(), (x,), (torch.ones(2),))] == [5, 6]
        assert torch.is_inference_mode_enabled()
