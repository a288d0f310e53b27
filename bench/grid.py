"""The grid: rows that say, group by group, how fast an operator is on tensors of a size (`./run bench --grid`).

`row(...)` adds one step, `both(...)` a forward and a backward row of one function, `pair(...)` such rows at 1 M and 16 M elements. A step
returns a tensor or a tuple of them, which the runner compares elementwise between the frameworks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Step = Callable[[], Any]
Inputs = Callable[[Any], tuple[Any, ...]]
Function = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """A step to time; `make(torch)` builds it, `limit` is the greatest ratio to torch that is aimed at.

    `close` is the error allowed, relative to an element and to the largest one.
    """

    name: str
    group: str
    make: Callable[[Any], Step]
    limit: float
    close: tuple[float, float] = (1e-4, 1e-5)


GRID: dict[str, Row] = {}
SIDES = {"1M": 1024, "16M": 4096}
VOLUMES = {"1M": (64, 128, 128), "16M": (256, 256, 256)}


def row(
    group: str, name: str, make: Callable[[Any], Step], limit: float = 1.0, close: tuple[float, float] = (1e-4, 1e-5)
) -> None:
    """Add a row called `group/name`."""
    full = f"{group}/{name}"
    assert full not in GRID, full
    GRID[full] = Row(full, group, make, limit, close)


def both(
    group: str, name: str, function: Function, inputs: Inputs, limits: tuple[float, float | None] = (1.0, 1.0),
    close: tuple[float, float] = (1e-4, 1e-5),
) -> None:  # fmt: skip
    """Rows for `function(torch, *inputs)` without recording and for its gradients with respect to all floating inputs."""

    def forward(torch: Any) -> Step:
        given = inputs(torch)

        def step() -> Any:
            with torch.no_grad():
                return function(torch, *given)

        return step

    def backward(torch: Any) -> Step:
        given = [x.requires_grad_() if x.is_floating_point() else x for x in inputs(torch)]
        wanted = [x for x in given if x.requires_grad]
        out = function(torch, *given)
        out = out[0] if isinstance(out, tuple) else out
        gradient = torch.randn(tuple(out.shape)).to(out.dtype)
        return lambda: torch.autograd.grad(out, wanted, gradient, retain_graph=True)

    row(group, f"{name} forward", forward, limits[0], close)
    if limits[1] is not None:
        row(group, f"{name} backward", backward, limits[1], close)


def pair(
    group: str, name: str, function: Function, inputs: Callable[[Any, str], tuple[Any, ...]], backward: bool = True,
    close: tuple[float, float] = (1e-4, 1e-5),
) -> None:  # fmt: skip
    """`both` at 1 M and 16 M elements; `inputs` also gets the size's name."""
    for size in SIDES:
        both(group, f"{name} {size}", function, functools.partial(_sized, inputs, size), (1.0, 1.0 if backward else None), close)


def _sized(inputs: Callable[[Any, str], tuple[Any, ...]], size: str, torch: Any) -> tuple[Any, ...]:
    return inputs(torch, size)


def _square(torch: Any, size: str) -> Any:
    return torch.randn(SIDES[size], SIDES[size])


# ---- pointwise

HALF_CLOSE = (1e-2, 1e-2)
UNARY: dict[str, Function] = {
    "exp": lambda torch, x: torch.exp(x),
    "tanh": lambda torch, x: torch.tanh(x),
    "sigmoid": lambda torch, x: torch.sigmoid(x),
    "relu": lambda torch, x: torch.relu(x),
    "gelu": lambda torch, x: torch.nn.functional.gelu(x),
    "gelu tanh": lambda torch, x: torch.nn.functional.gelu(x, approximate="tanh"),
    "silu": lambda torch, x: torch.nn.functional.silu(x),
}
for _name, _function in UNARY.items():
    pair("pointwise", _name, _function, lambda torch, size: (_square(torch, size),))
pair("pointwise", "add", lambda torch, x, y: x + y, lambda torch, size: (_square(torch, size), _square(torch, size)))
pair("pointwise", "mul", lambda torch, x, y: x * y, lambda torch, size: (_square(torch, size), _square(torch, size)))
pair(
    "pointwise", "where", lambda torch, c, x, y: torch.where(c, x, y),
    lambda torch, size: (_square(torch, size) > 0, _square(torch, size), _square(torch, size)),
)  # fmt: skip

TYPED: dict[str, tuple[str, str]] = {
    "f32 + bf16": ("float32", "bfloat16"), "f32 + int32": ("float32", "int32"), "bf16 + bf16": ("bfloat16", "bfloat16"),
    "f16 + f16": ("float16", "float16"), "f64 + f64": ("float64", "float64"),
}  # fmt: skip
for _name, _types in TYPED.items():

    def _typed(torch: Any, size: str, types: tuple[str, str] = _types) -> tuple[Any, ...]:
        return tuple((_square(torch, size) * 8).to(getattr(torch, t)) for t in types)

    pair("mixed types", _name, lambda torch, x, y: x + y, _typed, close=HALF_CLOSE)
for _half in ("bfloat16", "float16"):
    for _name in ("gelu", "exp"):

        def _in_half(torch: Any, size: str, half: str = _half) -> tuple[Any, ...]:
            return (_square(torch, size).to(getattr(torch, half)),)

        pair("mixed types", f"{_name} {_half}", UNARY[_name], _in_half, close=HALF_CLOSE)

BROADCAST: dict[str, Callable[[Any, int], Any]] = {
    "row": lambda torch, n: torch.randn(n),
    "column": lambda torch, n: torch.randn(n, 1),
    "scalar": lambda torch, n: torch.randn(()),
}
for _name, _other in BROADCAST.items():

    def _broadcast(torch: Any, size: str, other: Callable[[Any, int], Any] = _other) -> tuple[Any, ...]:
        return _square(torch, size), other(torch, SIDES[size])

    # The gradient of the small operand is a sum of up to 16 M products.
    pair("broadcast", f"add {_name}", lambda torch, x, y: x + y, _broadcast, close=(1e-3, 1e-4))
    pair("broadcast", f"mul {_name}", lambda torch, x, y: x * y, _broadcast, close=(1e-3, 1e-4))


# ---- reductions

REDUCTIONS: dict[str, Callable[[Any, int | None], Any]] = {
    "sum": lambda x, dim: x.sum() if dim is None else x.sum(dim),
    "mean": lambda x, dim: x.mean() if dim is None else x.mean(dim),
    "max": lambda x, dim: x.max() if dim is None else tuple(x.max(dim)),
    "amax": lambda x, dim: x.amax() if dim is None else x.amax(dim),
    "argmax": lambda x, dim: x.argmax() if dim is None else x.argmax(dim),
    "var": lambda x, dim: x.var() if dim is None else x.var(dim),
}
AXES: dict[str, int | None] = {"last": -1, "first": 0, "middle": 1, "all": None}
for _name, _reduction in REDUCTIONS.items():
    for _axis, _dim in AXES.items():

        def _reduced(torch: Any, x: Any, function: Any = _reduction, dim: int | None = _dim) -> Any:
            return function(x, dim)

        # Sums of normal numbers end near zero.
        pair(
            "reduction",
            f"{_name} {_axis}",
            _reduced,
            lambda torch, size: (torch.randn(*VOLUMES[size]),),
            _name != "argmax",
            (1e-4, 1e-4),
        )


# ---- rows and norms

for _name in ("softmax", "log_softmax"):
    for _axis, _dim in (("last", -1), ("first", 0), ("middle", 1)):

        def _softmax(torch: Any, x: Any, name: str = _name, dim: int = _dim) -> Any:
            return getattr(torch, name)(x, dim)

        pair("softmax", f"{_name} {_axis}", _softmax, lambda torch, size: (torch.randn(*VOLUMES[size]),))

CHANNELS, IMAGE = 64, {"1M": (4, 64, 64, 64), "16M": (64, 64, 64, 64)}
NORM_CLOSE = (1e-3, 1e-4)  # gradients of weights are sums over up to 256 K elements


def _rows_and_weights(torch: Any, size: str) -> tuple[Any, ...]:
    return _square(torch, size), torch.randn(SIDES[size]), torch.randn(SIDES[size])


def _image_and_weights(torch: Any, size: str) -> tuple[Any, ...]:
    return torch.randn(*IMAGE[size]), torch.randn(CHANNELS), torch.randn(CHANNELS)


def _batch_norm(torch: Any, x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.batch_norm(x, torch.zeros(CHANNELS), torch.ones(CHANNELS), weight, bias, training=True)


def _batch_norm_inference(torch: Any, x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.batch_norm(x, torch.zeros(CHANNELS), torch.ones(CHANNELS), weight, bias)


pair(
    "norm",
    "layer_norm",
    lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (x.shape[1],), w, b),
    _rows_and_weights,
    close=NORM_CLOSE,
)
pair(
    "norm", "rms_norm", lambda torch, x, w: torch.nn.functional.rms_norm(x, (x.shape[1],), w),
    lambda torch, size: _rows_and_weights(torch, size)[:2], close=NORM_CLOSE,
)  # fmt: skip
pair("norm", "batch_norm", _batch_norm, _image_and_weights, close=NORM_CLOSE)
pair("norm", "batch_norm inference", _batch_norm_inference, _image_and_weights, close=NORM_CLOSE)
pair(
    "norm", "group_norm", lambda torch, x, w, b: torch.nn.functional.group_norm(x, 8, w, b), _image_and_weights, close=NORM_CLOSE
)


def _logits(torch: Any, size: str) -> tuple[Any, ...]:
    x = _square(torch, size)
    return x, torch.randint(0, x.shape[1], (x.shape[0],))


pair("cross-entropy", "cross_entropy", lambda torch, x, y: torch.nn.functional.cross_entropy(x, y), _logits)
pair("cross-entropy", "smoothed", lambda torch, x, y: torch.nn.functional.cross_entropy(x, y, label_smoothing=0.1), _logits)


# ---- products


def _product(group: str, name: str, a: tuple[int, ...], b: tuple[int, ...], limit: float, dtype: str = "float32") -> None:
    def make(torch: Any) -> Step:
        x, y = (torch.randn(*shape).to(getattr(torch, dtype)) for shape in (a, b))
        return lambda: x @ y

    row(group, name, make, limit, HALF_CLOSE if dtype == "bfloat16" else (1e-4, 1e-4))


for _n in (256, 512, 1024, 2048):
    _product("sgemm", f"{_n}", (_n, _n), (_n, _n), 1.05)
    _product("f64 product", f"{_n}", (_n, _n), (_n, _n), 1.1, "float64")
    _product("bf16 product", f"{_n}", (_n, _n), (_n, _n), 1.0, "bfloat16")
for _m in (1, 16, 128):
    _product("sgemm", f"{_m}x768x3072", (_m, 768), (768, 3072), 1.05)
    _product("bf16 product", f"{_m}x768x3072", (_m, 768), (768, 3072), 1.0, "bfloat16")
_product("batched product", "12x128x64x128", (12, 128, 64), (12, 64, 128), 0.9)
_product("batched product", "96x512x64x512", (96, 512, 64), (96, 64, 512), 0.9)


# ---- convolutions


def _convolution(name: str, x: tuple[int, ...], out: int, kernel: int, **options: Any) -> None:
    def make(which: int) -> Callable[[Any], Step]:
        def build(torch: Any) -> Step:
            conv = torch.nn.functional.conv2d
            a = torch.randn(*x).requires_grad_(which == 1)
            weight = torch.randn(out, x[1] // options.get("groups", 1), kernel, kernel).requires_grad_(which == 2)
            if which == 0:
                return lambda: conv(a, weight, **options)
            y = conv(a, weight, **options)
            gradient = torch.randn(tuple(y.shape))
            return lambda: torch.autograd.grad(y, (a, weight)[which - 1], gradient, retain_graph=True)[0]

        return build

    for which, (suffix, limit) in enumerate((("forward", 1.05), ("gradient of input", 1.2), ("gradient of weight", 1.2))):
        row("convolution", f"{name} {suffix}", make(which), limit, (1e-3, 1e-4))


for _batch in (1, 8):
    _convolution(f"3x3 64x64 56 batch {_batch}", (_batch, 64, 56, 56), 64, 3, padding=1)
    _convolution(f"1x1 256x64 56 batch {_batch}", (_batch, 256, 56, 56), 64, 1)
    _convolution(f"7x7 3x64 224 batch {_batch}", (_batch, 3, 224, 224), 64, 7, stride=2, padding=3)
    _convolution(f"depthwise 3x3 144 56 batch {_batch}", (_batch, 144, 56, 56), 144, 3, padding=1, groups=144)


# ---- attention and optimizers


def _attention(torch: Any, q: Any, k: Any, v: Any, causal: bool = False) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def _heads(torch: Any) -> tuple[Any, ...]:
    return tuple(torch.randn(8, 12, 512, 64) for _ in range(3))


both("attention", "8x12x512x64", _attention, _heads, close=(1e-3, 1e-4))
both("attention", "8x12x512x64 causal", lambda torch, q, k, v: _attention(torch, q, k, v, True), _heads, close=(1e-3, 1e-4))


def _adamw(name: str, shapes: list[tuple[int, ...]], limit: float, **options: Any) -> None:
    def make(torch: Any) -> Step:
        parameters = [torch.nn.Parameter(torch.randn(*shape)) for shape in shapes]
        for p in parameters:
            p.grad = torch.randn(*p.shape)
        optimizer = torch.optim.AdamW(parameters, **options)

        def step() -> Any:
            optimizer.step()
            return parameters[0].detach()

        return step

    row("optimizer", name, make, limit)


_adamw("AdamW 50 parameters", [(64, 64)] * 50, 0.6)
_adamw("AdamW 100M fused", [(10_000, 10_000)], 1.0, fused=True)
