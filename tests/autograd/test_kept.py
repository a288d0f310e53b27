"""What the tape keeps of operands and results between forward and backward, as torch 2.13 was measured to: memory that it frees is freed."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F

# By the kept: x, y, z are operands in order, o the result. Names without a dot are torch's.
OF_ONE = {
    "": """alias_copy ceil clone conj deg2rad diag diag_embed diff fix fliplr flipud floor frac mean msort neg rad2deg round rot90 sign sum
        t_copy trace tril triu trunc abs_ acos_ asin_ atan_ cos_ cosh_ deg2rad_ erf_ erfc_ floor_ log_ log1p_ log2_ log10_ neg_ round_
        sin_ sinc_ sinh_ square_ F.dropout F.dropout1d special.round fft.fft2 fft.fftshift fft.irfft""",
    "x": """abs acos acosh angle asin asinh atan atanh celu cos cosh digamma erf erfc erfinv hardshrink i0 lgamma log log10 log1p log2
        logdet logit matrix_exp nan_to_num nansum rrelu selu sin sinc sinh square var F.elu F.gelu F.glu F.hardsigmoid F.hardswish
        F.hardtanh F.leaky_relu F.logsigmoid F.mish F.relu6 F.silu F.softplus F.softshrink F.softsign special.entr fft.fft fft.rfft""",
    "o": """exp exp2 expm1 inverse reciprocal relu rsqrt sigmoid sqrt tan tanh exp_ exp2_ relu_ reciprocal_ sigmoid_ sqrt_ tan_ tanh_ F.softmax
        F.log_softmax linalg.cholesky_ex linalg.qr linalg.eigvalsh linalg.inv linalg.svd linalg.svdvals linalg.eigvals special.ndtri
        special.expit""",
    "xo": """amax amin det max median min norm pdist prod sgn slogdet std linalg.pinv linalg.vector_norm special.erfcx special.i0e special.i1
        special.log_ndtr""",
}  # fmt: skip
OF_TWO = {
    "": "add sub rsub hinge_embedding_loss F.l1_loss",
    "xy": """atan2 clamp complex div fmax fmin fmod inner kl_div kron logaddexp logaddexp2 matmul maximum minimum mm mul remainder xlogy
        F.binary_cross_entropy F.binary_cross_entropy_with_logits F.huber_loss F.mse_loss F.smooth_l1_loss F.linear""",
    "y": "F.cross_entropy",
    "xo": "copysign linalg.solve",
    "o": "polar F.pairwise_distance",
    "yo": "ldexp",
    "xyo": "cdist hypot pow",
}
OF_THREE = {"yz": "addcdiv addcmul", "xyz": "lerp"}
OTHERS = {
    "x[x > 0.5]": "", "x.masked_select(y > 0.5)": "x", "x[torch.tensor([0])]": "", "x.masked_fill(y > 0, 0)": "", "x.sum()": "", "x.mean(0)": "",
    "x * 3": "", "x / 3": "", "3 / x": "", "x ** 2": "x", "x ** 1": "x", "x.clamp(0.2)": "x", "torch.cat([x, y])": "", "torch.stack([x, y])": "",
    "x.cumsum(0)": "", "x.sort()[0]": "", "x.topk(2)[0]": "", "x.kthvalue(2)[0]": "", "x.logsumexp(1)": "xo", "x.gather(0, torch.tensor([[0]]))": "x",
    "torch.where(x > 0.5, x, y)": "", "x.t() @ y": "xy", "x @ y.detach()": "y", "x.detach() @ y": "x", "x * y.detach()": "y", "x / y.detach()": "y",
    "F.linear(x, y.detach())": "y", "F.layer_norm(x, (6,), y[0])": "xy", "F.batch_norm(x, None, None, training=True)": "x",
    "F.batch_norm(x, None, None, y[0].detach(), z, training=True)": "xy", "F.group_norm(x, 2, y[0].detach(), z)": "xy",
    "F.instance_norm(x[None], None, None, y[0].detach(), z)": "xy", "F.batch_norm(x, z.detach(), z.detach() + 1, y[0].detach(), z)": "xyz",
    "F.cross_entropy(x, torch.arange(6))": "", "F.embedding(torch.arange(3), x)": "", "F.embedding_bag(torch.tensor([[0, 1]]), x)": "",
    "F.multi_margin_loss(x, torch.arange(6))": "x", "torch.linalg.cross(x[:, :3], y[:, :3])": "xy", "x.mul_(y)": "y", "x.add_(y)": "",
    "x.relu_() @ y": "xy", "x.relu().view(-1)": "o", "F.linear(F.linear(x, y).relu(), y)": "xy", "x[0] * 2": "", "x[0].exp()": "o",
    "F.normalize(x)": "x", "F.dropout(x, 0.5)": "", "F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None])": "xyo",
    "x.polygamma(1)": "x",    "torch.addmm(x, y, y)": "y", "F.bilinear(x, y, x.expand(2, 6, 6))": "xy", "x.renorm_(1, 0, 1.0)": "",
}  # fmt: skip


def _operands(count):
    made = torch.rand(3, 6, 6, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1
    leaves = [made[i].clone().requires_grad_() for i in range(count)]
    if count == 3:
        leaves[2] = leaves[2].detach()[0].clone().requires_grad_()
    return [leaf.clone() for leaf in leaves]


def _memory(tensor):
    """A weak reference to the array that owns a tensor's memory."""
    a = tensor._a
    while a.base is not None:
        a = getattr(a.base, "owner", a.base)
        if not isinstance(a, np.ndarray):
            break
    return weakref.ref(a)


def _results(out):
    return [o for o in (out if isinstance(out, tuple) else (out,)) if isinstance(o, torch.Tensor)]


def _kept(call, count):
    """Names of the operands, and `o` for results, whose memory the tape alone keeps alive; '!' where backward doesn't free it."""
    operands = _operands(count)
    refs = [("xyz"[i], _memory(t)) for i, t in enumerate(operands)]
    own = {id(ref()) for _, ref in refs}
    outs = _results(call(*operands))
    if any(o is operands[0] for o in outs):  # in place
        refs[0] = ("o", refs[0][1])
    refs += [("o", ref) for ref in map(_memory, outs) if id(ref()) not in own]
    edges = [torch.autograd.graph.get_gradient_edge(o) for o in outs if o.requires_grad]
    grads = [torch.ones_like(o) for o in outs if o.requires_grad]
    del operands, outs
    kept = "".join(name for name, ref in refs if ref() is not None)
    torch.autograd.backward(edges, grads)
    return kept + "!" * any(ref() is not None for _, ref in refs)


def _found(name):
    space, _, last = name.rpartition(".")
    return getattr({"": torch, "F": F}.get(space) or getattr(torch, space), last)


@pytest.mark.parametrize("table, count", [(OF_ONE, 1), (OF_TWO, 2), (OF_THREE, 3)])
def test_no_more_is_kept_than_in_torch(table, count):
    for expected, names in table.items():
        for name in names.split():
            kept = _kept(_found(name), count)
            assert set(kept) <= set(expected), f"{name} keeps {kept!r}, torch {expected!r}"


@pytest.mark.parametrize("expression, expected", OTHERS.items())
def test_what_calls_keep(expression, expected):
    kept = _kept(eval(f"lambda x, y, z: {expression}", {"torch": torch, "F": F}), 3)
    assert set(kept) <= set(expected), kept
