"""The order in which sums are added, to the last bit that of torch's CPU kernels on AVX2 with one thread: stated here in NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F
from tocha.backends import native
from tocha.inductor import jit

pytestmark = pytest.mark.skipif(native.inductor() is None or not jit.has_fma(), reason="needs kernels that round x * y + z once")


def fma(x: Any, y: Any, z: Any) -> Any:
    """x * y + z of float32, rounded once."""
    return (np.multiply(x, y, dtype=np.float64) + z).astype(np.float32)


def numbers(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def same(got: Any, want: Any) -> None:
    assert np.array_equal(got.detach().numpy(), want)


@pytest.mark.parametrize("channels", [3, 16, 20])
def test_convolutions_add_eight_channels_for_each_tap(channels: int) -> None:
    x, w, bias = numbers(4, channels, 9, 8), numbers(12, channels, 3, 3), numbers(12)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.broadcast_to(bias.reshape(12, 1, 1), (4, 12, 9, 8))
    for first in range(0, channels, 8):
        for i, j, c in itertools.product(range(3), range(3), range(first, min(first + 8, channels))):
            want = fma(padded[:, None, c, i : i + 9, j : j + 8], w[None, :, c, i, j, None, None], want)
    same(F.conv2d(torch.from_numpy(x), torch.from_numpy(w), torch.from_numpy(bias), padding=1), want)


def test_gradients_of_convolutions() -> None:
    x, w, g = numbers(4, 16, 6, 7), numbers(24, 16, 3, 3), numbers(4, 24, 6, 7)
    given = [torch.from_numpy(a).requires_grad_() for a in (x, w, numbers(24))]
    got = torch.autograd.grad(F.conv2d(*given, padding=1), given, torch.from_numpy(g))
    padded = np.pad(g, ((0, 0), (0, 0), (1, 1), (1, 1)))
    of_x = np.zeros_like(x)
    for first in range(0, 24, 8):
        for i, j, o in itertools.product(range(3), range(3), range(first, first + 8)):
            of_x = fma(padded[:, None, o, 2 - i : 8 - i, 2 - j : 9 - j], w[None, o, :, i, j, None, None], of_x)
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    of_w, of_bias = np.zeros_like(w), np.zeros(24, np.float32)
    for n, h, v in itertools.product(range(4), range(6), range(7)):
        of_w = fma(g[n, :, h, v, None, None, None], around[n, None, :, h : h + 3, v : v + 3], of_w)
        of_bias = of_bias + g[n, :, h, v]
    for found, want in zip(got, (of_x, of_w, of_bias), strict=True):
        same(found, want)


def lanes_sum(x: Any) -> Any:
    """Eight lanes, the last dimension, added in halves."""
    for half in (4, 2, 1):
        x = x[..., :half] + x[..., half : 2 * half]
    return x[..., 0]


@pytest.mark.parametrize(("samples", "size"), [(12, (8, 8)), (61, (3, 3)), (2, (3, 3))])
def test_batch_norm(samples: int, size: tuple[int, int]) -> None:
    x, g, w, bias = numbers(samples, 8, *size), numbers(samples, 8, *size)[::-1].copy(), numbers(8), numbers(8)[::-1].copy()
    length = size[0] * size[1]
    count, rows, grads = samples * length, x.reshape(samples, 8, length), g.reshape(samples, 8, length)
    mean = (rows.sum((0, 2), dtype=np.float64) / count).astype(np.float32)
    apart = rows - mean[:, None]
    var = (apart * apart).sum((0, 2), dtype=np.float64).astype(np.float32) / np.float32(count)
    inverse = (1 / np.sqrt(var.astype(np.float64) + 1e-5)).astype(np.float32)
    scale = inverse * w
    want = fma(rows, scale[:, None], fma(-mean, scale, bias)[:, None])
    given = [torch.from_numpy(a).requires_grad_() for a in (x, w, bias)]
    out = F.batch_norm(given[0], None, None, given[1], given[2], True)
    same(out, want.reshape(x.shape))

    def summed(values: Any) -> Any:
        total = np.zeros((samples, 8, 8), np.float32)
        for i in range(0, length, 8):
            part = values[..., i : i + 8]
            total[..., : part.shape[-1]] += part
        return lanes_sum(total).sum(0, dtype=np.float64)

    products, of_bias = summed(apart * grads), summed(grads)
    slope = products.astype(np.float32) * inverse * inverse / np.float32(count)
    level = (of_bias / count).astype(np.float32)
    of_x = fma(-apart, slope[:, None], grads - level[:, None]) * inverse[:, None] * w[:, None]
    got = torch.autograd.grad(out, given, torch.from_numpy(g))
    for found, right in zip(got, (of_x.reshape(x.shape), products * inverse, of_bias), strict=True):
        same(found, right.astype(np.float32))


@pytest.mark.parametrize(("rows", "length", "columns"), [(50, 512, 10), (33, 500, 4), (7, 4097, 3), (64, 1000, 11)])
def test_linear_with_few_outputs(rows: int, length: int, columns: int) -> None:
    x, w, bias = numbers(rows, length), numbers(columns, length), numbers(columns)
    want = np.empty((rows, columns), np.float32)
    for j in range(columns):
        lanes = 4 if j < columns // 4 * 4 else 8
        products = np.zeros((rows, -(-length // lanes) * lanes), np.float32)
        products[:, :length] = x * w[j]
        total = np.zeros((rows, 8), np.float32)
        for k in range(0, length, lanes):
            total[:, :lanes] += products[:, k : k + lanes]
        want[:, j] = lanes_sum(total) + bias[j]
    same(F.linear(*map(torch.from_numpy, (x, w, bias))), want)


def test_gradients_of_linear_with_few_outputs() -> None:
    x, w, g = numbers(50, 300), numbers(7, 300), numbers(50, 7)
    given = [torch.from_numpy(a).requires_grad_() for a in (x, w, numbers(7))]
    got = torch.autograd.grad(F.linear(*given), given, torch.from_numpy(g))
    of_x, of_w = np.zeros_like(x), np.zeros_like(w)
    for j in range(7):
        of_x = fma(g[:, j, None], w[j], of_x)
    for n in range(50):
        of_w = fma(g[n, :, None], x[n], of_w)
    same(got[0], of_x)
    same(got[1], of_w)


@pytest.mark.parametrize(("rows", "columns"), [(50, 10), (64, 64), (1100, 12)])
def test_bias_of_linear(rows: int, columns: int) -> None:
    x, w, g = numbers(rows, 24), numbers(columns, 24), numbers(rows, columns)
    bias = torch.zeros(columns, requires_grad=True)
    given = [torch.from_numpy(a).requires_grad_() for a in (x, w)]
    got = torch.autograd.grad(F.linear(*given, bias), [*given, bias], torch.from_numpy(g))[2]

    def down(values: Any) -> Any:
        """Rows added 16 at a time, the sums of those likewise, and so on."""
        levels = [np.zeros(values.shape[1:], np.float32) for _ in range(4)]
        for i, row in enumerate(values, 1):
            levels[0] = levels[0] + row
            for level in range(3):
                if i % 16 ** (level + 1):
                    break
                levels[level + 1] = levels[level + 1] + levels[level]
                levels[level] = np.zeros_like(row)
        total = levels[0]
        for level in levels[1:]:
            total = total + level
        return total

    wide, whole = columns // 32 * 32, rows // 4 * 4
    parts = down(g[:whole, wide:].reshape(whole // 4, 4, columns - wide))
    first = parts[0]
    for row in g[whole:, wide:]:
        first = first + row
    same(got, np.concatenate([down(g[:, :wide]), first + parts[1] + parts[2] + parts[3]]))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_rounds_its_step_once(momentum: float) -> None:
    p = torch.from_numpy(numbers(300)).requires_grad_()
    optimizer, want, buffer = torch.optim.SGD([p], lr=0.1, momentum=momentum), numbers(300), None
    for step in range(3):
        grad = numbers(300)[::-1] * np.float32(step + 1)
        p.grad = torch.from_numpy(grad.copy())
        optimizer.step()
        buffer = grad if buffer is None or not momentum else buffer * np.float32(momentum) + grad
        want = fma(buffer, np.float32(-0.1), want)
        same(p, want)
