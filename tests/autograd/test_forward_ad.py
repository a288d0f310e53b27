"""Forward mode: tangents carried by operators."""

import pytest

import tocha as torch
from tocha.autograd import forward_ad as fw

P, T = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 0.5])


def tangent(function, *others):
    with fw.dual_level():
        return fw.unpack_dual(function(fw.make_dual(P, T), *others)).tangent


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda d: d * d, [2.0, 2.0]),
        (lambda d: d.sin() * d + 1, [1.3817732907, 0.0385036585]),
        (lambda d: torch.stack([d, d * 2]).sum(), 4.5),
        (lambda d: torch.nn.functional.linear(d, torch.ones(3, 2)), [1.5, 1.5, 1.5]),
        (lambda d: torch.where(d > 1, d, d * 2), [2.0, 0.5]),
        (lambda d: d[1:] ** 3, [6.0]),
        (lambda d: d.max(), 0.5),
        (lambda d: d.clone().mul_(d), [2.0, 2.0]),
        (lambda d: d.view(1, 2).expand(2, 2).sum(), 3.0),
    ],
)
def test_tangents(function, expected):
    torch.testing.assert_close(tangent(function), torch.tensor(expected))
    with torch.no_grad():
        torch.testing.assert_close(tangent(function), torch.tensor(expected))


def test_writing_into_a_dual():
    def write(d):
        out = torch.zeros_like(d)
        out[0] = d[1] * 3
        out.add_(d)
        return out

    assert tangent(write).tolist() == [2.5, 0.5]
    with fw.dual_level(), pytest.raises(RuntimeError, match="forward-mode"):
        torch.zeros(2)[0] = fw.make_dual(P, T)[0]


def test_what_has_no_tangent():
    with fw.dual_level():
        d = fw.make_dual(P, T)
        assert fw.unpack_dual(P).tangent is None and fw.unpack_dual(d.detach()).tangent is None
        assert fw.unpack_dual(d > 1).tangent is None
        assert fw.unpack_dual(d).primal.tolist() == [1.0, 2.0] and fw.unpack_dual(d).tangent is T


def test_reverse_over_forward():
    w = P.clone().requires_grad_()
    with fw.dual_level():
        out = fw.unpack_dual((w * fw.make_dual(P, T)).exp())
    # t·w·exp(w·p), whose derivative with respect to w is t·exp(w·p)·(1 + w·p)
    torch.testing.assert_close(out.tangent, T * w * (w * P).exp())
    (g,) = torch.autograd.grad(out.tangent.sum(), w)
    torch.testing.assert_close(g, T * (w * P).exp() * (1 + w * P))


def test_custom_functions_need_a_jvp():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x

        @staticmethod
        def jvp(ctx, t):
            return t * 2 * ctx.x

    assert tangent(Square.apply).tolist() == [2.0, 2.0]
    plain = type("F", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * x)})
    with pytest.raises(RuntimeError, match="jvp"):
        tangent(plain.apply)


def test_refusals():
    with pytest.raises(RuntimeError, match="enter_dual_level"):
        fw.make_dual(P, T)
    with fw.dual_level():
        with pytest.raises(RuntimeError, match="same shape"):
            fw.make_dual(P, torch.ones(3))
        with pytest.raises(ValueError, match="floating point"):
            fw.make_dual(torch.tensor([1]), torch.tensor([1]))
        with pytest.raises(RuntimeError, match="Nested"):
            fw.enter_dual_level()
