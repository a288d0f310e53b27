"""Random operators against digests of real torch's results; see tools/random_expected.py."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

import tocha as torch
import tocha.nn.functional as F

EXPECTED = json.loads((Path(__file__).parent / "random_expected.json").read_text(encoding="utf-8"))


def _digest(x: torch.Tensor) -> str:
    return hashlib.sha256(np.ascontiguousarray(x._a).tobytes()).hexdigest()[:16]


@pytest.mark.filterwarnings("ignore:.* is out of bounds")
@pytest.mark.parametrize("expression", EXPECTED)
def test_same_numbers_and_state(expression: str) -> None:
    torch.manual_seed(0)
    x = eval(expression, {"torch": torch, "F": F})
    got = [x.dtype.name, list(x.shape), _digest(x), _digest(torch.get_rng_state())]
    assert got == EXPECTED[expression]


@pytest.mark.parametrize(
    "expression, error",
    [
        ("torch.rand(2, dtype=torch.int64)", NotImplementedError),
        ("torch.randn(2, dtype=torch.int64)", NotImplementedError),
        ("torch.rand()", TypeError),
        ("torch.rand(-1)", RuntimeError),
        ("torch.rand(2.0)", TypeError),
        ("torch.rand(3, generator=5)", TypeError),
        ("torch.rand(3, out=torch.empty(0), dtype=torch.float64)", RuntimeError),
        ("torch.randint(10)", TypeError),
        ("torch.randint(0, 5, 2)", TypeError),
        ("torch.randint(10, 3, (2,))", RuntimeError),
        ("torch.randint(10.0, (2,))", TypeError),
        ("torch.randint(0, 300, (2,), dtype=torch.uint8)", RuntimeError),
        ("torch.randint(-1, 5, (2,), dtype=torch.uint64)", RuntimeError),
        ("torch.randint(0, 5, (2,), dtype=torch.complex64)", RuntimeError),
        ("torch.randint(0, 10**6, (3,), dtype=torch.float16)", RuntimeError),
        ("torch.randint(0, 2**63, (2,))", ValueError),
        ("torch.randperm(-1)", RuntimeError),
        ("torch.randperm(3000, dtype=torch.float16)", RuntimeError),
        ("torch.randperm(300, dtype=torch.uint8)", RuntimeError),
        ("torch.randperm(3, dtype=torch.bool)", NotImplementedError),
        ("torch.randperm(2.0)", TypeError),
        ("torch.normal(torch.zeros(3), -1.0)", RuntimeError),
        ("torch.normal(torch.zeros(3), torch.tensor([1.0, -1, 1]))", RuntimeError),
        ("torch.normal(torch.zeros(3), torch.ones(3, dtype=torch.complex64))", RuntimeError),
        ("torch.normal(torch.zeros(3, dtype=torch.int64), 1.0)", NotImplementedError),
        ("torch.normal(0.0, -1.0, (2,))", RuntimeError),
        ("torch.normal(0.0, 1.0)", TypeError),
        ("torch.rand_like(torch.zeros(2, dtype=torch.int64))", NotImplementedError),
        ("torch.zeros(3).uniform_(2, 1)", RuntimeError),
        ("torch.zeros(3).uniform_(0, 1e39)", RuntimeError),
        ("torch.zeros(3).uniform_(-3e38, 3e38)", RuntimeError),
        ("torch.zeros(3, dtype=torch.int64).normal_()", NotImplementedError),
        ("torch.zeros(3, dtype=torch.int64).exponential_()", RuntimeError),
        ("torch.zeros(3).exponential_(0)", RuntimeError),
        ("torch.empty(0).exponential_(-1)", RuntimeError),
        ("torch.zeros(3, dtype=torch.int64).cauchy_()", RuntimeError),
        ("torch.zeros(3).cauchy_(0, 0)", RuntimeError),
        ("torch.zeros(3).geometric_(0)", RuntimeError),
        ("torch.zeros(3, dtype=torch.bool).geometric_(0.5)", NotImplementedError),
        ("torch.zeros(3).log_normal_(1, 0)", RuntimeError),
        ("torch.zeros(3).bernoulli_(2)", RuntimeError),
        ("torch.zeros(3).bernoulli_(torch.tensor([2.0, 0, 0]))", RuntimeError),
        ("torch.zeros(3).bernoulli_(torch.tensor([1, 0, 0]))", NotImplementedError),
        ("torch.zeros(3).bernoulli_(torch.ones(2))", RuntimeError),
        ("torch.zeros(3, dtype=torch.complex64).bernoulli_(0.5)", NotImplementedError),
        ("torch.bernoulli(torch.tensor([1, 0]))", NotImplementedError),
        ("torch.bernoulli(torch.zeros(2), 1.5)", RuntimeError),
        ("torch.zeros(3).random_(5, 2)", RuntimeError),
        ("torch.zeros(3, dtype=torch.uint8).random_(300)", RuntimeError),
        ("torch.zeros(3, dtype=torch.complex64).random_()", NotImplementedError),
        ("torch.zeros(3, dtype=torch.uint16).random_()", NotImplementedError),
        ("torch.zeros(3).random_(from_=2, to=4)", TypeError),
        ("torch.zeros(1).expand(3).uniform_()", RuntimeError),
        ("torch.zeros(3, requires_grad=True).uniform_()", RuntimeError),
        ("torch.multinomial(torch.tensor([1.0, 2, 3]), 4)", RuntimeError),
        ("torch.multinomial(torch.tensor([1.0, 2, 3]), 0)", RuntimeError),
        ("torch.multinomial(torch.tensor([1, 2, 3]), 1)", RuntimeError),
        ("torch.multinomial(torch.tensor(1.0), 1)", RuntimeError),
        ("torch.multinomial(torch.ones(2, 2, 2), 1)", RuntimeError),
        ("torch.multinomial(torch.tensor([1.0, -2, 3]), 1)", RuntimeError),
        ("torch.multinomial(torch.tensor([1.0, float('inf'), 3]), 2)", RuntimeError),
        ("torch.multinomial(torch.tensor([1.0, float('nan'), 3]), 2, True)", RuntimeError),
        ("torch.multinomial(torch.tensor([0.0, 0]), 1)", RuntimeError),
        ("torch.multinomial(torch.tensor([0.0, 0]), 2, True)", RuntimeError),
        ("torch.poisson(torch.tensor([1, 2]))", NotImplementedError),
        ("torch.poisson(torch.tensor([-1.0]))", RuntimeError),
        ("torch.binomial(torch.tensor([10]), torch.tensor([0.5]))", ValueError),
        ("torch.binomial(torch.tensor([10.0]), torch.tensor([0.5], dtype=torch.float64))", RuntimeError),
        ("F.dropout(torch.ones(3), 1.5)", ValueError),
        ("F.dropout(torch.ones(3), float('nan'))", RuntimeError),
        ("torch.dropout(torch.ones(3), 1.5, True)", RuntimeError),
        ("F.dropout(torch.ones(3, dtype=torch.int64), 0.5)", RuntimeError),
        ("F.dropout(torch.ones(3, requires_grad=True), 0.5, inplace=True)", RuntimeError),
        ("F.dropout1d(torch.ones(3))", RuntimeError),
        ("torch.feature_dropout(torch.ones(3), 0.5, True)", RuntimeError),
        ("F.rrelu(torch.ones(3), 0.5, 0.1, True)", RuntimeError),
    ],
)
def test_bad_calls_draw_nothing(expression: str, error: type[Exception]) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with pytest.raises(error):
        eval(expression, {"torch": torch, "F": F})
    if "True" not in expression:  # multinomial with replacement checks each row when it comes to it
        assert (torch.get_rng_state()._a == before._a).all()


def test_in_place_fills_count_as_changes_and_keep_identity() -> None:
    x = torch.zeros(3)
    version = x._version
    assert x.normal_() is x
    assert x._version == version + 1


def test_meta_tensors_draw_nothing() -> None:
    before = torch.get_rng_state()
    assert torch.rand(2, 3, device="meta").shape == (2, 3)
    assert torch.zeros(2, device="meta").normal_().is_meta
    assert F.dropout(torch.zeros(2, device="meta"), 0.5).is_meta
    assert (torch.get_rng_state()._a == before._a).all()


def test_requires_grad() -> None:
    assert torch.randn(2, requires_grad=True).requires_grad
    assert not torch.rand_like(torch.ones(2, requires_grad=True)).requires_grad


@pytest.mark.parametrize(
    "sample",
    [
        torch.bernoulli,
        lambda p: torch.normal(p, p),
        lambda p: torch.normal(p, 2.0),
        torch.poisson,
        lambda p: torch.binomial(torch.ones(4), p),
    ],
)
def test_samples_have_a_zero_gradient(sample) -> None:
    p = torch.full((4,), 0.5, requires_grad=True)
    out = sample(p)
    assert out.requires_grad
    out.sum().backward()
    assert p.grad.tolist() == [0, 0, 0, 0]


def test_dropout_gradient_is_the_mask() -> None:
    x = torch.full((50,), 3.0, requires_grad=True)
    y = F.dropout(x, 0.2)
    y.sum().backward()
    assert set(x.grad.tolist()) == {0.0, 1.25}
    assert (y / 3).tolist() == x.grad.tolist()


def test_dropout_off_is_the_input_itself() -> None:
    x = torch.ones(3)
    assert F.dropout(x, 0.5, training=False) is x
    assert F.dropout(x, 0.0) is x


def test_dropout_of_everything_keeps_nan() -> None:
    x = F.dropout(torch.tensor([1.0, float("inf")]), 1.0)
    assert x[0] == 0
    assert x[1] != x[1]


def test_channel_dropout_takes_whole_channels() -> None:
    x = F.dropout2d(torch.ones(8, 16, 3, 3), 0.5)
    per_channel = x.reshape(8, 16, 9)
    assert bool((per_channel == per_channel[:, :, :1]).all())
    assert set(per_channel[:, :, 0].reshape(-1).tolist()) == {0.0, 2.0}


def test_dropout2d_warns_about_three_dimensions() -> None:
    with pytest.warns(UserWarning, match="assuming that channel-wise 1D dropout"):
        F.dropout2d(torch.ones(2, 3, 4))


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    torch.manual_seed(0)
    x = F.alpha_dropout(F.selu(torch.randn(100_000)), 0.2, training=True)
    assert abs(x.mean().item()) < 0.02
    assert abs(x.var().item() - 1) < 0.05


def test_gumbel_softmax() -> None:
    # torch.manual_seed(0); F.gumbel_softmax(torch.arange(6.0).reshape(2, 3))
    torch.manual_seed(0)
    soft = F.gumbel_softmax(torch.arange(6.0).reshape(2, 3))
    expected = [[0.01964657, 0.15227905, 0.8280744], [0.050983, 0.33922032, 0.6097967]]
    np.testing.assert_allclose(soft._a, expected, rtol=1e-6)
    logits = torch.arange(6.0).reshape(2, 3).requires_grad_()
    hard = F.gumbel_softmax(logits, hard=True)
    assert hard.sum(-1).tolist() == [1, 1]
    (hard * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert bool((logits.grad != 0).any())


def test_rrelu() -> None:
    x = torch.tensor([-1.0, 2.0, -4.0], requires_grad=True)
    torch.manual_seed(0)
    y = F.rrelu(x, training=True)
    y.sum().backward()
    np.testing.assert_allclose((y / x).detach()._a, x.grad._a, rtol=1e-6)
    assert x.grad[1] == 1
    assert 1 / 8 <= x.grad[0].item() < 1 / 3
    np.testing.assert_allclose(F.rrelu(x).detach()._a, [-0.22916667, 2.0, -0.9166667], rtol=1e-6)


@pytest.mark.parametrize("alpha", [0.02, 0.7, 3.0, 40.0])
def test_gamma_gradient_follows_the_quantile(alpha: float) -> None:
    from scipy.special import gammaincc, gammainccinv

    a = torch.full((20,), alpha, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(1)
    x = torch._standard_gamma(a)
    x.sum().backward()
    tail = gammaincc(alpha, x.detach()._a)
    keep = (tail > 1e-3) & (tail < 0.999) & (x.detach()._a > 1e-6)
    h = 1e-5 * alpha
    slope = (gammainccinv(alpha + h, tail) - gammainccinv(alpha - h, tail)) / (2 * h)
    np.testing.assert_allclose(a.grad._a[keep], slope[keep], rtol=1e-4)


def test_dirichlet_gradient_of_torch() -> None:
    # What torch 2.13 gives in float64; its own approximation is good to about 1e-3.
    x = torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    alpha = torch.tensor([0.5, 3.0, 30.0], dtype=torch.float64)
    total = torch.tensor([1.5, 5.0, 33.0], dtype=torch.float64)
    expected = [0.8047189562, 0.2054779919, 0.0306268594]
    np.testing.assert_allclose(torch._dirichlet_grad(x, alpha, total)._a, expected, rtol=2e-3)


@pytest.mark.parametrize("count", [1, 2])
def test_multinomial_of_no_categories_is_an_error(count):
    with pytest.raises((RuntimeError, IndexError)):
        torch.multinomial(torch.tensor([]), count, replacement=True)


@pytest.mark.parametrize(
    ("shape", "seed", "value", "following"), [((2, 3, 2), 0, 0.0, 0.30742282), ((2,), 1, 1 / 0.6, 0.02928156)]
)
@pytest.mark.parametrize("inplace", [False, True])
def test_dropout3d_takes_other_inputs_as_one_sample(shape, seed, value, following, inplace):
    torch.manual_seed(seed)
    x = torch.ones(shape)
    with pytest.warns(UserWarning, match="dropout3d: Received a"):
        out = torch.nn.functional.dropout3d(x, 0.4, inplace=inplace)
    assert torch.allclose(out, torch.full(shape, value)) and (out is x) == inplace
    assert torch.rand(1).item() == pytest.approx(following)  # one draw for each of the first dimension
