"""Module: registration, hooks, state dictionaries, conversion, printing."""

from __future__ import annotations

import copy
import pickle

import pytest

import tocha as torch
from tocha import nn
from tocha.nn.modules import module as global_hooks


def tensors_equal(a, b):
    return a.tolist() == b.tolist()


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.log = []

    def forward(self, x, k=1):
        self.log.append(("forward", k))
        return self.inner(x) * k


# -- attributes and registration


def test_assignment_registers_by_kind():
    m = nn.Module()
    m.p = nn.Parameter(torch.ones(1))
    m.child = nn.ReLU()
    m.plain = 3
    m.register_buffer("b", torch.zeros(1))
    assert list(dict(m.named_parameters())) == ["p"]
    assert list(dict(m.named_children())) == ["child"]
    assert list(dict(m.named_buffers())) == ["b"]
    assert m.__dict__["plain"] == 3
    assert "p" not in m.__dict__


def test_a_name_moves_between_kinds():
    m = nn.Module()
    m.x = torch.ones(1)
    m.x = nn.Parameter(torch.ones(1))
    assert "x" not in m.__dict__ and "x" in m._parameters
    m.x = nn.ReLU()
    assert "x" not in m._parameters and "x" in m._modules


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("weight", 3, "cannot assign 'int' as parameter 'weight' (torch.nn.Parameter or None expected)"),
        ("child", 3, "cannot assign 'int' as child module 'child' (torch.nn.Module or None expected)"),
        (
            "buf",
            3,
            "cannot assign 'int' as buffer 'buf' (torch.nn.Buffer, torch.Tensor or None expected)",
        ),
    ],
)
def test_wrong_kind_is_refused(name, value, message):
    m = nn.Linear(2, 2)
    m.child = nn.ReLU()
    m.register_buffer("buf", torch.ones(1))
    with pytest.raises(TypeError) as e:
        setattr(m, name, value)
    assert str(e.value) == message


def test_none_removes_the_value_but_keeps_the_name():
    m = nn.Linear(2, 2)
    m.bias = None
    assert m._parameters["bias"] is None
    assert repr(m) == "Linear(in_features=2, out_features=2, bias=False)"


@pytest.mark.parametrize(
    "name, error, message",
    [
        ("a.b", KeyError, 'parameter name can\'t contain "."'),
        ("", KeyError, 'parameter name can\'t be empty string ""'),
        ("forward", KeyError, "attribute 'forward' already exists"),
        (3, TypeError, "parameter name should be a string. Got int"),
    ],
)
def test_bad_parameter_names(name, error, message):
    with pytest.raises(error) as e:
        nn.Module().register_parameter(name, None)
    assert e.value.args[0] == message


def test_assignment_before_init():
    class Early(nn.Module):
        def __init__(self):
            self.x = nn.Linear(1, 1)

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__"):
        Early()


def test_non_leaf_is_no_parameter():
    product = nn.Parameter(torch.ones(1)) * 2
    with pytest.raises(TypeError, match=r"torch.nn.Parameter or None required"):
        nn.Module().register_parameter("p", product)


def test_missing_attribute_and_missing_forward():
    m = nn.Module()
    with pytest.raises(AttributeError, match="'Module' object has no attribute 'nope'"):
        _ = m.nope
    with pytest.raises(NotImplementedError, match=r'Module \[Module\] is missing the required "forward"'):
        m(1)


def test_error_inside_a_property_names_the_missing_attribute():
    class WithProperty(nn.Module):
        @property
        def p(self):
            return self.absent

    with pytest.raises(AttributeError):
        _ = WithProperty().p


def test_buffers_persistent_or_not():
    m = nn.Module()
    m.register_buffer("kept", torch.ones(1))
    m.register_buffer("dropped", torch.ones(1), persistent=False)
    m.marked = nn.Buffer(torch.zeros(2), persistent=False)
    assert list(m.state_dict()) == ["kept"]
    assert [n for n, _ in m.named_buffers()] == ["kept", "dropped", "marked"]
    assert isinstance(m.marked, nn.Buffer)


def test_submodule_paths():
    m = nn.Sequential(nn.Sequential(nn.Linear(1, 2)), nn.ReLU())
    assert m.get_submodule("0.0").out_features == 2
    assert m.get_parameter("0.0.bias").shape == (2,)
    m.set_submodule("0.0", nn.Linear(1, 3))
    assert m[0][0].out_features == 3
    with pytest.raises(AttributeError, match="Sequential has no attribute `7`"):
        m.get_submodule("7")
    with pytest.raises(AttributeError, match=r"`weight` is not an nn.Module"):
        m.get_submodule("0.0.weight")


def test_shared_modules_are_listed_once():
    shared = nn.Linear(1, 1)
    m = nn.ModuleDict({"a": shared, "b": shared})
    assert [n for n, _ in m.named_modules()] == ["", "a"]
    assert [n for n, _ in m.named_parameters(remove_duplicate=False)] == [
        "a.weight",
        "a.bias",
        "b.weight",
        "b.bias",
    ]
    assert len(m.state_dict()) == 4


# -- calls and hooks


def test_forward_hooks_order_and_results():
    m = Scaled()
    x = torch.ones(1, 2)
    log = m.log
    m.register_forward_pre_hook(lambda m, a: log.append("pre"))
    m.register_forward_pre_hook(lambda m, a, k: (log.append("pre kwargs"), (a, {"k": 2}))[1], with_kwargs=True, prepend=True)
    m.register_forward_hook(lambda m, a, out: (log.append("post"), out + 1)[1])
    m.register_forward_hook(lambda m, a, k, out: log.append(("post kwargs", k)), with_kwargs=True, prepend=True)
    plain = m.inner(x) * 2 + 1
    assert tensors_equal(m(x), plain)
    assert log == ["pre kwargs", "pre", ("forward", 2), ("post kwargs", {"k": 2}), "post"]


def test_removed_hooks_leave_nothing():
    m = Scaled()
    handle = m.register_forward_hook(lambda m, a, k, o: None, with_kwargs=True, always_call=True)
    handle.remove()
    assert not m._forward_hooks and not m._forward_hooks_with_kwargs and not m._forward_hooks_always_called


def test_a_hook_put_into_the_table_directly_runs():
    m = nn.Identity()
    m._forward_hooks[0] = lambda m, a, out: out + 1
    assert m(1) == 2
    m = nn.Identity()
    m._forward_pre_hooks = {}
    m._forward_pre_hooks[0] = lambda m, a: a[0] + 1
    assert m(1) == 2


def test_always_called_hook_runs_after_an_error():
    class Fails(nn.Module):
        def forward(self):
            raise ValueError("broken")

    m, seen = Fails(), []
    m.register_forward_hook(lambda m, a, out: seen.append(out), always_call=True)
    m.register_forward_hook(lambda m, a, out: seen.append("not reached"))
    with pytest.raises(ValueError, match="broken"):
        m()
    assert seen == [None]


def test_bad_result_of_a_pre_hook():
    m = nn.Identity()
    m.register_forward_pre_hook(lambda m, a, k: a, with_kwargs=True)
    with pytest.raises(RuntimeError, match=r"must return None or a tuple of"):
        m(1)


def test_full_backward_hooks_see_and_replace_gradients():
    m = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        m.weight.copy_(torch.tensor([[2.0, 3.0]]))
    seen = []
    m.register_full_backward_pre_hook(lambda m, go: (go[0] * 10,))
    m.register_full_backward_hook(lambda m, gi, go: (seen.append((gi[0].tolist(), go[0].tolist())), (gi[0] + 1,))[1])
    x = torch.ones(1, 2, requires_grad=True)
    m(x).sum().backward()
    assert seen == [([[20.0, 30.0]], [[10.0]])]
    assert x.grad.tolist() == [[21.0, 31.0]]
    assert m.weight.grad.tolist() == [[10.0, 10.0]]


def test_backward_hooks_nest_and_count_inputs():
    class TwoInTwoOut(nn.Module):
        def forward(self, a, b):
            return a * 2, b * 3

    m, seen = TwoInTwoOut(), []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(([g.tolist() for g in gi], go[1])))
    a = torch.ones(1, requires_grad=True)
    m(a, torch.ones(1))[0].sum().backward()
    assert seen == [([[2.0], [0.0]], None)]


def test_backward_hook_without_input_gradient_fires_at_the_output():
    m, seen = nn.Linear(2, 1), []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((gi, go[0].tolist())))
    with pytest.warns(UserWarning, match="no inputs require gradients"):
        m(torch.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]


def test_wrong_number_of_gradients_from_a_hook():
    m = nn.Linear(2, 1)
    m.register_full_backward_hook(lambda m, gi, go: (gi[0], gi[0]))
    x = torch.ones(1, 2, requires_grad=True)
    with pytest.raises(RuntimeError, match="invalid number of grad_input, got 2, but expected 1"):
        m(x).sum().backward()


def test_regular_and_full_backward_hooks_exclude_each_other():
    m = nn.Linear(1, 1)
    m.register_full_backward_hook(lambda *a: None)
    with pytest.raises(RuntimeError, match="Cannot use both regular backward hooks and full backward hooks"):
        m.register_backward_hook(lambda *a: None)


def test_global_hooks_run_before_the_modules_own():
    m, seen = nn.Sequential(nn.Identity()), []
    m.register_forward_hook(lambda m, a, o: seen.append("own"))
    handles = [
        global_hooks.register_module_forward_pre_hook(lambda m, a: seen.append("pre " + type(m).__name__)),
        global_hooks.register_module_forward_hook(lambda m, a, o: seen.append("post " + type(m).__name__)),
    ]
    try:
        m(1)
    finally:
        for handle in handles:
            handle.remove()
    m(1)
    assert seen == ["pre Sequential", "pre Identity", "post Identity", "post Sequential", "own", "own"]
    assert not global_hooks._global_call_hooks  # calls take the short way again, and graphs are captured as before


def test_registration_hooks():
    seen = []
    handles = [
        global_hooks.register_module_parameter_registration_hook(lambda m, n, p: seen.append(n)),
        global_hooks.register_module_module_registration_hook(lambda m, n, c: seen.append(n)),
        global_hooks.register_module_buffer_registration_hook(lambda m, n, b: seen.append(n)),
    ]
    try:
        nn.Sequential(nn.BatchNorm1d(1))
    finally:
        for handle in handles:
            handle.remove()
    assert seen == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked", "0"]


# -- state dictionaries


def test_load_state_dict_lists_every_problem():
    m = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    state = {"0.weight": torch.zeros(4, 2), "x": 1, "0.bias": 3, "y.z": 2, "1.weight": torch.zeros(())}
    with pytest.raises(RuntimeError) as e:
        m.load_state_dict(state)
    assert str(e.value) == (
        "Error(s) in loading state_dict for Sequential:\n"
        '\tMissing key(s) in state_dict: "1.bias", "1.running_mean", "1.running_var". \n'
        '\tUnexpected key(s) in state_dict: "x", "y.z". \n'
        "\tsize mismatch for 0.weight: copying a param with shape torch.Size([4, 2]) from checkpoint, the shape in "
        "current model is torch.Size([3, 2]).\n"
        '\tWhile copying the parameter named "0.bias", expected torch.Tensor or Tensor-like object from checkpoint '
        "but received <class 'int'>\n"
        "\tsize mismatch for 1.weight: copying a param with shape torch.Size([]) from checkpoint, the shape in "
        "current model is torch.Size([3])."
    )


def test_load_state_dict_not_strict_returns_the_keys():
    result = nn.Linear(1, 1).load_state_dict({"x": torch.zeros(1)}, strict=False)
    assert result.missing_keys == ["weight", "bias"]
    assert result.unexpected_keys == ["x"]
    assert repr(nn.ReLU().load_state_dict({})) == "<All keys matched successfully>"


def test_load_copies_in_place_and_casts():
    m = nn.Linear(1, 1, bias=False)
    weight = m.weight
    m.load_state_dict({"weight": torch.tensor([[2.5]], dtype=torch.float64)})
    assert m.weight is weight and weight.dtype == torch.float32 and weight.tolist() == [[2.5]]


def test_assign_takes_the_tensor_and_keeps_requires_grad():
    m = nn.Linear(1, 1)
    m.bias.requires_grad_(False)
    given = torch.tensor([[2.5]], dtype=torch.float64)
    m.load_state_dict({"weight": given, "bias": torch.zeros(1)}, assign=True)
    assert m.weight.dtype == torch.float64 and isinstance(m.weight, nn.Parameter)
    assert m.weight.requires_grad and not m.bias.requires_grad
    given.fill_(7)
    assert m.weight.tolist() == [[7.0]]


def test_one_element_fills_a_scalar():
    m = nn.Module()
    m.s = nn.Parameter(torch.zeros(()))
    m.load_state_dict({"s": torch.ones(1)})
    assert m.s.item() == 1.0


def test_metadata_holds_versions():
    state = nn.Sequential(nn.BatchNorm1d(1)).state_dict()
    assert dict(state._metadata) == {"": {"version": 1}, "0": {"version": 2}}


def test_extra_state_round_trip():
    class Extra(nn.Module):
        value = None

        def get_extra_state(self):
            return {"k": 1}

        def set_extra_state(self, state):
            self.value = state

    m = Extra()
    assert list(m.state_dict()) == ["_extra_state"]
    m.load_state_dict({"_extra_state": 5})
    assert m.value == 5
    with pytest.raises(RuntimeError, match=r'Missing key.*"_extra_state"'):
        m.load_state_dict({})
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"_extra_state"'):
        nn.ReLU().load_state_dict({"_extra_state": 5})


def test_state_dict_hooks():
    m, seen = nn.Sequential(nn.Linear(1, 1)), []
    m.register_state_dict_pre_hook(lambda m, prefix, keep: seen.append(("pre", prefix)))
    m[0].register_state_dict_post_hook(lambda m, state, prefix, meta: seen.append(("post", prefix)))
    m._register_state_dict_hook(lambda m, state, prefix, meta: {"replaced": 1})
    assert m.state_dict() == {"replaced": 1}
    assert seen == [("pre", ""), ("post", "0.")]
    m.register_state_dict_post_hook(lambda *a: 1)
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        m.state_dict()


def test_load_hooks_may_edit():
    m = nn.Sequential(nn.Linear(1, 1, bias=False))

    def rename(module, state, prefix, *rest):
        state[prefix + "weight"] = state.pop(prefix + "old")

    m[0].register_load_state_dict_pre_hook(rename)
    m.register_load_state_dict_post_hook(lambda module, keys: keys.missing_keys.clear())
    given = {"0.old": torch.full((1, 1), 4.0)}
    m.load_state_dict(given, strict=False)
    assert m[0].weight.tolist() == [[4.0]]
    assert list(given) == ["0.old"]


# -- whole-tree operations


def test_conversion_keeps_parameters_and_casts_floats_only():
    m = nn.BatchNorm1d(2)
    weight = m.weight
    weight.grad = torch.ones(2)
    m.double()
    assert m.weight is weight and weight.dtype == torch.float64 and weight.grad.dtype == torch.float64
    assert m.num_batches_tracked.dtype == torch.int64
    with pytest.raises(TypeError, match="only accepts floating point or complex dtypes"):
        m.to(torch.int32)


def test_train_and_eval():
    m = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout()))
    assert m.eval() is m and not m[1][0].training
    assert m.train()[1][0].training
    with pytest.raises(ValueError, match="expected to be boolean"):
        m.train("yes")


def test_zero_grad():
    m = nn.Linear(1, 1)
    m(torch.ones(1, 1)).sum().backward()
    kept = m.weight.grad
    m.zero_grad(set_to_none=False)
    assert m.weight.grad is kept and kept.tolist() == [[0.0]]
    m.zero_grad()
    assert m.weight.grad is None


def test_apply_visits_children_first():
    seen = []
    nn.Sequential(nn.ReLU(), nn.Tanh()).apply(lambda m: seen.append(type(m).__name__))
    assert seen == ["ReLU", "Tanh", "Sequential"]


def test_deepcopy_and_pickle():
    m = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    m[0].register_forward_hook(print)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert isinstance(other[0].weight, nn.Parameter)
        assert other[0].weight is not m[0].weight
        assert tensors_equal(other[0].weight, m[0].weight)
        assert list(other[0]._forward_hooks.values()) == [print] and other[0]._hooked


def test_tied_parameters_stay_tied_in_a_copy():
    m = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
    m[1].weight = m[0].weight
    other = copy.deepcopy(m)
    assert other[0].weight is other[1].weight


def test_repr_of_a_tree():
    m = nn.Sequential(nn.Linear(1, 2), nn.Sequential(nn.ReLU(inplace=True)))
    assert repr(m) == (
        "Sequential(\n"
        "  (0): Linear(in_features=1, out_features=2, bias=True)\n"
        "  (1): Sequential(\n"
        "    (0): ReLU(inplace=True)\n"
        "  )\n"
        ")"
    )


def test_dir_lists_members_without_numbers():
    names = dir(nn.Sequential(nn.ReLU()))
    assert "training" in names and "forward" in names and "0" not in names
