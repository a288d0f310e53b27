"""Checks of arguments and values, constraints, transforms, composed distributions and the registries."""

import copy
import pickle

import pytest

import tocha as torch
from tocha import distributions as D
from tocha.distributions import constraints as C
from tocha.distributions import transforms as T


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: D.Normal(0.0, -1.0), ValueError, r"parameter scale .* to satisfy the constraint GreaterThan\(lower_bound=0.0\)"),
        (lambda: D.Normal("a", 1.0), ValueError, "instances of Number"), (lambda: D.Bernoulli(), ValueError, "not both"),
        (lambda: D.Normal(0.0, 1.0).log_prob(1.0), ValueError, "must be a Tensor"),
        (lambda: D.Normal(0.0, 1.0).log_prob(torch.tensor(torch.nan)), ValueError, "within the support"),
        (lambda: D.Normal(torch.zeros(2), 1.0).log_prob(torch.zeros(3)), ValueError, "not broadcastable"),
        (lambda: D.MultivariateNormal(torch.zeros(2), torch.eye(2)).log_prob(torch.zeros(3)), ValueError, "right-most size"),
        (lambda: D.Uniform(1.0, 0.0), ValueError, "LessThan"), (lambda: D.Beta(1.0, 2.0).cdf(torch.tensor(0.5)), NotImplementedError, "^$"),
        (lambda: D.MultivariateNormal(torch.zeros(2)), ValueError, "Exactly one of"),
        (lambda: D.Categorical(torch.tensor(0.5)), ValueError, "at least one-dimensional"),
        (lambda: D.kl_divergence(D.Normal(0.0, 1.0), D.StudentT(1.0)), NotImplementedError, "p type Normal and q type StudentT"),
        (lambda: D.biject_to(C.lower_triangular), NotImplementedError, "Cannot transform _LowerTriangular"),
        (lambda: C.dependent.check(torch.ones(1)), ValueError, "dependent"), (lambda: T.ExpTransform(cache_size=2), ValueError, "cache_size"),
        (lambda: D.Wishart(torch.tensor(1.0), torch.eye(3)), ValueError, "ndim - 1"),
        (lambda: D.Independent(D.Normal(torch.zeros(2), 1.0), 2), ValueError, "reinterpreted_batch_ndims"),
    ],
)  # fmt: skip
def test_wrong_arguments(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_checks_can_be_switched_off():
    assert D.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    D.Distribution.set_default_validate_args(False)
    try:
        D.Bernoulli(2.0)
    finally:
        D.Distribution.set_default_validate_args(True)


def test_own_distributions():
    class Shifted(D.Normal):
        def __init__(self, loc):
            super().__init__(loc + 1, 1.0)

    with pytest.raises(NotImplementedError, match=r"custom \.expand"):
        Shifted(0.0).expand((2,))
    with pytest.warns(UserWarning, match="arg_constraints"):
        type("Bare", (D.Distribution,), {})()

    @D.register_kl(Shifted, D.Normal)
    def _shifted(p, q):
        return torch.tensor(5.0)

    assert D.kl_divergence(Shifted(0.0), D.Normal(0.0, 1.0)) == 5
    assert D.kl_divergence(D.Normal(0.0, 1.0), Shifted(-1.0)) == 0


def test_numbers_make_no_batch_and_printing_shows_parameters():
    assert repr(D.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"
    assert repr(D.Bernoulli(torch.ones(2) / 2)) == "Bernoulli(probs: torch.Size([2]))"
    assert D.Normal(0.0, 1.0).batch_shape == ()
    assert D.Normal(torch.zeros(1), 1.0).batch_shape == (1,)


def test_families_pickle_and_copy():
    d = D.TransformedDistribution(D.Normal(torch.zeros(2), 1.0), [T.ExpTransform(), T.AffineTransform(1.0, 2.0).inv])
    for e in (pickle.loads(pickle.dumps(d)), copy.deepcopy(d)):
        assert e.log_prob(torch.ones(2)).tolist() == d.log_prob(torch.ones(2)).tolist()


@pytest.mark.parametrize(
    ("constraint", "inside", "outside"),
    [
        (C.boolean, 1.0, 2.0), (C.nonnegative_integer, 0.0, 0.5), (C.positive_integer, 1.0, 0.0), (C.integer_interval(1, 3), 3.0, 4.0),
        (C.real, 1.0, torch.nan), (C.positive, 1.0, 0.0), (C.nonnegative, 0.0, -1.0), (C.less_than(2.0), 1.0, 2.0),
        (C.unit_interval, 1.0, 1.5), (C.half_open_interval(0.0, 1.0), 0.0, 1.0), (C.simplex, [0.5, 0.5], [0.5, 0.6]),
        (C.one_hot, [0.0, 1.0], [1.0, 1.0]), (C.real_vector, [1.0, 2.0], [1.0, torch.nan]), (C.multinomial(2), [1.0, 1.0], [2.0, 1.0]),
        (C.lower_triangular, [[1.0, 0.0], [2.0, 3.0]], [[1.0, 1.0], [2.0, 3.0]]),
        (C.lower_cholesky, [[1.0, 0.0], [2.0, 3.0]], [[1.0, 0.0], [2.0, -3.0]]),
        (C.positive_definite, [[2.0, 1.0], [1.0, 2.0]], [[1.0, 2.0], [2.0, 1.0]]),
        (C.positive_semidefinite, [[1.0, 1.0], [1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]]),
        (C.symmetric, [[2.0, 1.0], [1.0, 2.0]], [[2.0, 1.0], [0.0, 2.0]]), (C.corr_cholesky, [[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.0], [0.6, 0.6]]),
        (C.cat([C.positive, C.less_than(0.0)]), [1.0, -1.0], None), (C.stack([C.positive, C.real]), [1.0, -1.0], None),
    ],
)  # fmt: skip
def test_constraints(constraint, inside, outside):
    assert constraint.check(torch.tensor(inside)).all()
    if outside is not None:
        assert not constraint.check(torch.tensor(outside)).any()


MAPS = {
    "exp": (T.ExpTransform(), 1), "affine": (T.AffineTransform(1.0, -2.0), -1), "sigmoid": (T.SigmoidTransform(), 1),
    "softplus": (T.SoftplusTransform(), 1), "tanh": (T.TanhTransform(), 1),
    "compose": (T.ComposeTransform([T.AffineTransform(0.0, 2.0), T.ExpTransform()]), 1),
    "cdf": (T.CumulativeDistributionTransform(D.Normal(0.0, 1.0)), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", MAPS)
def test_maps_of_numbers(name):
    t, sign = MAPS[name]
    x = torch.tensor([-0.7, 0.3, 1.1], dtype=torch.float64, requires_grad=True)
    y = t(x)
    (slope,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    torch.testing.assert_close(t.log_abs_det_jacobian(x, y), slope.abs().log())
    torch.testing.assert_close(t.inv(y), x)
    assert t.sign == t.inv.sign == sign
    assert t.inv.inv is t


@pytest.mark.parametrize("name", ["stick", "corr", "lower", "reshape"])
def test_maps_of_vectors(name):
    t, x, flat = {
        "stick": (T.StickBreakingTransform(), torch.tensor([0.3, -0.5, 1.0]), lambda y: y[:-1]),
        "corr": (
            T.CorrCholeskyTransform(),
            torch.tensor([0.3, -0.5, 1.0]),
            lambda y: y[torch.tensor([1, 2, 2]), torch.tensor([0, 0, 1])],
        ),
        "lower": (T.LowerCholeskyTransform(), torch.tensor([[0.3, 0.0], [1.0, -0.5]]), None),
        "reshape": (T.ReshapeTransform((3,), (3, 1)), torch.tensor([0.3, -0.5, 1.0]), lambda y: y[:, 0]),
    }[name]
    x = x.double()
    y = t(x)
    assert t.codomain.check(y).all()
    torch.testing.assert_close(t.inv(y), x)
    assert t.forward_shape(x.shape) == y.shape
    assert t.inverse_shape(y.shape) == x.shape
    if flat is not None:
        slope = torch.autograd.functional.jacobian(lambda v: flat(t(v)), x)
        torch.testing.assert_close(t.log_abs_det_jacobian(x, y), torch.linalg.slogdet(slope).logabsdet)


def test_a_cache_gives_back_the_very_value():
    t = T.ExpTransform(cache_size=1)
    x = torch.ones(2)
    assert t.inv(t(x)) is x
    assert T.ExpTransform().inv(T.ExpTransform()(x)) is not x


def test_registries_reach_the_constraint():
    for constraint in (
        C.positive,
        C.less_than(2.0),
        C.interval(1.0, 3.0),
        C.simplex,
        C.lower_cholesky,
        C.positive_definite,
        C.corr_cholesky,
    ):
        t = D.transform_to(constraint)
        x = torch.randn(3, 3) if constraint in (C.lower_cholesky, C.positive_definite) else torch.randn(4, 3)
        assert constraint.check(t(x)).all()
    assert isinstance(D.biject_to(C.simplex), T.StickBreakingTransform)


def test_mixtures_and_transformed_distributions():
    mixture = D.MixtureSameFamily(
        D.Categorical(torch.tensor([0.2, 0.8])), D.Normal(torch.tensor([0.0, 2.0]), torch.tensor([1.0, 0.5]))
    )
    torch.testing.assert_close(mixture.log_prob(torch.tensor(1.0)), torch.tensor(-2.0041139), rtol=1e-5, atol=0)
    torch.testing.assert_close(mixture.mean, torch.tensor(1.6))
    torch.testing.assert_close(mixture.variance, torch.tensor(1.04))
    torch.manual_seed(7)
    assert mixture.sample((4,)).shape == (4,)
    base = D.Normal(torch.zeros(2, 3), 1.0)
    d = D.TransformedDistribution(base, T.StickBreakingTransform())
    assert (d.batch_shape, d.event_shape) == ((2,), (4,))
    assert d.rsample().sum(-1).tolist() == pytest.approx([1, 1])
    falling = D.TransformedDistribution(D.Uniform(0.0, 1.0), [T.AffineTransform(1.0, -1.0)])
    torch.testing.assert_close(falling.cdf(torch.tensor(0.25)), torch.tensor(0.25))
    assert D.Independent(base, 1).log_prob(torch.zeros(2, 3)).shape == (2,)
