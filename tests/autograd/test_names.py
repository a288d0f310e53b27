"""Nodes are called what torch 2.13 calls them, however they are come upon."""

from __future__ import annotations

import pytest

import tocha as torch

F = torch.nn.functional
INDEX = {
    "x[0]": "Select", "x[0, 0]": "Select", "x[:, 0]": "Select", "x[..., 0]": "Select", "x[:2, 0]": "Select", "x[-1]": "Select",
    "x[0:2]": "Slice", "x[:]": "Slice", "x[0, :2]": "Slice", "x[::2]": "Slice", "x[:2, :2]": "Slice", "x[None]": "Unsqueeze",
    "x[:2, None]": "Unsqueeze", "x[...]": "Alias", "x[()]": "Alias", "x[torch.tensor([0])]": "Index",
}  # fmt: skip
VIEWS = {
    "x.t()": "T", "x.T": "Permute", "x.mT": "Transpose", "x.transpose(0, 1)": "Transpose", "x.transpose(-1, 0)": "Transpose",
    "x.swapaxes(0, 1)": "Transpose", "x.permute(1, 0)": "Permute", "x.movedim(0, 1)": "Permute", "x.select(0, 1)": "Select",
    "x.narrow(0, 1, 2)": "Slice", "x.split(2)[0]": "Split", "x.split(3)[0]": "Split", "x.split([1, 3])[0]": "SplitWithSizes",
    "x.view(-1)": "View", "x.unbind()[0]": "Unbind", "x.expand(2, 4, 4)": "Expand", "torch.complex(x, x).real": "Select",
}  # fmt: skip
OTHERS = {
    "x.log1p()": "Log1P", "x.square()": "Pow", "x ** 2": "Pow", "x @ x": "Mm", "torch.bmm(c, c)": "Bmm", "F.linear(x, x)": "Mm",
    "F.linear(x, x, v)": "Addmm", "F.linear(c, x)": "UnsafeView", "F.linear(c, x, v)": "View", "x.sum()": "Sum", "x.mean()": "Mean",
    "x.prod()": "Prod", "torch.linalg.inv(x)": "LinalgInvEx", "torch.linalg.qr(x)[0]": "LinalgQr", "F.layer_norm(x, (4,))": "NativeLayerNorm",
    "F.batch_norm(c, None, None, training=True)": "NativeBatchNorm", "F.group_norm(c, 2)": "NativeGroupNorm",
}  # fmt: skip
MORE = {
    "F.max_pool2d(c, 2)": "MaxPool2DWithIndices", "F.max_pool3d(c[None], 2)": "MaxPool3DWithIndices", "F.avg_pool2d(c, 2)": "AvgPool2D",
    "F.avg_pool3d(c[None], 2)": "AvgPool3D", "F.adaptive_max_pool2d(c, 3)": "AdaptiveMaxPool2D", "F.adaptive_avg_pool2d(c, 2)": "AdaptiveAvgPool2D",
    "F.interpolate(c, scale_factor=2)": "UpsampleNearest1D", "F.interpolate(c[None], scale_factor=2, mode='bilinear')": "UpsampleBilinear2D",
    "F.interpolate(c[None], scale_factor=2, mode='bicubic')": "UpsampleBicubic2D", "F.pad(c, (1, 1, 1, 1), mode='reflect')": "ReflectionPad2D",
    "F.pad(c, (1, 1), mode='replicate')": "ReplicationPad1D", "F.l1_loss(x, x * 2)": "Mean", "F.kl_div(x, x.detach())": "Mean",
    "torch.linalg.pinv(x)": "LinalgPinv", "torch.linalg.slogdet(x)[1]": "LinalgSlogdet", "torch.linalg.eigvals(x).real": "Select",
    "x.matrix_exp()": "LinalgMatrixExp", "x.deg2rad()": "Deg2Rad", "torch.special.i0e(x)": "SpecialI0E", "torch.special.entr(x)": "SpecialEntr",
    "torch.special.xlog1py(x, x)": "SpecialXlog1Py", "x[x > 0]": "Index", "x.masked_select(x > 0)": "MaskedSelect", "torch.cdist(x, x, p=1)": "Cdist",
    "F.multi_margin_loss(x, torch.arange(4))": "MultiMarginLoss", "x % 2": "Remainder", "F.glu(x)": "Glu", "x[None].squeeze()": "Squeeze",
    "F.embedding_bag(torch.tensor([[0]]), x)": "EmbeddingBag", "torch.polar(v, v).real": "Select",
}  # fmt: skip
NUMBERED = {
    "x.sum(0)": "Sum", "x.mean(0)": "Mean", "x.prod(0)": "Prod", "x ** x": "Pow", "x.clamp(min=0)": "Clamp",
    "x.median(0)[0]": "Median", "x.nanmedian(0)[0]": "Nanmedian", "x[None].squeeze(0)": "Squeeze", "x % x": "Remainder",
    "torch.lerp(x, x, x)": "Lerp",
    "F.max_pool1d(c, 2)": "Squeeze", "F.avg_pool1d(c, 2)": "Squeeze",
}  # fmt: skip


@pytest.mark.parametrize("expression, name", [*INDEX.items(), *VIEWS.items(), *OTHERS.items(), *MORE.items()])
def test_nodes(expression, name):
    assert _name(expression) == f"{name}Backward0"


@pytest.mark.parametrize("expression, name", NUMBERED.items())
def test_second_overloads(expression, name):
    assert _name(expression) == f"{name}Backward1"


def _name(expression):
    x = (torch.eye(4) + 1).requires_grad_()
    v, c = torch.ones(4, requires_grad=True), torch.ones(4, 4, 4, requires_grad=True)
    out = eval(expression, {"x": x, "v": v, "c": c, "torch": torch, "F": F})
    name = type(out.grad_fn).__name__
    assert out.grad_fn.name() == name and f"grad_fn=<{name}>" in repr(out)
    out.sum().backward()  # the renamed node works as before
    return name


@pytest.mark.parametrize(
    "change, name",
    [
        (lambda a: a.zero_(), "ZeroBackward0"),
        (lambda a: a.fill_(1), "FillBackward2"),
        (lambda a: a.normal_(), "NormalBackward0"),
        (lambda a: a.copy_(torch.ones(2, 2, requires_grad=True)), "CopyBackwards"),
        (lambda a: a[0].add_(1), "CopySlices"),
        (lambda a: a.__setitem__(0, 1.0), "CopySlices"),
    ],
)
def test_writing_in_place(change, name):
    a = torch.ones(2, 2, requires_grad=True).clone()
    change(a)
    assert type(a.grad_fn).__name__ == name and repr(a).endswith(f"grad_fn=<{name}>)")


def test_nodes_found_by_walking():
    x = torch.ones(3, 3, requires_grad=True)
    out = x[0].sum()
    ((below, _),) = out.grad_fn.next_functions
    assert below.name() == type(below).__name__ == "SelectBackward0" and repr(below).startswith("<SelectBackward0 object")
    assert below.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


def test_functions_of_the_users_keep_their_names():
    class SliceBackward0(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    out = SliceBackward0.apply(torch.ones(2, requires_grad=True))
    assert type(out.grad_fn).__name__ == "SliceBackward0Backward"
