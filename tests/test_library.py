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


def test_gradients_of_lists_are_refused_not_left_out():
    add = torch.library.custom_op("lists::add", lambda xs: xs[0] + xs[1], mutates_args=(), schema="(Tensor[] xs) -> Tensor")
    add.register_autograd(lambda ctx, g: [g, g])
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(NotImplementedError, match="gradients of lists of tensors"):
        add([x, x])
    assert add([x.detach(), x.detach()]).tolist() == [2.0, 2.0]
    with torch.no_grad():
        assert add([x, x]).tolist() == [2.0, 2.0]
