"""Every pointwise record is tested from the record itself: values, types, in-place and out= forms, broadcasting, meta,
vmap, first and second derivatives. A new operator is covered by being registered."""

from __future__ import annotations

import functools
import inspect

import numpy as np
import pytest

import tocha as torch
from tocha.autograd import gradcheck, gradgradcheck
from tocha.backends import cpu, native
from tocha.dispatch.registry import NAMESPACES
from tocha.func import vmap
from tocha.prims.pointwise import ALL, Pointwise

RULES = [r for r in ALL.values() if not inspect.getfullargspec(r.impl).kwonlyargs]
# Rules whose public function is made by the family (others have one of their own in tocha.ops).
PUBLIC = [r for r in RULES if isinstance(getattr(NAMESPACES["torch"].get(r.name), "rule", None), Pointwise)]


def sample(rule: Pointwise, dtype: torch.dtype, shape: tuple[int, ...] = (2, 3), seed: int = 0) -> list[torch.Tensor]:
    rng = np.random.default_rng(seed)
    low, high = rule.domain
    tensors = []
    for _ in rule.arguments:
        values = rng.uniform(low, high, shape)
        if not dtype.is_floating_point:
            values = np.round(values * 3)
        tensors.append(torch.from_numpy(np.array(values)).to(dtype))
    return tensors


def working_dtype(rule: Pointwise) -> torch.dtype:
    return torch.int64 if "float" in rule.refuse else torch.float64


def ids(rules: list[Pointwise]) -> list[str]:
    return [r.name for r in rules]


@pytest.mark.parametrize("rule", RULES, ids=ids(RULES))
def test_values_follow_the_scalar_rule(rule: Pointwise) -> None:
    xs = sample(rule, working_dtype(rule))
    with np.errstate(all="ignore"):
        expected = rule.impl(cpu, *[x.numpy() for x in xs])
    # Kernels have their own elementary functions (TOCHA_NATIVE_MIN=1 makes them serve arrays this small).
    same = (
        np.testing.assert_array_equal
        if native.LEAST["rule"] > xs[0].numel()
        else functools.partial(np.testing.assert_allclose, rtol=2e-15)
    )
    same(rule(*xs).numpy(), expected)


@pytest.mark.parametrize("rule", RULES, ids=ids(RULES))
def test_zero_dim_empty_and_transposed(rule: Pointwise) -> None:
    dtype = working_dtype(rule)
    xs = sample(rule, dtype)
    whole = rule(*xs)
    corner = rule(*[x[1, 2] for x in xs])
    assert corner.shape == ()
    assert torch.equal(corner, whole[1, 2])
    assert rule(*[x[:0] for x in xs]).shape == (0, 3)
    assert torch.equal(rule(*[x.t() for x in xs]), whole.t())


@pytest.mark.parametrize("rule", RULES, ids=ids(RULES))
def test_meta_and_vmap_agree_with_eager(rule: Pointwise) -> None:
    xs = sample(rule, working_dtype(rule))
    whole = rule(*xs)
    meta = rule(*[x.to("meta") for x in xs])
    assert (meta.shape, meta.dtype, meta.device.type) == (whole.shape, whole.dtype, "meta")
    assert torch.equal(vmap(rule)(*xs), whole)


@pytest.mark.parametrize("rule", PUBLIC, ids=ids(PUBLIC))
def test_method_out_and_inplace_forms(rule: Pointwise) -> None:
    xs = sample(rule, working_dtype(rule))
    expected = rule(*xs)
    function = NAMESPACES["torch"][rule.name]
    assert torch.equal(function(*xs), expected)
    if hasattr(torch.Tensor, rule.name):
        assert torch.equal(getattr(xs[0], rule.name)(*xs[1:]), expected)
    if "out" in inspect.signature(function).parameters:
        for size in ((0,), expected.shape):
            out = torch.empty(size, dtype=expected.dtype)
            assert function(*xs, out=out) is out
            assert torch.equal(out, expected)
    method = getattr(torch.Tensor, rule.name + "_", None)
    if method is not None and torch.can_cast(expected.dtype, xs[0].dtype):
        target = xs[0].clone()
        assert method(target, *xs[1:]) is target
        assert torch.equal(target, expected.to(target.dtype))
        assert target._version == 1


DIFFERENTIABLE = [r for r in RULES if r.vjp is not None and working_dtype(r) is torch.float64 and r.output != "bool"]


@pytest.mark.parametrize("rule", DIFFERENTIABLE, ids=ids(DIFFERENTIABLE))
def test_first_and_second_derivatives(rule: Pointwise) -> None:
    xs = [x.requires_grad_(wanted) for x, wanted in zip(sample(rule, torch.float64, (3,), seed=1), wanted_arguments(rule))]
    assert gradcheck(rule, xs)
    first = torch.autograd.grad(rule(*xs).sum(), [x for x in xs if x.requires_grad], create_graph=True)
    if all(g.requires_grad for g in first):
        assert gradgradcheck(rule, xs, atol=1e-4)


def wanted_arguments(rule: Pointwise) -> list[bool]:
    """The arguments that have a gradient: not those without a rule, nor those whose rule says it has no closed form."""
    wanted = []
    for i, vjp in enumerate([rule.vjp] if callable(rule.vjp) else rule.vjp):
        xs = sample(rule, torch.float64, (3,))
        xs[i].requires_grad_()
        try:
            wanted.append(vjp is not None and torch.autograd.grad(rule(*xs).sum(), xs[i]) is not None)
        except RuntimeError as error:
            if "no closed form" not in str(error):
                raise
            wanted.append(False)
    return wanted


BINARY = [r for r in DIFFERENTIABLE if len(r.arguments) == 2]


@pytest.mark.parametrize("rule", BINARY, ids=ids(BINARY))
def test_broadcast_gradients_have_the_operands_shapes(rule: Pointwise) -> None:
    a, b = sample(rule, torch.float64, (2, 3))
    b = b[:1].clone()
    full = b.expand(2, 3).clone()
    if not wanted_arguments(rule)[1]:
        a, b, full = (x.requires_grad_(x is a) for x in (a, b, full))
        assert torch.autograd.grad(rule(a, b).sum(), a)[0].shape == (2, 3)
        return
    (got,) = torch.autograd.grad(rule(a, b.requires_grad_()).sum(), b)
    (expected,) = torch.autograd.grad(rule(a, full.requires_grad_()).sum(), full)
    torch.testing.assert_close(got, expected.sum(0, keepdim=True))


def test_shapes_that_do_not_broadcast_name_operator_and_shapes() -> None:
    with pytest.raises(RuntimeError, match=r"add.*\(3\) must match.*\(4\).*\[2, 3\], \[4\]"):
        torch.ones(2, 3) + torch.ones(4)


def test_half_precision_computes_in_float32_and_rounds_once() -> None:
    x = torch.tensor([0.1, 0.2, 3.0], dtype=torch.bfloat16)
    expected = (x.float().exp()).to(torch.bfloat16)
    assert torch.equal(x.exp(), expected)
    # x * 0.1 in float32 rounds once; with the factor rounded to bfloat16 first it would give 0.30078125.
    assert (torch.tensor([3.0], dtype=torch.bfloat16) * 0.1).item() == torch.tensor(0.3).to(torch.bfloat16).item()


@pytest.mark.parametrize(
    ("dtype", "alpha", "wanted"),
    [
        ("bfloat16", -0.9, [-268.0, 68.5, -14.5]),
        ("float16", 0.3, [91.0, -23.609375, 8.8515625]),
        ("float16", -0.9, [-269.0, 68.8125, -14.546875]),
    ],
)
def test_alpha_is_rounded_to_half_types_and_the_product_is_not(dtype: str, alpha: float, wanted: list[float]) -> None:
    kind = getattr(torch, dtype)
    x, y = torch.tensor([1.0, -0.5, 3.0], dtype=kind), torch.tensor([300.0, -77.0, 19.5], dtype=kind)
    assert torch.add(x, y, alpha=alpha).tolist() == wanted
    assert torch.sub(x, y, alpha=-alpha).dtype is kind
    assert x.add_(y, alpha=alpha).tolist() == wanted
    if dtype == "float16":
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.add(x, y, alpha=1e6)
