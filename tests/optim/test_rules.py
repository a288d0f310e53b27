"""The update rules against parameters that torch 2.13 computed."""

import math

import pytest

import tocha
from tocha import optim

# Option sets, and the 2x2 float64 parameter after steps 2 and 4 of `train`.
TRAJECTORIES = [
    ("SGD", {"lr": 0.1}, [[1.05, -2.1, 0.7, 3.025], [0.875, -1.75, 0.0, 2.9375]]),
    (
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1},
        [
            [0.9313, -1.8626, 0.309025, 2.905775],
            [0.7483565825, -1.496713165, -0.290028499375, 2.719503169375],
        ],
    ),
    (
        "SGD",
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        [[1.0545, -2.109, 0.718, 3.02725], [0.685145, -1.37029, -0.75942, 2.8425725]],
    ),
    (
        "Adam",
        {"lr": 0.1},
        [
            [0.936610354241, -1.936610353472, 0.436610353088, 2.936610355778],
            [0.866715462042, -1.866715460926, 0.366715460368, 2.866715464273],
        ],
    ),
    (
        "Adam",
        {"lr": 0.1, "amsgrad": True, "weight_decay": 0.1},
        [
            [0.925263519446, -1.925017878464, 0.435298487926, 2.863960982229],
            [0.839873720915, -1.839018695467, 0.363523527052, 2.722209114011],
        ],
    ),
    (
        "Adam",
        {"lr": 0.1, "maximize": True},
        [
            [1.063389645759, -2.063389646528, 0.563389646912, 3.063389644222],
            [1.133284537958, -2.133284539074, 0.633284539632, 3.133284535727],
        ],
    ),
    (
        "AdamW",
        {"lr": 0.1},
        [
            [0.934711354239, -1.932712353471, 0.435710853087, 2.930713355774],
            [0.86298229815, -1.858988293038, 0.36497929848, 2.854994292379],
        ],
    ),
    (
        "AdamW",
        {"lr": 0.1, "amsgrad": True, "weight_decay": 0.3},
        [
            [0.880510354181, -1.821410353442, 0.410060353073, 2.762310355658],
            [0.759607023281, -1.644899832244, 0.316960616725, 2.530192645356],
        ],
    ),
    (
        "RMSprop",
        {"lr": 0.1},
        [
            [0.895323081911, -1.895323021992, 0.395322992032, 2.895323201751],
            [-0.041570675984, -0.958429239017, -0.541570803483, 1.958429494014],
        ],
    ),
    (
        "RMSprop",
        {"lr": 0.1, "momentum": 0.9, "centered": True, "weight_decay": 0.1},
        [
            [-0.050304733955, -0.937615736951, -0.515536522018, 1.572124874562],
            [-1.717497597974, 0.836883310148, -2.16560673745, -0.874045689764],
        ],
    ),
    (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2},
        [
            [0.989976167302, -1.98049936777, 0.482626546241, 2.947980420836],
            [0.909787180928, -1.898556790362, 0.405126222812, 2.856308493206],
        ],
    ),
    (
        "Adadelta",
        {"lr": 1.0, "rho": 0.8, "weight_decay": 0.1},
        [
            [1.000480181269, -2.00048009287, 0.500632272953, 2.998956060084],
            [0.99593047506, -1.995929886341, 0.496306600557, 2.994399540585],
        ],
    ),
    (
        "Adamax",
        {"lr": 0.1, "weight_decay": 0.1},
        [
            [0.921399654404, -1.921227101616, 0.428110048263, 2.872699974997],
            [0.865297962419, -1.864832312324, 0.379877888645, 2.78256040763],
        ],
    ),
    (
        "NAdam",
        {"lr": 0.1, "weight_decay": 0.1},
        [
            [0.978156821571, -1.977988644712, 0.484269857602, 2.925843332929],
            [0.85965341364, -1.858936994986, 0.373994726336, 2.777442134847],
        ],
    ),
    (
        "NAdam",
        {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True},
        [
            [0.966167023191, -1.946267022718, 0.476117022482, 2.926367024136],
            [0.838669044161, -1.799265053182, 0.358371037693, 2.759861066117],
        ],
    ),
    (
        "RAdam",
        {"lr": 0.1, "betas": (0.9, 0.6), "weight_decay": 0.1},
        [
            [0.959263157895, -1.918526315789, 0.406868421053, 2.929763157895],
            [0.869459347501, -1.738918695003, 0.116710474473, 2.835534613417],
        ],
    ),
    (
        "ASGD",
        {"lr": 0.1, "lambd": 0.1, "t0": 2, "weight_decay": 0.1},
        [
            [1.010794790467, -2.021589580935, 0.681269122305, 2.906761709209],
            [0.80214431743, -1.604288634861, -0.022617708375, 2.709068571641],
        ],
    ),
    ("Rprop", {"lr": 0.1}, [[0.9, -1.9, 0.4, 2.9], [0.79, -1.79, 0.29, 2.79]]),
    (
        "Adafactor",
        {"lr": 0.1, "weight_decay": 0.1},
        [
            [0.975047269979, -1.939989079914, 0.478838998663, 2.937497249666],
            [0.85594965226, -1.502606589042, 0.24810858431, 2.823740674828],
        ],
    ),
    (
        "Muon",
        {"lr": 0.1},
        [
            [0.980274804687, -1.9612859375, 0.49070625, 2.940565625],
            [0.927535890762, -1.707709472344, 0.346460726875, 2.828411650312],
        ],
    ),
]


def parameter(dtype=tocha.float64):
    return tocha.nn.Parameter(tocha.tensor([[1.0, -2.0], [0.5, 3.0]], dtype=dtype))


def train(optimizer, p, steps):
    """Steps on fixed gradients whose sign and size change."""
    for scale in (1, -2, 3, 0.5)[:steps]:
        p.grad = tocha.tensor([[0.5, -1.0], [2.0, 0.25]], dtype=p.dtype) * scale
        optimizer.step()
    return p.detach().flatten().tolist()


@pytest.mark.parametrize("name,options,expected", TRAJECTORIES)
def test_trajectory_is_torchs(name, options, expected):
    tolerance = 2e-3 if name == "Muon" else 1e-9  # Muon iterates in bfloat16
    for steps, values in zip((2, 4), expected):
        p = parameter()
        assert train(getattr(optim, name)([p], **options), p, steps) == pytest.approx(values, abs=tolerance)


@pytest.mark.parametrize("name,options,_", TRAJECTORIES)
def test_float32_follows_float64(name, options, _):
    p, q = parameter(), parameter(tocha.float32)
    wide = train(getattr(optim, name)([p], **options), p, 4)
    narrow = train(getattr(optim, name)([q], **options), q, 4)
    assert narrow == pytest.approx(wide, abs=5e-3 if name == "Muon" else 2e-5)
    assert q.dtype == tocha.float32


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "Rprop"])
def test_tensor_lr_and_foreach_give_the_same(name):
    cls, lr = getattr(optim, name), 0.125  # exact in float32
    p, q, r = parameter(), parameter(), parameter()
    expected = train(cls([p], lr=lr), p, 4)
    assert train(cls([q], lr=tocha.tensor(lr)), q, 4) == pytest.approx(expected, abs=1e-6)
    assert train(cls([r], lr=lr, foreach=True), r, 4) == expected


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_is_accepted_and_gives_the_same(name):
    cls = getattr(optim, name)
    p, q = parameter(), parameter()
    assert train(cls([p], lr=0.1), p, 4) == pytest.approx(train(cls([q], lr=0.1, fused=True), q, 4), abs=1e-12)


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Adadelta", "NAdam", "Rprop"])
def test_complex_parameter_moves_as_its_real_pairs(name):
    cls = getattr(optim, name)
    p = tocha.nn.Parameter(tocha.tensor([1 + 2j, -3j], dtype=tocha.complex128))
    q = tocha.nn.Parameter(tocha.view_as_real(p.detach()).clone())
    a, b = cls([p], lr=0.1), cls([q], lr=0.1)
    for scale in (1.0, -2.0, 0.5):
        p.grad = tocha.tensor([0.5 - 1j, 2j], dtype=tocha.complex128) * scale
        q.grad = tocha.view_as_real(p.grad).clone()
        a.step()
        b.step()
    assert tocha.allclose(tocha.view_as_real(p.detach()), q.detach(), rtol=1e-12)


STATE = {
    "Adam": {"step", "exp_avg", "exp_avg_sq"},
    "AdamW": {"step", "exp_avg", "exp_avg_sq"},
    "RMSprop": {"step", "square_avg"},
    "Adagrad": {"step", "sum"},
    "Adadelta": {"step", "square_avg", "acc_delta"},
    "Adamax": {"step", "exp_avg", "exp_inf"},
    "NAdam": {"step", "mu_product", "exp_avg", "exp_avg_sq"},
    "RAdam": {"step", "exp_avg", "exp_avg_sq"},
    "ASGD": {"step", "eta", "mu", "ax"},
    "Rprop": {"step", "prev", "step_size"},
    "Adafactor": {"step", "row_var", "col_var"},
    "Muon": {"momentum_buffer"},
}


@pytest.mark.parametrize("name", STATE)
def test_state_keys_and_step_type(name):
    p = parameter()
    optimizer = getattr(optim, name)([p])
    train(optimizer, p, 2)
    state = optimizer.state_dict()["state"][0]
    assert set(state) == STATE[name]
    if "step" in state:
        assert state["step"].dtype == tocha.float32 and state["step"].shape == () and state["step"].item() == 2


def test_sgd_without_momentum_has_no_state():
    p = parameter()
    optimizer = optim.SGD([p])
    train(optimizer, p, 2)
    assert optimizer.state_dict()["state"] == {}


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adamax", "NAdam", "RAdam", "ASGD"])
def test_differentiable_steps_carry_the_gradient(name):
    cls = getattr(optim, name)
    options = {"momentum": 0.9} if name == "SGD" else {}

    def after_two_steps(value):
        p = value.clone()
        optimizer = cls([p], lr=0.1, differentiable=True, **options)
        for scale in (1.0, 0.5):
            p.grad = value * scale
            optimizer.step()
        return p.sum()

    x = tocha.tensor([0.7, -1.3], dtype=tocha.float64, requires_grad=True)
    after_two_steps(x).backward()
    for i in range(2):
        step = tocha.zeros(2, dtype=tocha.float64)
        step[i] = 1e-6
        with tocha.no_grad():
            high, low = x + step, x - step
        slope = (after_two_steps(high.requires_grad_()) - after_two_steps(low.requires_grad_())).item() / 2e-6
        assert x.grad[i].item() == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    "name,options",
    [
        ("SGD", {"lr": -1.0}),
        ("SGD", {"momentum": -0.5}),
        ("SGD", {"nesterov": True}),
        ("SGD", {"lr": tocha.ones(2)}),
        ("Adam", {"betas": (1.0, 0.9)}),
        ("Adam", {"betas": (0.9, 1.0)}),
        ("Adam", {"eps": -1.0}),
        ("Adam", {"lr": math.nan}),
        ("Adam", {"lr": tocha.tensor(0.1), "foreach": True}),
        ("Adam", {"betas": (0.9, tocha.tensor(0.99))}),
        ("AdamW", {"weight_decay": -1}),
        ("RMSprop", {"alpha": -1.0}),
        ("Adagrad", {"lr_decay": -1.0}),
        ("Adadelta", {"rho": 2.0}),
        ("NAdam", {"momentum_decay": -1.0}),
        ("Rprop", {"etas": (2, 0.5)}),
        ("Adafactor", {"d": 0.5}),
        ("Muon", {"adjust_lr_fn": "other"}),
    ],
)
def test_bad_options_are_refused(name, options):
    with pytest.raises(ValueError):
        getattr(optim, name)([parameter()], **options)


def test_options_that_exclude_each_other():
    with pytest.raises(RuntimeError, match="fused"):
        optim.Adam([parameter()], fused=True, foreach=True)
    with pytest.raises(RuntimeError, match="differentiable"):
        optim.SGD([parameter()], fused=True, differentiable=True)
    with pytest.raises(ValueError, match="2D"):
        optim.Muon([tocha.nn.Parameter(tocha.zeros(3))])
    p = parameter()
    capturable = optim.Adam([p], capturable=True)
    p.grad = tocha.ones_like(p)
    with pytest.raises(AssertionError, match="capturable=True"):
        capturable.step()
    assert p[0, 0].item() == 1.0


def test_functional_form_updates_in_place():
    from tocha.optim.adamw import adamw

    p, m, v, step = tocha.ones(3), tocha.zeros(3), tocha.zeros(3), tocha.tensor(0.0)
    adamw(
        [p], [tocha.ones(3)], [m], [v], [], [step], amsgrad=False, beta1=0.9, beta2=0.999, lr=0.1,
        weight_decay=0.0, eps=1e-8, maximize=False,
    )  # fmt: skip
    assert p.tolist() == pytest.approx([0.9] * 3) and step.item() == 1
    assert m.tolist() == pytest.approx([0.1] * 3) and v.tolist() == pytest.approx([0.001] * 3)


def test_empty_and_zero_dim_parameters():
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adafactor", "Rprop"):
        empty, scalar = tocha.nn.Parameter(tocha.zeros(0)), tocha.nn.Parameter(tocha.tensor(2.0))
        optimizer = getattr(optim, name)([scalar] if name == "Adafactor" else [empty, scalar], lr=0.1)
        empty.grad, scalar.grad = tocha.zeros(0), tocha.tensor(1.0)
        optimizer.step()
        assert scalar.item() < 2.0, name
