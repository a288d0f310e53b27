"""Below autograd: tensor subclasses and modes with __torch_dispatch__, and torch.ops."""

import copy
import pickle

import pytest

import tocha as torch
from tocha.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from tocha.utils._pytree import tree_map

aten = torch.ops.aten


class Wrapped(torch.Tensor):
    """Holds another tensor and logs the operators run on it."""

    log: list = []

    @staticmethod
    def __new__(cls, elem, requires_grad=False):
        out = torch.Tensor._make_wrapper_subclass(
            cls, elem.size(), strides=elem.stride(), dtype=elem.dtype, device=elem.device, requires_grad=requires_grad
        )
        out.elem = elem
        return out

    def __repr__(self):
        return f"Wrapped({self.elem})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.log.append(str(func).removeprefix("aten."))
        inner = func(*tree_map(cls._inner, args), **tree_map(cls._inner, kwargs or {}))
        return tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, inner)

    @staticmethod
    def _inner(x):
        return x.elem if isinstance(x, Wrapped) else x


def run(function, *args):
    Wrapped.log.clear()
    return function(*args), list(Wrapped.log)


X = torch.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize(
    "function, names",
    [
        (lambda x: x + x, ["add.Tensor"]),
        (lambda x: x * 2, ["mul.Tensor"]),
        (lambda x: x / 2, ["div.Tensor"]),
        (lambda x: x > 1, ["gt.Scalar"]),
        (lambda x: x.exp(), ["exp.default"]),
        (lambda x: x**2, ["pow.Tensor_Scalar"]),
        (lambda x: x.t(), ["t.default"]),
        (lambda x: x @ torch.ones(3, 2), ["mm.default"]),
        (lambda x: x.sum(), ["sum.default"]),
        (lambda x: x.sum(1), ["sum.dim_IntList"]),
        (lambda x: x.mean(0), ["mean.dim"]),
        (lambda x: x.view(3, 2), ["view.default"]),
        (lambda x: x[0], ["select.int"]),
        (lambda x: x[0, 1:], ["select.int", "slice.Tensor"]),
        (lambda x: x.to(torch.float64), ["_to_copy.default"]),
        (lambda x: x.detach(), ["detach.default"]),
        (lambda x: x.clone(), ["clone.default"]),
        (lambda x: torch.cat([x, torch.ones(1, 3)]), ["cat.default"]),
        (lambda x: torch.zeros_like(x), ["zeros_like.default"]),
        (lambda x: x.new_zeros(2), ["new_zeros.default"]),
        (lambda x: torch.nn.functional.linear(x, torch.ones(4, 3), torch.ones(4)), ["addmm.default"]),
        (lambda x: torch.nn.functional.linear(torch.ones(2, 1, 3), x), ["t.default", "mm.default", "view.default"]),
        (lambda x: torch.softmax(x, -1), ["_softmax.default"]),
        (lambda x: x.max(1).values, ["max.dim"]),
        (lambda x: x.argmax(1), ["argmax.default"]),
        (lambda x: torch.nn.functional.layer_norm(x, (3,)), ["tocha.standardize.default"]),
    ],
)
def test_operators_arrive_under_torchs_names_with_plain_results(function, names):
    got, log = run(function, Wrapped(X.clone()))
    assert log == names
    assert type(got) is Wrapped
    assert torch.equal(got.elem, function(X.clone()))


def test_a_wrapper_claims_its_geometry():
    w = Wrapped(X.t())
    assert (w.shape, w.stride(), w.dtype, str(w.device), w.is_meta) == ((3, 2), (1, 3), torch.float32, "cpu", False)
    assert w.requires_grad is False and w.is_leaf and not w.is_contiguous()
    with pytest.raises(RuntimeError, match="must define __torch_dispatch__"):
        torch.Tensor._make_wrapper_subclass(type("Bare", (torch.Tensor,), {}), (2,))


def test_in_place_changes_reach_the_wrapped_tensor():
    w = Wrapped(torch.ones(2))
    _, log = run(lambda: w.add_(1))
    assert log == ["add_.Tensor"] and w.elem.tolist() == [2.0, 2.0]
    w.mul_(torch.full((2,), 3.0))
    w.copy_(w + 1)
    assert w.elem.tolist() == [7.0, 7.0]
    w[0] = 0.0
    assert w.elem.tolist() == [0.0, 7.0]
    assert float(w[1]) == 7.0 and bool(w[1] > 1)


def test_gradients_flow_through_wrappers():
    x = Wrapped(torch.tensor([1.0, 2.0, 3.0]), requires_grad=True)
    (x * x).sum().backward()
    assert type(x.grad) is Wrapped and x.grad.elem.tolist() == [2.0, 4.0, 6.0]
    y = Wrapped(torch.tensor([0.0, 1.0]), requires_grad=True)
    y.exp().sum().backward()  # exp saves its output
    torch.testing.assert_close(y.grad.elem, torch.tensor([1.0, 2.718281828]))
    lin = torch.nn.Linear(2, 2, bias=False)
    lin.weight = torch.nn.Parameter(Wrapped(torch.ones(2, 2)))
    assert isinstance(lin.weight, torch.nn.Parameter) and type(lin.weight) is Wrapped
    lin(torch.ones(1, 2)).sum().backward()
    assert lin.weight.grad.elem.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_deepcopy_of_a_wrapper():
    w = Wrapped(torch.ones(2), requires_grad=True)
    c = copy.deepcopy(w)
    assert type(c) is Wrapped and c.requires_grad and c.elem is not w.elem and c.elem.tolist() == [1.0, 1.0]


class Quantised(torch.Tensor):
    """Int8 weights, in the usual way of quantisation libraries."""

    @staticmethod
    def __new__(cls, q, scale, dtype):
        return torch.Tensor._make_wrapper_subclass(cls, q.shape, dtype=dtype, device=q.device)

    def __init__(self, q, scale, dtype):
        self.q, self.scale = q, scale

    def __tensor_flatten__(self):
        return ["q", "scale"], self.dtype

    @classmethod
    def __tensor_unflatten__(cls, data, dtype, size, stride):
        return cls(data["q"], data["scale"], dtype)

    def dequantize(self):
        return self.q.to(self.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.linear:
            return torch.nn.functional.linear(args[0], args[1].dequantize(), *args[2:])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs):
        x = args[0]
        if func is aten.detach.default:
            return cls(x.q, x.scale, x.dtype)
        if func is aten._to_copy.default:
            return cls(x.q, x.scale, kwargs.get("dtype", x.dtype))
        if func in (aten.mm.default, aten.addmm.default):
            return func(*[a.dequantize() if isinstance(a, cls) else a for a in args])
        raise NotImplementedError(str(func))


def test_a_quantised_weight():
    q = Quantised(torch.tensor([[10, -20], [30, 40]], dtype=torch.int8), torch.tensor([[0.1], [0.2]]), torch.float32)
    assert type(q.data) is type(q.detach()) is Quantised and len(q) == 2 and q.is_floating_point()
    lin = torch.nn.Linear(2, 2, bias=False)
    lin.weight = torch.nn.Parameter(q, requires_grad=False)
    torch.testing.assert_close(lin(torch.ones(1, 2)), torch.tensor([[-1.0, 14.0]]))
    torch.testing.assert_close(torch.ones(1, 2) @ q, torch.tensor([[7.0, 6.0]]))
    assert type(lin.state_dict()["weight"]) is Quantised
    assert q.to(torch.bfloat16).dtype is torch.bfloat16
    assert is_traceable_wrapper_subclass(q) and not is_traceable_wrapper_subclass(X)
    with pytest.raises(NotImplementedError, match=r"aten\.add\.Tensor"):
        q + 1


def test_nobody_answers():
    class No(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    x = torch.Tensor._make_subclass(No, torch.ones(2))
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'aten::add.Tensor'"):
        torch.ones(2) + x


class Log(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(func)
        return func(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_operators_below_autograd():
    x = torch.ones(2, 2, requires_grad=True)
    with Log() as log:
        y = (x.view(4) * 2).sum()
        torch.zeros(2).add_(1)
    assert log.calls == [
        aten.view.default, aten.mul.Tensor, aten.sum.default, aten.zeros.default, aten.add_.Tensor,
    ]  # fmt: skip
    y.backward()
    assert x.grad.tolist() == [[2.0, 2.0], [2.0, 2.0]]


def test_dispatch_modes_nest_and_leave_on_errors():
    class Refuse(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            raise ValueError(str(func))

    with Log() as outer, Log() as inner:
        torch.ones(2) + 1
    assert outer.calls == inner.calls == [aten.ones.default, aten.add.Tensor]
    with pytest.raises(ValueError, match=r"aten\.add\.Tensor"), Refuse():
        X + 1
    assert (X + 1)[0, 0] == 1.0


def test_overloads_are_single_named_objects():
    f = aten.add.Tensor
    assert f is torch.ops.aten.add.Tensor and {f: 1}[aten.add.Tensor] == 1
    assert (str(f), f.name(), f.namespace, f.overloadpacket) == ("aten.add.Tensor", "aten::add.Tensor", "aten", aten.add)
    assert repr(aten.mm.default) == "<OpOverload(op='aten.mm', overload='default')>" and aten.mm.default.name() == "aten::mm"
    assert aten.add_.Tensor._schema.is_mutable and not f._schema.is_mutable
    assert pickle.loads(pickle.dumps(f)) is f and copy.deepcopy(f) is f
    with pytest.raises(AttributeError, match="no attribute 'nonexistent_op'"):
        aten.nonexistent_op  # noqa: B018
    with pytest.raises(AttributeError, match="no overload name 'nope'"):
        aten.add.nope  # noqa: B018
    with pytest.raises(RuntimeError, match="libtorch"):
        torch.ops.load_library("x.so")


def test_overloads_can_be_called():
    a = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert aten.add.Tensor(a, 1).tolist() == [[2.0, 3.0], [4.0, 5.0]] and aten.mm(a, a).tolist() == [[7.0, 10.0], [15.0, 22.0]]
    assert aten.sum.dim_IntList(a, [0], True).tolist() == [[4.0, 6.0]] and aten.transpose.int(a, 0, 1).tolist() == a.T.tolist()
    assert aten.slice.Tensor(a, 1, 0, 1).tolist() == [[1.0], [3.0]] and aten.view.default(a, [4]).shape == (4,)
    assert aten._to_copy.default(a, dtype=torch.int64).dtype is torch.int64 and aten._to_copy.default(a) is not a
    x = a.clone()
    assert aten.mul_.Tensor(x, 2) is x and x[0, 0] == 2.0
    out, mean, rstd = aten.native_layer_norm.default(a, [2], None, None, 1e-5)
    torch.testing.assert_close(out, (a - mean) * rstd)


def test_make_subclass_shares_memory():
    class S(torch.Tensor):
        pass

    x = torch.ones(3)
    s = torch.Tensor._make_subclass(S, x, True)
    assert type(s) is S and s.requires_grad and s.is_leaf and s.data_ptr() == x.data_ptr()
    assert type(S(x)) is S and S([1.0, 2.0]).tolist() == [1.0, 2.0] and S(2).shape == (2,)
    with pytest.raises(TypeError):
        torch.Tensor._make_subclass(int, x)
