"""Overrides of public functions: __torch_function__ of subclasses and duck types, and function modes."""

import pytest

import tocha as torch
from tocha.overrides import (
    BaseTorchFunctionMode,
    TorchFunctionMode,
    get_overridable_functions,
    handle_torch_function,
    has_torch_function,
    is_tensor_like,
    resolve_name,
)

F = torch.nn.functional


class Plain(torch.Tensor):
    pass


class Seen(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


def first_seen(function):
    x = torch.ones(2, 2).as_subclass(Seen)
    Seen.calls.clear()
    function(x)
    return Seen.calls[0]


@pytest.mark.parametrize(
    "function, expected",
    [
        (lambda x: torch.add(x, 1), torch.add),
        (lambda x: torch.add(x, 1, alpha=2), torch.add),
        (lambda x: x.add(1), torch.Tensor.add),
        (lambda x: x + 1, torch.Tensor.add),
        (lambda x: x / 2, torch.Tensor.div),
        (lambda x: 2 - x, torch.Tensor.__rsub__),
        (lambda x: x == 1, torch.Tensor.__eq__),
        (lambda x: x.add_(1), torch.Tensor.add_),
        (lambda x: x[0], torch.Tensor.__getitem__),
        (lambda x: torch.ones(2, 2) @ x, torch.Tensor.matmul),
        (lambda x: torch.cat([torch.ones(1, 2), x]), torch.cat),
        (lambda x: F.linear(torch.ones(1, 2), x), F.linear),
        (lambda x: F.relu(x), F.relu),
        (lambda x: torch.relu(x), torch.relu),
        (lambda x: x.shape, torch.Tensor.shape.__get__),
        (lambda x: x.grad, torch.Tensor.grad.__get__),
        (lambda x: x.T, torch.Tensor.T.__get__),
        (lambda x: setattr(x, "requires_grad", True), torch.Tensor.requires_grad.__set__),
        (lambda x: x.detach(), torch.Tensor.detach),
        (lambda x: x.requires_grad_(), torch.Tensor.requires_grad_),
        (lambda x: len(x), torch.Tensor.__len__),
        (lambda x: repr(x), torch.Tensor.__repr__),
    ],
)
def test_the_function_a_handler_sees(function, expected):
    assert first_seen(function) == expected


def test_results_are_of_the_subclass():
    x = torch.arange(4.0).as_subclass(Plain)
    results = [x + 1, 1 + x, x.sum(), x[0], x.view(2, 2), x.T, x.data, x.detach(), torch.stack([x, x]), torch.zeros_like(x)]
    results += [*x.split(2), torch.max(x.view(2, 2), 0).values, torch.ones(4) + x]
    assert {type(r) for r in results} == {Plain}
    assert type(x.numpy()).__name__ == "ndarray" and type(x.shape) is torch.Size


def test_gradients_of_a_subclass():
    x = torch.arange(4.0).as_subclass(Plain).requires_grad_()
    (x * x).sum().backward()
    assert type(x.grad) is torch.Tensor and x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
    (g,) = torch.autograd.grad((x * 2).sum(), x)
    assert type(g) is Plain


def test_as_subclass_keeps_history_and_memory():
    x = torch.ones(3, requires_grad=True)
    y = x.as_subclass(Plain)
    assert not y.is_leaf and y.data_ptr() == x.data_ptr()
    y.sum().backward()
    assert x.grad.tolist() == [1.0, 1.0, 1.0]
    with pytest.raises(TypeError, match="subclass of Tensor"):
        x.as_subclass(int)


def test_the_engine_calls_no_handler_but_hooks_do():
    x = torch.ones(2).as_subclass(Seen).requires_grad_()
    loss = (x * x).sum()
    Seen.calls.clear()
    loss.backward()
    assert Seen.calls == [torch.Tensor.backward]
    y = torch.ones(2, requires_grad=True)
    tag = torch.ones(2).as_subclass(Seen)
    y.register_hook(lambda g: (g + tag).as_subclass(torch.Tensor))
    Seen.calls.clear()
    y.sum().backward()
    assert Seen.calls[0] == torch.Tensor.add


class Duck:
    def __init__(self, answer):
        self.answer = answer

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.mean, torch.cat, torch.Tensor.add, custom):
            return func.__name__, types
        return NotImplemented


def custom(x):
    if has_torch_function((x,)):
        return handle_torch_function(custom, (x,), x)
    return "plain"


def test_duck_types():
    d = Duck(1)
    assert torch.mean(d) == torch.mean(input=d) == ("mean", (Duck,))
    assert torch.cat([torch.ones(1), d], dim=0)[0] == "cat"
    assert (torch.ones(1) + d)[0] == "add"
    assert custom(d)[0] == "custom" and custom(1) == "plain"
    assert is_tensor_like(d) and not is_tensor_like(3)
    assert torch.is_tensor(d) is False and torch.is_storage(d) is False  # plain questions: nobody is asked
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch.sin'"):
        torch.sin(d)


def test_subclasses_are_asked_before_their_bases_and_left_before_right():
    order = []

    def handler(name):
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            order.append(name)
            return NotImplemented

        return classmethod(__torch_function__)

    A = type("A", (torch.Tensor,), {"__torch_function__": handler("A")})
    B = type("B", (A,), {"__torch_function__": handler("B")})
    C = type("C", (torch.Tensor,), {"__torch_function__": handler("C")})
    a, b, c = (torch.ones(1).as_subclass(k) for k in (A, B, C))
    for given, expected in [((a, b), "BA"), ((a, c), "AC"), ((c, a), "CA"), ((a, c, b), "BAC"), ((a, a), "A")]:
        order.clear()
        with pytest.raises(TypeError):
            torch.cat(list(given))
        assert "".join(order) == expected


def test_unrelated_subclasses_do_not_mix():
    other = type("Other", (torch.Tensor,), {})
    with pytest.raises(TypeError):
        torch.ones(1).as_subclass(Plain) + torch.ones(1).as_subclass(other)
    sub = type("Sub", (Plain,), {})
    assert type(torch.ones(1).as_subclass(Plain) + torch.ones(1).as_subclass(sub)) is sub


class Record(TorchFunctionMode):
    def __init__(self, log, name=""):
        super().__init__()
        self.log, self.name = log, name

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.log.append(self.name + func.__name__)
        return func(*args, **(kwargs or {}))


def test_function_modes_nest():
    log = []
    x = torch.zeros(2)
    with Record(log, "1"):
        torch.ones(2)
        x.shape  # noqa: B018
        with Record(log, "2"):
            x + x
        x.add_(1)
    torch.sin(x)
    assert log == ["1ones", "1__get__", "2add", "1add", "1add_"]


def test_function_modes_leave_on_errors_and_can_be_reentered():
    class Refuse(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            raise ValueError("no")

    with pytest.raises(ValueError), Refuse():
        torch.ones(1)
    assert torch.ones(1).tolist() == [1.0]
    log = []
    mode = Record(log)
    with mode, mode:
        torch.ones(1)
    assert log == ["ones", "ones"]
    with BaseTorchFunctionMode():
        assert torch.ones(1).item() == 1.0


def test_disabled_functions():
    x = torch.ones(1).as_subclass(Plain)
    with torch._C.DisableTorchFunctionSubclass():
        assert type(x + 1) is torch.Tensor
    log = []
    with torch._C.DisableTorchFunction(), Record(log):
        assert type(x + 1) is torch.Tensor
    assert log == []

    class Off(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

    assert type(torch.ones(1).as_subclass(Off) + 1) is torch.Tensor


def test_names():
    assert resolve_name(torch.Tensor.add) == "torch.Tensor.add" and resolve_name(torch.add) == "torch.add"
    assert resolve_name(torch.Tensor.shape.__get__) == "torch.Tensor.shape.__get__"
    found = get_overridable_functions()
    assert torch.add in found[torch] and torch.Tensor.add in found[torch.Tensor] and F.relu in found[F]
    assert torch.tensor not in found[torch]


def test_shapes_are_plain_arguments(monkeypatch):
    from tocha.dispatch import registry

    monkeypatch.setattr(registry, "dispatch_function", None)  # the long way
    x = torch.ones(2, 3)
    assert F.layer_norm(x, x.shape[1:]).tolist() == [[0, 0, 0], [0, 0, 0]]
    assert x.new_zeros(x.shape).shape == x.shape
