"""What can be compiled: functions of all kinds, objects, optimizers, functions that compile others; threads; reports."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import weakref
from typing import Any

import pytest

import tocha as torch
from tests._dynamo import helpers
from tocha import nn
from tocha._dynamo.testing import CompileCounter

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


class Scale:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x * self.calls

    @staticmethod
    def double(x: Any) -> Any:
        return x * 2

    @classmethod
    def named(cls, x: Any) -> Any:
        return x * len(cls.__name__)

    @torch.compile(backend="eager")
    def method(self, x: Any, k: int = 2) -> Any:
        self.calls += k
        return x + self.calls


def test_objects_and_methods() -> None:
    obj = Scale()
    assert torch.equal(torch.compile(obj, backend="eager")(X), X) and obj.calls == 1
    assert torch.equal(torch.compile(Scale.double, backend="eager")(X), X * 2)
    assert torch.equal(torch.compile(obj.named, backend="eager")(X), X * 5)
    assert torch.equal(obj.method(X, k=3), X + 4) and torch.equal(obj.method(X), X + 6)
    assert torch.equal(torch.compile(functools.partial(torch.add, X), backend="eager")(X), X + X)
    assert torch.equal(torch.compile(torch.sin, backend="eager")(X), torch.sin(X))
    assert torch.equal(torch.compile(lambda *a, **k: a[0] + k["y"], backend="eager")(X, y=X), X + X)


def test_generator_and_coroutine_functions_run_plainly() -> None:
    @torch.compile(backend="eager")
    def pieces(x: Any) -> Any:
        yield x
        yield x * 2

    assert [p.sum().item() for p in pieces(X)] == [X.sum().item(), 2 * X.sum().item()]

    @torch.compile(backend="eager")
    async def later(x: Any) -> Any:
        return x * 2

    with pytest.raises(StopIteration) as stop:
        later(X).send(None)
    assert torch.equal(stop.value.value, X * 2)


def test_a_returned_generator_is_a_real_one() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return (y + i for i in range(2))

    got = torch.compile(f, backend="eager")(X)
    assert type(got).__name__ == "generator" and torch.equal(list(got)[1], X * 2 + 1)


def test_compiled_functions_inside_others() -> None:
    counter = CompileCounter()

    @torch.compile(backend=counter)
    def inner(x: Any) -> Any:
        return x * 2

    assert (
        torch.equal(torch.compile(lambda x: inner(x) + 1, backend=counter, fullgraph=True)(X), X * 2 + 1)
        and counter.frame_count == 1
    )
    model = nn.Sequential(torch.compile(nn.Linear(3, 3), backend=counter), nn.ReLU())
    assert torch.equal(torch.compile(model, backend=counter)(X), model(X))


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW], ids=lambda m: m.__name__)
def test_optimizer_steps(make: Any) -> None:
    plain = nn.Linear(3, 3)
    ours = copy.deepcopy(plain)
    a, b = make(plain.parameters(), lr=0.1), make(ours.parameters(), lr=0.1)
    step = torch.compile(b.step, backend="eager")
    for _ in range(3):
        for model, optimizer, go in ((plain, a, a.step), (ours, b, step)):
            optimizer.zero_grad()
            model(X).sum().backward()
            go()
    assert torch.equal(plain.weight, ours.weight)


def test_modules_are_copied_saved_and_loaded() -> None:
    model = torch.compile(nn.Linear(3, 3), backend="eager")
    expected = model(X)
    assert list(model.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert torch.equal(copy.deepcopy(model)(X), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(X), expected)
    assert isinstance(model, nn.Module) and model.in_features == 3 and len(list(model.parameters())) == 2
    model.extra = 4
    assert model._orig_mod.extra == 4


def test_exceptions_are_the_users_own_and_name_the_place() -> None:
    def f(x: Any) -> Any:
        if (x * 2).shape[0] == 2:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as error:
        torch.compile(f, backend="eager")(X)
    assert any("test_callables.py" in note and "in f" in note for note in error.value.__notes__)


def test_threads() -> None:
    compiled = torch.compile(lambda x, k: (x * k).sum(), backend="eager")
    results: dict[int, float] = {}

    def work(k: int) -> None:
        results[k] = compiled(X, k).item()

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {k: X.sum().item() * k for k in range(4)}


def test_other_threads_run_eagerly_during_a_capture() -> None:
    seen: list[Any] = []

    def elsewhere() -> None:
        seen.append((torch.ones(2) * 3).tolist())

    class Wait:
        def __index__(self) -> int:
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
            return 1

    def backend(gm: Any, inputs: Any) -> Any:
        Wait().__index__()
        return gm.forward

    wait = Wait()
    torch.compile(lambda x: x * 2, backend=backend)(X)
    from tocha.aot import trace

    with trace.tracing(torch.fx.Graph()):
        wait.__index__()
        assert isinstance(torch.ones(2)._a, trace.TraceArray)
    assert seen == [[3.0, 3.0]] * 2


def test_logs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TOCHA_LOGS", "guards,graph_breaks,recompiles")

    def f(x: Any, n: int) -> Any:
        y = x * n
        if y.sum() > 0:
            return y
        return -y

    compiled = torch.compile(f, backend="eager")
    compiled(X, 1), compiled(X, 2)
    said = capsys.readouterr().err
    assert "a branch on a tensor's value" in said and "test_callables.py" in said and "n: == 1" in said and "[recompiles]" in said


def test_random_state_is_shared_with_plain_python() -> None:
    def f(x: Any) -> Any:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand(3)

    helpers.check(f, X, fullgraph=True, calls=3)
    torch.manual_seed(0)
    expected = [f(X), torch.rand(2), f(X)]
    torch.manual_seed(0)
    compiled = torch.compile(f, backend="eager")
    assert helpers.same(expected, [compiled(X), torch.rand(2), compiled(X)])


def test_allow_in_graph_and_substitution() -> None:
    def opaque(x: Any) -> Any:
        return x * float(X.sum().item())

    torch.compiler.allow_in_graph(opaque)
    assert torch.equal(torch.compile(lambda x: opaque(x) + 1, backend="eager", fullgraph=True)(X), opaque(X) + 1)


def test_weak_references_are_followed() -> None:
    class Child(nn.Module):
        def __init__(self, parent: Any) -> None:
            super().__init__()
            self.parent = weakref.ref(parent)

        def forward(self, x: Any) -> Any:
            parent = self.parent()
            return x * 7 if parent is None else x * parent.scale * parent.tensor

    class Parent:
        def __init__(self) -> None:
            self.scale, self.tensor = 2, torch.ones(3)

    parent = Parent()
    child = Child(parent)
    compiled = torch.compile(child, backend="eager", fullgraph=True)
    for _ in range(10):  # also once its guards are bound
        assert torch.equal(compiled(X), X * 2)
    parent.scale = 5
    parent.tensor.mul_(2)
    assert torch.equal(compiled(X), X * 10)
    del parent
    gc.collect()
    assert child.parent() is None and torch.equal(compiled(X), X * 7)
