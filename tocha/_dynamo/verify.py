"""`tocha doctor --compile`: whether a model compiles here, and gives eager's numbers (as PyTorch 2.0's verify_dynamo.py asks)."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import tocha as torch
from tocha import Tensor, nn
from tocha._dynamo.report import Explanation
from tocha.aot import journal


class _Block(nn.Module):
    """Embedding, attention and layers: something of each kind of kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.norm = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 50))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        normed = self.norm(x)
        x = x + self.attention(normed, normed, normed, need_weights=False)[0]
        return self.layers(x)


def _step(call: Callable[..., Any], model: nn.Module, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
    model.zero_grad()
    logits = call(tokens)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    loss.backward()
    return loss.detach(), [p.grad.detach().clone() for p in model.parameters() if p.grad is not None]


def check(backend: str) -> Iterator[tuple[str, str]]:
    """Compile forward and backward; lines of the report. RuntimeError if numbers differ, whatever is raised if it fails."""
    torch.manual_seed(0)
    eager_model = _Block()
    model = copy.deepcopy(eager_model)
    tokens = torch.randint(0, 50, (4, 16))
    expected = _step(eager_model, eager_model, tokens)
    found = Explanation()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    journal.listeners.append(found)
    try:
        start = time.perf_counter()
        got = _step(compiled, model, tokens)
        cold = time.perf_counter() - start
    finally:
        journal.listeners.remove(found)
    names = ["loss", *[n for n, _ in model.named_parameters()]]
    pairs = zip(names, [expected[0], *expected[1]], [got[0], *got[1]], strict=True)
    for name, want, have in pairs:
        if not torch.allclose(want, have, rtol=1e-4, atol=1e-5):
            raise RuntimeError(f"{name} differs from eager's by {(want - have).abs().max().item():.2g}")
    warm = _fastest(lambda: _step(compiled, model, tokens))
    eager = _fastest(lambda: _step(eager_model, eager_model, tokens))
    yield (
        f"compile {backend}",
        f"ok: {found.op_count} operations in {found.graph_count} graph, forward and backward equal eager's",
    )
    yield "", f"first step {1000 * cold:.0f} ms, then {1e6 * warm:.0f} µs; eager {1e6 * eager:.0f} µs"


def _fastest(call: Callable[[], Any]) -> float:
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def main() -> int:
    """Print the report; exit status 1 when something is wrong."""
    failed = False
    for backend in ("eager", "aot_eager", "inductor"):
        torch._dynamo.reset()
        try:
            for name, value in check(backend):
                print(f"{name:<20} {value}")
        except Exception as error:  # any failure is a finding, and the other backends are still of interest
            failed = True
            print(f"{'compile ' + backend:<20} FAILED: {type(error).__name__}: {error}")
    print("\nsomething is wrong; see the lines above" if failed else "\nOK: torch.compile works here")
    return int(failed)
