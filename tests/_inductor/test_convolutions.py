"""Convolutions in compiled inference: which algorithm serves, and values that it can't compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocha as torch
import tocha.nn.functional as F
from tocha._inductor import compile_graph
from tocha.aot import runtime
from tocha.backends import _native_conv


@pytest.fixture
def by_winograd(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The results of calls that Winograd's algorithm was asked for."""
    found: list[Any] = []
    original = _native_conv.winograd

    def spy(*args: Any, **kwargs: Any) -> Any:
        found.append(original(*args, **kwargs))
        return found[-1]

    monkeypatch.setattr(_native_conv, "winograd", spy)
    return found


def conv(x: Any, w: Any, b: Any) -> list[Any]:
    return [F.conv2d(x, w, b, padding=1)]


def test_winograd_serves_compiled_convolutions(by_winograd: list[Any]) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 32, 28, 28), torch.randn(32, 32, 3, 3) / 16, torch.randn(32)
    with torch.no_grad():
        call = runtime.compile(conv, [x, w, b], compile_graph)
        torch.testing.assert_close(call(x, w, b), conv(x, w, b))
    assert len(by_winograd) == 1
    with torch.no_grad(), torch._inductor.config.patch(emulate_precision_casts=True):
        call = runtime.compile(conv, [x, w, b], compile_graph)
        assert (call(x, w, b)[0] == conv(x, w, b)[0]).all()
    assert len(by_winograd) == 1
    w.requires_grad_()
    call = runtime.compile(conv, [x, w, b], compile_graph)
    torch.testing.assert_close(call(x, w, b), conv(x, w, b))
    assert len(by_winograd) == 2


@pytest.mark.parametrize("bias", [True, False])
def test_winograd_serves_stride_2_but_not_its_input_gradient(by_winograd: list[Any], bias: bool) -> None:
    torch.manual_seed(0)
    x, w, b, y = torch.randn(2, 40, 56, 55), torch.randn(48, 40, 3, 3) / 16, torch.randn(48), torch.randn(2, 48, 28, 28)

    def strided(x: Any, w: Any, y: Any) -> list[Any]:
        return [F.relu(F.conv2d(x, w, b if bias else None, 2, 1) + y)]

    with torch.no_grad():
        call = runtime.compile(strided, [x, w, y], compile_graph)
        torch.testing.assert_close(call(x, w, y), strided(x, w, y))
        assert len(by_winograd) == 1 and by_winograd[0] is not None
        x[1, 2, 3, 54] = np.inf
        torch.testing.assert_close(call(x, w, y), strided(x, w, y), equal_nan=True)
    assert len(by_winograd) == 2 and by_winograd[1] is None
    call = runtime.compile(lambda g, w: [torch.nn.grad.conv2d_input((2, 40, 56, 55), w, g, 2, 1)], [y, w], compile_graph)
    torch.testing.assert_close(call(y, w)[0], torch.nn.grad.conv2d_input((2, 40, 56, 55), w, y, 2, 1))
    assert len(by_winograd) == 2


@pytest.mark.parametrize("padding", [0, 1, 2, (0, 2)])
def test_winograd_serves_input_gradients(by_winograd: list[Any], padding: Any) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 40, 28, 27), torch.randn(48, 40, 3, 3) / 16, torch.randn(48)
    g = torch.randn(F.conv2d(x, w, b, padding=padding).shape)

    def of_input(g: Any, w: Any) -> list[Any]:
        return [torch.nn.grad.conv2d_input(x.shape, w, g, padding=padding)]

    call = runtime.compile(of_input, [g, w], compile_graph)
    torch.testing.assert_close(call(g, w), of_input(g, w))
    assert len(by_winograd) == 1 and by_winograd[0] is not None
    g[0, 3, 5, 5] = np.inf
    assert torch.equal(call(g, w)[0].isfinite(), of_input(g, w)[0].isfinite())
    assert by_winograd[1] is None
    with torch._inductor.config.patch(emulate_precision_casts=True):
        call = runtime.compile(of_input, [g, w], compile_graph)
        assert torch.equal(call(g, w)[0], of_input(g, w)[0])
    assert len(by_winograd) == 2


def test_input_gradients_whose_padding_is_more_than_a_kernel(by_winograd: list[Any]) -> None:
    x, w, g = torch.randn(1, 64, 28, 28), torch.randn(64, 64, 3, 3), torch.randn(1, 64, 32, 32)
    call = runtime.compile(lambda g, w: [torch.nn.grad.conv2d_input(x.shape, w, g, padding=3)], [g, w], compile_graph)
    torch.testing.assert_close(call(g, w)[0], torch.nn.grad.conv2d_input(x.shape, w, g, padding=3))
    assert not by_winograd


def test_numbers_that_are_not_finite(by_winograd: list[Any]) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(1, 32, 28, 28), torch.randn(32, 32, 3, 3), torch.randn(32)
    with torch.no_grad():
        call = runtime.compile(conv, [x, w, b], compile_graph)
        x[0, 3, 5, 5], x[0, 1, 20, 20] = np.inf, np.nan
        assert torch.equal(call(x, w, b)[0].isinf(), conv(x, w, b)[0].isinf())
        torch.testing.assert_close(call(x, w, b), conv(x, w, b), equal_nan=True)
    assert by_winograd == [None, None]


# ---- convolutions with what follows them


@st.composite
def layers(draw: Any) -> tuple[Any, ...]:
    """A convolution's input, weight, bias and settings."""
    dims = draw(st.sampled_from([1, 2, 2, 2]))
    groups = draw(st.sampled_from([1, 1, 1, 2, 3]))
    per, outputs = draw(st.integers(1, 40)), groups * draw(st.integers(1, 20))
    kernel = tuple(draw(st.sampled_from([(1,) * dims, (3,) * dims, (5, 2)[:dims]])))
    stride, dilation, padding = ([draw(st.integers(low, high)) for _ in range(dims)] for low, high in ((1, 2), (1, 2), (0, 2)))
    least = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    size = [draw(st.integers(n, 20)) for n in least]
    samples, last = draw(st.sampled_from([0, 1, 1, 2, 5])), draw(st.booleans())
    torch.manual_seed(draw(st.integers(0, 99)))
    x = torch.randn(samples, per * groups, *size, dtype=draw(st.sampled_from([torch.float32, torch.float32, torch.float64])))
    if last and dims == 2:
        x = x.contiguous(memory_format=torch.channels_last)
    weight, bias = torch.randn(outputs, per, *kernel, dtype=x.dtype) / 8, torch.randn(outputs, dtype=x.dtype)
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, weight, bias if draw(st.booleans()) else None, options


def scaled(h: Any, v: Any) -> Any:
    shape = (1, -1, *[1] * (h.ndim - 2))
    return h * v.reshape(shape) + 0.5


ENDS: dict[str, Any] = {
    "affine, relu": lambda h, again, v, rest: [F.relu(scaled(h, v))],
    "residual": lambda h, again, v, rest: [F.relu(scaled(h, v) + rest)],
    "two branches": lambda h, again, v, rest: [F.relu(scaled(h, v) + again * 2)],
    "the sum escapes": lambda h, again, v, rest: [h, F.relu(h)],
    "joined": lambda h, again, v, rest: [torch.cat([F.relu(scaled(h, v)), rest, again], 1)],
    "a value escapes": lambda h, again, v, rest: [scaled(h, v), scaled(h, v).sigmoid() * rest],
    "a condition and another type": lambda h, again, v, rest: [h > rest, torch.where(h > 0, h, rest).to(torch.float32)],
    "written over": lambda h, again, v, rest: [h.add_(rest).mul_(2)],
    "turned": lambda h, again, v, rest: [(h * 2).transpose(0, 1) + 1],
    "averaged": lambda h, again, v, rest: [F.relu(scaled(h, v) + rest).mean(-1)],
    "pixels": lambda h, again, v, rest: [h + rest[:1, :1]],
}


@pytest.mark.parametrize("end", ENDS)
@settings(max_examples=12)
@given(layer=layers())
def test_what_follows_is_what_eager_mode_computes(end: str, layer: Any) -> None:
    x, weight, bias, options = layer
    do = F.conv1d if x.ndim == 3 else F.conv2d

    def network(x: Any, weight: Any, bias: Any, v: Any, rest: Any) -> list[Any]:
        return ENDS[end](do(x, weight, bias, **options), do(x, weight * 2, None, **options), v, rest)

    with torch.no_grad():
        rest = torch.randn(do(x, weight, None, **options).shape, dtype=x.dtype)
        v = torch.randn(weight.shape[0], dtype=x.dtype)
        arguments = [t for t in (x, weight, bias, v, rest) if t is not None]

        def flat(*given: Any) -> list[Any]:
            x, weight, *more = given
            return network(x, weight, more[0] if bias is not None else None, *more[-2:])

        call = runtime.compile(flat, arguments, compile_graph)
        want = flat(*[t.clone() for t in arguments])
        close = {"rtol": 1e-4, "atol": 1e-4} if x.dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}
        for got in (call(*arguments), call(*arguments)):
            torch.testing.assert_close(got, want, **close)


def residual(x: Any, w: Any, b: Any) -> list[Any]:
    h = F.relu(F.conv2d(x, w, b, padding=1))
    return [F.relu(F.conv2d(h, w, b, padding=1) + h)]


def test_a_residual_network_is_two_calls_and_no_kernel() -> None:
    x, w, b = torch.randn(2, 32, 28, 28), torch.randn(32, 32, 3, 3) / 16, torch.randn(32)
    with torch.no_grad():
        call = runtime.compile(residual, [x, w, b], compile_graph)
        torch.testing.assert_close(call(x, w, b), residual(x, w, b), rtol=1e-5, atol=1e-4)
    assert call.forward.code.count(" call_conv") == 2 and "kernel_" not in call.forward.code


def test_operands_outlive_a_kernel_that_can_not_serve(by_winograd: list[Any]) -> None:
    x, w, b = torch.randn(1, 32, 28, 28), torch.randn(32, 32, 3, 3) / 16, torch.randn(32)
    with torch.no_grad():
        call = runtime.compile(residual, [x, w, b], compile_graph)
        x[0, 3, 5, 5] = np.inf
        torch.testing.assert_close(call(x, w, b), residual(x, w, b), equal_nan=True)
    assert by_winograd == [None, None]


@pytest.mark.parametrize("shape", [(3, 40, 19, 21), (1, 200, 7, 7)])
@pytest.mark.parametrize("stride", [1, 2])
def test_results_do_not_depend_on_the_number_of_threads(shape: tuple[int, ...], stride: int) -> None:
    x, w, b = torch.randn(shape), torch.randn(130, shape[1], 3, 3) / 16, torch.randn(130)

    def network(x: Any, w: Any, b: Any) -> list[Any]:
        return [F.relu(F.conv2d(x, w, b, padding=1, stride=stride) * 2)]

    before, found = torch.get_num_threads(), []
    with torch.no_grad():
        call = runtime.compile(network, [x, w, b], compile_graph)
        try:
            for count in (1, 2, 5):
                torch.set_num_threads(count)
                found.append(call(x, w, b)[0])
        finally:
            torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


VIEWS = {
    "transposed": lambda x: x.transpose(2, 3), "stepped": lambda x: x[..., ::2], "permuted": lambda x: x.reshape(2, 28, 28, 64).permute(0, 3, 1, 2),
    "expanded": lambda x: x.mean((2, 3), keepdim=True).expand_as(x), "flipped": lambda x: x.flip(3), "inner": lambda x: x[:, :, 1:-1, 2:-1],
}  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
def test_views_and_expanded_gradients(name: str, by_winograd: list[Any]) -> None:
    """What a graph knows as a dense array may be a view with other strides."""
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 64, 28, 28), (torch.randn(64, 64, 3, 3) / 24).requires_grad_(), torch.randn(64)

    def of(x: Any) -> Any:
        return F.conv2d(VIEWS[name](x), w, b, padding=1)

    def gradients(f: Any) -> Any:
        given = x.clone().requires_grad_()
        return torch.autograd.grad(f(given).mean((2, 3)).square().sum(), (given, w))

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(of)(x), of(x), rtol=1e-4, atol=1e-5)
    assert by_winograd
    torch.testing.assert_close(gradients(torch.compile(of)), gradients(of), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("transposed", [False, True])
def test_cross_entropy_of_views(transposed: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(200, 300), torch.randint(0, 100, (400,))

    def of(x: Any) -> Any:
        return F.cross_entropy(x.t() if transposed else x[:, ::2], y[:300] if transposed else y[::2])

    given, again = x.clone().requires_grad_(), x.clone().requires_grad_()
    loss, want = torch.compile(of)(given), of(again)
    torch.testing.assert_close(loss, want)
    torch.testing.assert_close(torch.autograd.grad(loss, given), torch.autograd.grad(want, again))
