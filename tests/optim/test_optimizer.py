"""The base class: groups, checkpoints, hooks, copies."""

import copy
import io
import pickle

import pytest

import tocha
from tocha import optim
from tocha.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


def param(*values):
    return tocha.nn.Parameter(tocha.tensor(values or (1.0, 2.0)))


def stepped(optimizer, *params, n=1):
    for i in range(n):
        for p in params:
            p.grad = tocha.full_like(p, 0.5 + i)
        optimizer.step()


def test_groups_take_defaults_and_keep_their_own_options():
    p, q = param(), param()
    o = optim.SGD([{"params": [p]}, {"params": q, "lr": 0.5}], lr=0.1, momentum=0.9)
    assert [g["lr"] for g in o.param_groups] == [0.1, 0.5]
    assert o.param_groups[1]["params"] == [q] and o.param_groups[1]["momentum"] == 0.9
    stepped(o, p, q)
    assert p.tolist() == pytest.approx([0.95, 1.95]) and q.tolist() == pytest.approx([0.75, 1.75])


@pytest.mark.parametrize(
    "params,error,text",
    [
        (list, ValueError, "empty parameter list"),
        (lambda: param(), TypeError, "iterable of Tensors"),
        (lambda: [1.0], TypeError, "float"),
        (lambda: [{"params": {param()}}], TypeError, "ordering of tensors in sets"),
        (lambda: [param() * 2], ValueError, "non-leaf"),
        (lambda: [("a", param()), param()], ValueError, "names"),
        (lambda: [{"params": [("a", param())]}, {"params": [param()]}], ValueError, "names"),
    ],
)
def test_bad_parameters_are_refused(params, error, text):
    with pytest.raises(error, match=text):
        optim.SGD(params(), lr=0.1)


def test_parameter_in_two_groups_is_refused():
    p = param()
    o = optim.SGD([p])
    with pytest.raises(ValueError, match="more than one"):
        o.add_param_group({"params": [p]})
    with pytest.raises(TypeError, match="dict"):
        o.add_param_group([p])
    assert len(o.param_groups) == 1


def test_named_parameters_are_kept_in_groups_and_checkpoints():
    a, b = param(), param()
    o = optim.SGD([("a", a), ("b", b)], momentum=0.9)
    assert o.param_groups[0]["param_names"] == ["a", "b"]
    group = o.state_dict()["param_groups"][0]
    assert group["params"] == [0, 1] and group["param_names"] == ["a", "b"]


def test_required_option():
    class Mine(optim.Optimizer):
        pass

    with pytest.raises(ValueError, match="required"):
        Mine([param()], {"lr": optim.optimizer.required})
    with pytest.raises(NotImplementedError):
        Mine([{"params": [param()], "lr": 1}], {"lr": optim.optimizer.required}).step()


def test_zero_grad():
    p = param()
    o = optim.SGD([p])
    p.grad = tocha.ones(2)
    kept = p.grad
    o.zero_grad(set_to_none=False)
    assert p.grad is kept and kept.tolist() == [0.0, 0.0]
    o.zero_grad()
    assert p.grad is None


def test_closure_runs_with_grad_and_gives_the_loss():
    p = param()
    o = optim.Adam([p], lr=0.1)

    def closure():
        o.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tocha.no_grad():
        assert o.step(closure).item() == 5.0
    assert p.tolist() == pytest.approx([0.9, 1.9])


def test_load_state_dict_copies():
    p, q = param(), param()
    a, b = optim.SGD([p], lr=0.1, momentum=0.9), optim.SGD([q], lr=0.1, momentum=0.9)
    stepped(a, p)
    saved = a.state_dict()
    b.load_state_dict(saved)
    before = b.state[q]["momentum_buffer"].tolist()
    stepped(a, p)
    saved["param_groups"][0]["lr"] = 7.0
    assert b.state[q]["momentum_buffer"].tolist() == before
    assert b.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam", "ASGD", "Rprop", "RAdam"])
def test_resumed_training_makes_the_same_steps(name):
    p, q = param(), param()
    options = {"momentum": 0.9} if name == "SGD" else {}
    a, b = getattr(optim, name)([p], lr=0.01, **options), getattr(optim, name)([q], lr=0.5, **options)
    stepped(a, p, n=3)
    buffer = io.BytesIO()
    tocha.save({"o": a.state_dict(), "p": p.detach().clone()}, buffer)
    buffer.seek(0)
    saved = tocha.load(buffer)
    with tocha.no_grad():
        q.copy_(saved["p"])
    b.load_state_dict(saved["o"])
    stepped(a, p, n=3)
    stepped(b, q, n=3)
    assert tocha.equal(p, q)


def test_loaded_state_takes_the_parameters_dtype_but_step_does_not():
    p, q = param(), tocha.nn.Parameter(tocha.ones(2, dtype=tocha.float64))
    a, b = optim.Adam([p]), optim.Adam([q])
    stepped(a, p)
    b.load_state_dict(a.state_dict())
    assert b.state[q]["exp_avg"].dtype == tocha.float64 and b.state[q]["step"].dtype == tocha.float32


def test_old_checkpoint_with_plain_step_and_missing_options():
    p = param()
    o = optim.Adam([p])
    stepped(o, p)
    saved = copy.deepcopy(o.state_dict())
    saved["state"][0]["step"] = 1
    for key in ("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"):
        del saved["param_groups"][0][key]
    o.load_state_dict(saved)
    assert o.state[p]["step"].item() == 1.0 and o.param_groups[0]["maximize"] is False
    stepped(o, p)


def test_load_state_dict_of_other_shape_changes_nothing():
    p = param()
    o = optim.SGD([p], momentum=0.9)
    stepped(o, p)
    before = o.state[p]["momentum_buffer"]
    with pytest.raises(ValueError, match="different number"):
        o.load_state_dict({"state": {}, "param_groups": []})
    with pytest.raises(ValueError, match="size of optimizer's group"):
        o.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})
    assert o.state[p]["momentum_buffer"] is before


def test_deepcopy_and_pickle_keep_state_with_their_own_parameters():
    p = param()
    for clone in (copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))):
        o = optim.Adam([p], lr=0.1)
        stepped(o, p)
        other = clone(o)
        q = other.param_groups[0]["params"][0]
        assert q is not p and set(other.state) == {q} and other.state[q]["step"].item() == 1
        before = p.tolist()
        stepped(other, q)
        assert p.tolist() == before and other.state[q]["step"].item() == 2


def test_repr_lists_options():
    text = repr(optim.SGD([param()], lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    dampening: 0\n") and text.endswith("weight_decay: 0\n)")


def test_step_hooks_run_in_order_and_can_be_removed():
    p, calls = param(), []
    o = optim.SGD([p])
    handles = [
        register_optimizer_step_pre_hook(lambda *a: calls.append("global pre")),
        register_optimizer_step_post_hook(lambda *a: calls.append("global post")),
        o.register_step_pre_hook(lambda opt, args, kwargs: calls.append("pre")),
        o.register_step_post_hook(lambda opt, args, kwargs: calls.append("post")),
    ]
    o.step()
    assert calls == ["global pre", "pre", "post", "global post"]
    for handle in handles:
        handle.remove()
    o.step()
    assert len(calls) == 4


def test_step_pre_hook_replaces_arguments_or_is_refused():
    o = optim.SGD([param()])
    handle = o.register_step_pre_hook(lambda opt, args, kwargs: ((opt, lambda: 5), {}))
    assert o.step() == 5
    handle.remove()
    o.register_step_pre_hook(lambda *a: 3)
    with pytest.raises(RuntimeError, match="None or a tuple"):
        o.step()


def test_state_dict_hooks():
    p = param()
    o, calls = optim.SGD([p], lr=0.1), []
    o.register_state_dict_pre_hook(lambda opt: calls.append("pre"))
    o.register_state_dict_post_hook(lambda opt, state: {**state, "extra": 1})
    o.register_load_state_dict_pre_hook(lambda opt, state: {**state, "param_groups": [{**state["param_groups"][0], "lr": 9.0}]})
    o.register_load_state_dict_post_hook(lambda opt: calls.append(opt.param_groups[0]["lr"]))
    saved = o.state_dict()
    assert saved["extra"] == 1
    o.load_state_dict(saved)
    assert calls == ["pre", 9.0]


def test_user_defined_optimizer_has_hooks_and_checkpoints():
    class Plain(optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @tocha.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    self.state[p].setdefault("n", tocha.tensor(0)).add_(1)
                    p.sub_(group["lr"] * p.grad)

    p, calls = param(), []
    o = Plain([p], 0.1)
    o.register_step_post_hook(lambda *a: calls.append(1))
    stepped(o, p)
    assert p.tolist() == pytest.approx([0.95, 1.95]) and calls == [1]
    assert o.state_dict()["state"][0]["n"].item() == 1
