"""The cases. Each takes the framework's module and a device and returns the step to be timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]
Case = Callable[[Any, str], Step]

CASES: dict[str, Case] = {}


def case(make: Case) -> Case:
    """Register a case under its function's name."""
    CASES[make.__name__] = make
    return make


@case
def tiny_add(torch: Any, device: str) -> Step:
    a, b = torch.ones(3, device=device), torch.ones(3, device=device)
    return lambda: a + b


@case
def tiny_mul_recorded(torch: Any, device: str) -> Step:
    a = torch.ones(3, device=device, requires_grad=True)
    return lambda: a * a


@case
def matmul_8(torch: Any, device: str) -> Step:
    a = torch.ones(8, 8, device=device)
    return lambda: a @ a


@case
def matmul_512(torch: Any, device: str) -> Step:
    a = torch.randn(512, 512, device=device)
    return lambda: a @ a


@case
def pointwise_chain_1m(torch: Any, device: str) -> Step:
    x = torch.randn(1_000_000, device=device)
    return lambda: ((x * 2 + 1).sigmoid() * x).tanh() - x.exp()


@case
def softmax_1024x1024(torch: Any, device: str) -> Step:
    x = torch.randn(1024, 1024, device=device)
    return lambda: torch.softmax(x, -1)


@case
def layer_norm_train_1024x1024(torch: Any, device: str) -> Step:
    x = torch.randn(1024, 1024, device=device, requires_grad=True)
    layer = torch.nn.LayerNorm(1024).to(device)
    grad = torch.ones(1024, 1024, device=device)
    return lambda: layer(x).backward(grad)


@case
def cross_entropy_train_512x1000(torch: Any, device: str) -> Step:
    x = torch.randn(512, 1000, device=device, requires_grad=True)
    labels = torch.randint(0, 1000, (512,), device=device)
    return lambda: torch.nn.functional.cross_entropy(x, labels).backward()


@case
def adamw_50_parameters(torch: Any, device: str) -> Step:
    parameters = [torch.nn.Parameter(torch.randn(64, device=device)) for _ in range(50)]
    for p in parameters:
        p.grad = torch.randn(64, device=device)
    return torch.optim.AdamW(parameters).step


@case
def mlp_train_batch_8(torch: Any, device: str) -> Step:
    nn = torch.nn
    layers = [nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    model = nn.Sequential(*layers).to(device)
    x = torch.randn(8, 64, device=device)
    return lambda: model(x).sum().backward()


@case
def conv_train_8x16x32x32(torch: Any, device: str) -> Step:
    conv = torch.nn.Conv2d(16, 32, 3, padding=1).to(device)
    x = torch.randn(8, 16, 32, 32, device=device, requires_grad=True)
    return lambda: conv(x).sum().backward()


@case
def attention_train_4x4x128x32(torch: Any, device: str) -> Step:
    q, k, v = (torch.randn(4, 4, 128, 32, device=device, requires_grad=True) for _ in range(3))
    attention = torch.nn.functional.scaled_dot_product_attention
    return lambda: attention(q, k, v, is_causal=True).sum().backward()
