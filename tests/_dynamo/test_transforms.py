"""torch.func's transforms in one graph: eager's values, and gradients through them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

import tocha as torch
from tocha import nn
from tocha.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

W = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)


def per_sample(x: Any) -> Any:
    """Gradients of each row's loss by a weight from outside."""
    y = x * 2

    def loss(w: Any, row: Any, bias: float) -> Any:
        return ((row * w).sin() + W * bias).pow(2).sum() + y.sum() * 0.1

    return vmap(grad(loss), in_dims=(None, 0, None))(W.detach(), x, 0.5)


def with_extras(x: Any) -> Any:
    def loss(a: Any, d: Any) -> Any:
        out = (a * d["b"]).exp().sum()
        return out, {"twice": out * 2, "n": 3}

    (ga, gd), (value, extra) = grad_and_value(loss, argnums=(0, 1), has_aux=True)(x, {"b": x.cos()})
    return ga + gd["b"], value, extra["twice"]


LAYER = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval()
BASE = nn.Linear(3, 2).to("meta")


def pulled_back(x: Any) -> Any:
    out, pull, more = vjp(lambda a, b: (a @ b.t() * W.sum(), b * 2), x, x * 2, has_aux=True)
    return out, pull(out.cos()), vmap(pull)(torch.eye(4).reshape(4, 2, 2)), more


def functional(x: Any) -> Any:
    params = {k: v.detach() * 3 for k, v in LAYER.named_parameters()}
    stacked = {"weight": torch.ones(4, 2, 3), "bias": torch.arange(8.0).reshape(4, 2)}
    gradients = grad(lambda p, row: functional_call(LAYER, p, (row[None],)).sum())
    return (
        functional_call(LAYER, (params, {"1.running_mean": x.sum(0)[:2]}), x), vmap(gradients, (None, 0))(params, x), LAYER(x),
        vmap(lambda p: functional_call(BASE, p, (), {"input": x}))(stacked),
    )  # fmt: skip


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda x: vmap(lambda r: r * W + r.sum())(x),
    "vmap over several": lambda x: vmap(lambda a, b, c: (a * b, a + c), (0, 1, None), out_dims=(1, 0))(x, x.t(), x[0]),
    "vmap of vmap": lambda x: vmap(vmap(lambda a, b: a * b, (0, None)), (0, None))(x, x[0, 0]),
    "grad": lambda x: grad(lambda t: (t**3).sum())(x) * x,
    "grad of grad": lambda x: vmap(vmap(grad(grad(torch.sin))))(x),
    "per sample": per_sample,
    "value and extras": with_extras,
    "jacrev": lambda x: jacrev(lambda t: t.sin().sum(0))(x),
    "jacfwd": lambda x: jacfwd(lambda a, b: a * b, argnums=1)(x[0], x[1]),
    "vjp": pulled_back,
    "jvp": lambda x: jvp(lambda a, b: (a * b, b.sin()), (x, x.cos()), (x * 2, x)),
    "linearize": lambda x: (lambda out, f: (out, f(x.cos())))(*linearize(lambda a: a.sin() * W, x)),
    "keywords": lambda x: vmap(lambda a, b, *, c: a * b + c, (0, None))(x, 2.0, c=x.sum()),
    "functional_call": functional,
    "hessian": lambda x: hessian(lambda t: (t.sin() * W).sum())(x[0]),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, backend: str, caplog: pytest.LogCaptureFixture) -> None:
    torch._dynamo.reset()
    f = TRANSFORMS[name]
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    with caplog.at_level(logging.INFO, "torch._dynamo"):
        for seed in range(2):
            torch.manual_seed(seed)
            x = torch.randn(2, 3, requires_grad=True)
            outs = []
            for call in (f, compiled):
                leaves = [t for t in torch.utils._pytree.tree_leaves(call(x)) if isinstance(t, torch.Tensor)]
                wanted = [t.pow(2).sum() for t in leaves if t.requires_grad]
                grads = torch.autograd.grad(wanted, [x, W], allow_unused=True) if wanted else [None, None]
                outs.append([*[t.detach() for t in leaves], *[torch.zeros(()) if g is None else g for g in grads]])
            for want, got in zip(*outs, strict=True):
                torch.testing.assert_close(got, want.expand_as(got), rtol=1e-4, atol=1e-5)
    if backend == "inductor":
        assert "runs eagerly" not in caplog.text


def test_what_a_transformed_function_may_not_do() -> None:
    def writes(x: Any) -> Any:
        y = x * 1
        return vmap(lambda r: y.add_(1).sum() * r)(x)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="writes in place to a tensor from outside"):
        torch.compile(writes, backend="eager", fullgraph=True)(torch.ones(2, 3))


def test_a_break_inside_leaves_the_transforms_to_eager() -> None:
    def broken(x: Any) -> Any:
        return vmap(grad(lambda a, b=1.0: float(torch.ones(()).sum().item()) * (a * b).sin()))(x, b=2.0)

    x = torch.tensor([0.5, 1.0])
    torch.testing.assert_close(torch.compile(broken, backend="eager")(x), 2 * torch.cos(2 * x))


def test_functional_call_hands_back_what_the_module_wrote() -> None:
    norm, x = nn.BatchNorm1d(2, momentum=1.0), torch.tensor([[1.0, 2.0], [3.0, 6.0]])
    kept = norm.running_mean.clone()
    compiled = torch.compile(lambda x, b: functional_call(norm, b, x), backend="eager", fullgraph=True)
    buffers = {"running_mean": torch.zeros(2), "num_batches_tracked": torch.tensor(4)}
    compiled(x, buffers)
    assert buffers["running_mean"].tolist() == [2.0, 4.0]
    assert buffers["num_batches_tracked"].item() == 5
    assert norm.running_mean.tolist() == kept.tolist()
