"""The strides of pointwise results and copies of operands that lie differently in memory. Values from torch 2.13."""

import pytest

import tocha as torch
import tocha.nn.functional as F


def laid(shape, order, kind=torch.float32):
    """Ones of a shape whose dimensions lie in memory in the given order, the outermost first."""
    inverse = [order.index(i) for i in range(len(shape))]
    return torch.ones([shape[i] for i in order], dtype=kind).permute(inverse)


S = (3, 3, 3, 4)
P, Q = laid(S, (3, 0, 1, 2)), laid(S, (1, 3, 2, 0))


@pytest.mark.parametrize("big", [False, True])
def test_the_first_operand_decides(big):
    n = 200 if big else 3
    a, b = torch.ones(n, n), torch.ones(n, n)
    assert torch.add(a.t(), b).stride() == (1, n)
    assert (b + a.t()).stride() == (n, 1)
    assert torch.maximum(a.t(), b).stride() == (1, n)
    assert (a.t() == b).stride() == (1, n)
    assert torch.where(a.t() > 0, b, b).stride() == (1, n)
    assert torch.lerp(a.t(), b, b).stride() == (1, n)
    assert torch.addcmul(a.t(), b, b, value=2).stride() == (1, n)
    assert (a.t().bfloat16() * b.bfloat16()).stride() == (1, n)


def test_dimensions_that_it_does_not_decide_are_the_next_operand_s():
    row = laid((1, 3, 3, 4), (0, 3, 1, 2))
    assert (row + P).stride() == (9, 3, 1, 27)
    assert (torch.ones(()) + Q).stride() == Q.stride()
    image = torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert (torch.ones(1, 3, 1, 1) * image).stride() == image.stride()


def test_an_operand_of_another_type_is_a_copy_first():
    spread = torch.ones(1, 2, 1).expand(4, 2, 2)
    other = laid((4, 2, 2), (2, 1, 0), torch.float64)
    assert (spread + other).stride() == (4, 2, 1)
    assert (spread.double() + other).stride() == (4, 2, 1)
    assert (spread + other.float()).stride() == (1, 4, 8)


def test_copies_and_likes_of_expanded_tensors():
    spread = torch.ones(1, 2, 1).expand(4, 2, 2)
    assert spread.to(torch.float16).stride() == (4, 2, 1)
    assert torch.empty_like(P[..., ::2]).stride() == (9, 3, 1, 27)
    assert torch.zeros_like(Q, dtype=torch.int64).stride() == Q.stride()
    assert P.clone().stride() == P.stride()
    assert torch.ones(3, 3).masked_fill(torch.ones(3, 3).t() > 0, 1.0).stride() == (3, 1)
    assert torch.ones(3, 3).t().masked_fill(torch.ones(3, 3) > 0, 1.0).stride() == (3, 1)


@pytest.mark.parametrize("n", [3, 200])
def test_losses_of_each_element_lie_as_their_first_operand(n):
    F = torch.nn.functional
    a, b = torch.ones(n, n), torch.ones(n, n).t()
    for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.soft_margin_loss):
        assert loss(b, a, reduction="none").stride() == (1, n), loss
        assert loss(a, b, reduction="none").stride() == (n, 1), loss
    assert F.binary_cross_entropy_with_logits(b, a, reduction="none").stride() == (n, 1)  # target * input comes first
    assert F.binary_cross_entropy_with_logits(a, b, reduction="none").stride() == (1, n)
    x = torch.ones(n, n).t().requires_grad_()
    assert torch.autograd.grad(F.mse_loss(x, b), x)[0].stride() == (n, 1)


def test_views_of_a_number_have_strides_of_one():
    x = torch.tensor(2.0)
    assert x.view(1).stride() == (1,) and x.reshape(1, 1, 1).stride() == (1, 1, 1)
    assert x.double().view(1, 1).stride() == (1, 1) and x.view(1).expand(3).stride() == (0,)


@pytest.mark.parametrize(
    ("size", "stride", "shape", "want"),
    [
        ((1,), (0,), (-1,), (0,)), ((1, 1), (5, 7), (1, 1, 1), (7, 7, 7)), ((3, 1), (2, 7), (3, 1, 1), (2, 7, 7)),
        ((1, 2, 1), (0, 2, 9), (1, 2, 1, 1), (4, 2, 9, 9)), ((1, 3), (0, 2), (-1,), (2,)), ((), (), (1, 1), (1, 1)),
    ],
)  # fmt: skip
def test_views_keep_the_strides_of_dimensions_of_size_one(size, stride, shape, want):
    assert torch.zeros(9).as_strided(size, stride).view(shape).stride() == want


_ROWS = {
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(0), "amax": lambda x: x.amax(2), "max": lambda x: x.max(1)[0],
    "any": lambda x: (x > 0).any(0),
    "var": lambda x: x.var(0), "logsumexp": lambda x: x.logsumexp(1), "norm": lambda x: x.norm(dim=1), "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(0), "cumsum": lambda x: x.cumsum(0), "cummax": lambda x: x.cummax(1)[1],
    "kthvalue": lambda x: x.kthvalue(1, 0)[1],
    "topk": lambda x: x.topk(1, 1)[1], "tril": lambda x: x.tril(), "repeat": lambda x: x.repeat(1, 2, 1), "cat": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]), "roll": lambda x: x.roll(1, 0), "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
}  # fmt: skip


@pytest.mark.parametrize("size", [3, 40])
@pytest.mark.parametrize("name", _ROWS)
def test_rows_stay_rows_whatever_the_memory_order_of_the_input(name, size):
    x = torch.arange(float(size * (size + 1) * (size + 2))).reshape(size, size + 1, size + 2).transpose(0, 2)
    for view in (x, x.permute(2, 0, 1), x[:, :1].expand(-1, 5, -1)):
        got, want = _ROWS[name](view), _ROWS[name](view.contiguous())
        assert got.is_contiguous()
        torch.testing.assert_close(got, want)


def test_channels_last_survives_joining():
    x = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert torch.cat([x, x], 1).is_contiguous(memory_format=torch.channels_last)
    assert x.to("meta").stride() == x.stride()
