"""Optimizer steps as one native kernel: bit for bit what the same rule gives on tensors, and everything around the numbers."""

import random

import pytest

import tocha as torch
from tocha.backends import native_lists
from tocha.prims import native_rows as rows

SHAPES = [(8, 8), (64,), (3,), (1,), (0,), (5, 7, 3), (300, 17), ()]
OPTIONS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 1.0, "nesterov": True}),
    ("Adam", {"lr": 0.1}),
    ("Adam", {"lr": 0.1, "betas": (0.3, 0.6), "weight_decay": 0.3, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.1, "betas": (0.0, 0.0)}),
    ("AdamW", {"lr": 1e-3}),
    ("AdamW", {"lr": 0.5, "eps": 1e-3, "weight_decay": 0.3, "amsgrad": True}),
    ("RMSprop", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.1, "alpha": 0.4, "centered": True, "momentum": 0.9, "weight_decay": 0.01}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.01, "initial_accumulator_value": 0.5}),
    ("Adamax", {"lr": 0.01}),
    ("Adamax", {"lr": 0.01, "weight_decay": 0.1, "maximize": True, "eps": 1e-3}),
    ("Adadelta", {"lr": 0.5}),
    ("Adadelta", {"lr": 0.5, "rho": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.01}),
    ("NAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("RAdam", {"lr": 0.01}),
    ("RAdam", {"lr": 0.01, "betas": (0.5, 0.9), "weight_decay": 0.1}),
    ("RAdam", {"lr": 0.01, "weight_decay": 0.1, "decoupled_weight_decay": True, "maximize": True}),
    ("ASGD", {"lr": 0.1}),
    ("ASGD", {"lr": 0.1, "lambd": 0.1, "t0": 5, "weight_decay": 0.1, "maximize": True}),
    ("Rprop", {"lr": 0.1}),
    ("Rprop", {"lr": 0.1, "etas": (0.3, 1.7), "step_sizes": (0.01, 0.15), "maximize": True}),
]


MODULES = ("_rule", "sgd")  # that call fused_update


@pytest.fixture
def left(monkeypatch):
    """The numbers of rows that each native update left to the tensors."""
    found = []

    def spy(*args, **kwargs):
        found.append(list(rows.fused_update(*args, **kwargs)))
        return found[-1]

    for module in MODULES:
        monkeypatch.setattr(f"tocha.optim.{module}.fused_update", spy)
    return found


def same(a, b):
    """Equal values (a variance rounded to a half type can be negative: NaN in both)."""
    return a.dtype is b.dtype and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


def choose(way, monkeypatch):
    """Have steps run in "kernels", in "numpy", or on "tensors"."""
    monkeypatch.setattr(native_lists, "ON", way == "kernels")
    if way == "tensors":
        for module in MODULES:
            monkeypatch.setattr(
                f"tocha.optim.{module}.fused_update", lambda rule, columns, *_, **__: range(len(columns["param"]))
            )


def train(name, options, dtype, steps=20, way="kernels", monkeypatch=None, shapes=SHAPES):
    """Parameters and states after some steps, in which now and then a parameter has no gradient."""
    choose(way, monkeypatch)
    torch.manual_seed(7)
    rng = random.Random(7)
    params = [torch.nn.Parameter(torch.randn(s).to(dtype)) for s in shapes]
    optimizer = getattr(torch.optim, name)(params, **options)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape).to(dtype) if rng.random() > 0.15 else None
        optimizer.step()
    states = [(key, v) for p in params for key, v in sorted(optimizer.state[p].items())]
    return [p.detach() for p in params], states


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_bits_are_those_of_the_rule_on_tensors(name, options, dtype, left, monkeypatch):
    params, states = train(name, options, dtype, monkeypatch=monkeypatch)
    assert left[-1] == []
    for way in ("numpy", "tensors"):
        other_params, other_states = train(name, options, dtype, way=way, monkeypatch=monkeypatch)
        assert way == "tensors" or (left[-1] == []) == (dtype.itemsize > 2)
        assert all(a.dtype is dtype and same(a, b) for a, b in zip(params, other_params, strict=True))
        for (key, a), (other, b) in zip(states, other_states, strict=True):
            assert key == other
            assert same(a, b)


def test_large_parameters_run_on_threads(left, monkeypatch):
    shapes = [(1000, 1000), (5,), (300_001,)]
    native = train("AdamW", {}, torch.float32, 3, "kernels", monkeypatch, shapes)
    assert left[-1] == []
    plain = train("AdamW", {}, torch.float32, 3, "tensors", monkeypatch, shapes)
    assert all(same(a, b) for a, b in zip(native[0], plain[0], strict=True))


def test_a_tensor_rate_and_scheduled_rates_need_no_new_kernel(left):
    p = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([p], lr=torch.tensor(0.5))
    p.grad = torch.ones(4)
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.25
    optimizer.step()
    assert p.tolist() == [0.25] * 4
    assert left == [[], []]


class Marked(torch.Tensor):
    pass


def _rows():
    torch.manual_seed(1)
    plain = torch.randn(4, 3)
    return [
        plain,
        torch.randn(3, 4).t(),
        torch.randn(4, dtype=torch.complex64),
        torch.randn(5, dtype=torch.float64),
        torch.randn(6)[::2],
    ]


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop", "Adagrad", "Adamax", "Adadelta", "NAdam", "RAdam", "ASGD", "Rprop"])
def test_rows_it_does_not_know_are_done_on_tensors(name, left, monkeypatch):
    def run(way):
        choose(way, monkeypatch)
        params = [t.clone(memory_format=torch.preserve_format).requires_grad_() for t in _rows()]
        params[4] = _rows()[4].requires_grad_()
        optimizer = getattr(torch.optim, name)(params, lr=0.1)
        for _ in range(3):
            for p in params:
                p.grad = (p * 2).detach()
            optimizer.step()
        return params

    done = run("kernels")
    assert left[-1] == [1, 2, 4]
    assert all(same(a, b) for a, b in zip(done, run("tensors"), strict=True))


def test_subclasses_are_done_on_tensors(left):
    p = torch.ones(3).as_subclass(Marked).requires_grad_()
    p.grad = torch.ones(3)
    torch.optim.SGD([p], lr=0.5).step()
    assert left == [[0]]
    assert p.tolist() == [0.5] * 3


def test_a_gradient_that_is_the_parameter_itself():
    p = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
    p.grad = p.data
    torch.optim.SGD([p], lr=0.25, weight_decay=1.0).step()
    assert p.tolist() == [0.5, -1.0]


def test_versions_count_one_change_a_step():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([p])
    for step in range(1, 4):
        p.grad = torch.ones(3)
        optimizer.step()
        assert p._version == step
        assert optimizer.state[p]["step"].item() == step
    loss = (p * p).sum()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation[\s\S]*adam\(\) at .*test_optim\.py"):
        loss.backward()


def test_a_recorded_step_is_done_on_tensors(left):
    p = torch.ones(3, requires_grad=True)
    copy = p.clone()
    optimizer = torch.optim.SGD([copy], lr=0.5, differentiable=True)
    copy.grad = p * 2
    optimizer.step()
    assert left == [[0]]
    (grad,) = torch.autograd.grad(copy.sum(), p)
    assert grad.tolist() == [0.0] * 3


def test_parameters_at_different_steps_in_one_call(left):
    a, b = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([a, b], lr=0.1, eps=0.0)
    a.grad = torch.ones(2)
    optimizer.step()
    b.grad = torch.ones(2)
    optimizer.step()
    assert left == [[], []]
    assert [optimizer.state[p]["step"].item() for p in (a, b)] == [2.0, 1.0]
    assert torch.allclose(a, torch.full((2,), -0.2))
    assert torch.allclose(b, torch.full((2,), -0.1))


def test_counters_that_are_one_tensor_count_every_row(left):
    p, q = torch.zeros(2), torch.zeros(2)
    step, zeros = torch.tensor(0.0), [torch.zeros(2) for _ in range(4)]
    with torch.no_grad():
        torch.optim.adam.adam(
            [p, q], [torch.ones(2), torch.ones(2)], zeros[:2], zeros[2:], [], [step, step], amsgrad=False, beta1=0.9, beta2=0.999, lr=0.1,
            weight_decay=0, eps=1e-8, maximize=False,
        )  # fmt: skip
    assert step.item() == 2.0
    assert left == [[0, 1]]
