"""L-BFGS on Rosenbrock's function, against torch's losses, evaluations and iterations."""

import pytest

import tocha
from tocha.optim import LBFGS


def rosenbrock(options, steps=3):
    p = tocha.nn.Parameter(tocha.tensor([-1.2, 1.0], dtype=tocha.float64))
    optimizer = LBFGS([p], **options)

    def closure():
        optimizer.zero_grad()
        loss = (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(steps)]
    return losses, p.tolist(), optimizer


@pytest.mark.parametrize(
    "options,losses,end,evals,iterations",
    [
        (
            {"lr": 0.01, "max_iter": 4},
            [24.2, 21.48862343419122, 20.262628349225412],
            [-1.1792554727204612, 1.0116385670033006],
            12,
            12,
        ),
        (
            {"max_iter": 4, "line_search_fn": "strong_wolfe"},
            [24.2, 4.121126775765638, 3.9091442795206377],
            [-0.5160277728852024, 0.2265458257902353],
            15,
            11,
        ),
        (
            {"max_iter": 6, "history_size": 2, "line_search_fn": "strong_wolfe"},
            [24.2, 4.082807343944086, 2.4806405496741535],
            [-0.1359458547764193, -0.018305441212345404],
            21,
            14,
        ),
        (  # the line search has no more evaluations than the step has left
            {"lr": 0.1, "max_iter": 2, "line_search_fn": "strong_wolfe"},
            [24.2, 10.565633722077013, 4.292925536534141],
            [-1.0330038395892887, 1.070936190934013],
            8,
            3,
        ),
        (
            {"max_iter": 20, "max_eval": 7, "line_search_fn": "strong_wolfe"},
            [24.2, 4.084955376327375, 2.456257721580502],
            [-0.04619019171258308, -0.01801156636469505],
            21,
            15,
        ),
    ],
)
def test_path_is_torchs(options, losses, end, evals, iterations):
    got, p, optimizer = rosenbrock(options)
    assert got == pytest.approx(losses, rel=1e-8) and p == pytest.approx(end, rel=1e-7)
    state = next(iter(optimizer.state.values()))
    assert (state["func_evals"], state["n_iter"]) == (evals, iterations)


def test_strong_wolfe_finds_the_minimum():
    losses, p, _ = rosenbrock({"max_iter": 100, "line_search_fn": "strong_wolfe"}, steps=2)
    assert p == pytest.approx([1.0, 1.0], abs=1e-4) and losses[1] < 1e-8


def test_state_survives_a_checkpoint():
    _, p, optimizer = rosenbrock({"max_iter": 3})
    q = tocha.nn.Parameter(tocha.tensor(p, dtype=tocha.float64))
    other = LBFGS([q], max_iter=3)
    other.load_state_dict(optimizer.state_dict())
    state, saved = other.state[q], next(iter(optimizer.state.values()))
    assert state["n_iter"] == saved["n_iter"] > 0 and tocha.equal(state["d"], saved["d"])
    assert len(state["old_stps"]) == len(saved["old_stps"]) > 0


def test_refusals():
    p, q = (tocha.nn.Parameter(tocha.zeros(2)) for _ in range(2))
    with pytest.raises(ValueError, match="per-parameter options"):
        LBFGS([{"params": [p]}, {"params": [q]}])
    with pytest.raises(TypeError):
        LBFGS([p]).step()
    with pytest.raises(RuntimeError, match="strong_wolfe"):
        LBFGS([p], line_search_fn="armijo").step(lambda: tocha.tensor(0.0))
