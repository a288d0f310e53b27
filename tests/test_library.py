"""torch.library: operators of libraries."""

import pytest

import tocha as torch
from tocha import library


@library.custom_op("testlib::scale", mutates_args=())
def scale(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
    return x * k


@scale.register_fake
def _(x, k=2.0):
    return torch.empty_like(x)


def test_operators_are_found_by_name():
    assert scale(torch.ones(2)).tolist() == [2.0, 2.0]
    assert torch.ops.testlib.scale(torch.ones(2), 3.0).tolist() == [3.0, 3.0]
    assert torch.ops.testlib.scale.default(torch.ones(1)).tolist() == [2.0]
    assert scale(torch.ones(2, 3, device="meta")).shape == (2, 3)
    with pytest.raises(AttributeError, match="nothing"):
        torch.ops.testlib.nothing  # noqa: B018


def test_gradients_must_be_registered():
    @library.custom_op("testlib::twice", mutates_args=())
    def twice(x: torch.Tensor, k: float = 2.0) -> torch.Tensor:
        return x * k

    x = torch.ones(2, requires_grad=True)
    y = twice(x)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        y.sum().backward()
    twice.register_autograd(
        lambda ctx, g: (g * ctx.k, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1])
    )
    twice(x, k=5.0).sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]


def test_changed_arguments_are_counted():
    @library.custom_op("testlib::inc", mutates_args=("x",))
    def inc(x: torch.Tensor) -> None:
        x.add_(1)

    x = torch.zeros(2)
    before = x._version
    inc(x)
    assert x.tolist() == [1.0, 1.0] and x._version > before


def test_libraries_define_and_implement():
    lib = library.Library("testlib2", "DEF")
    lib.define("plus(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="testlib2::plus"):
        torch.ops.testlib2.plus(torch.ones(1))
    lib.impl("plus", lambda x: x + 1, "CPU")
    assert torch.ops.testlib2.plus(torch.ones(1)).item() == 2.0
    library.register_fake("testlib3::never_defined")(lambda x: x)
    with pytest.raises(RuntimeError, match="aten"):
        library.Library("aten", "IMPL").impl("add", lambda a, b: a)


def test_schemas():
    def f(x: torch.Tensor, y: int, z: float = 1.0) -> torch.Tensor: ...

    assert library.infer_schema(f) == "(Tensor x, SymInt y, float z=1.0) -> Tensor"


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_of_lists(compiled: bool):
    both = torch.library.custom_op(
        "lists::both", lambda x, ys, k: (x * ys[0] * ys[1], [y * k for y in ys]), mutates_args=(),
        schema="(Tensor x, Tensor[] ys, float k) -> (Tensor, Tensor[])",
    )  # fmt: skip
    both.register_fake(lambda x, ys, k: (torch.empty_like(x), [torch.empty_like(y) for y in ys]))
    needs = []

    def keep(ctx, inputs, output):
        x, ys, ctx.k = inputs
        ctx.save_for_backward(x, *ys)

    def formula(ctx, g, gs):
        needs.append(ctx.needs_input_grad)
        x, a, b = ctx.saved_tensors
        return g * a * b, [g * x * b + gs[0] * ctx.k, g * x * a + gs[1] * ctx.k], None

    both.register_autograd(formula, setup_context=keep)
    x, b = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)
    a = torch.tensor([1.0, -1.0])

    def f(x, a, b):
        out, scaled = both(x, [a, b], 10.0)
        return (out + scaled[1] * 2).sum()

    loss = (torch.compile(f, fullgraph=True) if compiled else f)(x, a, b)
    loss.backward()
    assert loss.item() == 10 - 21 + 100 + 140 and x.grad.tolist() == [5, -7] and b.grad.tolist() == [2 + 20, -3 + 20]
    assert needs[0] == (True, [False, True], False)
    with torch.no_grad():
        assert not both(x, [a, b], 1.0)[1][1].requires_grad


def test_lists_that_only_the_result_has_and_lists_under_transforms():
    pair = torch.library.custom_op("lists::pair", lambda x: [x + 1, x * 3], mutates_args=(), schema="(Tensor x) -> Tensor[]")
    pair.register_autograd(lambda ctx, gs: gs[0] + 3 * gs[1])
    x = torch.ones(2, requires_grad=True)
    (pair(x)[0] * pair(x)[1]).sum().backward()
    assert x.grad.tolist() == [1 * 3 + 3 * 2] * 2
    with pytest.raises(NotImplementedError, match="lists of tensors inside a transform"):
        torch.vmap(lambda v: pair(v)[0])(x)
