"""Operators of libraries in compiled functions: a node each, whose kernel isn't looked into."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tocha as torch
from tests._dynamo.helpers import check
from tocha import library, nn
from tocha._functorch.aot_autograd import aot_function

calls: list[Any] = []


@library.custom_op("compiledlib::sine", mutates_args=())
def sine(x: torch.Tensor, k: float = 1.0) -> torch.Tensor:
    calls.append(type(x._a))
    return torch.from_numpy(np.sin(x.numpy() * np.float32(k)))


@sine.register_fake
def _(x: Any, k: float = 1.0) -> Any:
    return torch.empty_like(x)


@library.custom_op("compiledlib::cosine", mutates_args=())
def cosine(x: torch.Tensor, k: float) -> torch.Tensor:
    return torch.from_numpy(np.cos(x.numpy() * np.float32(k)))


cosine.register_fake(lambda x, k: torch.empty_like(x))


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.k = inputs[1]


sine.register_autograd(lambda ctx, g: (cosine(ctx.saved_tensors[0], ctx.k) * ctx.k * g, None), setup_context=_setup)


@library.custom_op("compiledlib::joined", mutates_args=())
def joined(x: torch.Tensor, ys: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum(0), torch.cat([x, *ys])


joined.register_fake(lambda x, ys: (x.new_empty(x.shape[1:]), x.new_empty((len(x) + sum(map(len, ys)), *x.shape[1:]))))


@library.custom_op("compiledlib::add_to", mutates_args=("out",))
def add_to(x: torch.Tensor, out: torch.Tensor) -> None:
    out.numpy()[...] += x.numpy()


@library.custom_op("compiledlib::undeclared", mutates_args=())
def undeclared(x: torch.Tensor) -> torch.Tensor:
    return x + 1


X = torch.tensor([[0.5, 1.0], [2.0, -1.0]])


def test_an_operator_is_a_node() -> None:
    del calls[:]
    check(lambda x: sine(x * 2, k=2.0) + sine(x), X, fullgraph=True)
    check(lambda x: sine(x * 2, k=2.0) + sine(x), X, fullgraph=True, backend="inductor")
    assert set(calls) == {np.ndarray}  # its kernel never saw a stand-in
    check(lambda x: torch.ops.compiledlib.sine(x, 2.0) + torch.ops.compiledlib.sine.default(x), X, fullgraph=True)
    check(lambda x: torch.ops.aten.relu(x) + torch.ops.aten.add.Tensor(x, 1), X, fullgraph=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_its_gradient_is_compiled(backend: str) -> None:
    def f(x: Any) -> Any:
        return (sine(x * 1, 2.0) ** 2).sum()

    x = X.clone().requires_grad_()
    torch.compile(f, backend=backend, fullgraph=True)(x).backward()
    torch.testing.assert_close(x.grad, 4 * torch.sin(2 * X) * torch.cos(2 * X))


def test_several_tensors_in_and_out() -> None:
    def f(x: Any) -> Any:
        total, rows = joined(x * 2, [x, x + 1])
        return total.exp(), rows * 2, rows.shape

    check(f, X, fullgraph=True, backend="inductor")


def test_what_it_writes_to() -> None:
    def f(x: Any, out: Any) -> Any:
        fresh = torch.zeros(2, 2)
        add_to(x * 2, fresh)
        add_to(x, fresh)
        add_to(x[0], out[1])
        return fresh + 1, out.sum()

    for backend in ("eager", "aot_eager", "inductor"):
        check(f, X, torch.zeros(2, 2), fullgraph=True, backend=backend)
    out = torch.zeros(2, 2)
    before = out._version
    torch.compile(f)(X, out)
    assert out._version > before


def test_in_a_model_called_again_and_again() -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.op = nn.Linear(2, 2), sine

        def forward(self, x: Any) -> Any:
            return self.op(self.linear(x), 2.0)

    model = Layer()
    compiled = torch.compile(model, fullgraph=True)
    for _ in range(12):
        found = []
        for m in (compiled, model):
            model.zero_grad()
            m(X).sum().backward()
            found.append(model.linear.weight.grad)
        torch.testing.assert_close(*found)


def test_sizes_that_vary() -> None:
    compiled = torch.compile(lambda x: sine(x, 2.0).sum() + len(x), fullgraph=True)
    for n in range(2, 6):
        torch.testing.assert_close(compiled(torch.ones(n)), torch.sin(torch.tensor(2.0)) * n + n)


def test_without_a_fake_it_is_called_between_graphs() -> None:
    check(lambda x: undeclared(x * 2) * 3, X, graphs=2)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compiledlib::undeclared: no fake implementation"):
        torch.compile(lambda x: undeclared(x), fullgraph=True)(X)


def test_a_fake_that_is_wrong_is_found_out() -> None:
    @library.custom_op("compiledlib::halves", mutates_args=())
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x[:1]

    halves.register_fake(lambda x: torch.empty_like(x))
    assert torch.compile(lambda x: halves(x) * 2)(X).tolist() == [[1, 2]]  # the call runs again, eagerly
    out = torch.zeros(2)
    assert torch.compile(lambda x, out: (halves(x) * 2, out.add_(1)))(X, out)[0].tolist() == [[1, 2]] and out.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match=r"compiledlib::halves returned \['float32\[1, 2\]'\], its fake implementation"):
        aot_function(lambda x: halves(x), lambda gm, inputs: gm.forward)(X)


def test_autocast_around_it() -> None:
    @library.custom_op("compiledlib::product", mutates_args=())
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    product.register_fake(lambda x, y: torch.empty(2, 2, dtype=torch.bfloat16 if torch.is_autocast_enabled("cpu") else x.dtype))

    def f(x: Any) -> Any:
        with torch.autocast("cpu"):
            y = product(x, x)
        return y, product(x, x)

    check(f, X, fullgraph=True, backend="inductor")


def test_random_numbers_in_a_kernel() -> None:
    @library.custom_op("compiledlib::noise", mutates_args=())
    def noise(n: int) -> torch.Tensor:
        return torch.rand(n)

    noise.register_fake(lambda n: torch.empty(n))
    check(lambda x: x + torch.rand(2) + noise(2) * 2 + torch.rand(2), X, fullgraph=True, backend="inductor", calls=3)


def test_no_gradient_registered() -> None:
    x = X.clone().requires_grad_()
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        torch.compile(lambda x: cosine(x, 2.0).sum())(x).backward()


def test_what_a_fake_raises_is_not_the_program_s() -> None:
    @library.custom_op("compiledlib::picky", mutates_args=())
    def picky(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @picky.register_fake
    def _(x: Any) -> Any:
        raise RuntimeError("not known")

    def f(x: Any) -> Any:
        try:
            return picky(x + 1) * 3
        except RuntimeError:
            return x

    check(f, X, graphs=2)


def test_a_number_is_the_kernels_not_the_fakes() -> None:
    count = library.custom_op("compiledlib::count", lambda x: int(x.sum()), mutates_args=(), schema="(Tensor x) -> int")
    count.register_fake(lambda x: 3)
    x = torch.arange(4.0)
    assert torch.compile(lambda x: x * count(x))(x).tolist() == [0.0, 6.0, 12.0, 18.0]
    with pytest.raises(torch._dynamo.exc.Unsupported, match="which only its kernel knows"):
        torch.compile(lambda x: x * count(x), fullgraph=True)(x)
