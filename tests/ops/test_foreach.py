"""Operators on lists of tensors."""

from __future__ import annotations

import pytest

import tocha
from tocha import tensor
from tocha.ops import foreach


def test_a_list_with_a_number_a_list_and_a_tensor() -> None:
    x = [tensor([1.0, 2.0]), tensor([3.0])]
    assert [t.tolist() for t in tocha._foreach_mul(x, 2)] == [[2.0, 4.0], [6.0]]
    assert [t.tolist() for t in tocha._foreach_add(x, x, alpha=2)] == [[3.0, 6.0], [9.0]]
    assert [t.tolist() for t in tocha._foreach_mul(x, tensor(3.0))] == [[3.0, 6.0], [9.0]]
    assert [t.tolist() for t in tocha._foreach_pow(2.0, x)] == [[2.0, 4.0], [8.0]]


def test_scalars_for_each_tensor() -> None:
    x = [tensor([1.0]), tensor([1.0])]
    assert [t.tolist() for t in tocha._foreach_addcmul(x, x, x, [1.0, 2.0])] == [[2.0], [3.0]]
    assert [t.tolist() for t in tocha._foreach_addcdiv(x, x, x, tensor([1.0, 3.0]))] == [[2.0], [4.0]]


def test_in_place_forms_write_and_return_the_list() -> None:
    x = [tensor([1.0]), tensor([4.0])]
    for got in (tocha._foreach_sqrt_(x), tocha._foreach_lerp_(x, [tensor([3.0]), tensor([4.0])], 0.5), tocha._foreach_maximum_(x, 2.5)):
        assert type(got) is list and got[0] is x[0] and got[1] is x[1]
    assert tocha._foreach_copy_(x, [tensor([2.5]), tensor([3.0])])[1] is x[1]
    assert [t.tolist() for t in x] == [[2.5], [3.0]]
    tocha._foreach_zero_(x)
    assert [t.tolist() for t in x] == [[0.0], [0.0]]


def test_lists_must_match_and_not_be_empty() -> None:
    with pytest.raises(RuntimeError, match="same number of tensors, got 1 and 2"):
        tocha._foreach_add([tensor([1.0])], [tensor([1.0]), tensor([1.0])])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        tocha._foreach_add([], 1)
    with pytest.raises(TypeError, match="tuple of Tensors"):
        tocha._foreach_neg(tensor([1.0]))


def test_norms_and_extremes() -> None:
    x = [tensor([3.0, 4.0]), tensor([1.0])]
    assert [t.item() for t in tocha._foreach_norm(x)] == [5.0, 1.0]
    assert [t.item() for t in tocha._foreach_max(x)] == [4.0, 1.0]


SHAPES = [(3,), (2, 5), (), (300, 17), (0,), (70_000,)]


def _lists(dtype, count, seed=0):
    tocha.manual_seed(seed)
    return [[tocha.randn(s).to(dtype) for s in SHAPES] for _ in range(count)]


CALLS = {
    "add": lambda f, x, y, z: f(x, y),
    "add alpha": lambda f, x, y, z: f(x, y, alpha=0.3),
    "add number": lambda f, x, y, z: f(x, 0.7),
    "sub alpha": lambda f, x, y, z: f(x, y, alpha=3),
    "mul": lambda f, x, y, z: f(x, y),
    "mul number": lambda f, x, y, z: f(x, 3),
    "div": lambda f, x, y, z: f(x, y),
    "div number": lambda f, x, y, z: f(x, 0.3),
    "maximum": lambda f, x, y, z: f(x, y),
    "addcmul": lambda f, x, y, z: f(x, y, z, value=0.3),
    "addcdiv": lambda f, x, y, z: f(x, y, z, value=-2),
    "lerp": lambda f, x, y, z: f(x, y, 0.3),
    "neg": lambda f, x, y, z: f(x),
    "abs": lambda f, x, y, z: f(x),
    "sign": lambda f, x, y, z: f(x),
    "sqrt": lambda f, x, y, z: f(x),
    "reciprocal": lambda f, x, y, z: f(x),
    "floor": lambda f, x, y, z: f(x),
    "sub number": lambda f, x, y, z: f(x, 0.3),
    "maximum number": lambda f, x, y, z: f(x, 0.3),
    "minimum number": lambda f, x, y, z: f(x, 0.3),
    "clamp_min number": lambda f, x, y, z: f(x, -0.3),
    "minimum": lambda f, x, y, z: f(x, y),
    "pow number": lambda f, x, y, z: f(x, 2.0),
    "mul numbers": lambda f, x, y, z: f(x, [0.3] * len(x)),
}


@pytest.mark.parametrize("dtype", [tocha.float32, tocha.float64, tocha.bfloat16, tocha.float16])
@pytest.mark.parametrize("call", CALLS)
def test_one_call_gives_the_bits_of_one_by_one(call, dtype, monkeypatch):
    name = call.split()[0]

    def run(suffix):
        x, y, z = _lists(dtype, 3)
        found = CALLS[call](getattr(tocha, f"_foreach_{name}{suffix}"), x, y, z)
        return list(found) if suffix == "" else x

    made, written = run(""), run("_")
    monkeypatch.setattr(foreach, "_elements", lambda form: None)
    for at_once, one_by_one in ((made, run("")), (written, run("_"))):
        for a, b in zip(at_once, one_by_one, strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            assert tocha.allclose(a, b, rtol=0, atol=0, equal_nan=True)
    assert [t._version for t in made] == [0] * len(made) and [t._version for t in written] == [1] * len(written)


@pytest.mark.parametrize("dtype", [tocha.float32, tocha.float64, tocha.bfloat16])
@pytest.mark.parametrize("name", ["exp", "sigmoid", "log", "tanh", "rsqrt", "erf", "sin"])
def test_functions_of_lists_agree_with_those_of_tensors(name, dtype):
    (x,) = _lists(dtype, 1)
    before = [t.clone() for t in x]
    made = getattr(tocha, f"_foreach_{name}")(x)
    getattr(tocha, f"_foreach_{name}_")(x)
    for a, b, t in zip(made, x, before, strict=True):
        want = getattr(tocha, name)(t)
        assert a.dtype is dtype and tocha.equal(a.isnan(), want.isnan())
        tocha.testing.assert_close(a, want, rtol={2: 1e-2, 4: 1e-6, 8: 1e-14}[dtype.itemsize], atol=1e-7, equal_nan=True)
        tocha.testing.assert_close(b, a, rtol=0, atol=0, equal_nan=True)


def test_zeros_replace_whatever_was_there():
    x = [tocha.tensor([float("nan"), 1.0]), tocha.tensor([float("inf")]), tocha.full((70_000,), -2.0)]
    tocha._foreach_zero_(x)
    assert all((t == 0).all() and not t.signbit().any() for t in x) and [t._version for t in x] == [1, 1, 1]


def test_lists_of_several_kinds_and_layouts_are_done_all_the_same():
    x = [
        tocha.ones(3),
        tocha.ones(4, dtype=tocha.int64),
        tocha.ones(2, 6).t(),
        tocha.ones(8)[::2],
        tocha.ones(2, dtype=tocha.complex64),
    ]
    tocha._foreach_mul_(x, 3)
    assert all((t == 3).all() for t in x)
    assert [t.dtype for t in tocha._foreach_add(x, x)] == [t.dtype for t in x]


def test_what_one_row_writes_and_another_reads_is_done_in_order():
    a, b = tocha.ones(100_000), tocha.full((100_000,), 2.0)
    tocha._foreach_add_([a, b, a], [b, a, b])
    assert (a[0].item(), b[0].item()) == (8.0, 5.0)
    assert (a == 8).all() and (b == 5).all()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_rows_that_overlap_are_done_one_after_the_other(order):
    before = tocha.get_num_threads()
    tocha.set_num_threads(2)
    try:
        x = tocha.ones(400_000)
        rows = [x[:120_000], x[200_000:320_000], x[60_000:260_000]]
        for _ in range(20):
            tocha._foreach_mul_([rows[i] for i in order], 2.0)
            tocha._foreach_mul_([rows[i] for i in order], 0.5)
        tocha._foreach_mul_([rows[i] for i in order], 2.0)
    finally:
        tocha.set_num_threads(before)
    expected = tocha.ones(400_000)
    for start, stop, value in (
        (0, 60_000, 2),
        (60_000, 120_000, 4),
        (120_000, 200_000, 2),
        (200_000, 260_000, 4),
        (260_000, 320_000, 2),
    ):
        expected[start:stop] = value
    assert tocha.equal(x, expected)


def test_leaves_that_require_gradients_are_refused_and_others_recorded():
    leaf = tocha.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        tocha._foreach_add_([tocha.ones(3), leaf], 1)
    doubled = tocha._foreach_mul([leaf, leaf], 2)
    assert all(t.requires_grad for t in doubled)


@pytest.mark.parametrize("ord", [1, 2, float("inf"), 3])
@pytest.mark.parametrize("dtype", [tocha.float32, tocha.float64, tocha.bfloat16, tocha.float16])
def test_norms_of_a_list_are_those_of_its_tensors(ord, dtype):
    x = [t for t in _lists(dtype, 1)[0] if t.numel()]
    for found, t in zip(tocha._foreach_norm(x, ord), x, strict=True):
        assert found.dtype is dtype and found.shape == ()
        tocha.testing.assert_close(
            found, tocha.linalg.vector_norm(t.double(), ord).to(dtype), rtol=1e-6 if dtype.itemsize > 2 else 1e-2, atol=0
        )
    x[1][0, 0] = float("nan")
    assert tocha.isnan(tocha._foreach_norm(x, ord)[1]) and not tocha.isnan(tocha._foreach_norm(x, ord)[0])


def test_functions_with_parameters_are_no_single_kernel():
    got = tocha._foreach_round([tocha.tensor([1.6]), tocha.tensor([-0.4, 2.5])])
    assert [x.tolist() for x in got] == [[2.0], [-0.0, 2.0]]


def test_zeros_in_place_by_list() -> None:
    whole = tocha.ones(4, 6)
    tensors = [tocha.ones(3), whole[:, ::2], tocha.ones(2, dtype=tocha.int64), tocha.ones(0), tocha.ones(20_000)]
    assert tocha._foreach_zero_(tensors)[4] is tensors[4]
    assert all(not t.any() for t in tensors)
    assert [t._version for t in tensors] == [1] * 5
    assert whole.sum().item() == 12
    leaf = tocha.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf Variable"):
        tocha._foreach_zero_([tocha.ones(2), leaf])
    layer = tocha.nn.Linear(3, 2)
    (layer(tocha.ones(1, 3)) ** 2).sum().backward(create_graph=True)
    grads = [p.grad for p in layer.parameters()]
    tocha.optim.SGD(layer.parameters(), lr=1.0).zero_grad(set_to_none=False)
    assert all(p.grad is g and not g.any() and not g.requires_grad for p, g in zip(layer.parameters(), grads, strict=True))


@pytest.mark.parametrize("dtype", [tocha.float32, tocha.bfloat16, tocha.int64])
def test_clones_are_copies_of_their_own(dtype):
    x = [tocha.arange(6).to(dtype).reshape(2, 3), tocha.ones(4, dtype=dtype), tocha.ones(3, 2, dtype=dtype).t()]
    for _ in range(3):
        y = tocha._foreach_clone(x)
        assert all(tocha.equal(a, b) and a.data_ptr() != b.data_ptr() for a, b in zip(x, y, strict=True))
        assert [b.stride() for b in y] == [(3, 1), (1,), (1, 2)]
    last = tocha._foreach_clone([tocha.ones(1, 2, 3, 4)] * 2, memory_format=tocha.channels_last)
    assert last[0].stride() == (24, 1, 8, 2)


@pytest.mark.parametrize("mode", [tocha.no_grad, tocha.inference_mode])
def test_results_of_lists_are_ordinary_tensors(mode):
    x = [tocha.rand(5, requires_grad=True), tocha.rand(2, 3)]
    for _ in range(3):
        with mode():
            found = [*tocha._foreach_mul(x, x), *tocha._foreach_norm(x), *tocha._foreach_clone(x)]
        for t in found:
            assert t.__class__ is tocha.Tensor and t.is_leaf and t.grad_fn is None and not t.requires_grad
            assert t.is_inference() == (mode is tocha.inference_mode)
    expected = [v * v for v in x[0].tolist()]
    assert found[0].tolist() == pytest.approx(expected)
    tocha._foreach_add_(more := [tocha.zeros(2), tocha.zeros(3)], 1)
    assert [t._version for t in more] == [1, 1]
    with pytest.raises(TypeError):
        tocha._foreach_mul([tocha.ones(2), None], 2)
