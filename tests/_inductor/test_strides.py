"""Results and gradients of compiled functions lie in memory as those of eager calls."""

from __future__ import annotations

from typing import Any

import pytest

import tocha as torch
import tocha.nn.functional as F

M, W = torch.arange(4.0), torch.arange(1.0, 5.0)
FUNCTIONS: dict[str, Any] = {
    "pointwise": lambda x: F.gelu(x) * 2,
    "batch_norm": lambda x: F.batch_norm(x, None, None, W, M, training=True),
    "batch_norm with given figures": lambda x: F.batch_norm(x, M, W),
    "batch_norm of a slice": lambda x: F.batch_norm(x[:, :, :, :2], M, W, W) + 1,
    "group_norm": lambda x: F.group_norm(x, 2, W, M),
    "rms_norm": lambda x: F.rms_norm(x, (5,)),
    "layer_norm": lambda x: F.layer_norm(x, (5, 5)),
    "joined": lambda x: torch.cat([x, x * 2], 1),
    "joined samples": lambda x: torch.cat([x, x[:1]]),
    "joined with a channel": lambda x: torch.cat([x[:, :1], x, x[:, :0]], 1),
    "joined, in two orders": lambda x: torch.cat([x, x.contiguous()], 1),
    "joined and read": lambda x: torch.cat([x, x.exp()], 1).sigmoid(),
    "rolled": lambda x: x.roll(1, 2),
    "pooled": lambda x: F.max_pool2d(x, 2),
    "padded": lambda x: F.pad(x, (1, 1)),
    "resized": lambda x: F.interpolate(x, scale_factor=2.0),
    "summed": lambda x: x.sum(1, keepdim=True) + x,
    "a network": lambda x: F.relu(F.batch_norm(torch.cat([x, F.relu(x)], 1)[:, 2:6], M, W)) + x,
}


def laid(t: Any) -> list[Any]:
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_channels_last(name: str, dtype: Any) -> None:
    def f(x: Any) -> Any:
        return FUNCTIONS[name](x)

    x = torch.randn(2, 4, 5, 5).contiguous(memory_format=torch.channels_last)
    found = []
    for function in (f, torch.compile(f, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        out = function(leaf if dtype is torch.float32 else leaf.to(dtype)).float()
        out.backward(torch.ones_like(out))
        found.append((out.detach(), leaf.grad))
    tolerance = 1e-5 if dtype is torch.float32 else 0.05
    for want, got in zip(*found, strict=True):
        assert laid(got) == laid(want)
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
