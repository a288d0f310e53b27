"""The cases. Each takes the framework's module and a device and returns the step to be timed, which returns a tensor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.networks import LIMIT, NETWORKS

Step = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """A step to time; `limit` is the greatest ratio to torch that is aimed at, `per` what a time is divided by."""

    make: Callable[[Any, str], Step]
    limit: float | None = None
    per: int = 1


CASES: dict[str, Case] = {}


def case(limit: float | None = None, per: int = 1) -> Callable[[Callable[[Any, str], Step]], Callable[[Any, str], Step]]:
    """Register a case under its function's name."""

    def register(make: Callable[[Any, str], Step]) -> Callable[[Any, str], Step]:
        CASES[make.__name__] = Case(make, limit, per)
        return make

    return register


@case(1.0)
def tiny_add(torch: Any, device: str) -> Step:
    a, b = torch.ones(4, device=device), torch.ones(4, device=device)
    return lambda: a + b


@case(1.0)
def tiny_mul_recorded(torch: Any, device: str) -> Step:
    a = torch.ones(4, device=device, requires_grad=True)
    b = torch.ones(4, device=device)
    return lambda: a * b


@case(1.0)
def matmul_8(torch: Any, device: str) -> Step:
    a = torch.ones(8, 8, device=device)
    return lambda: a @ a


@case(1.2)
def mlp_train_batch_8(torch: Any, device: str) -> Step:
    """Three linear layers 16-32-32-10, cross-entropy, backward."""
    nn, functional = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    parameters = list(model.parameters())
    x, labels = torch.randn(8, 16, device=device), torch.arange(8, device=device)

    def step() -> Any:
        for p in parameters:
            p.grad = None
        loss = functional.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    return step


@case(per=1000)
def backward_per_node(torch: Any, device: str) -> Step:
    """A chain of 1,000 recorded additions, backward only (its graph is kept)."""
    x = torch.ones(4, device=device, requires_grad=True)
    y = x
    for _ in range(1000):
        y = y + 1.0
    grad = torch.ones(4, device=device)
    return lambda: torch.autograd.grad(y, x, grad, retain_graph=True)[0]


@case()
def matmul_512(torch: Any, device: str) -> Step:
    a = torch.randn(512, 512, device=device)
    return lambda: a @ a


@case()
def pointwise_chain_1m(torch: Any, device: str) -> Step:
    x = torch.randn(1_000_000, device=device)
    return lambda: ((x * 2 + 1).sigmoid() * x).tanh() - x.exp()


@case()
def softmax_1024x1024(torch: Any, device: str) -> Step:
    x = torch.randn(1024, 1024, device=device)
    return lambda: torch.softmax(x, -1)


@case()
def layer_norm_train_1024x1024(torch: Any, device: str) -> Step:
    x = torch.randn(1024, 1024, device=device, requires_grad=True)
    layer = torch.nn.LayerNorm(1024).to(device)
    weights = torch.randn(1024, 1024, device=device)
    return lambda: torch.autograd.grad(layer(x), x, weights)[0]


@case()
def cross_entropy_train_512x1000(torch: Any, device: str) -> Step:
    x = torch.randn(512, 1000, device=device, requires_grad=True)
    labels = torch.randint(0, 1000, (512,)).to(device)
    return lambda: torch.autograd.grad(torch.nn.functional.cross_entropy(x, labels), x)[0]


def _optimizer_step(torch: Any, device: str, shapes: list[tuple[int, ...]], make: Callable[[Any], Any]) -> Step:
    parameters = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = make(parameters)

    def step() -> Any:
        optimizer.step()
        return parameters[0]

    return step


@case(0.6)
def adamw_50_parameters(torch: Any, device: str) -> Step:
    return _optimizer_step(torch, device, [(64,)] * 50, torch.optim.AdamW)


@case(0.6)
def sgd_momentum_50_parameters(torch: Any, device: str) -> Step:
    return _optimizer_step(torch, device, [(8, 8)] * 50, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9))


@case(1.0)
def adamw_fused_10m(torch: Any, device: str) -> Step:
    return _optimizer_step(torch, device, [(10_000_000,)], lambda p: torch.optim.AdamW(p, fused=True))


@case()
def clip_grad_norm_50_parameters(torch: Any, device: str) -> Step:
    parameters = [torch.nn.Parameter(torch.randn(8, 8, device=device)) for _ in range(50)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    return lambda: torch.nn.utils.clip_grad_norm_(parameters, 1e9)


@case()
def conv_train_8x16x32x32(torch: Any, device: str) -> Step:
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).to(device)
    x = torch.randn(8, 16, 32, 32, device=device, requires_grad=True)
    weights = torch.randn(8, 32, 32, 32, device=device)
    return lambda: torch.autograd.grad(conv(x), conv.weight, weights)[0]


def _conv_cases(name: str, limits: tuple[float, float, float], x: tuple[int, ...], o: int, kernel: int, **options: Any) -> None:
    """Forward, input gradient and weight gradient of one convolution."""

    def make(which: int) -> Callable[[Any, str], Step]:
        def build(torch: Any, device: str) -> Step:
            conv = torch.nn.functional.conv2d
            a = torch.randn(x, device=device, requires_grad=which == 1)
            weight = torch.randn(o, x[1] // options.get("groups", 1), kernel, kernel, device=device, requires_grad=which == 2)
            if which == 0:
                return lambda: conv(a, weight, **options)
            out = conv(a, weight, **options)
            gradient = torch.randn(tuple(out.shape), device=device)
            return lambda: torch.autograd.grad(out, (a, weight)[which - 1], gradient, retain_graph=True)[0]

        return build

    for which, suffix in enumerate(("", "_grad_input", "_grad_weight")):
        CASES[name + suffix] = Case(make(which), limits[which])


_conv_cases("conv_3x3_64x64_56", (1.05, 1.2, 1.2), (1, 64, 56, 56), 64, 3, padding=1)
_conv_cases("conv_1x1_256x64_56", (1.05, 1.2, 1.2), (1, 256, 56, 56), 64, 1)
_conv_cases("conv_7x7_3x64_224", (1.05, 1.2, 1.2), (1, 3, 224, 224), 64, 7, stride=2, padding=3)
_conv_cases("conv_depthwise_3x3_144_56", (1.0, 1.0, 1.0), (1, 144, 56, 56), 144, 3, padding=1, groups=144)
_conv_cases("conv_3x3_512x512_7_batch_8", (1.05, 1.2, 1.2), (8, 512, 7, 7), 512, 3, padding=1)
CASES.update({name: Case(make, LIMIT) for name, make in NETWORKS.items()})


@case()
def attention_train_4x4x128x32(torch: Any, device: str) -> Step:
    q, k, v = (torch.randn(4, 4, 128, 32, device=device, requires_grad=True) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    weights = torch.randn(4, 4, 128, 32, device=device)
    return lambda: torch.autograd.grad(attention(q, k, v, is_causal=True), q, weights)[0]


def _recurrent_cases(kind: str, limits: tuple[float, float, float]) -> None:
    """A layer of 100 steps of 16 sequences, 128 inputs and 256 states: forward, training step, and ten steps of its cell."""

    def build(which: int) -> Callable[[Any, str], Step]:
        def make(torch: Any, device: str) -> Step:
            layer = getattr(torch.nn, kind + "Cell" * (which == 2))(128, 256).to(device)
            x, parameters = torch.randn(100, 16, 128, device=device), list(layer.parameters())
            zeros = torch.zeros(16, 256, device=device)

            def forward() -> Any:
                with torch.no_grad():
                    return layer(x)[0]

            def train() -> Any:
                return torch.autograd.grad(layer(x)[0].square().mean(), parameters)[0]

            def cells() -> Any:
                state = (zeros, zeros) if kind == "LSTM" else zeros
                with torch.no_grad():
                    for step in x[:10]:
                        state = layer(step, state)
                return state[0]

            return (forward, train, cells)[which]

        return make

    for which, (part, limit) in enumerate(zip(("forward", "train", "cell"), limits, strict=True)):
        CASES[f"{kind.lower()}_{part}_100x16_128_256"] = Case(build(which), limit)


_recurrent_cases("LSTM", (1.0, 1.0, 1.0))
_recurrent_cases("GRU", (1.0, 1.0, 1.0))
