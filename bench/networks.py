"""Inference of ResNet-18 and ResNet-50, compiled, in float32 without gradients, on 1 and 8 images of 224 x 224.

`resnet18_batch_1` is tocha's torch.compile beside torch in eager mode; `…_both_compiled` beside torch.compile (which compiles for a minute);
`…_frozen` with parameters as constants (torch._inductor.config.freezing), beside eager mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

Step = Callable[[], Any]
LIMIT = 0.62  # of the best of torch's two
DEPTHS = {18: ((2, 2, 2, 2), 1), 50: ((3, 4, 6, 3), 4)}


def resnet(torch: Any, depth: int) -> Any:
    """A residual network (He et al. 2015) with 1,000 classes, in evaluation, its statistics not trivial."""
    nn = torch.nn
    counts, wider = DEPTHS[depth]

    def layer(i: int, o: int, kernel: int, stride: int) -> list[Any]:
        return [nn.Conv2d(i, o, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(o)]

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, i: int, o: int, stride: int) -> None:
            super().__init__()
            out = o * wider
            shapes = [(i, o, 3, stride), (o, o, 3, 1)] if wider == 1 else [(i, o, 1, 1), (o, o, 3, stride), (o, out, 1, 1)]
            parts = [part for shape in shapes for part in (*layer(*shape), nn.ReLU())]
            self.path = nn.Sequential(*parts[:-1])
            self.down = nn.Sequential(*layer(i, out, 1, stride)) if stride != 1 or i != out else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.path(x) + self.down(x))

    parts, i = [*layer(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for level, count in enumerate(counts):
        for number in range(count):
            parts.append(Block(i, 64 << level, 2 if level and not number else 1))
            i = (64 << level) * wider
    model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000)).eval()
    for name, buffer in model.named_buffers():
        if name.endswith("running_var"):
            buffer.mul_(0.25)  # keeps signals from fading
    return model


def inference(depth: int, batch: int, way: str, torch: Any, device: str) -> Step:
    """`way`: "", "_both_compiled" or "_frozen"."""
    model, x = resnet(torch, depth).to(device), torch.randn(batch, 3, 224, 224, device=device)
    if torch.__name__ != "torch" or way == "_both_compiled":
        options = {"options": {"freezing": True}} if way == "_frozen" else {}
        model = torch.compile(model, **options)

    def step() -> Any:
        with torch.no_grad():
            return model(x)

    return step


NETWORKS = {
    f"resnet{depth}_batch_{batch}{way}": functools.partial(inference, depth, batch, way)
    for way in ("", "_both_compiled", "_frozen")
    for depth in DEPTHS
    for batch in (1, 8)
}
