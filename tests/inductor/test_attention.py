"""Attention on kernels: values and gradients against float64, over lengths around tiles and blocks, masks, groups, layouts and types."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
from tocha import threads
from tocha.backends import _native_attention as kernels
from tocha.backends import cpu, native
from tocha.inductor import jit
from tocha.prims import attention as prims

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
ERROR = {"f": 2e-5, "d": 1e-13, "e": 6e-3, "E": 5e-2}
NAMES = ("out", "query", "key", "value")


def expected(g: Any, q: Any, k: Any, v: Any, mask: Any, scale: float, causal: bool) -> tuple[Any, ...]:
    """Result and gradients in float64 by the formula, each with the sizes of the terms it sums: what rounding errors are relative to."""
    g, q, k, v = (x.astype("d") for x in (g, q, k, v))
    group = q.shape[1] // k.shape[1]
    every_k, every_v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = q @ every_k.swapaxes(-1, -2) * scale
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask.astype("d")
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(top == -np.inf, 0, top))
    total = weights.sum(-1, keepdims=True)
    weights /= np.where(total == 0, 1, total)

    def over_group(x: Any) -> Any:
        return x.reshape(k.shape[0], k.shape[1], group, *x.shape[2:]).sum(2)

    def results(g: Any, q: Any, key: Any, value: Any, sign: int) -> tuple[Any, ...]:
        change = g @ value.swapaxes(-1, -2)
        change = weights * (change - sign * (change * weights).sum(-1, keepdims=True))
        swapped, rows = change.swapaxes(-1, -2), weights.swapaxes(-1, -2)
        return weights @ value, change @ key * scale, over_group(swapped @ q) * scale, over_group(rows @ g)

    sizes = results(*map(np.abs, (g, q, every_k, every_v)), -1)
    return tuple(zip(results(g, q, every_k, every_v, 1), map(np.abs, sizes), strict=True))


def arrays(rng: Any, sizes: tuple[int, ...], dtype: Any, layout: str) -> tuple[Any, ...]:
    """g, query, key, value of (batch, heads, heads of keys, L, S, E, Ev); "heads" has them as a projection leaves them, "gaps" strided."""
    batch, heads, shared, length, keys, width, channels = sizes

    def one(h: int, n: int, d: int) -> Any:
        if layout == "heads":
            return rng.standard_normal((batch, n, h, d)).astype(dtype).swapaxes(1, 2)
        x = rng.standard_normal((batch, h, n, d * (2 if layout == "gaps" else 1))).astype(dtype)
        return x[..., ::-1, ::2] if layout == "gaps" else x

    return one(heads, length, channels), one(heads, length, width), one(shared, keys, width), one(shared, keys, channels)


def assert_close(got: Any, want: Any, size: Any, room: float, name: str) -> None:
    wrong = ~(np.abs(got.astype("d") - want) <= room * (1.0 + size))
    assert not wrong.any(), (name, got[wrong][:4], want[wrong][:4], size[wrong][:4])


def check(g: Any, q: Any, k: Any, v: Any, mask: Any = None, causal: bool = False, scale: float | None = None) -> None:
    params = {"scale": q.shape[-1] ** -0.5 if scale is None else scale, "causal": causal}
    found = kernels.forward([q, k, v, mask], params)
    assert found is not None
    back = kernels.backward([g, q, k, v, mask, *found], params)
    assert back is not None
    room = ERROR["E" if q.dtype == BFLOAT16 else q.dtype.char]
    for name, got, (want, size) in zip(
        NAMES, (found[0], *back), expected(g, q, k, v, mask, params["scale"], causal), strict=True
    ):
        assert got.dtype == q.dtype and got.shape == want.shape, name
        assert_close(got, want, size, room, name)


def masks(rng: Any, kind: str, sizes: tuple[int, ...]) -> Any:
    batch, heads, _, length, keys, *_ = sizes
    if kind == "none":
        return None
    if kind == "padding":
        return np.arange(keys) < rng.integers(0, keys + 1, (batch, 1, 1, 1))  # a row of a batch may see nothing
    if kind == "bool":
        found = rng.random((length, keys)) > 0.4
        found[length // 2] = False
        return found
    found = rng.standard_normal((batch, heads, length, keys)).astype("f")
    found[found > 1.5] = -np.inf
    return np.asfortranarray(found) if kind == "columns" else found


SIZES = [
    (1, 1, 1, 1, 1, 1, 1), (2, 3, 3, 5, 7, 4, 6), (1, 2, 1, 33, 300, 16, 24), (1, 4, 2, 200, 270, 20, 9), (1, 1, 1, 1, 530, 70, 33),
    (1, 2, 2, 130, 33, 12, 48), (1, 1, 1, 600, 100, 8, 8),
]  # fmt: skip


@pytest.mark.parametrize("mask", ["none", "padding", "bool", "float", "columns"])
@pytest.mark.parametrize("causal", [False, True])
def test_values_and_gradients(mask: str, causal: bool) -> None:
    rng = np.random.default_rng(1)
    for number, sizes in enumerate(SIZES):
        check(*arrays(rng, sizes, "f", ("dense", "heads", "gaps")[number % 3]), masks(rng, mask, sizes), causal)


@pytest.mark.parametrize("dtype", [np.float64, np.float16, BFLOAT16], ids=str)
def test_other_types(dtype: Any) -> None:
    rng = np.random.default_rng(2)
    for sizes, layout in itertools.product(SIZES[1:4], ("dense", "heads", "gaps")):
        check(*arrays(rng, sizes, dtype, layout), masks(rng, "float", sizes), causal=layout == "heads")


@settings(max_examples=40)
@given(st.data())
def test_random_calls(data: Any) -> None:
    shared, group = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    numbers = [data.draw(st.integers(1, most)) for most in (2, 300, 300, 40, 40)]
    sizes = (numbers[0], shared * group, shared, *numbers[1:])
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    layout, mask = (
        data.draw(st.sampled_from(["dense", "heads", "gaps"])),
        data.draw(st.sampled_from(["none", "bool", "float", "padding"])),
    )
    check(
        *arrays(rng, sizes, "f", layout),
        masks(rng, mask, sizes),
        data.draw(st.booleans()),
        data.draw(st.sampled_from([None, 0.0, -0.7, 3.0])),
    )


def test_numpy_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """The primitives' plain way, which serves other backends."""
    rng = np.random.default_rng(4)
    for kind in ("none", "bool", "float"):
        sizes = (2, 4, 2, 9, 13, 6, 5)
        g, *given = arrays(rng, sizes, "f", "dense")
        mask = masks(rng, kind, sizes)
        out, lse = cpu.quiet.run(prims.flash_attention.impl, cpu, *given, mask, scale=0.3, causal=True)
        back = cpu.quiet.run(prims.flash_attention_backward.impl, cpu, g, *given, mask, out, lse, scale=0.3, causal=True)
        native_out, native_lse = kernels.forward([*given, mask], {"scale": 0.3, "causal": True})
        np.testing.assert_allclose(native_lse, lse, rtol=1e-5)
        np.testing.assert_allclose(native_out, out, atol=1e-5)
        for got, (want, size) in zip(back, expected(g, *given, mask, 0.3, True)[1:], strict=True):
            assert_close(got, want, size, 2e-5, kind)


def test_scores_of_any_size_and_infinite_values() -> None:
    """exp never overflows; NaN and infinities reach their own rows only."""
    q, k, v = (np.ones((1, 1, n, 8), "f") for n in (40, 300, 300))
    out, lse = kernels.forward([q * 1e4, k * 1e4, v, None], {"scale": 1.0, "causal": False})
    assert (out == 1).all() and np.allclose(lse, 8e8)
    q[0, 0, 3] = np.nan
    v[0, 0, 299, 2] = np.inf
    out, _ = kernels.forward([q, k, v, None], {"scale": 1.0, "causal": False})
    assert np.isnan(out[0, 0, 3]).all() and np.isinf(out[0, 0, :3, 2]).all()
    np.testing.assert_allclose(np.delete(out[0, 0, 4:], 2, -1), 1, rtol=1e-6)


def test_results_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(5)
    g, *given = arrays(rng, (1, 4, 2, 300, 310, 24, 24), "f", "dense")
    before, results = threads.get_num_threads(), []
    try:
        for count in (1, 2, 5):
            threads.set_num_threads(count)
            found = kernels.forward([*given, None], {"scale": 0.2, "causal": True})
            back = kernels.backward([g, *given, None, *found], {"scale": 0.2, "causal": True})
            results.append([x.tobytes() for x in (*found, *back)])
    finally:
        threads.set_num_threads(before)
    assert results[0] == results[1] == results[2]


def test_memory_is_linear_in_the_length() -> None:
    q = torch.zeros(1, 1, 8192, 16, requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    attend(q[:, :, :64], q[:, :, :64], q[:, :, :64]).sum().backward()  # compiles
    tracemalloc.start()
    try:
        attend(q, q, q, is_causal=True).sum().backward()
        assert tracemalloc.get_traced_memory()[1] < 60 << 20  # the scores alone would take 256 MiB
    finally:
        tracemalloc.stop()


def test_what_is_left_to_numpy() -> None:
    x = np.zeros((1, 1, 4, 4), "f")
    params = {"scale": 1.0, "causal": False}
    assert kernels.forward([x, x[:, :, :0], x[:, :, :0], None], params) is None
    assert kernels.forward([x, x, x.astype("d"), None], params) is None
    attend = torch.nn.functional.scaled_dot_product_attention
    empty = torch.zeros(2, 0, 4)
    assert attend(torch.ones(2, 3, 4), empty, empty).tolist() == torch.zeros(2, 3, 4).tolist()
    assert attend(empty, empty, empty).shape == (2, 0, 4)
    wide = torch.arange(6.0).reshape(1, 3, 2)
    assert attend(torch.ones(1, 2, 0), torch.ones(1, 3, 0), wide).tolist() == [[[2.0, 3.0], [2.0, 3.0]]]


@pytest.mark.parametrize("isa", ["avx2", "sse"])
def test_other_machines_tiles(monkeypatch: pytest.MonkeyPatch, isa: str) -> None:
    if "+avx512f" not in jit.host()[2]:
        pytest.skip("this CPU has no more than that")
    monkeypatch.setenv("TOCHA_ISA", isa)
    monkeypatch.setattr(native, "_built", {})
    monkeypatch.setattr(native, "_remembered", {})
    jit._host.cache_clear()
    try:
        rng = np.random.default_rng(3)
        for sizes in SIZES[1:5]:
            check(*arrays(rng, sizes, "f", "dense"), masks(rng, "float", sizes), causal=True)
    finally:
        monkeypatch.undo()
        jit._host.cache_clear()


# ---- operators


def test_groups_are_asked_for() -> None:
    q, k = torch.ones(1, 4, 3, 8), torch.ones(1, 2, 3, 8)
    with pytest.raises(RuntimeError):
        torch.nn.functional.scaled_dot_product_attention(q, k, k)
    assert torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape == (1, 4, 3, 8)


@pytest.mark.parametrize("causal", [False, True])
def test_gradients_of_gradients(causal: bool) -> None:
    rng = np.random.default_rng(6)
    q = torch.tensor(rng.standard_normal((1, 4, 5, 3)), requires_grad=True)
    k, v = (torch.tensor(rng.standard_normal((1, 2, 6, n)), requires_grad=True) for n in (3, 2))
    mask = None if causal else torch.tensor(rng.standard_normal((5, 6)), requires_grad=True)

    def run(q: Any, k: Any, v: Any, *mask: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, *mask, is_causal=causal, enable_gqa=True)

    given = (q, k, v) if mask is None else (q, k, v, mask)
    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


def test_batches_broadcast() -> None:
    rng = np.random.default_rng(7)
    q, k = torch.tensor(rng.standard_normal((2, 1, 3, 5, 4))), torch.tensor(rng.standard_normal((4, 1, 6, 4)), requires_grad=True)
    attend = torch.nn.functional.scaled_dot_product_attention
    wide = k.detach().expand(2, 4, 3, 6, 4).clone().requires_grad_()
    got, want = attend(q, k, k), attend(q.expand(2, 4, 3, 5, 4).clone(), wide, wide)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-12)
    got.sum().backward()
    want.sum().backward()
    np.testing.assert_allclose(k.grad.numpy(), wide.grad.sum((0, 2), keepdim=True)[0].numpy(), rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_multi_head_attention_agrees_with_its_weights(dtype: Any) -> None:
    torch.manual_seed(0)
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True, dtype=dtype)
    x = torch.randn(2, 40, 32, dtype=dtype)
    padding = torch.arange(40) >= torch.tensor([[40], [25]])
    with_weights, weights = layer(x, x, x, key_padding_mask=padding)
    alone, nothing = layer(x, x, x, key_padding_mask=padding, need_weights=False)
    assert nothing is None and weights.shape == (2, 40, 40)
    tolerance = 1e-6 if dtype is torch.float32 else 2e-2
    np.testing.assert_allclose(alone.detach().float().numpy(), with_weights.detach().float().numpy(), atol=tolerance)
