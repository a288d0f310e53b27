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


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_channels_last_survives_joins_norms_and_rolls_of_meta_tensors_too(device):
    x, v = torch.empty_strided((2, 4, 3, 3), (36, 1, 12, 4), device=device), torch.ones(4, device=device)
    rows = torch.empty(2, 4, 3, 3, device=device)
    assert torch.cat([x, x], 1).stride() == (72, 1, 24, 8)
    assert torch.cat([x[:, :1], x], 1).stride() == (45, 1, 15, 5)
    assert torch.cat([x, rows], 1).stride() == (72, 9, 3, 1)
    assert F.batch_norm(x, v, v).stride() == F.batch_norm(x, v, v, training=True).stride() == (36, 1, 12, 4)
    assert F.group_norm(x, 2).stride() == x.roll(1, 2).stride() == (36, 1, 12, 4)
    assert F.group_norm(rows, 2).stride() == rows.roll(1, 2).stride() == (36, 9, 3, 1)


def test_channels_last_survives_joining():
    x = torch.rand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)
    assert torch.cat([x, x], 1).is_contiguous(memory_format=torch.channels_last)
    assert x.to("meta").stride() == x.stride()


ROWS, COLUMNS = (6, 1), (1, 4)
LAYOUTS = {
    "t": lambda: torch.rand(6, 4).t(),
    "c": lambda: torch.rand(4, 6),
    "channels": lambda: torch.rand(2, 3, 4, 6).to(memory_format=torch.channels_last),
    "volumes": lambda: torch.rand(2, 3, 2, 4, 6).to(memory_format=torch.channels_last_3d),
    "turned": lambda: torch.rand(6, 4, 3, 2).permute(3, 2, 1, 0),
}
MEASURED = [
    *(("t", f"x.{call}", COLUMNS) for call in ("sort()[0]", "sort(0)[1]", "argsort()", "index_fill(0, I, 1.0)")),
    *(("t", f"x.{call}", ROWS) for call in ("index_add(0, I, x[:1])", "index_copy(0, I, x[:1])", "topk(6)[0]", "gather(0, x.long())")),
    *(("t", f"torch.{call}", COLUMNS) for call in ("complex(x, x)", "polar(x, x)", "fft.fftn(x)", "index_put(x, (I,), torch.tensor(1.0))")),
    *(("c", f"torch.fft.{call}", s) for call, s in (("fft(x, dim=0)", COLUMNS), ("fft(x)", ROWS), ("rfft(x, dim=0)", (1, 3)))),
    ("turned", "torch.fft.rfft2(x)", (16, 32, 4, 1)), ("turned", "F.pad(x, (1, 1))", (96, 32, 8, 1)), ("t", "F.batch_norm(x, O, O)", ROWS),
    ("volumes", "F.pad(x, (1, 1))", (192, 1, 96, 24, 3)),
    *(
        ("channels", call, strides)
        for call, strides in (
            ("torch.fft.rfft(x)", (48, 4, 12, 1)), ("torch.fft.irfftn(x + 0j)", (120, 10, 30, 1)), ("F.pad(x, (1, 1))", (96, 1, 24, 3)),
            ("F.pad(x, (1, 1, 1, 1), mode='reflect')", (144, 1, 24, 3)), ("F.pad(x, (1, 1, 1, 1), mode='circular')", (144, 48, 8, 1)),
            ("F.interpolate(x, scale_factor=2)", (288, 1, 36, 3)), ("F.interpolate(x, scale_factor=2, mode='bilinear')", (288, 1, 36, 3)),
            ("F.max_pool2d(x, 2)", (18, 1, 9, 3)), ("F.avg_pool2d(x, 2)", (18, 1, 9, 3)), ("F.adaptive_max_pool2d(x, 3)", (27, 1, 9, 3)),
            ("F.layer_norm(x, (6,))", (72, 24, 6, 1)), ("F.group_norm(x, 3)", (72, 1, 18, 3)),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "expression", "strides"), MEASURED)
def test_measured_orders(layout, expression, strides):
    x = LAYOUTS[layout]()
    names = {"torch": torch, "F": torch.nn.functional, "I": torch.tensor([0]), "O": torch.ones(6)}
    got = eval(expression, {**names, "x": x})
    assert got.stride() == strides
    expected = eval(expression, {**names, "x": x.contiguous()})
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("call", ["scatter(0, I, x)", "scatter_add(0, I, x)", "scatter_reduce(0, I, x, 'sum')", "masked_scatter(x > 0, x)"])
def test_what_is_scattered_lies_in_rows_on_meta_tensors_too(call):
    x = torch.randn(6, 4).t()
    for given in (x, x.to("meta")):
        assert eval(f"x.{call}", {"x": given, "I": torch.zeros(4, 6, dtype=torch.int64, device=given.device)}).stride() == (6, 1)
