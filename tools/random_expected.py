"""Writes tests/rng/expected.json and tests/ops/random_expected.json: digests of what real torch draws.

The second maps expressions to what they give after manual_seed(0): add an expression with an empty list and
run this where torch is installed: python tools/random_expected.py
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import torch

SIZES = (1, 15, 16, 17, 31, 100, 1000)
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
TESTS = Path(__file__).resolve().parent.parent / "tests"

Fill = Callable[[torch.Tensor], torch.Tensor]
FILLS: dict[str, tuple[Fill, tuple[torch.dtype, ...]]] = {
    "uniform": (lambda x: x.uniform_(), FLOATS),
    "uniform_range": (lambda x: x.uniform_(-0.3, 1.7), FLOATS),
    "normal": (lambda x: x.normal_(), FLOATS),
    "normal_scaled": (lambda x: x.normal_(0.37, 1.7), FLOATS),
    "normal_serial": (lambda x: torch.stack([x, x], 1)[:, 0].normal_(0.37, 1.7), FLOATS),
    "log_normal": (lambda x: x.log_normal_(0.3, 0.7), FLOATS),
    "exponential": (lambda x: x.exponential_(1.3), FLOATS),
    "cauchy": (lambda x: x.cauchy_(0.3, 2.2), FLOATS),
    "geometric": (lambda x: x.geometric_(0.3), (torch.float32, torch.int64)),
    "bernoulli": (lambda x: x.bernoulli_(0.3), (torch.float32, torch.bool)),
    "bernoulli_each32": (lambda x: x.bernoulli_(torch.linspace(0, 1, x.numel())), (torch.float32,)),
    "bernoulli_each64": (lambda x: x.bernoulli_(torch.linspace(0, 1, x.numel()).double()), (torch.float32,)),
    "random": (lambda x: x.random_(), FLOATS + INTEGERS),
    "random_range": (lambda x: x.random_(3, 100), (torch.float32, torch.int64, torch.uint8)),
    "random_wide": (lambda x: x.random_(-5, 2**40 + 7), (torch.int64,)),
    "random_full": (lambda x: x.random_(-(2**63), None), (torch.int64,)),
    "permutation": (lambda x: torch.randperm(x.numel(), dtype=x.dtype), (torch.int64, torch.int32)),
    "categorical": (
        lambda x: torch.multinomial(torch.arange(1.0, 8.0), x.numel() + 1, replacement=True),
        (torch.int64,),
    ),
    "poisson": (lambda x: torch.poisson(torch.linspace(0, 40, x.numel(), dtype=x.dtype)), FLOATS[:2]),
    "binomial": (
        lambda x: torch.binomial(torch.full_like(x, 60), torch.linspace(0, 1, x.numel(), dtype=x.dtype)),
        FLOATS[:2],
    ),
    "gamma": (lambda x: torch._standard_gamma(torch.linspace(0.1, 6, x.numel(), dtype=x.dtype)), FLOATS[:1]),
}


def digest(x: torch.Tensor) -> str:
    """A short hash of the tensor's bytes."""
    return hashlib.sha256(bytes(x.flatten().clone().untyped_storage())).hexdigest()[:16]


def state_digest() -> str:
    return hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()[:16]


def write_samplers(target: Path) -> None:
    expected: dict[str, list[list[object]]] = {}
    for name, (fill, dtypes) in FILLS.items():
        rows = expected[name] = []
        for dtype in dtypes:
            for size in SIZES:
                torch.manual_seed(size)
                x = fill(torch.zeros(size, dtype=dtype))
                rows.append([str(dtype).removeprefix("torch."), size, digest(x), state_digest()])
    text = ",\n".join(f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in expected.items())
    target.write_text("{\n" + text + "\n}\n", encoding="utf-8")


def write_expressions(target: Path) -> None:
    lines = []
    for expression in json.loads(target.read_text(encoding="utf-8")):
        torch.manual_seed(0)
        x = eval(expression, {"torch": torch, "F": torch.nn.functional})
        row = [str(x.dtype).removeprefix("torch."), list(x.shape), digest(x), state_digest()]
        lines.append(f"{json.dumps(expression)}: {json.dumps(row)}")
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def main() -> None:
    write_samplers(TESTS / "rng" / "expected.json")
    write_expressions(TESTS / "ops" / "random_expected.json")


if __name__ == "__main__":
    main()
