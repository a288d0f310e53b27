"""Looking up elements inside loops: the plain result, no array of what is looked up, and no reading outside the table."""

from __future__ import annotations

from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph
from tocha.aot import runtime

ROWS, PLACES = 50, (4, 9)


def table(*shape: int) -> Any:
    return torch.sin(torch.arange(float(torch.Size(shape).numel())) * 0.7).reshape(shape)


def places(low: int = 0) -> Any:
    return (torch.arange(36).reshape(PLACES) * 7 + 3) % (ROWS - low) + low


def positions(i: Any, w: Any, p: Any) -> Any:
    return F.embedding(i, w) + p


def normed(i: Any, w: Any, p: Any) -> Any:
    return F.layer_norm(F.embedding(i, w) * 2 + p, (16,))


def counted_from_the_end(i: Any, w: Any, p: Any) -> Any:
    return w[i - 20].tanh() * 2


def in_the_middle(i: Any, w: Any, p: Any) -> Any:
    return (w.view(2, 25, 16)[:, i % 25] * 2).sum(-1)


def gathered(i: Any, w: Any, p: Any) -> Any:
    return w[:4].gather(1, i % 16).exp()


def gathered_rows(i: Any, w: Any, p: Any) -> Any:
    return w.gather(0, i) * 3


def selected(i: Any, w: Any, p: Any) -> Any:
    return (w.t().index_select(1, i[0]) * 3).mean()


def turned(i: Any, w: Any, p: Any) -> Any:
    return (F.embedding(i, w) * 0.5).transpose(1, 2).softmax(-1)


def seen_in_part(i: Any, w: Any, p: Any) -> Any:
    return w[i][:, 1::2].relu() - p[1::2]


def twice(i: Any, w: Any, p: Any) -> Any:
    return F.embedding(i, w) - F.embedding(i.flip(1), w)


PROGRAMS = [positions, normed, counted_from_the_end, in_the_middle, gathered, gathered_rows, selected, turned, seen_in_part, twice]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_the_plain_result(program: Any, dtype: Any) -> None:
    args = places(), table(ROWS, 16).to(dtype), table(9, 16).to(dtype)
    got, expected = torch.compile(program, fullgraph=True)(*args), program(*args)
    torch.testing.assert_close(got, expected, **({"rtol": 1e-5, "atol": 1e-6} if dtype is not torch.bfloat16 else {}))


def test_gradients_of_tables() -> None:
    grads = []
    for f in (torch.compile(normed), normed):
        w, p = table(ROWS, 16).requires_grad_(), table(9, 16).requires_grad_()
        (f(places(), w, p) * table(4, 9, 16)).sum().backward()
        grads.append((w.grad, p.grad))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("program", [positions, counted_from_the_end, gathered_rows, seen_in_part], ids=lambda f: f.__name__)
@pytest.mark.parametrize("outside", [ROWS + 20, -ROWS - 1, 1 << 40])
def test_places_outside_are_refused_in_the_same_words(program: Any, outside: int) -> None:
    i, w, p = places(), table(ROWS, 16), table(9, 16)
    i[2, 3] = outside
    compiled = torch.compile(program)
    for f in (program, compiled):
        with pytest.raises((IndexError, RuntimeError), match=r"out of (bounds|range)") as error:
            f(i, w, p)
        assert str(outside if program is not counted_from_the_end else outside - 20) in str(error.value)
    torch.testing.assert_close(compiled(places(), w, p), program(places(), w, p))  # as before after an error


def test_what_is_looked_up_gets_no_memory() -> None:
    with torch.no_grad():
        call = runtime.compile(lambda *args: [normed(*args)], [places(), table(ROWS, 16), table(9, 16)], compile_graph)
    code = call.forward.code
    assert code.count("new(") == 1 and "embedding" not in code.replace("'embedding'", "")
    assert len(call.forward.wrapper.kernels) == 1


def test_an_operand_that_is_looked_up_elsewhere_is_not_overwritten() -> None:
    def reversed_sum(x: Any, i: Any) -> Any:
        y = torch.linalg.matrix_power(x, 2)  # memory of the graph's own, read last by what follows
        return y[i] + y

    x, i = table(8, 8), torch.arange(7, -1, -1)
    torch.testing.assert_close(torch.compile(reversed_sum)(x, i), reversed_sum(x, i))
