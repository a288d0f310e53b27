"""Result types under autocast on the CPU are torch 2.13's; the state comes back; parameters are cast once."""

from __future__ import annotations

import threading
import warnings

import pytest

import tocha as torch
from tocha.amp import custom_bwd, custom_fwd
from tocha.dispatch.override import FUNCTION_MODES
from tocha.nn import functional as F

X = torch.arange(16.0).reshape(4, 4) / 16
B = X.bfloat16()
CLASSES = torch.tensor([0, 1, 2, 3])

LOWER = {
    "mm": lambda: torch.mm(X, X), "matmul": lambda: X @ X, "linear": lambda: F.linear(X, X, X[0]), "addmm": lambda: torch.addmm(X, X, X),
    "einsum": lambda: torch.einsum("ij,jk->ik", X, X), "conv1d": lambda: F.conv1d(X[None], X[:, :, None]),
    "baddbmm": lambda: torch.baddbmm(X[None], X[None], X[None]), "attention": lambda: F.scaled_dot_product_attention(X[None], X[None], X[None]),
    "prelu": lambda: F.prelu(X, X[0, :1]), "lstm": lambda: torch.nn.LSTM(4, 4)(X)[0], "inner": lambda: torch.inner(X, X),
    "heads": lambda: torch.nn.MultiheadAttention(4, 2)(X, X, X)[0], "softmax": lambda: B.softmax(-1), "exp": B.exp, "sum": B.sum,
    "layer_norm": lambda: F.layer_norm(B, (4,)),
}  # fmt: skip
FULL = {
    "mv": lambda: torch.mv(X, X[0]), "dot": lambda: torch.dot(X[0], X[0]), "add": lambda: B + X, "cat": lambda: torch.cat([B, X]),
    "stack": lambda: torch.stack([B, X]), "mse_loss": lambda: F.mse_loss(B, B), "cross_entropy": lambda: F.cross_entropy(B, CLASSES),
    "prod": B.prod, "bce": lambda: F.binary_cross_entropy_with_logits(B, B), "out=": lambda: torch.mm(X, X, out=torch.empty(4, 4)),
    "nll_loss": lambda: F.nll_loss(B, CLASSES), "quantile": lambda: B.float().quantile(0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", LOWER)
def test_products_run_in_bfloat16(name):
    with torch.autocast("cpu"):
        assert LOWER[name]().dtype is torch.bfloat16


@pytest.mark.parametrize("name", FULL)
def test_others_run_in_float32(name):
    with torch.autocast("cpu"):
        assert FULL[name]().dtype is torch.float32


def test_float64_is_left_alone():
    with torch.autocast("cpu"):
        assert torch.mm(X.double(), X.double()).dtype is torch.float64


def test_state_nests_and_comes_back():
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_autocast_enabled("cuda")
        assert torch.get_autocast_dtype("cpu") is torch.float16
        with torch.autocast("cpu", enabled=False):
            assert (X @ X).dtype is torch.float32
        assert (X @ X).dtype is torch.float16
    assert not torch.is_autocast_enabled("cpu")
    assert torch.get_autocast_dtype("cpu") is torch.bfloat16
    assert torch.get_autocast_dtype("cuda") is torch.float16
    assert FUNCTION_MODES == []


def test_an_error_inside_ends_it_too():
    with pytest.raises(RuntimeError, match="shapes"), torch.autocast("cpu"):
        X @ torch.ones(3, 3)
    assert FUNCTION_MODES == []
    assert (X @ X).dtype is torch.float32


def test_other_threads_are_not_concerned():
    seen = []
    with torch.autocast("cpu"):
        thread = threading.Thread(target=lambda: seen.append((X @ X).dtype))
        thread.start()
        thread.join()
    assert seen == [torch.float32]


def test_decorator():
    @torch.autocast("cpu")
    def product(x):
        return x @ x

    assert product(X).dtype is torch.bfloat16


def test_gradients_have_the_parameters_type_and_casts_are_kept():
    w = X.clone().requires_grad_()
    with torch.autocast("cpu"):
        out = F.linear(X, w) + F.linear(X, w)
        first, second = out.grad_fn.next_functions
        out.sum().backward()
    assert w.grad.dtype is torch.float32
    casts = [f[0].next_functions[1][0] for f in (first, second)]
    assert casts[0] is casts[1]


def test_a_parameter_changed_inside_is_cast_again():
    w = torch.ones(2, 2, requires_grad=True)
    with torch.autocast("cpu"):
        before = F.linear(torch.ones(1, 2), w)
        with torch.no_grad():
            w.mul_(2)
        after = F.linear(torch.ones(1, 2), w)
    assert after.tolist() == (before * 2).tolist()


def test_wrong_arguments():
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        torch.autocast(3)
    with pytest.raises(RuntimeError, match="Expected one of"):
        torch.autocast("nonsense")
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'meta'"):
        torch.autocast("meta")
    with pytest.warns(UserWarning, match="In CPU autocast, but the target dtype is not supported"):
        assert not torch.autocast("cpu", dtype=torch.float32)._enabled


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_cuda_without_a_device_warns_and_does_nothing():
    with pytest.warns(UserWarning, match="CUDA is not available"):
        mode = torch.autocast("cuda")
    with mode:
        assert (X @ X).dtype is torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not torch.cuda.amp.GradScaler().is_enabled()


class Doubled(torch.autograd.Function):
    @staticmethod
    @custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x):
        ctx.seen = x.dtype
        return x * 2

    @staticmethod
    @custom_bwd(device_type="cpu")
    def backward(ctx, g):
        assert not torch.is_autocast_enabled("cpu")
        return g * 2


def test_custom_functions():
    x = B.clone().requires_grad_()
    with torch.autocast("cpu"):
        out = Doubled.apply(x)
    assert out.dtype is torch.float32
    out.sum().backward()
    assert x.grad.tolist() == torch.full((4, 4), 2.0).tolist()
