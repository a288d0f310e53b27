"""Compiled functions of tensors: values, gradients, writes to inputs, aliases, and what is refused."""

from __future__ import annotations

import contextlib
import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha import nn
from tocha._inductor import compile_graph
from tocha.aot import joint, journal, partition, runtime

COMPILER: list[runtime.Compiler] = [runtime.by_running]


@pytest.fixture(autouse=True, params=[runtime.by_running, compile_graph])
def _each_compiler(request: pytest.FixtureRequest) -> None:
    COMPILER[0] = request.param


def compiled(function: Callable[..., Any], *inputs: Any) -> runtime.Compiled:
    """The function on nodes run one by one, or compiled."""
    return runtime.compile(function, inputs, COMPILER[0])


def as_function(module: nn.Module) -> tuple[list[Any], Callable[..., Any]]:
    """A module's tensors, and the loss as a function of them."""
    names = [n for n, _ in (*module.named_parameters(), *module.named_buffers())]
    tensors = [*module.parameters(), *module.buffers()]

    def loss(x: Any, target: Any, *state: Any) -> list[Any]:
        return [F.cross_entropy(torch.func.functional_call(module, dict(zip(names, state, strict=True)), (x,)), target)]

    return tensors, loss


def test_training_step_equals_eager() -> None:
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    eager = copy.deepcopy(model)
    x, target = torch.randn(8, 16), torch.arange(8)
    tensors, loss = as_function(model)
    call = compiled(loss, x, target, *tensors)
    for _ in range(2):
        call(x, target, *tensors)[0].backward()
        F.cross_entropy(eager(x), target).backward()
    for ours, theirs in zip((*model.parameters(), *model.buffers()), (*eager.parameters(), *eager.buffers()), strict=True):
        torch.testing.assert_close(ours, theirs)
        if theirs.requires_grad:
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_cheap_values_are_computed_again() -> None:
    def chain(x: Any) -> list[Any]:
        return [((x * 2).sin().exp().tanh() * 3).sum()]

    x = torch.randn(100, requires_grad=True)
    parts = partition.partition(joint.capture(chain, [x]))
    assert parts.saved_inputs == [0] and not parts.saved


def test_random_masks_are_saved() -> None:
    def drop(x: Any) -> list[Any]:
        return [F.dropout(x.exp(), 0.5).sum()]

    x = torch.randn(100, requires_grad=True)
    parts = partition.partition(joint.capture(drop, [x]))
    assert not any(getattr(n.target, "impure", False) for n in parts.backward.nodes)
    call = compiled(drop, x)
    torch.manual_seed(1)
    call(x)[0].backward()
    got = x.grad
    x.grad = None
    torch.manual_seed(1)
    drop(x)[0].backward()
    torch.testing.assert_close(got, x.grad)


def test_results_that_alias() -> None:
    def views(x: Any, y: Any) -> list[Any]:
        z = x * 2
        y.add_(1)
        return [x, y[0], z, z[0], y]

    x, y = torch.randn(2, 3), torch.zeros(2, 3)
    call = compiled(views, x, y)
    got = call(x, y)
    assert got[0] is x and got[4] is y and torch.equal(y, torch.ones(2, 3))
    got[1].fill_(5)
    got[3].fill_(7)
    assert y[0].tolist() == [5] * 3 and got[2][0].tolist() == [7] * 3


def test_an_input_saved_and_then_changed() -> None:
    def f(x: Any, w: Any) -> list[Any]:
        y = (x.exp() * w).sum()  # backward computes exp again, from the x of then
        x.mul_(2)
        return [y]

    x, w = torch.arange(3.0), torch.ones(3, requires_grad=True)
    out = compiled(f, x, w)(x, w)[0]
    out.backward()
    assert x.tolist() == [0, 2, 4]
    torch.testing.assert_close(w.grad, torch.arange(3.0).exp())


def test_a_backward_that_eager_refuses_is_not_compiled() -> None:
    def f(x: Any, w: Any) -> list[Any]:
        y = x * w
        x.mul_(2)
        return [y]

    with pytest.raises(joint.Unsupported, match="modified by an inplace operation"):
        compiled(f, torch.arange(3.0), torch.ones(3, requires_grad=True))


def test_changing_a_saved_tensor_is_an_error() -> None:
    x, w = torch.arange(3.0), torch.ones(3, requires_grad=True)
    out = compiled(lambda x, w: [(x * w).sum()], x, w)(x, w)[0]
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_saving_a_tensor_made_in_inference_mode_is_an_error() -> None:
    with torch.inference_mode():
        b = torch.arange(3.0)
    w = torch.ones(3, requires_grad=True)
    call = compiled(lambda w, b: [(w * b).sum()], w, b)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        call(w, b)
    bound = call.bind({1: b})
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        bound(w)
    with torch.no_grad():
        assert call(w, b)[0].item() == 3
    assert compiled(lambda w, b: [(w + b).sum()], w, b)(w, b)[0].item() == 6  # backward doesn't read it


def test_backward_twice() -> None:
    w = torch.ones(3, requires_grad=True)
    out = compiled(lambda w: [(w * w).sum()], w)(w)[0]
    out.backward(retain_graph=True)
    out.backward()
    assert w.grad.tolist() == [4] * 3
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_a_result_nobody_differentiates() -> None:
    w = torch.ones(3, requires_grad=True)
    first, second = compiled(lambda w: [w * 2, w * 3], w)(w)
    second.sum().backward()
    assert w.grad.tolist() == [3] * 3 and first.requires_grad


def test_without_recording() -> None:
    w = torch.ones(3, requires_grad=True)
    with torch.no_grad():
        (out,) = compiled(lambda w: [w * 2], w)(w)
    assert not out.requires_grad


def test_functions_that_switch_recording_on() -> None:
    """Captured while gradients are off: inputs with a history get theirs all the same."""

    def f(x: Any) -> list[Any]:
        with torch.enable_grad():
            return [torch.where(x > 0, x, 0) * -2]

    leaf = torch.ones(2, requires_grad=True)
    x = leaf * 3
    with torch.no_grad():
        (y,) = compiled(f, x)(x)
    y.sum().backward()
    assert leaf.grad.tolist() == [-6.0, -6.0]


def test_leaves_written_to_without_history() -> None:
    def f(x: Any) -> list[Any]:
        with torch.no_grad():
            x.mul_(2)
        return [x * x]

    x = torch.ones(2, requires_grad=True)
    (y,) = compiled(f, x)(x)
    y.sum().backward()
    assert x.tolist() == [2.0, 2.0] and x.grad.tolist() == [4.0, 4.0]


def test_views_have_the_history_they_had() -> None:
    """Views of inputs made while recording was on, off, or by detach."""

    def f(x: Any) -> list[Any]:
        with torch.no_grad():
            off = x.t()
        with torch.enable_grad():
            on = x.t()
            y = x * 2
        return [off, on, x.detach(), y, y.t()]

    x = torch.ones(2, 3, requires_grad=True) * 1
    for mode in (True, False):
        with torch.set_grad_enabled(mode):
            got = compiled(f, x)(x)
        assert [t.requires_grad for t in got] == [True, True, False, True, True]
        assert [t.grad_fn is not None for t in got] == [False, True, False, True, mode]


def test_writes_to_inputs_of_any_layout_are_counted() -> None:
    def step(p: Any, q: Any, r: Any) -> list[Any]:
        p.mul_(2)
        q.add_(1)
        r.sub_(p.sum())
        return []

    tensors = [nn.Parameter(torch.ones(3, 4)), torch.ones(4, 3).t(), torch.ones(5, dtype=torch.float64)]
    with torch.no_grad():
        call = compiled(step, *tensors)
        before = [t._version for t in tensors]
        call(*tensors)
    assert [t._version for t in tensors] == [v + 1 for v in before]
    assert tensors[0].unique().tolist() == [2] and tensors[1].unique().tolist() == [2] and tensors[2].unique().tolist() == [-23]


@pytest.mark.parametrize("name", ["scatter", "index_put", "masked_scatter"])
def test_results_of_expanded_operands_have_memory_of_their_own(name: str) -> None:
    """A rule for shapes that answers with its operand must not hand on strides of 0: elements would overwrite each other."""
    index = torch.tensor([[0, 1, 2, 3, 0]])

    def write(x: Any, source: Any) -> list[Any]:
        if name == "scatter":
            return [x.scatter(0, index, source[:1])]
        return [x.index_put((index[0],), source[0]) if name == "index_put" else x.masked_scatter(source > 107, source)]

    x, source = torch.arange(5).expand(4, 5), torch.arange(100, 120).reshape(4, 5)
    assert torch.equal(compiled(write, x, source)(x, source)[0], write(x, source)[0])


def test_what_was_saved_goes_with_its_last_use() -> None:
    alive: list[bool] = []

    def compiler(graph: Any) -> Any:
        run = compile_graph(graph)

        def call(arrays: list[Any]) -> Any:
            watched = [weakref.ref(a) for a in arrays if a.shape == (30, 40)]
            got = run(arrays)
            if graph.meta["part"] == "backward":
                alive.extend(ref() is not None for ref in watched)
            return got

        return call

    x, w = torch.ones(30, 20, requires_grad=True), torch.ones(20, 40, requires_grad=True)
    made = runtime.compile(lambda x, w: [(x @ w).exp().sum()], [x, w], compiler)
    (out,) = made(x, w)
    out.backward(retain_graph=True)
    assert alive and all(alive)
    first = x.grad.clone()
    alive.clear()
    out.backward()
    assert alive and not any(alive)
    torch.testing.assert_close(x.grad, 2 * first)


def _unread(x: Any) -> list[Any]:
    x.gather(-1, x.argsort(-1))  # its index is checked, though nobody reads it
    return [x * 2]


def _detached(x: Any) -> list[Any]:
    y = x * 2
    return [y, y.detach(), y.detach()[1:]]


def _detached_first(x: Any) -> list[Any]:
    y = x * 2
    return [y.detach()[:2], y[1:]]


def _two_windows(x: Any) -> list[Any]:
    y = (x * 2).detach()
    return [y[:2], y[1:], x * x]


def _other_type(x: Any) -> list[Any]:
    y = x * 2
    return [y, y.view(torch.int32)]


@pytest.mark.parametrize("f", [_unread, _detached, _detached_first, _two_windows, _other_type], ids=lambda f: f.__name__)
def test_results_that_share_memory_go_on_sharing_it(f: Callable[..., Any]) -> None:
    found = []
    for function in (f, torch.compile(f)):
        x = torch.arange(1.0, 5.0, requires_grad=True)
        outs = function(x)
        flags = [(o.requires_grad, o.grad_fn is not None) for o in outs]
        with torch.no_grad():
            outs[0].detach().fill_(7)
        sum(o.sum() for o in outs if o.requires_grad).backward()
        found.append(([o.tolist() for o in outs], flags, x.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: [x.mul_(2).sum()],
        lambda x: [x[1:].square_().sum(), x * 2],
        lambda x: [x.transpose(0, 1).fill_(3), x.exp()],
        lambda x: [x.detach(), x.mul_(x)],
    ],
)
def test_writes_to_an_input_with_a_history(f: Callable[..., Any]) -> None:
    found = []
    for function in (f, None):
        leaf = torch.arange(1.0, 5.0).view(2, 2).requires_grad_()
        x = leaf * 1
        function = function or compiled(f, leaf * 1)
        outs = function(x)
        (sum(o.sum() for o in outs if o.requires_grad) + (x * x).sum()).backward()
        found.append(([o.tolist() for o in outs], x.tolist(), leaf.grad.tolist()))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: [x.prod(0)],
        lambda x: [x.prod()],
        lambda x: [x.cumprod(1)],
        lambda x: [x.clone().masked_fill_(x > 0, 2.0), x.detach().clone().masked_fill_(x.detach() > 0, 1)],
        lambda x: [x * torch.zeros(3).fill_(x.detach().sum())],
        lambda x: [F.binary_cross_entropy(x.sigmoid(), torch.full((2, 3), 0.25))],
        lambda x: [F.gaussian_nll_loss(x, x * 2, x * x)],
        lambda x: [F.multi_margin_loss(x, torch.tensor([0, 2]))],
    ],
)
def test_what_eager_decides_by_values_is_decided_in_the_graph(f: Callable[..., Any]) -> None:
    values = torch.tensor([[1.0, 0.0, -2.0], [0.5, 3.0, 0.0]])
    x, y = values.clone().requires_grad_(), values.clone().requires_grad_()
    expected, got = f(x), compiled(f, x)(y)
    sum(o.sum() for o in expected if o.requires_grad).backward()
    sum(o.sum() for o in got if o.requires_grad).backward()
    for a, b in zip((*expected, x.grad), (*got, y.grad), strict=True):
        torch.testing.assert_close(a, b)


def test_values_out_of_range_are_found_when_the_graph_runs() -> None:
    x, ones = torch.full((3,), 0.5), torch.ones(3)
    call = compiled(lambda x, t: [F.binary_cross_entropy(x, t)], x, ones)
    torch.testing.assert_close(call(x, ones)[0], torch.tensor(2.0).log())
    with pytest.raises(RuntimeError, match="all elements of target should be between 0 and 1"):
        call(x, ones * 2)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: [(x * 2).t()],
        lambda x: [(x * 2)[1:, ::2]],
        lambda x: [(x @ x.t()).t()],
        lambda x: [(x * 2).t().clone().masked_fill_(x.t() > 0, 1)],
        lambda x: [(x * 2).t().contiguous().t().exp()],
    ],
)
def test_results_lie_as_eager_ones(f: Callable[..., Any]) -> None:
    x = torch.randn(4, 5)
    assert compiled(f, x)(x)[0].stride() == f(x)[0].stride()


def test_a_view_of_a_result_that_was_written_in_place() -> None:
    def f(x: Any) -> list[Any]:
        y = x.clone()  # column-major, as x
        y.masked_fill_(y > 0, 1)
        return [y, y.expand(2, 5, 4)]

    x = torch.randn(4, 5).t()
    for got, want in zip(compiled(f, x)(x), f(x), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, i: [x[i] + 1, x * 2][1:],
        lambda x, i: [F.cross_entropy(x.reshape(1, -1), i[2:]), x * 2][1:],
        lambda x, i: [F.nll_loss(x.reshape(1, -1), i[2:]).exp(), x * 2][1:],
        lambda x, i: [x.gather(0, i), x * 2][1:],
        lambda x, i: [F.embedding(i, x.reshape(-1, 1)), x * 2][1:],
    ],
)
def test_indices_out_of_range_raise_though_nobody_reads_what_they_find(f: Callable[..., Any]) -> None:
    x, good = torch.arange(5.0), torch.tensor([0, 1, 4])
    for needs in (False, True):
        call = compiled(f, x.clone().requires_grad_(needs), good)
        assert call(x, good)[0].tolist() == [0, 2, 4, 6, 8]
        with pytest.raises((IndexError, RuntimeError), match="9"):
            call(x, torch.tensor([0, 1, 9]))


@pytest.mark.parametrize("on", [True, False])
def test_garbage_is_collected_after_compiling_as_it_was_before(on: bool) -> None:
    before, seen = gc.isenabled(), list[bool]()

    def backend(module: Any, inputs: Any) -> Any:
        seen.append(gc.isenabled())
        return module.forward

    try:
        (gc.enable if on else gc.disable)()
        torch.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
        assert (seen, gc.isenabled()) == ([False], on)
        with pytest.raises(KeyError), journal.without_collections():
            raise KeyError
        assert gc.isenabled() is on
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize("train_first", [False, True])
def test_statistics_are_kept_from_steps_of_training(train_first: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
    eager, x = copy.deepcopy(model), torch.randn(5, 3)
    call = torch.compile(model, backend="inductor" if COMPILER[0] is compile_graph else "aot_eager")
    for step, net in ((call, model), (eager, eager)):
        for _ in range(10):  # also once its inputs are bound
            net.train(train_first)
            step(x)
            net.eval()
            loss = step(x).square().sum()
            net.train()
            step(x)
            loss.backward()
    for ours, theirs in zip((*model.parameters(), *model.buffers()), (*eager.parameters(), *eager.buffers()), strict=True):
        torch.testing.assert_close(ours, theirs)
        if theirs.requires_grad:
            torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize(
    ("name", "slope"),
    [("exp", lambda h: h.exp()), ("sigmoid", lambda h: h.sigmoid() * (1 - h.sigmoid())), ("relu", lambda h: (h > 0).to(h.dtype)),
     ("tanh", lambda h: 1 - h.tanh() ** 2)],
)  # fmt: skip
def test_a_result_written_to_before_backward_has_the_right_gradient_or_is_refused(name: str, slope: Any) -> None:
    def f(x: Any, w: Any) -> list[Any]:
        h = getattr(x * w, name)()
        return [h, h.sin(), h.view(3, 1)]

    x, w = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, -1.0, 2.0], requires_grad=True)
    outs = compiled(f, x, w)(x, w)
    h = getattr(x * w, name)().detach()
    outs[0].mul_(3)
    with contextlib.suppress(RuntimeError):
        (got,) = torch.autograd.grad(outs[0].sum() + outs[1].sum() + outs[2].sum(), w)
        torch.testing.assert_close(got, (6 + h.cos()) * slope((x * w).detach()) * x, rtol=1e-5, atol=1e-5)


def test_backward_of_results_one_by_one() -> None:
    def apart(x: Any, g: Any, d: Any) -> list[Any]:  # as a step of a generator and a discriminator
        made = (x * g).exp()
        return [made, (made.detach() * d).sin(), x * 2]

    x = torch.tensor([1.0, 2.0])
    g, d = torch.tensor([0.5, -1.0], requires_grad=True), torch.tensor([2.0, 3.0], requires_grad=True)
    for call in (compiled(apart, x, g, d), runtime.compile(apart, [x, g, d], COMPILER[0]).bind({1: g, 2: d})):
        g.grad = d.grad = None
        made, judged, _ = call(x, g, d) if isinstance(call, runtime.Compiled) else call(x)
        judged.sum().backward()
        with torch.no_grad():
            e = (x * g).exp()
            assert g.grad is None
            torch.testing.assert_close(d.grad, (e * d).cos() * e)
        made.sum().backward()
        torch.testing.assert_close(g.grad, e * x)
        for again in (made, judged):
            with pytest.raises(RuntimeError, match="a second time"):
                again.sum().backward()


def test_results_that_share_their_backward_free_what_was_saved() -> None:
    def model(x: Any, w: Any) -> list[Any]:
        logits = (x * w).exp()
        return [logits, logits.sin().sum(), (w * x).cos()]

    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    logits, loss, other = compiled(model, x, w)(x, w)
    node = loss.grad_fn
    (loss + other.sum()).backward()
    assert node.saved is None
    with pytest.raises(RuntimeError, match="a second time"):
        logits.sum().backward()


def test_gradients_that_are_zero_whatever_comes() -> None:
    def f(x: Any) -> list[Any]:
        y = x.clone()
        y.zero_()
        return [y.sin(), y * 2]

    x = torch.ones(2, requires_grad=True)
    compiled(f, x)(x)[0].sum().backward()
    assert x.grad.tolist() == [0, 0]


def test_gradients_that_are_zero_for_one_result_alone() -> None:
    """A path that only gives zeros is a path: of two results that go backward apart, as in eager mode; no path gives None."""
    for second in (lambda x, y: x * y, lambda x, y: x.detach() * y):
        for first in (lambda x, y: x.round() * 2, lambda x, y: x.sign() * y.detach(), lambda x, y: (x > 0) * y.floor()):
            def f(x: Any, y: Any, first: Any = first, second: Any = second) -> list[Any]:
                return [first(x, y), second(x, y)]

            found = []
            for make in (lambda x, y: f(x, y), lambda x, y: compiled(f, x, y)(x, y)):
                x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
                a, b = make(x, y)
                grads = []
                for out in (a, b):
                    out.sum().backward()
                    grads += [None if t.grad is None else t.grad.tolist() for t in (x, y)]
                found.append(grads)
            assert found[0] == found[1]
