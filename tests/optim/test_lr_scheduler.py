"""Schedules against rates that torch 2.13 gave, and their checkpoints."""

import copy
import warnings

import pytest

import tocha
from tocha import optim
from tocha.optim import lr_scheduler as L
from tocha.optim.swa_utils import SWALR

# Made with `o`, an SGD with lr=0.5 and momentum=0.9; the rate at epochs 0 to 6.
RATES = [
    (lambda o: L.LambdaLR(o, lambda e: 0.9**e), [0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205]),
    (
        lambda o: L.MultiplicativeLR(o, lambda e: 1 - e / 10),
        [0.5, 0.45, 0.36, 0.252, 0.1512, 0.0756, 0.03024],
    ),
    (lambda o: L.StepLR(o, 2, 0.5), [0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.0625]),
    (lambda o: L.MultiStepLR(o, [2, 4, 4], 0.5), [0.5, 0.5, 0.25, 0.25, 0.0625, 0.0625, 0.0625]),
    (lambda o: L.ConstantLR(o, 0.5, 3), [0.25, 0.25, 0.25, 0.5, 0.5, 0.5, 0.5]),
    (lambda o: L.LinearLR(o, 0.25, 1.0, 4), [0.125, 0.21875, 0.3125, 0.40625, 0.5, 0.5, 0.5]),
    (lambda o: L.ExponentialLR(o, 0.9), [0.5, 0.45, 0.405, 0.3645, 0.32805, 0.295245, 0.2657205]),
    (lambda o: L.PolynomialLR(o, 4, 2.0), [0.5, 0.28125, 0.125, 0.03125, 0.0, 0.0, 0.0]),
    (
        lambda o: L.CosineAnnealingLR(o, 4, 0.1),
        [0.5, 0.441421356237, 0.3, 0.158578643763, 0.1, 0.158578643763, 0.3],
    ),
    (
        lambda o: L.CosineAnnealingWarmRestarts(o, 2, 2, 0.1),
        [0.5, 0.3, 0.5, 0.441421356237, 0.3, 0.158578643763, 0.5],
    ),
    (
        lambda o: L.CyclicLR(o, 0.1, 0.9, 2, 3),
        [0.1, 0.5, 0.9, 0.633333333333, 0.366666666667, 0.1, 0.5],
    ),
    (
        lambda o: L.CyclicLR(o, 0.1, 0.9, 1, 2, mode="triangular2"),
        [0.1, 0.9, 0.5, 0.1, 0.5, 0.3, 0.1],
    ),
    (
        lambda o: L.CyclicLR(o, 0.1, 0.9, 1, 2, mode="exp_range", gamma=0.9),
        [0.1, 0.82, 0.424, 0.1, 0.62488, 0.336196, 0.1],
    ),
    (
        lambda o: L.OneCycleLR(o, 1.0, 8),
        [0.04, 0.819275104892, 0.971941777388, 0.81174565395, 0.555984014123, 0.283060998209, 0.076641593834],
    ),
    (
        lambda o: L.OneCycleLR(o, 1.0, epochs=2, steps_per_epoch=4, anneal_strategy="linear", three_phase=True),
        [
            0.04,
            0.725714285714,
            0.588571428571,
            0.038095428571,
            0.028572571429,
            0.019049714286,
            0.009526857143,
        ],
    ),
    (
        lambda o: L.SequentialLR(o, [L.LinearLR(o, 0.1, 1.0, 3), L.ExponentialLR(o, 0.5)], [3]),
        [0.05, 0.2, 0.35, 0.5, 0.25, 0.125, 0.0625],
    ),
    (
        lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 3), L.ExponentialLR(o, 0.9)]),
        [0.05, 0.045, 0.0405, 0.3645, 0.32805, 0.295245, 0.2657205],
    ),
    (lambda o: SWALR(o, 0.05, 4), [0.5, 0.434099025767, 0.275, 0.115900974233, 0.05, 0.05, 0.05]),
]


def sgd(lr=0.5):
    return optim.SGD([tocha.nn.Parameter(tocha.zeros(1))], lr=lr, momentum=0.9)


def rates(optimizer, scheduler, n):
    out = []
    for _ in range(n):
        out.append(float(optimizer.param_groups[0]["lr"]))
        assert scheduler.get_last_lr() == [optimizer.param_groups[0]["lr"]]
        optimizer.step()
        scheduler.step()
    return out


@pytest.mark.parametrize("make,expected", RATES)
def test_rates_are_torchs(make, expected):
    o = sgd()
    assert rates(o, make(o), 7) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("make,expected", RATES)
def test_resumed_schedule_goes_on_exactly(make, expected):
    a = sgd()
    first = make(a)
    rates(a, first, 3)
    b = sgd()
    second = make(b)
    b.load_state_dict(a.state_dict())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert rates(b, second, 4) == rates(a, first, 4)


@pytest.mark.parametrize("make,expected", RATES)
def test_tensor_rate_is_written_in_place(make, expected):
    rate = tocha.tensor(0.5, dtype=tocha.float64)
    o = sgd(rate)
    assert rates(o, make(o), 7) == pytest.approx(expected, abs=1e-6)
    assert o.param_groups[0]["lr"] is rate


@pytest.mark.parametrize("make,_", RATES)
def test_state_dict_is_plain_data(make, _):
    o = sgd()
    scheduler = make(o)

    def check(value):
        if isinstance(value, dict):
            for v in value.values():
                check(v)
        elif isinstance(value, list):
            for v in value:
                check(v)
        else:
            assert value is None or isinstance(value, (int, float, str, bool)), value

    check(scheduler.state_dict())


@pytest.mark.parametrize(
    "options,expected",
    [
        ({"patience": 1, "factor": 0.5}, [0.5, 0.5, 0.5, 0.25, 0.25, 0.125, 0.125, 0.125]),
        (
            {
                "mode": "max",
                "patience": 0,
                "cooldown": 1,
                "factor": 0.5,
                "threshold": 0.1,
                "threshold_mode": "abs",
            },
            [0.5, 0.25, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0625],
        ),
        ({"patience": 0, "factor": 0.1, "min_lr": 0.02}, [0.5, 0.5, 0.05, 0.02, 0.02, 0.02, 0.02, 0.02]),
    ],
)
def test_plateau(options, expected):
    o = sgd()
    scheduler, got = L.ReduceLROnPlateau(o, **options), []
    for metric in [1.0, 0.9, 0.95, tocha.tensor(0.95), 0.99, 1.2, 0.3, 0.31]:
        scheduler.step(metric)
        got.append(o.param_groups[0]["lr"])
    assert got == pytest.approx(expected, rel=1e-12)


def test_momentum_goes_against_the_rate():
    o = sgd()
    scheduler = L.OneCycleLR(o, 1.0, 10, pct_start=0.5)
    momenta = []
    for _ in range(10):
        momenta.append(o.param_groups[0]["momentum"])
        o.step()
        scheduler.step()
    assert momenta[0] == 0.95 and min(momenta) == pytest.approx(momenta[4]) == pytest.approx(0.85)
    adam = optim.Adam([tocha.nn.Parameter(tocha.zeros(1))])
    L.CyclicLR(adam, 0.1, 0.2, base_momentum=0.7, max_momentum=0.8)
    assert adam.param_groups[0]["betas"] == (0.8, 0.999)


def test_one_cycle_ends_with_an_error():
    o = sgd()
    scheduler = L.OneCycleLR(o, 1.0, 3)
    rates(o, scheduler, 3)
    o.step()
    with pytest.raises(ValueError, match="Tried to step 4 times"):
        scheduler.step()


def test_nested_sequences_start_their_members_when_due():
    o = sgd()
    inner = L.SequentialLR(o, [L.ExponentialLR(o, 0.5), L.ConstantLR(o, 0.1, 9)], [2])
    outer = L.SequentialLR(o, [L.ConstantLR(o, 0.5, 9), inner], [2])
    assert rates(o, outer, 6) == pytest.approx([0.25, 0.25, 0.5, 0.25, 0.05, 0.05])


def test_several_groups_have_their_own_rates():
    p, q = (tocha.nn.Parameter(tocha.zeros(1)) for _ in range(2))
    o = optim.SGD([{"params": [p]}, {"params": [q], "lr": 2.0}], lr=1.0)
    L.LambdaLR(o, [lambda e: 0.5, lambda e: 0.1])
    assert [g["lr"] for g in o.param_groups] == [0.5, 0.2]
    with pytest.raises(ValueError, match="Expected 2 lr_lambdas"):
        L.LambdaLR(o, [lambda e: 1.0])


def test_callable_object_state_is_saved():
    class Decay:
        def __init__(self, k):
            self.k = k

        def __call__(self, epoch):
            return self.k**epoch

    a, b = L.LambdaLR(sgd(), Decay(0.5)), L.LambdaLR(sgd(), Decay(0.9))
    b.load_state_dict(a.state_dict())
    assert b.lr_lambdas[0].k == 0.5


def test_resume_by_last_epoch():
    o = sgd()
    with pytest.raises(KeyError, match="initial_lr"):
        L.StepLR(o, 2, last_epoch=3)
    o.param_groups[0]["initial_lr"] = 0.5
    scheduler = L.LambdaLR(o, lambda e: 0.9**e, last_epoch=3)
    assert scheduler.last_epoch == 4 and o.param_groups[0]["lr"] == pytest.approx(0.5 * 0.9**4)


def test_warnings_about_the_order_of_steps():
    o = sgd()
    scheduler = L.StepLR(o, 1)
    with pytest.warns(UserWarning, match=r"before `optimizer.step\(\)`"):
        scheduler.step()
    o = sgd()
    scheduler = L.StepLR(o, 1)
    o.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    with pytest.warns(UserWarning, match="epoch parameter"):
        scheduler.step(2)
    assert o.param_groups[0]["lr"] == pytest.approx(0.005)


@pytest.mark.parametrize(
    "make,error",
    [
        (lambda o: L.StepLR(3, 2), TypeError),
        (lambda o: L.ConstantLR(o, 2.0), ValueError),
        (lambda o: L.LinearLR(o, 0.0), ValueError),
        (lambda o: L.LinearLR(o, 0.5, 2.0), ValueError),
        (lambda o: L.CosineAnnealingWarmRestarts(o, 0), ValueError),
        (lambda o: L.OneCycleLR(o, 1.0), ValueError),
        (lambda o: L.OneCycleLR(o, 1.0, 10, pct_start=2.0), ValueError),
        (lambda o: L.OneCycleLR(o, [1.0, 2.0], 10), ValueError),
        (lambda o: L.CyclicLR(o, 0.1, 0.2, mode="x"), ValueError),
        (lambda o: L.ReduceLROnPlateau(o, factor=1.0), ValueError),
        (lambda o: L.ReduceLROnPlateau(o, mode="x"), ValueError),
        (lambda o: L.SequentialLR(o, [], []), ValueError),
        (lambda o: L.SequentialLR(o, [L.StepLR(o, 1)], [1]), ValueError),
        (lambda o: L.SequentialLR(o, [L.StepLR(o, 1), L.StepLR(sgd(), 1)], [1]), ValueError),
        (lambda o: L.ChainedScheduler([L.StepLR(o, 1), L.ReduceLROnPlateau(o)]), ValueError),
        (lambda o: L.CyclicLR(optim.Adagrad([tocha.nn.Parameter(tocha.zeros(1))]), 0.1, 0.2), ValueError),
    ],
)
def test_bad_arguments_are_refused(make, error):
    with pytest.raises(error):
        make(sgd())
