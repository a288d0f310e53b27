"""Graph breaks: what they are, that nothing changes through them, and how many graphs they leave."""

from __future__ import annotations

import contextlib
import random
import sys
import types
import warnings
from typing import Any

import pytest

import tocha as torch
from tests._dynamo import helpers
from tocha import nn

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


def branch(x: Any) -> Any:
    y = x * 2
    if y.sum() > 0:
        return y - 1
    return y + 1


def inner(x: Any, k: Any) -> Any:
    y = x * k
    if y.sum() > 3:
        return y - 1
    return y + 1


def nested(x: Any, n: int = 3) -> Any:
    for i in range(n):
        x = inner(x, 1.25) + i
    return x / 2


def item(x: Any) -> Any:
    n = int(x[0, 0].item())
    return x * n + x.max().item()


def native(x: Any) -> Any:
    y = x + 1
    z = random.Random(0).random()
    return y * z


def with_lists(x: Any) -> Any:
    out = [x * 2]
    alias = out
    k = x.sum().item()
    out.append(x + k)
    table = {"a": alias}
    y = x.tolist()
    alias.append(y[0][0])
    return out, table, alias is out


def in_with(x: Any) -> Any:
    with torch.no_grad():
        y = x * 2
        k = y.sum().item()
        z = y * k
    return z, x * 2, torch.is_grad_enabled()


@contextlib.contextmanager
def doubled(x: Any) -> Any:
    k = x.sum().item()
    yield x * k
    x.tolist()


def in_contextmanager(x: Any) -> Any:
    with doubled(x) as y:
        return y + y.max().item()


def in_try(x: Any) -> Any:
    out = []
    try:
        y = x * x.sum().item()
        raise ValueError(f"{y.max().item():.1f}")
    except ValueError as error:
        out.append(str(error))
        y = x + x.min().item()
    finally:
        out.append("done")
    return y, out


def in_generator(x: Any) -> Any:
    def rows() -> Any:
        for r in x:
            if r.sum() > 2.5:
                yield r * 2
            else:
                yield r

    return torch.stack(list(rows())) + 1


def in_loop_over_zip(x: Any) -> Any:
    total = x
    for i, (a, b) in enumerate(zip([1, 2, 3], "abc")):
        total = total + a * i
        total = total * total.max().item()
        if b == "c":
            total = total + 1
    return total


def in_comprehension(x: Any) -> Any:
    return [r * r.sum().item() for r in x], {i: x[i].max().item() for i in range(2)}


def data_shapes(x: Any) -> Any:
    kept = x[x > 0]
    return kept * 2, torch.nonzero(x), kept.shape[0]


def in_closure(x: Any) -> Any:
    k = 0

    def add(v: Any) -> Any:
        nonlocal k
        k += int(v.sum().item())
        return v + k

    return add(x) + add(x * 2), k


def with_prints(x: Any) -> Any:
    y = x * 2
    print("seen", y.shape)
    return y + 1


def makes_class(x: Any) -> Any:
    class Local:
        def __init__(self, v: Any) -> None:
            self.v = v

        def double(self) -> Any:
            return self.v * 2

    return Local(x).double() + 1


def raises(x: Any) -> Any:
    y = x * 2
    if y.shape[0] == 2:
        raise KeyError("mine")
    return y


def bad_shapes(x: Any) -> Any:
    y = x + 1
    return y @ y


def bad_index(x: Any) -> Any:
    return x[torch.tensor([5])]


def assertion(x: Any) -> Any:
    fine = x.detach().sum().item() < 0
    assert fine, "positive"
    return x


def caught(x: Any) -> Any:
    try:
        return x @ x
    except RuntimeError:
        return x * 3


def recursive(x: Any, n: int = 3) -> Any:
    if n == 0 or x.sum() > 1000:
        return x
    return recursive(x * 2, n - 1) + 1


CASES = [
    branch, nested, item, native, with_lists, in_with, in_contextmanager, in_try, in_generator, in_loop_over_zip, in_comprehension,
    data_shapes, in_closure, with_prints, makes_class, raises, bad_shapes, bad_index, assertion, caught, recursive,
]  # fmt: skip


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_results_through_breaks(function: Any, sign: float) -> None:
    helpers.check(function, X * sign, graphs=None, calls=3)
    helpers.check(function, (X * sign).requires_grad_(), graphs=None, backend="aot_eager")


def test_graphs_of_a_branch() -> None:
    counter = helpers.check(branch, X, graphs=2)
    compiled = torch.compile(branch, backend=counter)
    counter.clear()
    torch._dynamo.reset()
    compiled(X), compiled(-X), compiled(X), compiled(-X)
    assert counter.frame_count == 3  # the stretch before the branch once, one for each side


def test_a_break_deep_down_costs_one_graph() -> None:
    def deepest(x: Any) -> Any:
        y = x + 1
        print(end="")
        return y * 2

    def middle(x: Any) -> Any:
        return deepest(x * 3) - 1

    def top(x: Any) -> Any:
        return middle(x / 2) + 5

    assert helpers.check(top, X, graphs=2).op_count == 6


def test_fullgraph_names_the_break_and_its_place() -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"test_breaks.py:\d+ in branch"):
        torch.compile(branch, backend="eager", fullgraph=True)(X)


def test_disabled_functions_are_called() -> None:
    seen = []

    @torch.compiler.disable
    def outside(x: Any) -> Any:
        seen.append(torch.compiler.is_compiling())
        return x + 1

    def f(x: Any) -> Any:
        return outside(x * 2) * 3

    helpers.check(f, X, graphs=2)
    assert not any(seen)


def test_training_steps() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    ours = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    ours.load_state_dict(plain.state_dict())

    def step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(step, backend=backend)
        a, b = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (plain, ours))
        for i in range(4):
            x = X + i
            assert torch.equal(step(plain, a, x, torch.ones(2, 1)), compiled(ours, b, x, torch.ones(2, 1)))
        assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), ours.parameters(), strict=True))


def test_explain() -> None:
    found = torch._dynamo.explain(branch)(X)
    assert (
        found.graph_count == 2
        and found.graph_break_count == 1
        and "branch" in found.break_reasons[0]
        and "Graph Count: 2" in str(found)
    )


class Base:
    def scale(self, x: Any) -> Any:
        return x * 2


class Derived(Base):
    def scale(self, x: Any) -> Any:
        if x.sum() > 1000:
            return x
        return super().scale(x) + sum(k * 0 for k in vars() if isinstance(k, int))


def test_plain_python_past_the_limit() -> None:
    """A place with too many variants goes on in the interpreter, instruction by instruction, uncaptured."""

    def f(x: Any, n: int, d: Any) -> Any:
        out = []
        for i in range(n):
            out.append(d.scale(x) * i)
            k = out[-1].sum().item()
            try:
                if k > 5:
                    raise ValueError(k)
            except ValueError:
                out.append(sys.exc_info()[1].args[0])
                try:
                    raise KeyError(1)
                except KeyError as inner:
                    out.append(type(inner.__context__))
        return [*out, [j * n for j in range(n)], {"a": n}, f"{n!r:>3}"]

    compiled = torch.compile(f, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(13):
            assert helpers.same(f(X, n, Derived()), compiled(X, n, Derived()))


def test_frame_readers_run_plainly() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        return sorted(locals()), eval("y * 2")

    helpers.check(f, X, graphs=0)


def test_errors_that_only_the_graph_finds() -> None:
    """An index out of range inside no_grad, try and with: handled where the program handles it, modes as they were."""

    def f(x: Any, i: Any, table: Any) -> Any:
        try:
            with torch.no_grad():
                table["before"] = 1
                y = x[i] * 2
            table["after"] = 1
        except IndexError as error:
            table["error"] = str(error)
            y = x
        return y, torch.is_grad_enabled()

    x, good, bad = X.clone().requires_grad_(), torch.tensor([1]), torch.tensor([7])
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(f, backend=backend)
        for i in (good, bad, good, bad):
            ours: dict[str, Any] = {}
            plain: dict[str, Any] = {}
            assert helpers.same(f(x, i, plain), compiled(x, i, ours)) and ours == plain
        assert torch.is_grad_enabled()


def autocast_whole(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y, z, x @ x.t()


def autocast_broken(x: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        k = y.float().sum().item()
        z = (x @ x.t()) * k
    return y, z, torch.is_autocast_enabled("cpu"), x @ x.t()


def test_autocast() -> None:
    helpers.check(autocast_whole, X, fullgraph=True)
    helpers.check(autocast_broken, X, graphs=None)
    for function in (autocast_whole, autocast_broken):
        helpers.check(function, X.clone().requires_grad_(), graphs=None, backend="aot_eager")
    assert not torch.is_autocast_enabled("cpu")


def test_device_contexts_and_default_types() -> None:
    def f(x: Any) -> Any:
        with torch.device("meta"):
            m = torch.ones(3)
        with torch.device("cpu"):
            c = torch.zeros(3)
        torch.set_default_dtype(torch.float64)
        try:
            d = torch.ones(2) + x.sum().item()
        finally:
            torch.set_default_dtype(torch.float32)
        return m.device.type, m.shape, c + x, d, torch.ones(1)

    helpers.check(f, X, graphs=None, calls=3)


def test_iterators_of_the_caller_move_on() -> None:
    def f(x: Any, it: Any) -> Any:
        total = x * next(it)
        k = total.sum().item()
        for i in it:
            total = total + i * k
            total.tolist()
            if i > 3:
                break
        return total, next(it)

    def g(x: Any) -> Any:
        it = iter([1, 2, 3, 4, 5, 6])
        held = [it]
        total = x
        for i in it:
            total = total * i
            total.tolist()
            total = total + next(held[0])
        return total, list(it)

    compiled = torch.compile(f, backend="eager")
    for _ in range(3):
        ours, plain = iter(range(1, 9)), iter(range(1, 9))
        assert helpers.same(f(X, plain), compiled(X, ours)) and list(ours) == list(plain)
        ours, plain = iter([1.0, 2.0, 5.0, 6.0, 7.0]), iter([1.0, 2.0, 5.0, 6.0, 7.0])
        assert helpers.same(f(X, plain), compiled(X, ours)) and list(ours) == list(plain)
    helpers.check(g, X, graphs=None, calls=3)


def test_classes_of_generators_and_objects() -> None:
    def f(x: Any, d: Any) -> Any:
        g = (r for r in x)
        kind = isinstance(g, types.GeneratorType), type(g) is types.GeneratorType
        d.__class__ = Base
        return kind, d.scale(x), next(g)

    compiled = torch.compile(f, backend="eager")
    for _ in range(2):
        assert helpers.same(f(X, Derived()), compiled(X, Derived()))
