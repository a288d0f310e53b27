"""Custom functions: contexts, saved tensors, dirty and shared outputs, errors."""

import collections
import gc
import weakref

import pytest

import tocha as torch
from tocha.autograd import Function, gradcheck, gradgradcheck
from tocha.autograd.function import once_differentiable


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x


class Exp(Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y


def make(backward, forward=lambda ctx, x, y: x * y):
    return type("F", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def test_gradients_of_first_and_second_order():
    x = torch.tensor([[0.5, 1.0], [1.5, 2.0]], dtype=torch.float64, requires_grad=True)
    for f in (Square.apply, Exp.apply):
        assert gradcheck(f, (x,)) and gradgradcheck(f, (x,))
    y = Square.apply(x)
    assert y.grad_fn.name() == "SquareBackward" and y.grad_fn.needs_input_grad == (True,)
    assert y.grad_fn.saved_tensors[0] is x
    with torch.no_grad():
        assert not Square.apply(x).requires_grad
    with pytest.raises(TypeError):
        Square.apply(x=x)
    with pytest.raises(RuntimeError, match="Legacy autograd function"), pytest.warns(DeprecationWarning, match="static"):
        Square()(x)


def test_gradcheck_finds_wrong_gradients():
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    wrong = make(lambda ctx, g: g * 3, lambda ctx, x: x * 2)
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        gradcheck(wrong.apply, (x,))
    assert gradcheck(wrong.apply, (x,), raise_exception=False) is False

    class CutOff(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0].detach() ** 2

    assert gradcheck(CutOff.apply, (x,)) and not gradgradcheck(CutOff.apply, (x,), raise_exception=False)


def test_setup_context_and_other_arguments():
    class Scale(Function):
        @staticmethod
        def forward(x, k, note):
            return x * k, x + 1

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.k, note = inputs
            ctx.save_for_backward(x, output[0])
            assert isinstance(inputs, tuple) and isinstance(output, tuple) and note == "text"

        @staticmethod
        def backward(ctx, a, b):
            assert ctx.needs_input_grad == (True, False, False)
            assert ctx.saved_tensors[1].grad_fn is not None
            return a * ctx.k + b, None, None

    x = leaf(1.0, 2.0)
    a, b = Scale.apply(x, 3.0, "text")
    (a + b).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_outputs_that_need_no_gradient():
    seen = []

    class Parts(Function):
        @staticmethod
        def forward(ctx, x, materialize):
            order, copy = x.argsort(), x * 3
            ctx.mark_non_differentiable(order, copy)
            ctx.set_materialize_grads(materialize)
            return x * 2, order, copy, x * 1, "text"

        @staticmethod
        def backward(ctx, *grads):
            seen.append([g if g is None else g.tolist() for g in grads])
            return grads[0] * 2, None

    x = leaf(2.0, 1.0)
    value, order, copy, _, text = Parts.apply(x, True)
    assert (value.requires_grad, order.requires_grad, copy.requires_grad, text) == (True, False, False, "text")
    value.sum().backward()
    Parts.apply(x, False)[0].sum().backward()
    assert seen == [[[1, 1], [0, 0], [0, 0], [0, 0], None], [[1, 1], None, None, None, None]]


def test_types_of_several_outputs():
    pair = collections.namedtuple("pair", "a b")
    for wrap, expected in ((lambda a, b: pair(a, b), tuple), (lambda a, b: [a, b], list), (lambda a, b: (a, b), tuple)):
        f = make(lambda ctx, a, b: a + 2 * b, lambda ctx, x, wrap=wrap: wrap(x * 1, x * 2))
        assert type(f.apply(leaf(1.0))) is expected


class Increment(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 5


def test_dirty_inputs():
    x = leaf(1.0, 2.0)
    y = x * 1
    z = Increment.apply(y)
    assert z is y and y._version > 0
    y.sum().backward()
    assert x.grad.tolist() == [5.0, 5.0]
    with pytest.raises(RuntimeError, match="leaf Variable"):
        Increment.apply(leaf(1.0))
    with pytest.raises(RuntimeError, match="not returned"):
        make(lambda ctx, g: g, lambda ctx, x: (ctx.mark_dirty(x), x * 2)[1]).apply(leaf(1.0, 2.0) * 1)


def test_a_dirty_view_changes_its_base():
    x = torch.ones(2, 2, requires_grad=True)
    y = x * 1
    row = y[0]
    assert Increment.apply(row) is row
    (y * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert y.tolist() == [[2.0, 2.0], [1.0, 1.0]] and x.grad.tolist() == [[5.0, 10.0], [3.0, 4.0]]


def test_an_input_returned_as_it_is():
    same = make(lambda ctx, g: g * 3, lambda ctx, x: x)
    x = leaf(1.0, 2.0)
    y = same.apply(x)
    assert y is not x and y.data_ptr() == x.data_ptr() and y._is_view()
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]
    assert not same.apply(torch.ones(2)).requires_grad


@pytest.mark.parametrize("forward", [lambda ctx, x: x, lambda ctx, x: x.view(-1)])
def test_a_view_from_a_function_is_not_written_to(forward):
    f = make(lambda ctx, g: g.view(2, 2), forward)
    with pytest.raises(RuntimeError, match="inside a custom Function"):
        f.apply(torch.ones(2, 2, requires_grad=True) * 1).add_(1)


@pytest.mark.parametrize(
    "backward, message",
    [
        (lambda ctx, g: g, r"incorrect number of gradients \(expected 2, got 1\)"),
        (lambda ctx, g: (g, g, g), r"incorrect number of gradients \(expected 2, got 3\)"),
        (lambda ctx, g: (g.repeat(2), g), r"invalid gradient at index 0 - got \[4\] but expected shape compatible with \[2\]"),
        (lambda ctx, g: (3.0, g), "expected Variable or None"),
        (lambda ctx, g: [g, g], "expected 2, got 1"),
    ],
)
def test_wrong_gradients(backward, message):
    with pytest.raises(RuntimeError, match=message):
        make(backward).apply(leaf(1.0, 2.0), leaf(1.0, 2.0)).sum().backward()


def test_other_errors():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="position 2, but the corresponding forward input was not a Variable"):
        make(lambda ctx, g: (g, g)).apply(x, 3.0).sum().backward()
    with pytest.raises(NotImplementedError, match="backward or vjp"):
        type("F", (Function,), {"forward": staticmethod(lambda ctx, x: x * 1)}).apply(x).sum().backward()
    with pytest.raises(TypeError, match="argument 1 is of type int"):
        make(None, lambda ctx, x: (ctx.save_for_backward(x, 3), x)[1]).apply(x)
    y = Square.apply(x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    middle = x * 1
    out = Square.apply(middle)
    middle.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()
    out = Exp.apply(x * 1)
    out.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_once_differentiable():
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            assert not torch.is_grad_enabled()
            return g * 2 * ctx.saved_tensors[0]

    x = leaf(1.0, 2.0)
    (g,) = torch.autograd.grad((F.apply(x) * x).sum(), x, create_graph=True)
    assert g.requires_grad
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(g.sum(), x)


def test_graphs_are_freed_without_the_collector():
    refs = []

    def run(backward):
        x = leaf(1.0, 2.0)
        middle = x * 2
        y = Exp.apply(middle)
        z = Square.apply(y)
        refs.extend(map(weakref.ref, (middle, y.grad_fn, z)))
        if backward:
            z.sum().backward()

    gc.collect()
    gc.disable()
    try:
        run(True)
        run(False)
        assert [r() for r in refs] == [None] * 6
    finally:
        gc.enable()


def returning(gradient):
    class Returning(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return gradient(g)

    return Returning.apply


@pytest.mark.parametrize(
    ("dtype", "gradient"),
    [
        (torch.float32, lambda g: g * (1 + 2j)),
        (torch.float32, lambda g: g.to(torch.complex64)),
        (torch.complex64, lambda g: g.real.int()),
    ],
)
def test_gradients_of_another_kind_of_number_are_refused(dtype, gradient):
    x = torch.ones(2, dtype=dtype, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"index 0.*input_is_complex == grad_is_complex"):
        returning(gradient)(x).abs().sum().backward()
    assert x.grad is None


@pytest.mark.parametrize(
    ("dtype", "gradient"),
    [
        (torch.float32, lambda g: g.double()),
        (torch.float32, lambda g: g.int()),
        (torch.float16, lambda g: g.float()),
        (torch.complex64, lambda g: g.real),
        (torch.complex64, lambda g: g.to(torch.complex128)),
    ],
)
def test_gradients_arrive_in_the_inputs_type(dtype, gradient):
    x = torch.ones(2, dtype=dtype, requires_grad=True)
    middle = x * 1
    (got,) = torch.autograd.grad(returning(gradient)(middle), middle, torch.ones(2, dtype=dtype))
    assert got.dtype is dtype and torch.equal(got, torch.ones(2, dtype=dtype))


def test_a_gradient_that_nobody_wants_is_not_checked():
    class Second(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g, g * 1j

    x = leaf(1.0, 2.0)
    Second.apply(x, torch.ones(2)).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


def test_gradients_on_another_device_are_refused():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="index 0 - expected device cpu but got meta"):
        returning(lambda g: torch.ones(2, device="meta"))(x).sum().backward()


def test_tensors_in_a_list_have_no_history():
    class Listed(Function):
        @staticmethod
        def forward(ctx, x, itself):
            return [x] if itself else [x * 2, x * 3]

        @staticmethod
        def backward(ctx, *grads):
            return grads[0], None

    x = leaf(1.0, 2.0)
    got = Listed.apply(x, False)
    assert isinstance(got, list) and [y.tolist() for y in got] == [[2.0, 4.0], [3.0, 6.0]]
    assert not any(y.requires_grad for y in got)
    assert Listed.apply(x, True)[0] is x
