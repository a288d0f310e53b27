"""What `gpu_check.py` compares between the CPU and CUDA: every pointwise record, and a list of other operators.

A case makes its inputs on the CPU in one type and computes from them; the check moves the inputs. `kinds` names the types
it is run in.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import tocha as torch
from tocha.nn import functional as F
from tocha.prims.pointwise import ALL, Pointwise

FLOATS = ("float32", "float64", "float16", "bfloat16")
EVERY = (*FLOATS, "int64")
SINGLE = ("float32", "float64")
# One value for each keyword parameter of a pointwise rule.
PARAMETERS: dict[str, Any] = {
    "alpha": 1.3, "beta": 1.2, "decimals": 1, "eps": 1e-3, "exponent": 2.5, "factor": 0.5, "high": 1.0, "lambd": 0.5, "low": -1.0, "max": 0.7,
    "min": -0.5, "n": 1, "nan": 0.25, "neginf": None, "posinf": None, "scale": 1.1, "slope": 0.1, "speed": 0.9, "threshold": 0.7,
    "value": 0.3, "weight": 0.3, "delta": 0.8, "margin": 0.4, "full": True, "log_input": True, "ord": 2.0, "p": 2.0,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One comparison: `inputs(kind)` gives CPU tensors, `compute` any structure of tensors from them."""

    name: str
    inputs: Callable[[str], list[Any]]
    compute: Callable[..., Any]
    kinds: tuple[str, ...] = FLOATS
    gradients: bool = True


def values(shape: tuple[int, ...], kind: str, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Any:
    """A tensor of random values, the same for every type up to rounding."""
    numbers = np.random.default_rng(seed).uniform(low, high, shape)
    if kind == "int64":
        return torch.from_numpy(np.array(np.round(numbers * 3))).to(torch.int64)
    return torch.from_numpy(np.array(numbers)).to(getattr(torch, kind))


def indices(shape: tuple[int, ...], bound: int, seed: int = 5) -> Any:
    """Random indices below `bound`."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, bound, shape))


def pointwise() -> Iterator[Case]:
    """A case for every record."""
    for rule in ALL.values():
        names = inspect.getfullargspec(rule.impl).kwonlyargs
        if all(n in PARAMETERS for n in names):
            yield _pointwise_case(rule, {n: PARAMETERS[n] for n in names})


def unknown_parameters() -> list[str]:
    """Records that `pointwise` leaves out because it knows no value for a parameter."""
    return [r.name for r in ALL.values() if any(n not in PARAMETERS for n in inspect.getfullargspec(r.impl).kwonlyargs)]


def _pointwise_case(rule: Pointwise, parameters: dict[str, Any]) -> Case:
    low, high = rule.domain

    def inputs(kind: str) -> list[Any]:
        return [values((4, 5), kind, low, high, seed) for seed, _ in enumerate(rule.arguments)]

    return Case(f"pointwise.{rule.name}", inputs, lambda *xs: rule(*xs, **parameters), EVERY)


def _one(name: str, compute: Callable[..., Any], shape: tuple[int, ...] = (4, 6), **options: Any) -> Case:
    return Case(name, lambda kind: [values(shape, kind)], compute, **options)


def _two(name: str, compute: Callable[..., Any], *shapes: tuple[int, ...], **options: Any) -> Case:
    return Case(name, lambda kind: [values(s, kind, seed=i) for i, s in enumerate(shapes)], compute, **options)


def _indexed(
    name: str, compute: Callable[..., Any], shape: tuple[int, ...], index: tuple[int, ...], bound: int, **options: Any
) -> Case:
    """A tensor, an index, and another tensor of the index's shape."""
    return Case(name, lambda kind: [values(shape, kind), indices(index, bound), values(index, kind, seed=7)], compute, **options)


def reductions() -> Iterator[Case]:
    for name in ("sum", "mean", "prod", "amax", "amin", "logsumexp", "var", "std", "norm"):
        for dim in (0, 1, (0, 1)):
            if name == "prod" and dim == (0, 1):
                continue
            yield _one(f"{name}({dim})", lambda x, n=name, d=dim: getattr(x, n)(dim=d))
    for name in ("max", "min", "median", "mode", "cummax", "cummin", "kthvalue"):
        arguments = (2, 1) if name == "kthvalue" else (1,)
        yield _one(name, lambda x, n=name, a=arguments: tuple(getattr(x, n)(*a)), kinds=("float32", "float64", "int64"))
    for name in ("argmax", "argmin", "cumsum", "cumprod", "logcumsumexp"):
        kinds = EVERY if name.startswith("arg") else FLOATS
        yield _one(name, lambda x, n=name: getattr(x, n)(1), kinds=kinds)
    for name in ("any", "all", "count_nonzero"):
        yield _one(name, lambda x, n=name: getattr(torch, n)(x > 0), kinds=EVERY, gradients=False)
    yield _one("sum of many", lambda x: x.sum(0), (10007, 3), kinds=SINGLE)
    yield _one("sum, integers", lambda x: x.sum(), kinds=("int64",))
    yield _one("softmax", lambda x: x.softmax(-1))
    yield _one("log_softmax", lambda x: x.log_softmax(0))


def products() -> Iterator[Case]:
    yield _two("matmul 2-d", torch.matmul, (8, 5), (5, 7), kinds=EVERY)
    yield _two("matmul batch", torch.matmul, (3, 8, 5), (3, 5, 7))
    yield _two("matmul broadcast", torch.matmul, (3, 8, 5), (5, 7))
    yield _two("matmul vector", torch.matmul, (8, 5), (5,))
    yield _two("dot", torch.dot, (9,), (9,))
    yield _two("linear", F.linear, (4, 3, 5), (7, 5), (7,))
    yield _two("linear 2-d", F.linear, (4, 5), (7, 5), (7,))
    yield _two("addmm", torch.addmm, (8, 7), (8, 5), (5, 7))
    yield _two("einsum", lambda a, b: torch.einsum("bij,bjk->bik", a, b), (3, 4, 5), (3, 5, 6))
    yield _two("transposed operands", lambda a, b: a.t() @ b.t(), (5, 8), (7, 5))
    yield _two("attention", F.scaled_dot_product_attention, (2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 4))
    yield _two(
        "attention, causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (2, 5, 4),
        (2, 5, 4),
        (2, 5, 4),
    )


def windows() -> Iterator[Case]:
    yield _two("conv1d", lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), (2, 3, 9), (4, 3, 3), (4,))
    yield _two("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), (2, 3, 8, 8), (4, 3, 3, 3), (4,))
    yield _two("conv2d 1x1", F.conv2d, (2, 3, 8, 8), (4, 3, 1, 1), (4,))
    yield _two("conv2d, dilated", lambda x, w: F.conv2d(x, w, dilation=2, stride=2), (2, 3, 9, 9), (4, 3, 3, 3))
    yield _two("conv2d, groups", lambda x, w: F.conv2d(x, w, groups=2), (2, 4, 6, 6), (6, 2, 3, 3))
    yield _two("conv2d, depthwise", lambda x, w: F.conv2d(x, w, groups=4, padding=1), (2, 4, 6, 6), (4, 1, 3, 3))
    yield _two("conv3d", F.conv3d, (1, 2, 5, 5, 5), (3, 2, 2, 2, 2), (3,), kinds=SINGLE)
    yield _two("conv_transpose2d", lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), (2, 3, 5, 5), (3, 4, 3, 3))
    pools: dict[str, Callable[..., Any]] = {
        "max_pool2d": lambda x: F.max_pool2d(x, 3, 2, 1), "max_pool2d, apart": lambda x: F.max_pool2d(x, 2),
        "max_pool2d, indices": lambda x: F.max_pool2d(x, 2, return_indices=True), "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
        "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, 5)), "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (3, 2)),
        "interpolate, nearest": lambda x: F.interpolate(x, scale_factor=2),
        "interpolate, bilinear": lambda x: F.interpolate(x, size=(5, 11), mode="bilinear"),
        "pad, reflect": lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"), "unfold": lambda x: F.unfold(x, 3, padding=1),
        "pixel_shuffle": lambda x: F.pixel_shuffle(x.reshape(2, 4, 4, 12), 2), "lp_pool2d": lambda x: F.lp_pool2d(x.abs() + 1, 2.0, 2),
    }  # fmt: skip
    for name, compute in pools.items():
        yield _one(name, compute, (2, 3, 8, 8))


def layers() -> Iterator[Case]:
    yield _two("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), (4, 6), (6,), (6,))
    yield _two("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), (2, 4, 5), (4,), (4,))
    yield _two("batch_norm, training", lambda x, w, b: F.batch_norm(x, None, None, w, b, True), (4, 3, 5), (3,), (3,))
    yield _two(
        "batch_norm, given",
        lambda x, w, b: F.batch_norm(x, w.detach() * 0, w.detach() * 0 + 1, w, b, False),
        (4, 3, 5),
        (3,),
        (3,),
    )
    yield _two("instance_norm", lambda x: F.instance_norm(x), (2, 3, 7))
    yield _two("rms_norm", lambda x, w: F.rms_norm(x, (6,), w), (4, 6), (6,))
    yield _one("local_response_norm", lambda x: F.local_response_norm(x, 3), (2, 5, 4, 4))
    losses = (
        "mse_loss l1_loss smooth_l1_loss huber_loss soft_margin_loss binary_cross_entropy_with_logits poisson_nll_loss kl_div"
    )
    for name in losses.split():
        yield _two(name, lambda x, y, n=name: getattr(F, n)(x, y.detach()), (4, 6), (4, 6))
    yield Case(
        "binary_cross_entropy", lambda kind: [values((4, 5), kind, 0.1, 0.9), values((4, 5), kind, 0.0, 1.0, 1)],
        lambda p, y: F.binary_cross_entropy(p, y.detach()), SINGLE,
    )  # fmt: skip
    for options in ({}, {"label_smoothing": 0.1}, {"reduction": "none"}, {"ignore_index": 2}):
        yield _indexed(f"cross_entropy {options}", lambda x, t, w, o=options: F.cross_entropy(x, t, **o), (6, 5), (6,), 5)
    yield _indexed("nll_loss", lambda x, t, w: F.nll_loss(x, t), (6, 5), (6,), 5)
    yield _indexed("cross_entropy, 2-d", lambda x, t, w: F.cross_entropy(x, t), (2, 5, 3, 3), (2, 3, 3), 5)
    yield _indexed("embedding", lambda x, t, w: F.embedding(t, x), (7, 4), (3, 5), 7)
    yield _indexed("embedding_bag", lambda x, t, w: F.embedding_bag(t, x), (7, 4), (3, 5), 7, kinds=SINGLE)
    for name in ("lstm", "gru", "rnn"):
        yield _two(f"{name} layer", lambda x, n=name: _recurrent(n, x), (5, 2, 3), kinds=SINGLE)


def _recurrent(name: str, x: Any) -> Any:
    torch.manual_seed(0)
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[name](3, 4)
    return layer.to(device=x.device, dtype=x.dtype)(x)[0]


def movement() -> Iterator[Case]:
    moves: dict[str, Callable[..., Any]] = {
        "transpose": lambda x: x.t().contiguous(), "reshape": lambda x: x.t().reshape(3, 8), "expand": lambda x: x[:, :1].expand(4, 6) * 1,
        "slice": lambda x: x[1:3, ::2] * 1, "flip": lambda x: x.flip(1), "roll": lambda x: x.roll(2, 1), "tril": lambda x: x.tril(),
        "triu": lambda x: x.triu(1), "cat": lambda x: torch.cat([x, x * 2], 1), "stack": lambda x: torch.stack([x, x]),
        "split": lambda x: x.split(2, 1), "chunk": lambda x: x.chunk(3, 1), "unbind": lambda x: x.unbind(0), "repeat": lambda x: x.repeat(2, 3),
        "unfold": lambda x: x.unfold(1, 3, 2) * 1, "diagonal": lambda x: x.diagonal() * 1, "pad": lambda x: F.pad(x, (1, 2), value=0.5),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1), "clone": lambda x: x.t().clone(), "movedim": lambda x: x.movedim(0, 1) * 1,
        "to float64": lambda x: x.to(torch.float64), "to bfloat16": lambda x: x.to(torch.bfloat16), "to int32": lambda x: (x * 3).to(torch.int32),
        "clamp": lambda x: x.clamp(-1, 1), "where, number": lambda x: torch.where(x > 0, x, 0), "masked_fill": lambda x: x.masked_fill(x > 0, 2),
        "masked_select": lambda x: x[x > 0], "nonzero": lambda x: (x > 0).nonzero(), "diff": lambda x: x.diff(),
        "meshgrid": lambda x: torch.meshgrid(x[0], x[1], indexing="ij"),
    }  # fmt: skip
    for name, compute in moves.items():
        yield _one(name, compute, kinds=EVERY)
    yield _one("float8", lambda x: x.to(torch.float8_e4m3fn).clone().to(torch.float32), kinds=("float32",), gradients=False)


def indexing() -> Iterator[Case]:
    yield _indexed("index", lambda x, i, v: x[i], (6, 4), (5,), 6, kinds=EVERY)
    yield _indexed("index, two", lambda x, i, v: x[i, i % 4], (6, 4), (5,), 6, kinds=EVERY)
    yield _indexed("index_select", lambda x, i, v: x.index_select(1, i), (4, 6), (5,), 6, kinds=EVERY)
    yield _indexed("gather", lambda x, i, v: x.gather(1, i), (4, 6), (4, 3), 6, kinds=EVERY)
    yield _indexed("scatter", lambda x, i, v: x.scatter(0, i, v), (6, 3), (1, 3), 6, kinds=EVERY)
    yield _indexed("scatter_add", lambda x, i, v: x.scatter_add(1, i, v), (4, 6), (4, 9), 6, kinds=EVERY)
    yield _indexed("index_add", lambda x, i, v: x.index_add(0, i[:, 0], v), (6, 3), (8, 3), 6, kinds=EVERY)
    yield _indexed("index_put, accumulate", lambda x, i, v: x.index_put((i,), v, accumulate=True), (6,), (9,), 6, kinds=EVERY)
    yield _indexed("index_fill", lambda x, i, v: x.index_fill(0, i, 2), (6, 3), (2,), 6, kinds=EVERY)
    yield _indexed("take_along_dim", lambda x, i, v: torch.take_along_dim(x, i, 1), (4, 6), (4, 3), 6, kinds=EVERY)
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        yield _indexed(
            f"scatter_reduce {reduce}", lambda x, i, v, r=reduce: x.scatter_reduce(1, i, v, r), (4, 6), (4, 9), 6,
            kinds=("float32", "float64", "bfloat16", "int64"),
        )  # fmt: skip
    yield _one("setitem", _assigned, kinds=EVERY)
    yield _one("in-place", lambda x: (x * 1).add_(2).mul_(3).clamp_(max=4), kinds=EVERY)
    yield _one("in-place on a view", _changed_view, kinds=EVERY)
    for name in ("sort", "argsort", "topk", "unique"):
        arguments = (3,) if name == "topk" else ()
        kinds = ("float32", "float64", "float16", "int64")
        yield _one(name, lambda x, n=name, a=arguments: getattr(torch, n)(x, *a), kinds=kinds)
    yield _one("sort, descending", lambda x: torch.sort(x, 0, descending=True), kinds=EVERY)
    yield _one("searchsorted", lambda x: torch.searchsorted(x[0].sort()[0].detach(), x.detach()), kinds=SINGLE, gradients=False)
    yield _one("bincount", lambda x: torch.bincount(x.abs()), (20,), kinds=("int64",))
    yield _one("histc", lambda x: torch.histc(x.detach(), 5, -2, 2), kinds=SINGLE, gradients=False)
    yield _one("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x)), kinds=SINGLE)
    yield _one("complex product", lambda x: torch.view_as_real(torch.complex(x, x * 2) * (1 + 2j)), kinds=SINGLE)


def _assigned(x: Any) -> Any:
    y = x * 1
    y[1] = 5
    y[:, ::2] = y[:, 1::2] * 2
    y[y > 1] = 0
    return y


def _changed_view(x: Any) -> Any:
    y = x * 1
    y[1:3].mul_(2)
    y.t()[0] += 1
    return y


def cases() -> list[Case]:
    """All of them."""
    groups = (pointwise, reductions, products, windows, layers, movement, indexing)
    return [case for group in groups for case in group()]
