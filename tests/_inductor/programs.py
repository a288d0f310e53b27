"""A generator of random programs: functions of three tensors, of operators, views, in-place writes, types and control flow."""

from __future__ import annotations

import random
from typing import Any

import tocha as torch

_SHAPES = (
    [(4, 5), (4, 5), (5,)], [(3, 4, 5), (5,), (4, 1)], [(6,), (6,), ()], [(2, 3), (3, 2), (1,)], [(33, 17), (33, 17), (17,)], [(0, 3), (3,), (1, 1)],
    [(2, 3, 8, 8), (3, 1, 1), (8,)], [(2, 16), (16, 2), (2, 1)],
)  # fmt: skip

#: Statements by how often they come: `o` is made of x and y, {n} is a small number. A helper of the same module may do the work.
_STEPS: tuple[tuple[float, str], ...] = (
    # pointwise
    (5, "{o} = unary('{unary}', {x})"),
    (5, "{o} = binary('{binary}', {x}, {y})"),
    (1, "{o} = {x} * {factor} + {shift}"),
    (1, "{o} = torch.where(real({x}) > 0, {x}, {x} * 2)"),
    (0.5, "{o} = real({x}).clamp(-0.5, 1)"),
    (0.5, "{o} = torch.lerp(real({x}), real({x}).tanh(), 0.3)"),
    (0.5, "{o} = real({x}) {compare} real({x}).mean()"),
    (0.3, "{o} = ({x} != 0) & ({x} == {x})"),
    (0.3, "{o} = {x}.masked_fill({x} == 0, 2)"),
    # types
    (0.7, "{o} = cast({x}, torch.{dtype})"),
    (0.5, "{o} = cast({x}, torch.{dtype}).to(torch.float32)"),
    (0.3, "{o} = torch.complex(real({x}).float(), real({x}).float().sin())"),
    (0.3, "{o} = {x}.abs() if {x}.is_complex() else {x}.round()"),
    # reductions
    (1.2, "{o} = {x}.{sum}({dim}, keepdim={flag}) if {x}.dim() > 0 else {x}.clone()"),
    (0.6, "{o} = real({x}).{extreme}({dim}) if full({x}) else {x} + 1"),
    (0.6, "{o} = real({x}).round().{extreme}({dim}) if full({x}) else {x} + 1"),  # ties
    (0.5, "{o} = real({x}).{most}({dim}).values if full({x}) else {x} + 1"),
    (0.3, "{o} = real({x}).round().{most}({dim}).indices if full({x}) else {x} + 1"),
    (0.3, "{o} = real({x}).round().{argmost}({dim}) if full({x}) else {x} + 1"),
    (0.3, "{o} = real({x}).{spread}({dim}) if full({x}) and {x}.shape[{dim}] > 1 else {x} + 1"),
    (0.3, "{o} = real({x}).logsumexp({dim}) if full({x}) else {x} + 1"),
    (0.3, "{o} = {x}.{running}({dim}) if full({x}) else {x} + 1"),
    (0.2, "{o} = {x}.bool().{every}({dim}) if {x}.dim() else {x} + 1"),
    (0.2, "{o} = real({x}).norm(dim={dim}) if full({x}) else {x} + 1"),
    # views
    (1, "{o} = {x}.transpose(0, -1) if {x}.dim() > 1 else {x}.unsqueeze(0)"),
    (1, "{o} = {x}[{index}] if {x}.dim() > 0 and min({x}.shape) > 1 else {x}.clone()"),
    (0.8, "{o} = {x}.reshape(-1)"),
    (0.4, "{o} = {x}.expand(2, *{x}.shape)"),
    (0.4, "{o} = {x}.unsqueeze({dim}).squeeze({dim})"),
    (0.4, "{o} = {x}.movedim(0, -1) if {x}.dim() > 1 else {x} * 1"),
    (0.4, "{o} = {x}.diagonal() if {x}.dim() > 1 else {x} * 1"),
    (0.4, "{o} = {x}.narrow({dim}, 0, max({x}.shape[{dim}] // 2, 1)) if full({x}) else {x} * 1"),
    (0.4, "{o} = {x}.unfold({dim}, 2, 1) if full({x}) and {x}.shape[{dim}] > 1 else {x} * 1"),
    (0.4, "{o} = {x}.chunk(2, {dim})[-1] if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.unbind({dim})[0] if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.detach()"),
    (0.8, "{o} = {x}.{copy}()"),
    # writes
    (0.6, "{o} = {x}.clone(); {o}[..., :1].{write} if {o}.dim() > 0 else None"),
    (0.6, "{o} = {x}.clone(); {o}.{write}"),
    (0.5, "{o} = {x}.clone(); v = {o}.reshape(-1)[::2]; v.{write}; {o}.{write}"),
    (0.4, "{o} = {x}.clone(); v = {o}.transpose(0, -1)[0] if {o}.dim() > 1 else {o}; {o}.{write}; {o} = {o} + v.sum()"),
    (0.4, "{o} = {x}.clone(); {o}.diagonal().{write} if {o}.dim() > 1 else None"),
    (0.4, "{o} = {x}.clone(); {o}[{index}] = {factor} if {o}.dim() > 0 and min({o}.shape) > 1 else 1"),
    (0.4, "{o} = {x}.clone(); {o}.masked_fill_(real({o}) > 0, 1)"),
    (0.4, "{o} = {x}.clone(); {o}.copy_({x}.sum())"),
    (0.3, "{o} = {x}.clone(); {o} += {y}.sum().to({o}.dtype)"),
    (0.3, "{x}.{write}; {o} = {x} * 1"),
    # indices
    (0.5, "{o} = {x}[indices({x}, 0)] if full({x}) else {x} * 1"),
    (0.4, "{o} = {x}.index_select({dim}, indices({x}, {dim})) if full({x}) else {x} * 1"),
    (0.4, "{o} = {x}.gather({dim}, real({x}).argsort({dim}, stable=True)) if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.take_along_dim(real({x}).round().argsort({dim}, stable=True), {dim}) if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.scatter_add({dim}, real({x}).argsort({dim}, stable=True) // 2, {x}) if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.index_add(0, indices({x}, 0), {x}[indices({x}, 0)]) if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.index_put((indices({x}, 0),), {x}.sum(), accumulate={flag}) if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.clone(); {o}.scatter_({dim}, real({x}).argsort({dim}, stable=True), {x} * 2) if full({x}) else None"),
    (0.2, "{o} = {x}[None, ..., indices({x}, -1)] if full({x}) else {x} * 1"),
    # sorting
    (0.3, "{o} = real({x}).sort({dim}, stable=True).values if full({x}) else {x} * 1"),
    (0.3, "{o} = real({x}).topk(1, {dim}).values if full({x}) else {x} * 1"),
    # joining
    (0.6, "{o} = torch.cat([{x}, {x}], 0) if {x}.dim() > 0 else {x}.clone()"),
    (0.4, "{o} = torch.stack([{x}, {x} * 2], {dim}).sum({dim})"),
    (0.3, "{o} = {x}.flip(0) if {x}.dim() else {x} * 1"),
    (0.3, "{o} = {x}.roll(1, {dim}) if full({x}) else {x} * 1"),
    (0.3, "{o} = {x}.repeat_interleave(2, {dim}) if full({x}) else {x} * 1"),
    (0.3, "{o} = F.pad({x}, (1, 2)) if {x}.dim() else {x} * 1"),
    (0.2, "{o} = F.pad(real({x}).reshape(1, 1, -1), (1, 1), mode='{padding}') if {x}.numel() > 1 else {x} * 1"),
    # layers
    (0.4, "{o} = F.{soft}(real({x}), {dim}) if full({x}) else {x} + 1"),
    (0.3, "{o} = F.layer_norm(real({x}), {x}.shape[-1:]) if full({x}) and {x}.shape[-1] > 1 else {x} + 1"),
    (0.2, "{o} = F.normalize(real({x}), dim={dim}) if full({x}) else {x} + 1"),
    (0.2, "{o} = F.group_norm(real({x}), 1) if full({x}) and {x}.dim() > 2 else {x} + 1"),
    (0.2, "{o} = F.batch_norm(real({x}), None, None, training=True) if full({x}) and {x}.dim() > 1 and {x}.shape[0] > 1 else {x} + 1"),
    (0.4, "{o} = matrix({x}) @ matrix({x}).t()"),
    (0.3, "{o} = F.linear(matrix({x}), matrix({x})[:2], None)"),
    (0.3, "{o} = F.{pool}1d(real({x}).reshape(1, 1, -1), 2) if {x}.numel() > 1 else {x} + 1"),
    (0.3, "{o} = F.conv1d(row({x}), row({x})[..., :2], padding=1) if {x}.numel() > 1 else {x} + 1"),
    (0.3, "{o} = F.conv2d(plane({x}), plane({x})[..., :2, :2], stride={n}) if {x}.dim() > 1 and min({x}.shape) > 1 else {x} + 1"),
    (0.2, "{o} = F.{pool}2d(plane({x}), 2) if {x}.dim() > 1 and min({x}.shape) > 1 else {x} + 1"),
    # control flow
    (0.3, "{o} = {x}\n    for i in range({n}):\n        {o} = {o} * i + 1"),
    (0.2, "{o} = {x} * 1 if {x}.numel() > 6 else {x} - 1"),
    (0.2, "{o} = torch.cond(real({x}).sum() > 0, lambda t: t * 2, lambda t: t - 1, ({x} * 1,))"),
)  # fmt: skip
#: Statements that make `o` with a matrix product, {call}, of x and a matrix made of y.
_AROUND_PRODUCTS = (
    "{o} = {call}",
    "{o} = unary('{smooth}', {call})",
    "{o} = binary('{binary}', unary('{smooth}', {call}), {y})",
    "{o} = {call}; {o} = {o} * unary('{smooth}', {o}) + {o}",
    "{o} = {call}; {o} = binary('{binary}', {o}, {o}.mean(-1, keepdim=True))",
    "{o} = {call}; {o} = torch.where({o} > 0.5, {o}, {o} * 0.25).to(torch.{float}).float()",
    "{o} = {call}; {o} = {o}.reshape(-1, {wide}) + unary('{smooth}', {o}).reshape(-1, {wide})[:, :1]",
    "{o} = {call}; {o} = {o} + unary('{smooth}', {call})",
    "{o} = {call}; {o} = unary('{smooth}', {o}).transpose(0, -1)",
)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "unary": ("exp", "sin", "tanh", "neg", "abs", "sigmoid", "relu", "sqrt", "square", "erf", "log1p", "sign", "floor", "reciprocal", "cos", "expm1"),
    "binary": ("add", "sub", "mul", "maximum", "minimum", "atan2", "true_divide", "pow", "remainder", "hypot"),
    "factor": (2, 0.5, -1.5, 3), "shift": (1, 0.25), "compare": ("<", ">=", "!="),
    "dtype": ("float64", "bfloat16", "float16", "int32", "int64", "int8", "uint8", "bool", "float32"),
    "sum": ("sum", "mean", "prod"), "extreme": ("amax", "amin"), "most": ("max", "min"), "argmost": ("argmax", "argmin"),
    "spread": ("var", "std"), "running": ("cumsum", "cumprod"), "every": ("any", "all"), "dim": (0, -1), "flag": (True, False), "n": (1, 2),
    "index": ("1:", "::2", ":-1", "0", "..., 1:", "None", "..., ::2", "-1", "1:, None"), "copy": ("contiguous", "clone"),
    "write": ("mul_(2)", "add_(1)", "fill_(3)", "zero_()", "neg_()", "square_()"), "padding": ("constant", "reflect", "replicate", "circular"),
    "product": ("linear", "matmul", "addmm", "bmm"), "wide": (5, 8, 33), "smooth": ("gelu", "silu", "tanh", "sigmoid", "relu", "exp", "erf"),
    "float": ("float64", "bfloat16", "float16"), "soft": ("softmax", "log_softmax"), "pool": ("max_pool", "avg_pool"),
}  # fmt: skip


def program(seed: int, products: bool = False) -> tuple[str, list[tuple[int, ...]]]:
    """A function of three tensors as source, and shapes for them; with `products`, nearly a third of it matrix products."""
    rng = random.Random(seed)
    names, lines = ["a", "b", "c"], []
    weights = [w for w, _ in _STEPS]
    for number in range(rng.randint(3, 14)):
        chosen = {k: rng.choice(v) for k, v in _CHOICES.items()}
        product = "product('{product}', {x}, {y}, {wide})"
        step = rng.choice(_AROUND_PRODUCTS) if products and rng.random() < 0.3 else rng.choices(_STEPS, weights)[0][1]
        step = step.replace("{call}", product)
        x, y = (rng.choice(names[-5:] if rng.random() < 0.6 else names) for _ in "xy")
        lines.append("    " + step.format(o=f"t{number}", x=x, y=y, **chosen))
        names.append(f"t{number}")
    results = rng.sample(names[3:], min(3, len(names) - 3))
    return "\n".join(["def function(a, b, c):", *lines, f"    return [{', '.join(results)}]", ""]), rng.choice(_SHAPES)


# ---- what programs call


def real(x: Any) -> Any:
    """A tensor as one of real floating-point numbers."""
    return x.real if x.is_complex() else x if x.is_floating_point() else x.float()


def full(x: Any) -> bool:
    """Whether it has dimensions, and elements."""
    return bool(x.dim() > 0 and x.numel() > 0)


def cast(x: Any, dtype: Any) -> Any:
    """Another type; to integers only what they can hold."""
    return x.to(dtype) if dtype.is_floating_point else torch.nan_to_num(real(x)).clamp(0, 100).to(dtype)


def matrix(x: Any) -> Any:
    """As a matrix."""
    return real(x).reshape(x.shape[0], -1) if full(x) else real(x).reshape(1, -1)


def row(x: Any) -> Any:
    """As an input of conv1d."""
    return real(x).reshape(1, 1, -1)


def plane(x: Any) -> Any:
    """As an input of conv2d."""
    return real(x).reshape(-1, 1, *x.shape[-2:])


def indices(x: Any, dim: int) -> Any:
    """Places along a dimension, some of them twice."""
    return torch.arange(x.shape[dim] + 2) * 3 % x.shape[dim]


def unary(name: str, x: Any) -> Any:
    """A function of a tensor of a type that it may not have."""
    x = x if x.is_complex() and name in ("exp", "sin", "neg", "square", "cos") else real(x)
    return getattr(x, name)() if hasattr(x, name) else getattr(torch.nn.functional, name)(x)


def binary(name: str, x: Any, y: Any) -> Any:
    """The operator on operands that may not broadcast."""
    if any(n != m and n != 1 and m != 1 for n, m in zip(x.shape[::-1], y.shape[::-1])):
        x = x.sum()
    if name not in ("add", "mul", "maximum", "minimum", "true_divide"):
        x, y = real(x), real(y)
    if name in ("maximum", "minimum") and (x.is_complex() or y.is_complex()):
        x, y = real(x), real(y)
    return getattr(torch, name)(x, y)


def product(name: str, x: Any, y: Any, n: int) -> Any:
    """A product with a matrix of n columns, or of a batch of two."""
    x = real(x).float() if x.dim() else real(x).float().reshape(1)
    k = x.shape[-1]
    weight = (torch.arange(n * k).float() * 0.7 + real(y).float().sigmoid().mean()).sin().reshape(n, k) / k**0.5
    if name == "linear":
        return torch.nn.functional.linear(x, weight, torch.arange(n) * 0.1)
    if name == "matmul":
        return x @ weight.t()
    rows = x.reshape(-1, k)
    if name == "addmm":
        return torch.addmm(real(y).float().mean() + torch.arange(n), rows, weight.t(), alpha=0.5)
    return torch.bmm(rows.expand(2, -1, -1), torch.stack([weight.t(), weight.reshape(k, n)]))
