"""utils.swap_tensors, and an optimizer's parameters and state exchanged for a while."""

import weakref

import pytest

import tocha as torch


class Sub(torch.Tensor):
    pass


def test_swap_tensors_exchanges_everything():
    a, b = torch.nn.Parameter(torch.ones(2)), torch.zeros(3, dtype=torch.float64)
    a.grad = torch.full((2,), 5.0)
    a.note = "a"
    identity = id(a)
    torch.utils.swap_tensors(a, b)
    assert id(a) == identity and type(a) is torch.Tensor and isinstance(b, torch.nn.Parameter)
    assert a.tolist() == [0, 0, 0] and a.dtype is torch.float64 and not a.requires_grad and not hasattr(a, "note")
    assert b.tolist() == [1, 1] and b.requires_grad and b.grad.tolist() == [5, 5] and b.note == "a"


def test_swap_tensors_with_a_subclass_and_history():
    x = torch.ones(2, requires_grad=True)
    a, b = x * 3, Sub([1.0, 2.0])
    torch.utils.swap_tensors(a, b)
    assert type(a) is Sub and type(b) is torch.Tensor and a.grad_fn is None
    b.sum().backward()
    assert x.grad.tolist() == [3, 3]


def test_swap_tensors_refuses_weak_references():
    a, b = torch.ones(2), torch.zeros(2)
    kept = weakref.ref(b)
    with pytest.raises(RuntimeError, match="Cannot swap t2 because it has weakref"):
        torch.utils.swap_tensors(a, b)
    assert kept() is b and a.tolist() == [1, 1]


def _trained():
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_an_optimizer_works_on_what_is_swapped_in():
    model, optimizer = _trained()
    before, state = [p.clone() for p in model.parameters()], optimizer.state_dict()
    new = {"weight": torch.zeros(2, 2), "bias": torch.zeros(2)}
    with torch.optim.swap_in_optimizer_params_and_state(optimizer, new, state):
        new["weight"].grad = torch.ones(2, 2)
        optimizer.step()
        optimizer.param_groups[0]["lr"] = 7
    torch.testing.assert_close(new["weight"], torch.full((2, 2), -0.19))  # 0.1 * (0.9 * 1 + 1)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
    assert optimizer.param_groups[0]["params"] == list(model.parameters()) and optimizer.param_groups[0]["lr"] == 0.1
    torch.testing.assert_close(state["state"][0]["momentum_buffer"], torch.full((2, 2), 1.9))


def test_what_is_swapped_in_must_fit():
    swap = torch.optim.swap_in_optimizer_params_and_state
    model, optimizer = _trained()
    state = optimizer.state_dict()
    for given, options, text in [
        ({"weight": torch.zeros(2, 2)}, state, "ordering"),
        (dict(model.named_parameters()), {"state": {}}, "got NoneType"),
        (dict(model.named_parameters()), {"state": {}, "param_groups": []}, "different number"),
    ]:
        with pytest.raises(RuntimeError, match=text), swap(optimizer, given, options):
            pass
    fresh = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(RuntimeError, match="initialized"), swap(fresh, {}, state):
        pass
