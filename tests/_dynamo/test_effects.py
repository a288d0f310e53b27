"""Writes to what existed before the call: done once per call, in the program's order, whatever is captured."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tests._dynamo import helpers
from tocha import nn

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
COUNT = 0
LOG: list[Any] = []


@dataclasses.dataclass
class State:
    steps: int = 0
    seen: list[Any] = dataclasses.field(default_factory=list)
    last: Any = None
    table: dict[str, Any] = dataclasses.field(default_factory=dict)


def lists(x: Any, items: Any) -> Any:
    items.append(x * 2)
    items[0] = x + 1
    items += [3]
    del items[1]
    return len(items), items


def dicts(x: Any, table: Any) -> Any:
    table["new"] = x * 2
    table["old"] = table["old"] + x
    table.pop("gone")
    return sorted(table), table.get("none", 4)


def reordered(x: Any, table: Any) -> Any:
    old = table.pop("old")
    table["old"] = old + x
    return list(table)


def attributes(x: Any, state: Any) -> Any:
    state.steps += 1
    state.seen.append(x.shape[0])
    state.last = x * state.steps
    state.table["k"] = state.last + 1
    return state.last + len(state.seen)


def deques(x: Any, queue: Any, seen: Any) -> Any:
    queue.append(x)
    seen.add(5)
    return queue[0] + x, 5 in seen


def tensors(x: Any, other: Any) -> Any:
    y = x + other
    x.add_(1)
    other[0] = 7
    return y, x * 2


def same_list_twice(x: Any, a: Any, b: Any) -> Any:
    a.append(x)
    return len(b), a is b


def new_attribute(x: Any, state: Any) -> Any:
    state.extra = x + 1
    if hasattr(state, "extra"):
        del state.extra
    return hasattr(state, "extra"), x * 2


CASES = {
    lists: ([1, 2],),
    dicts: ({"old": 1, "gone": 2},),
    reordered: ({"old": 1, "other": 2},),
    attributes: (State(),),
    deques: (collections.deque([1.0]), {1}),
    tensors: (torch.ones(2, 3),),
    new_attribute: (State(),),
}


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_writes_to_arguments(function: Any, backend: Any) -> None:
    helpers.check(function, X.clone(), *CASES[function], fullgraph=True, backend=backend)


def test_aliases_of_arguments() -> None:
    shared: list[Any] = []
    compiled = torch.compile(same_list_twice, backend="eager")
    assert compiled(X, [], []) == (0, False)
    assert compiled(X, shared, shared) == (1, True) and len(shared) == 1
    assert compiled(X, [], []) == (0, False)


def test_mutated_lists_that_become_one() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        a.append(1)
        return x * len(b)

    compiled = torch.compile(f, backend="eager")
    assert compiled(torch.ones(1), [], []).item() == 0
    shared: list[Any] = []
    assert compiled(torch.ones(1), shared, shared).item() == 1


def test_globals_and_closures() -> None:
    k = 1

    def f(x: Any) -> Any:
        global COUNT
        nonlocal k
        COUNT += 1
        k = k * 2
        LOG.append(k)
        return x * COUNT + k

    before = COUNT
    compiled = torch.compile(f, backend="eager", fullgraph=True)
    for i in range(1, 4):
        got = compiled(torch.ones(1)).item()
        assert before + i == COUNT and k == 2**i and got == COUNT + k
    assert LOG[-3:] == [2, 4, 8]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("mean", torch.zeros(3))
        self.calls = 0
        self.cache: dict[str, Any] = {}

    def forward(self, x: Any) -> Any:
        self.calls += 1
        self.count += 1
        self.mean = self.mean * 0.9 + x.detach().mean(0) * 0.1
        self.cache["last"] = x
        return self.linear(x) + self.mean


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_state_of_modules(backend: str) -> None:
    torch.manual_seed(0)
    ours, plain = Counter(), Counter()
    plain.load_state_dict(ours.state_dict())
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    for i in range(3):
        assert torch.allclose(compiled(X + i), plain(X + i))
        assert ours.calls == plain.calls and torch.equal(ours.mean, plain.mean) and torch.equal(ours.count, plain.count)
        assert torch.equal(ours.cache["last"], X + i)
    assert list(ours.state_dict()) == list(plain.state_dict())


def test_made_objects_are_new_at_each_call() -> None:
    def f(x: Any) -> Any:
        return State(last=x + 1), [x * 2], {}

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    (a, b, c), (d, e, g) = compiled(X), compiled(X)
    assert a is not d and b is not e and c is not g and a.seen is not d.seen and isinstance(a, State)
    a.seen.append(1)
    assert not compiled(X)[0].seen


def test_returned_arguments_are_themselves() -> None:
    state, items = State(), [X]

    def f(x: Any, s: Any, i: Any) -> Any:
        return x, s, i, i[0], (x, s)

    got = torch.compile(f, backend="eager", fullgraph=True)(X, state, items)
    assert got[0] is X and got[1] is state and got[2] is items and got[3] is X and got[4][1] is state


def test_functions_that_write_without_saying_so_in_their_names() -> None:
    def f(x: Any) -> Any:
        y = x + 0
        F.relu(y, inplace=True)
        torch.add(y, 1, out=y)
        F.hardtanh(x, 0, 1, inplace=True)
        return y, x * 2

    helpers.check(f, X.clone(), fullgraph=True)
    helpers.check(f, X.clone(), backend="aot_eager")


def test_classes_modules_functions_and_tensors_are_written_to() -> None:
    class Base:
        count, last = 0, None

        @classmethod
        def tick(cls, x: Any) -> Any:
            cls.count += 1
            return cls.count * x

    class Derived(Base):
        count = 10

    def counted(x: Any) -> Any:
        counted.calls += 1  # type: ignore[attr-defined]
        return x * counted.calls  # type: ignore[attr-defined]

    counted.calls = 0  # type: ignore[attr-defined]
    module = types.ModuleType("made")
    module.k = 1  # type: ignore[attr-defined]
    obj = Derived()

    def write(x: Any, leaf: Any) -> Any:
        Base.last = x * 2
        module.k = module.k + 1  # type: ignore[attr-defined]
        leaf.grad, leaf.tag = None, 3
        y = x + 1
        y.scale = 2.0
        return obj.last + Derived.tick(x) * Base.tick(x) * counted(x) * module.k * leaf.tag * y.scale * Base().count, leaf.grad

    compiled = torch.compile(write, backend="eager", fullgraph=True)
    for n in (1, 2):
        leaf = torch.ones(1, requires_grad=True)
        leaf.sum().backward()
        out, grad = compiled(torch.tensor([3.0]), leaf)
        assert out.item() == 6 + 27 * (10 + n) * n * n * (n + 1) * 6 * n
        assert grad is None
        assert leaf.grad is None
        assert (Base.count, Derived.count, counted.calls, module.k, leaf.tag) == (n, 10 + n, n, n + 1, 3)  # type: ignore[attr-defined]
        assert obj.last.item() == 6


def test_children_parameters_and_the_mode_of_a_module_are_set() -> None:
    class Swapping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.w = nn.ReLU(), nn.Tanh(), nn.Parameter(torch.ones(1))
            self.v = nn.Parameter(torch.full((1,), 2.0))

        def forward(self, x: Any) -> Any:
            self.a, self.b = self.b, self.a
            self.w, self.v = self.v, self.w
            self.eval()
            return self.a(x) * self.w + len(self.state_dict()) + self.training

    mine, theirs = Swapping(), Swapping()
    compiled, x = torch.compile(mine, backend="eager", fullgraph=True), torch.tensor([-0.5])
    for _ in range(3):
        assert compiled(x).item() == theirs(x).item()
        assert type(mine.a) is type(theirs.a)
        assert mine.w.item() == theirs.w.item() == mine.state_dict()["w"].item()
        assert not mine.training
        assert not mine.b.training


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_gradients_are_set(backend: str) -> None:
    class Accumulating(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.v = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))

        def forward(self, x: Any) -> Any:
            if self.w.grad is None:
                self.w.grad = torch.zeros_like(self.w)
            self.w.grad += x
            self.w.grad = self.w.grad * 2
            self.v.grad = self.w.grad
            return self.v.grad + 1

    mine, theirs, x = Accumulating(), Accumulating(), torch.tensor([1.0, 2.0])
    compiled = torch.compile(mine, backend=backend, fullgraph=True)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), theirs(x))
        torch.testing.assert_close(mine.w.grad, theirs.w.grad)
        assert mine.v.grad is mine.w.grad
    mine.v.grad.mul_(0)
    assert compiled(x).tolist() == [3, 5]

    def wrong(w: Any) -> None:
        w.grad = torch.ones(3)

    with pytest.raises(RuntimeError, match="attempting to assign a gradient of size"):
        torch.compile(wrong, backend=backend)(mine.w)


def test_memory_of_tensors_is_set() -> None:
    def write_after(x: Any, b: Any, q: Any) -> Any:
        b.add_(1)
        b.data = q
        b.mul_(4)
        return b + x, b[0]

    def view_before(x: Any, b: Any, q: Any) -> Any:
        v = b[0]
        b.data = x * 2
        b.add_(1)
        return v, b.sum(), b

    def twice(x: Any, b: Any, q: Any) -> Any:
        b.data = x * 2
        b.data = b.data + 1
        b.data += 5
        return b * 2, b.data

    def exchanged(x: Any, b: Any, q: Any) -> Any:
        held = b.data
        b.data = q.data
        q.data = held
        return b - q

    def turned(x: Any, b: Any, q: Any) -> Any:
        b.data = torch.stack([x, x * 2]).t()[0]
        return b.stride(), b * 2

    for f in (write_after, view_before, twice, exchanged, turned):
        for backend in ("eager", "inductor"):
            compiled, found = torch.compile(f, backend=backend, fullgraph=True), []
            for call in (f, compiled):
                b, q = torch.tensor([1.0, 2.0]), torch.tensor([5.0, 6.0])
                old = b.detach()
                outs = [call(torch.tensor([3.0, 4.0]), b, q) for _ in range(3)]
                q.mul_(2)
                found.append((outs, b, q, old, b.stride(), b.data_ptr() == q.data_ptr()))
            assert helpers.same(*found), f.__name__


def test_memory_of_parameters_is_set() -> None:
    def average(a: Any, b: Any) -> Any:
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            p.data = torch.lerp(p.data, q.data, 0.25)
        return sum((p.data**2).sum() for p in a.parameters())

    def used(a: Any, b: Any) -> Any:
        a.weight.data = b.weight.data * 2
        return a(torch.ones(2)).sum()

    for f, fullgraph in ((average, True), (used, False)):
        found = []
        for compiled in (False, True):
            torch.manual_seed(0)
            a, b = nn.Linear(2, 2), nn.Linear(2, 2)
            call = torch.compile(f, fullgraph=fullgraph) if compiled else f
            outs = [call(a, b) for _ in range(10)]
            if f is used:
                outs[-1].backward()
            found.append([*outs, a.weight, a.bias, a.weight.grad])
            assert isinstance(a.weight, nn.Parameter)
        torch.testing.assert_close(*found)


def test_what_happened_before_a_graph_s_error_stays() -> None:
    def caught(table: Any, index: Any, log: Any) -> Any:
        log.append("before")
        table[1].add_(1)
        try:
            return F.embedding(index, table) + 1
        except IndexError:
            log.append("caught")
        table.mul_(3)
        return index + 1

    def refused(view: Any, buffer: Any, log: Any) -> Any:  # a view of a leaf, or one of several
        log.append("before")
        buffer.add_(1)
        view.mul_(2)
        log.append("after")

    for backend in ("inductor", "aot_eager", "eager"):
        call, write = torch.compile(caught, backend=backend), torch.compile(refused, backend=backend)
        for index in (0, 9, 9):
            table, log = torch.zeros(2, 2), []
            out = call(table, torch.tensor([index]), log)
            assert table.flatten().tolist() == ([0, 0, 1, 1] if index == 0 else [0, 0, 3, 3])
            assert log == ["before", "caught"][: 1 + (index == 9)] and out.ndim == (2 if index == 0 else 1)
        for _ in range(3):
            leaf = torch.ones(4, requires_grad=True)
            for view, error in ((leaf[:2], "a view of a leaf"), ((leaf * 1).split(2)[0], "multiple views")):
                buffer, log = torch.zeros(2), []
                with pytest.raises(RuntimeError, match=error):
                    write(view, buffer, log)
                assert buffer.tolist() == [1, 1] and view.tolist() == [1, 1] and log == ["before"]


class Ordered(collections.OrderedDict):  # as libraries write outputs of models
    def __getitem__(self, key: Any) -> Any:
        return [*self.values()][key] if isinstance(key, int) else super().__getitem__(key)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        super().__setattr__(name, value)


class Watched:
    """Every way in which a class of the program's has a say when attributes and items change."""

    def __init__(self) -> None:
        vars(self).update(log=[], _size=1, items=Noting())

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append(name)
        object.__setattr__(self, name, value)

    @property
    def size(self) -> Any:
        return self._size

    @size.deleter
    def size(self) -> None:
        self.log.append("deleted")
        self._size = 0

    @property
    def fixed(self) -> int:
        return 3


class Noting(list):
    noted = 0

    def append(self, item: Any) -> None:
        self.noted += 1
        super().append(item)


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Any = 1


def test_classes_that_have_a_say_in_writes() -> None:
    def watched(x: Any, w: Any) -> Any:
        w.kept = x * 2
        del w.size
        w.items.append(x.shape[0])
        w.items.append(2)
        try:
            del w.fixed
        except AttributeError as error:
            return w.kept + w.size + len(w.items), str(error)

    def ordered(x: Any, frozen: Any) -> Any:
        out = Ordered(a=x * 2)
        out.b = x + 1
        object.__setattr__(frozen, "value", x.sum())
        return out[0] + frozen.value, list(out), out

    for _ in range(2):
        helpers.check(watched, X, Watched(), graphs=None, calls=3)
    helpers.check(ordered, X, Frozen(), calls=3)
