"""Activation checkpointing, both forms."""

import contextlib
import functools
import gc
import warnings
import weakref

import pytest

import tocha as torch
from tocha.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    set_checkpoint_early_stop,
)

both = pytest.mark.parametrize("reentrant", [True, False])


def leaf(*shape):
    return torch.linspace(0.5, 1.5, int(torch.Size(shape).numel())).reshape(shape).requires_grad_()


@both
def test_gradients_are_those_of_the_plain_call(reentrant):
    calls = []

    def f(x, w):
        calls.append(1)
        return torch.tanh(x @ w), x.sum()

    x, w = leaf(2, 3), leaf(3, 3)
    a, b = checkpoint(f, x, w, use_reentrant=reentrant)
    (a.sum() + b).backward()
    got = x.grad, w.grad
    assert len(calls) == 2
    a, b = f(x, w)
    expected = torch.autograd.grad(a.sum() + b, (x, w))
    assert all(map(torch.equal, got, expected))


@both
def test_random_numbers_repeat(reentrant):
    x = torch.ones(64, requires_grad=True)
    y = checkpoint(lambda x: torch.nn.functional.dropout(x, 0.5) * 2, x, use_reentrant=reentrant)
    after = torch.get_rng_state()
    y.sum().backward()
    assert torch.equal(y, x.grad) and torch.equal(torch.get_rng_state(), after)


@both
def test_nesting_and_sequences(reentrant):
    x = leaf(3)
    inner = functools.partial(checkpoint, lambda z: (z * z).sin(), use_reentrant=reentrant)
    checkpoint(lambda x: inner(x).exp(), x, use_reentrant=reentrant).sum().backward()
    expected = torch.autograd.grad((x * x).sin().exp().sum(), x)[0]
    torch.testing.assert_close(x.grad, expected)
    model = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(5)])
    y = leaf(2, 3)
    checkpoint_sequential(model, 2, y, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(y.grad, torch.autograd.grad(model(y).sum(), y)[0])


@both
def test_errors_inside_leave_nothing_behind(reentrant):
    calls = []

    def fails_again(x):
        calls.append(1)
        y = x.exp()
        if len(calls) > 1:
            raise ValueError("second")
        return y.sin()

    x = leaf(2)
    with pytest.raises(ValueError, match="first"):
        checkpoint(lambda x: (_ for _ in ()).throw(ValueError("first")), x, use_reentrant=reentrant)
    y = checkpoint(fails_again, x, use_reentrant=reentrant)
    with pytest.raises(ValueError, match="second"):
        y.sum().backward()
    (x * 2).exp().sum().backward()
    torch.testing.assert_close(x.grad, 2 * (2 * x.detach()).exp())


@both
def test_activations_are_not_kept(reentrant):
    refs = []

    def f(x):
        for _ in range(4):
            x = torch.tanh(x * 1.5)
            refs.append(weakref.ref(x))
        return x

    gc.disable()
    try:
        y = checkpoint(f, leaf(3), use_reentrant=reentrant)
        assert [r() is None for r in refs[:3]] == [True] * 3
        y.sum().backward()
        assert [r() is None for r in refs[:3]] == [True] * 3
    finally:
        gc.enable()


def test_what_only_the_form_without_reentry_does():
    x = leaf(2)
    f = functools.partial(checkpoint, use_reentrant=False)
    assert torch.autograd.grad(f(lambda x, k=1: x * k, x, k=3.0).sum(), x)[0].tolist() == [3.0, 3.0]
    (g,) = torch.autograd.grad(f(lambda x: (x * x).exp(), x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(g.sum(), x)
    square = x.detach() ** 2
    torch.testing.assert_close(second, (2 + 4 * square) * square.exp())
    assert f(lambda x: {"a": [x.exp()]}, x)["a"][0].requires_grad
    with pytest.raises(RuntimeError, match="use_reentrant=True"):
        torch.autograd.grad(checkpoint(lambda x: x.exp(), x, use_reentrant=True).sum(), x)
    with pytest.raises(ValueError, match="keyword"):
        checkpoint(lambda x: x, x, use_reentrant=True, k=3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoint(lambda x: x * 2, x)
    assert "use_reentrant" in str(caught[0].message)


def test_recomputation_that_differs_is_found():
    calls = []

    def fewer(x):
        calls.append(1)
        return x.exp().sin() if len(calls) == 1 else x.exp()

    def smaller(x):
        calls.append(1)
        return (x if len(calls) == 1 else x[:1]).exp().sin().cos()

    with pytest.raises(CheckpointError, match="different number"):
        checkpoint(fewer, leaf(2), use_reentrant=False).sum().backward()
    calls.clear()
    with pytest.raises(CheckpointError, match="different metadata"):
        checkpoint(smaller, leaf(2), use_reentrant=False).sum().backward()


def test_early_stop_and_contexts():
    steps, events = [], []

    def f(x):
        y = (x * 1).exp()
        steps.append("a")
        z = y * 2
        steps.append("b")
        return z

    checkpoint(f, leaf(2), use_reentrant=False).sum().backward()
    assert steps == ["a", "b"]  # the exponential, which saves its result, was all that had to be made again
    steps.clear()
    with set_checkpoint_early_stop(False):
        y = checkpoint(f, leaf(2), use_reentrant=False)
    y.sum().backward()
    assert steps == ["a", "b", "a", "b"]

    @contextlib.contextmanager
    def note(name):
        events.append(name)
        yield

    contexts = lambda: (note("forward"), note("again"))  # noqa: E731
    checkpoint(lambda x: x.exp().sin(), leaf(2), use_reentrant=False, context_fn=contexts).sum().backward()
    assert events == ["forward", "again"]


@pytest.mark.parametrize("as_list", [True, False])
def test_selective_checkpointing(as_list):
    mm = torch.ops.aten.mm.default
    seen = []

    def policy(ctx, op, *args, **kwargs):
        seen.append((ctx.is_recompute, op))
        return CheckpointPolicy.MUST_SAVE if op is mm else CheckpointPolicy.PREFER_RECOMPUTE

    contexts = functools.partial(create_selective_checkpoint_contexts, [mm] if as_list else policy)
    x, w = leaf(2, 3), leaf(3, 3)
    f = lambda x, w: torch.tanh(x @ w) @ w  # noqa: E731
    checkpoint(f, x, w, use_reentrant=False, context_fn=contexts).sum().backward()
    expected = torch.autograd.grad(f(x, w).sum(), (x, w))
    torch.testing.assert_close((x.grad, w.grad), expected)
    if not as_list:
        assert (False, mm) in seen and (True, mm) in seen
