"""Segments bound to a model: cheap calls that still notice every way in which it can change."""

from __future__ import annotations

import copy
import functools
import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
from tocha import nn
from tocha._dynamo import words
from tocha._dynamo.testing import CompileCounter

X = torch.tensor([[1.0, -2.0]])
SCALE = 2.0


def helper(x: Any) -> Any:
    return x * SCALE


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        self.register_buffer("shift", torch.tensor([0.5, -0.5]))
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        self.options = types.SimpleNamespace(gain=1000, names=["a", "b"])
        self.sizes = [1000, 2000]
        self.table: dict[str, Any] = {"k": 3.0}
        self.pair = (1.0, [5000])
        self.act = torch.tanh
        self.count = 1000

    def forward(self, x: Any) -> Any:
        x = self.act(self.inner(x @ self.weight + self.shift)) * self.options.gain + len(self.options.names)
        x = helper(x) * self.count + self.sizes[0] + self.table["k"] + self.pair[0] + self.pair[1][0]
        return x if self.training else -x


def bound(call: Any) -> int:
    return len(call.__dict__["_dynamo_call"]._dynamo_program.bound)


def settled(model: Any, backend: Any = "eager", calls: int = 9) -> Any:
    compiled = torch.compile(model, backend=backend)
    with torch.no_grad():
        for _ in range(calls):
            compiled(X)
    assert bound(compiled) == 1
    return compiled


def set_data(m: Layer) -> None:
    m.weight.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]])


def set_shape(m: Layer) -> None:
    m.weight.data = torch.ones(2, 3)
    m.shift = torch.ones(3)
    m.inner[0].weight.data = torch.ones(2, 3)


def set_class(m: Layer) -> None:
    class Other(Layer):
        def forward(self, x: Any) -> Any:
            return x

    m.__class__ = Other


def set_dict(m: Layer) -> None:
    m.__dict__ = {**m.__dict__, "count": 7}


def hook(m: Layer) -> None:
    m.register_forward_hook(lambda m, i, o: o + 1)


def inner_hook(m: Layer) -> None:
    m.inner[1].register_forward_pre_hook(lambda m, i: (i[0] + 1,))


def global_function(m: Layer) -> None:
    globals()["helper"] = lambda x: x * 5


def global_value(m: Layer) -> None:
    globals()["SCALE"] = 5.0


def function_code(m: Layer) -> None:
    helper.__code__ = (lambda x: x * 6).__code__


def class_attribute(m: Layer) -> None:
    type(m).count = 5  # hidden by the instance's own
    del m.count


def class_forward(m: Layer) -> None:
    type(m).forward = lambda self, x: x * 9  # type: ignore[method-assign, assignment]


def base_property(m: Layer) -> None:
    type(m).count = property(lambda self: 11)


def swap(m: Layer) -> None:
    torch.utils.swap_tensors(m.weight, nn.Parameter(torch.ones(2, 2)))


WRITES: list[Callable[[Layer], Any]] = [
    set_data, set_shape, set_class, set_dict, hook, inner_hook, global_function, global_value, function_code, class_attribute, class_forward,
    base_property, swap,
    lambda m: m.eval(),
    lambda m: setattr(m, "training", False),
    lambda m: m.double().float(),
    lambda m: m.inner.double() and m.inner.float(),
    lambda m: setattr(m, "weight", nn.Parameter(torch.ones(2, 2))),
    lambda m: m._parameters.__setitem__("weight", nn.Parameter(torch.ones(2, 2))),
    lambda m: m.__dict__["_parameters"].update(weight=nn.Parameter(torch.ones(2, 2))),
    lambda m: m.__dict__.__setitem__("_parameters", {"weight": nn.Parameter(torch.ones(2, 2))}),
    lambda m: m._buffers.__setitem__("shift", torch.ones(2)),
    lambda m: setattr(m, "shift", torch.ones(2)),
    lambda m: m.register_buffer("shift", torch.ones(2)),
    lambda m: m.register_parameter("weight", nn.Parameter(torch.ones(2, 2))),
    lambda m: m.inner.__setitem__(1, nn.Tanh()),
    lambda m: m.inner.append(nn.Tanh()),
    lambda m: m.inner._modules.__setitem__("1", nn.Tanh()),
    lambda m: m.inner.insert(0, nn.Tanh()),
    lambda m: setattr(m, "inner", nn.Tanh()),
    lambda m: m.inner.__delitem__(1),
    lambda m: m.add_module("inner", nn.Sequential(nn.Tanh())),
    lambda m: m.load_state_dict({k: v * 0 + 1 for k, v in m.state_dict().items()}),
    lambda m: m.load_state_dict({k: v * 0 + 1 for k, v in m.state_dict().items()}, assign=True),
    lambda m: m.weight.data.mul_(2),
    lambda m: m.weight.detach().mul_(2),
    lambda m: m.weight.data.zero_(),
    lambda m: m._apply(lambda t: t * 2),
    lambda m: setattr(m, "count", 1001),
    lambda m: m.__dict__.update(count=1001),
    lambda m: object.__setattr__(m, "count", 1001),
    lambda m: setattr(m.options, "gain", 1001),
    lambda m: m.options.__dict__.update(gain=1001),
    lambda m: m.options.names.append("c"),
    lambda m: m.sizes.__setitem__(0, 1001),
    lambda m: m.sizes.insert(0, 1001),
    lambda m: m.sizes.clear() or m.sizes.extend([1001, 2001]),
    lambda m: m.table.update(k=4.0),
    lambda m: setattr(m, "table", {"k": 4.0}),
    lambda m: m.pair[1].__setitem__(0, 5001),
    lambda m: setattr(m, "pair", (2.0, [5000])),
    lambda m: setattr(m, "act", torch.sigmoid),
    lambda m: setattr(m, "forward", lambda x: x + 1),
    lambda m: m.__dict__.__setitem__("forward", lambda x: x + 1),
    lambda m: setattr(m.inner[1], "forward", lambda x: x + 1),
]  # fmt: skip


@pytest.fixture
def whole() -> Any:
    before, code, own = dict(globals()), helper.__code__, dict(vars(Layer))
    yield
    before["helper"].__code__ = code
    globals().update(helper=before["helper"], SCALE=before["SCALE"])
    Layer.forward = own["forward"]  # type: ignore[method-assign]
    if "count" in vars(Layer):
        del Layer.count


@pytest.mark.parametrize("write", WRITES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_change_is_noticed(write: Callable[[Layer], Any], backend: str, whole: None) -> None:
    torch.manual_seed(0)
    model = Layer()
    compiled = settled(model, backend)
    write(model)
    for _ in range(18):  # the new state is bound in its turn
        with torch.no_grad():
            torch.testing.assert_close(compiled(X), model(X))


def test_what_is_bound_to_a_changed_model_is_let_go() -> None:
    model = Layer()
    compiled = settled(model)
    old = weakref.ref(model.weight)
    model.weight = nn.Parameter(torch.ones(2, 2))
    with torch.no_grad():
        compiled(X)
    gc.collect()
    assert bound(compiled) == 0 and old() is None
    with torch.no_grad():
        for _ in range(20):
            compiled(X)
    assert bound(compiled) == 1


def test_requires_grad_is_noticed() -> None:
    model = Layer()
    compiled = settled(model)
    for on in (False, True):
        model.requires_grad_(on)
        for _ in range(9):
            out = compiled(X)
            assert out.requires_grad is on
    model.weight.requires_grad_(False)
    for _ in range(9):
        compiled(X).sum().backward()
        assert model.weight.grad is None and model.inner[0].weight.grad is not None
        model.zero_grad()


def test_hooks_of_parameters_run() -> None:
    model = Layer()
    compiled = torch.compile(model)
    seen: list[str] = []
    for _ in range(9):
        compiled(X).sum().backward()
    model.weight.register_hook(lambda g: seen.append("grad"))
    model.weight.register_post_accumulate_grad_hook(lambda p: seen.append("after"))
    for _ in range(9):
        compiled(X).sum().backward()
    assert seen == ["grad", "after"] * 9


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_and_steps_are_eagers(backend: str) -> None:
    torch.manual_seed(0)
    model = Layer()
    other = copy.deepcopy(model)
    compiled = torch.compile(model, backend=backend)
    a, b = (torch.optim.SGD(m.parameters(), 1e-7) for m in (model, other))
    for _ in range(10):
        for m, optimizer in ((compiled, a), (other, b)):
            optimizer.zero_grad()
            m(X).sum().backward()
            optimizer.step()
    assert bound(compiled) == 1
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p, q)


def test_a_write_between_forward_and_backward_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    compiled = torch.compile(model)
    for _ in range(9):
        compiled(X.clone().requires_grad_()).sum().backward()
    assert bound(compiled) == 1
    out = compiled(X.clone().requires_grad_())
    with torch.no_grad():
        model[1].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_other_inputs_and_modes_are_told_apart() -> None:
    model = Layer()
    counter = CompileCounter()
    compiled = settled(model, counter)
    with torch.no_grad():
        for x in (torch.ones(3, 2), torch.ones(1, 2), torch.ones(2, 2).t(), torch.ones(1, 2, dtype=torch.float64)):
            if x.dtype is torch.float64:
                with pytest.raises(RuntimeError):
                    compiled(x)
            else:
                torch.testing.assert_close(compiled(x), model(x))
    assert compiled(X).requires_grad
    with torch.inference_mode():
        assert compiled(X).is_inference()


def test_one_function_serves_several_models() -> None:
    counter = CompileCounter()

    @functools.partial(torch.compile, backend=counter)
    def step(model: Any, x: Any) -> Any:
        return model(x) * 2

    models = [Layer() for _ in range(3)]
    for _ in range(100):
        for m in models:
            torch.testing.assert_close(step(m, X), m(X) * 2)
    assert counter.frame_count == 1
    assert len(step._dynamo_program.bound) == 3


def test_a_model_is_not_kept_alive() -> None:
    @torch.compile
    def step(model: Any, x: Any) -> Any:
        return model(x) * 2

    model = Layer()
    for _ in range(9):
        step(model, X)
    assert len(step._dynamo_program.bound) == 1
    dead, weight = weakref.ref(model), weakref.ref(model.weight)
    del model
    gc.collect()
    assert dead() is None
    assert not step._dynamo_program.bound
    gc.collect()
    assert weight() is None


def test_captured_and_global_models_are_bound() -> None:
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)])

    @torch.compile(backend="eager")
    def step(x: Any) -> Any:
        return model(x)

    for _ in range(9):
        step(X)
    assert len(step._dynamo_program.bound) == 1
    model[0].weight.data = torch.zeros(2, 2)
    torch.testing.assert_close(step(X), model(X))
    model = nn.Sequential(*[nn.Linear(2, 2) for _ in range(4)])
    torch.testing.assert_close(step(X), model(X))


def test_buffers_that_a_graph_writes_to_are_written_each_time() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2), nn.BatchNorm1d(2))
    other = copy.deepcopy(model)
    compiled = torch.compile(model)
    for i in range(10):
        x = torch.randn(4, 2) + i
        torch.testing.assert_close(compiled(x), other(x))
    assert bound(compiled) == 1
    for a, b in zip(model.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_an_input_that_shares_memory_with_a_written_buffer() -> None:
    class Adds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(2))
            self.layers = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

        def forward(self, x: Any) -> Any:
            self.total.add_(1)
            return self.layers(x) + x

    model = Adds()
    compiled = torch.compile(model)
    for _ in range(9):
        compiled(torch.zeros(2))
    other = copy.deepcopy(model)
    torch.testing.assert_close(compiled(model.total), other(other.total))
    torch.testing.assert_close(model.total, other.total)


def test_a_break_after_a_bound_segment() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))

    @torch.compile(backend="eager")
    def step(x: Any) -> Any:
        y = model(x).sum()
        return torch.ones(1) * 2 if y > 0 else y * 3

    for x in (X, -X) * 8:
        y = model(x).sum()
        torch.testing.assert_close(step(x), torch.ones(1) * 2 if y > 0 else y * 3)
    assert len(step._dynamo_program.bound) == 1


def test_activations_that_share_their_code_are_told_apart() -> None:
    class Acts(nn.Module):
        act: Any = staticmethod(torch.tanh)

        def forward(self, x: Any, fn: Any) -> Any:
            return self.act(x) + fn(x)

    model, counter = Acts(), CompileCounter()
    compiled = torch.compile(model, backend=counter)
    for act in (torch.tanh, torch.sigmoid, torch.exp):
        model.act = act
        for fn in (torch.sin, torch.cos):
            torch.testing.assert_close(compiled(X, fn), act(X) + fn(X))
    assert counter.frame_count == 6


def test_defaults_given_later_are_noticed() -> None:
    def scaled(x: Any, by: Any = None) -> Any:
        return x if by is None else x * by

    plain = types.FunctionType(scaled.__code__, globals(), "scaled", None)
    compiled = torch.compile(lambda x, fn: fn(x, 2.0) + fn(x) if fn.__defaults__ else fn(x, 3.0), backend="eager")
    torch.testing.assert_close(compiled(X, plain), X * 3)
    torch.testing.assert_close(compiled(X, scaled), X * 3)
    scaled.__defaults__ = (4.0,)
    torch.testing.assert_close(compiled(X, scaled), X * 6)


def test_memory_is_as_the_words_say() -> None:
    assert words.usable()


def test_modules_add_no_questions_in_python() -> None:
    def asked(layers: int) -> int:
        call = torch.compile(nn.Sequential(*[nn.Linear(3, 3) for _ in range(layers)]))
        for _ in range(20):
            call(torch.ones(2, 3))
        (bound,) = call.__dict__["_dynamo_call"]._dynamo_program.bound
        return bound.prologue.text.count("if not ")

    assert asked(2) == asked(12)
