"""out=: which types, shapes and places it may have. Which calls raise or warn is torch 2.13's behaviour."""

from __future__ import annotations

import warnings

import pytest

import tocha as torch

A = torch.arange(1.0, 7.0).reshape(2, 3)
S = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
INDEX = torch.tensor([[0, 1, 0]])
INF = float("inf")

OWN_TYPE = {
    "argmax": lambda o: torch.argmax(A, 1, out=o), "mm": lambda o: torch.mm(A, A.t(), out=o), "matmul": lambda o: torch.matmul(A, A.t(), out=o),
    "addmm": lambda o: torch.addmm(S, A, A.t(), out=o), "dot": lambda o: torch.dot(A[0], A[0], out=o),
    "gather": lambda o: torch.gather(A, 0, INDEX, out=o), "index_select": lambda o: torch.index_select(A, 0, torch.tensor([1]), out=o),
    "take": lambda o: torch.take(A, INDEX, out=o), "where": lambda o: torch.where(A > 2, A, A, out=o), "amax": lambda o: torch.amax(A, 1, out=o),
    "max": lambda o: torch.max(A, 1, out=(o, torch.empty(0, dtype=torch.int64))), "sort": lambda o: torch.sort(A, out=(o, torch.empty(0).long())),
    "norm": lambda o: torch.norm(A, dim=1, out=o), "softmax": lambda o: torch.softmax(A, 1, out=o), "tril": lambda o: torch.tril(A, out=o),
    "inv": lambda o: torch.linalg.inv(S, out=o), "quantile": lambda o: torch.quantile(A, 0.5, 1, out=o), "abs": lambda o: torch.abs(A, out=o),
    "round": lambda o: torch.round(A, out=o), "clamp": lambda o: torch.clamp(A, 0, 1, out=o), "isposinf": lambda o: torch.isposinf(A, out=o),
    "searchsorted": lambda o: torch.searchsorted(A[0], A, out=o), "sum of a type": lambda o: torch.sum(A, 1, dtype=torch.float32, out=o),
}  # fmt: skip
CASTS = {
    "add": lambda o: torch.add(A, 1, out=o), "exp": lambda o: torch.exp(A, out=o), "eq": lambda o: torch.eq(A, 1, out=o),
    "cat": lambda o: torch.cat([A, A], out=o), "clamp": lambda o: torch.clamp(A, A, A, out=o), "lerp": lambda o: torch.lerp(A, A, 0.5, out=o),
    "cumsum": lambda o: torch.cumsum(A, 1, out=o), "sum": lambda o: torch.sum(A, 1, out=o), "maximum": lambda o: torch.max(A, A, out=o),
    "irfft": lambda o: torch.fft.irfft(torch.fft.rfft(A), out=o),
}  # fmt: skip


@pytest.mark.parametrize("name", OWN_TYPE)
def test_of_another_type(name):
    out = torch.full((2,), 5.0, dtype=torch.float64)
    with pytest.raises(RuntimeError):
        OWN_TYPE[name](out)
    assert out.tolist() == [5, 5]


@pytest.mark.parametrize("name", CASTS)
def test_of_a_type_the_result_casts_to(name):
    out = torch.empty(0, dtype=torch.float64)
    CASTS[name](out)
    assert out.dtype is torch.float64 and out.numel()


def test_of_a_type_the_result_does_not_cast_to():
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
        torch.add(A, 1, out=torch.empty(0, dtype=torch.int64))
    with pytest.raises(TypeError, match="can't be cast to the desired output type"):
        torch.cat([A, A], out=torch.empty(0, dtype=torch.int64))


@pytest.mark.parametrize("call", [*OWN_TYPE.values(), *CASTS.values()])
def test_on_another_device(call):
    with pytest.raises((RuntimeError, NotImplementedError)):
        call(torch.empty(2, device="meta"))


@pytest.mark.parametrize(
    "call", [lambda o: torch.mm(A, A.t(), out=o), lambda o: torch.rand(2, out=o), lambda o: torch.zeros(2, out=o)]
)
@pytest.mark.parametrize("out", [1, [torch.zeros(2, 2)]])
def test_no_tensor(call, out):
    with pytest.raises(TypeError):
        call(out)


@pytest.mark.parametrize(
    "call", [lambda o: torch.mm(A, A.t(), out=o), lambda o: torch.add(S, 1, out=o), lambda o: torch.cat([S], out=o)]
)
def test_of_another_shape(call):
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        assert call(torch.zeros(7)).shape == (2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert call(torch.zeros(0)).shape == (2, 2)


def test_factories_take_any_shape():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for call in (torch.zeros, torch.ones, torch.rand, torch.randn):
            assert call(2, 3, out=torch.zeros(7)).shape == (2, 3)
        assert torch.arange(6, out=torch.zeros(1, 6)).tolist() == [[0, 1, 2, 3, 4, 5]]
        assert torch.linspace(0, 1, 3, out=torch.zeros(3, 1)).tolist() == [[0], [0.5], [1]]


STRAIGHT = {
    "add": (lambda x, o: torch.add(x, 2, out=o), [0, 1, 2, 3.5]), "mul": (lambda x, o: torch.mul(x, 0.5, out=o), [-1, -0.5, 0, 0.75]),
    "abs": (lambda x, o: torch.abs(x, out=o), [2, 1, 0, 1.5]), "rsqrt": (lambda x, o: torch.rsqrt(x * x, out=o), [0.5, 1, INF, 2 / 3]),
    "clamp": (lambda x, o: torch.clamp(x, -1, 1, out=o), [-1, -1, 0, 1]), "clamp_min": (lambda x, o: torch.clamp_min(x, 0, out=o), [0, 0, 0, 1.5]),
    "clamp_max": (lambda x, o: torch.clamp_max(x, max=0, out=o), [-2, -1, 0, 0]), "pow": (lambda x, o: torch.pow(x, 2, out=o), [4, 1, 0, 2.25]),
    "lerp": (lambda x, o: torch.lerp(x, x + 1, 0.5, out=o), [-1.5, -0.5, 0.5, 2]),
    "addcmul": (lambda x, o: torch.addcmul(x, x, x, value=2, out=o), [6, 1, 0, 6]),
    "addcdiv": (lambda x, o: torch.addcdiv(x, x, x + 3, value=2, out=o), [-6, -2, 0, 1.5 + 2 / 3]),
}  # fmt: skip


@pytest.mark.parametrize("repeats", [1, 30000])
@pytest.mark.parametrize("name", STRAIGHT)
def test_numbers_into_memory_as_it_is(name, repeats):
    call, want = STRAIGHT[name]
    x = torch.tensor([-2, -1, 0, 1.5]).repeat(repeats)
    want = torch.tensor(want, dtype=torch.float32).repeat(repeats)
    out = torch.empty(4 * repeats)
    place = out.data_ptr()
    assert call(x, out) is out
    torch.testing.assert_close(out, want)
    assert out.data_ptr() == place and out._version == 1
    call(x, x)
    torch.testing.assert_close(x, want)
    shifted = torch.ones(4 * repeats + 1)
    with pytest.raises(RuntimeError, match="single memory location"):
        call(shifted[1:], shifted[:-1]) if name not in ("rsqrt", "lerp", "addcmul", "addcdiv") else torch.add(
            shifted[1:], 1, out=shifted[:-1]
        )


@pytest.mark.parametrize("repeats", [1, 30000])
def test_factors_of_sums(repeats):
    x, y = torch.tensor([1.0, -2.0]).repeat(repeats), torch.tensor([4.0, 0.5]).repeat(repeats)
    out = torch.empty_like(x)
    assert torch.add(x, y, alpha=0.5, out=out) is out and torch.equal(out, torch.tensor([3, -1.75]).repeat(repeats))
    assert torch.equal(x.clone().add_(y, alpha=2), torch.tensor([9.0, -1.0]).repeat(repeats))
    assert torch.equal(torch.sub(x, y, alpha=2, out=out), torch.tensor([-7.0, -3.0]).repeat(repeats))
    i = torch.tensor([5, -1]).repeat(repeats)
    assert torch.equal(i.clone().sub_(i, alpha=3), i * -2)
    with pytest.raises(RuntimeError, match="must not be a floating point"):
        i.add_(i, alpha=0.5)
    w = torch.ones(2 * repeats, requires_grad=True)
    x.add_(w, alpha=3).sum().backward()
    assert torch.equal(w.grad, torch.full((2 * repeats,), 3.0))


@pytest.mark.parametrize("repeats", [1, 30000])
def test_whole_numbers_stay_whole(repeats):
    i = torch.tensor([-3, 0, 7]).repeat(repeats)
    assert torch.equal(i + 2, torch.tensor([-1, 2, 9]).repeat(repeats))
    assert torch.equal(torch.mul(i, 3, out=torch.empty_like(i)), torch.tensor([-9, 0, 21]).repeat(repeats))
    assert torch.equal(torch.clamp(i, -1, 5, out=torch.empty_like(i)), torch.tensor([-1, 0, 5]).repeat(repeats))
    assert (i + 2.5).dtype is (i / 2).dtype is torch.float32 and (i < 1).dtype is torch.bool
    assert torch.equal(i.clone().clamp_(-1, 5), i.clamp(-1, 5)) and torch.equal(i.clone().add_(4), i + 4)
    big = i + (1 << 40)
    assert (big - i).unique().tolist() == [1 << 40]
    with pytest.raises(RuntimeError, match="can't be cast"):
        i.add_(2.5)
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.add(i, 2.5, out=torch.empty_like(i))
    with pytest.raises((RuntimeError, NotImplementedError)):
        i.lerp_(i + 1, 1)
    with pytest.raises(RuntimeError, match="negative integer powers"):
        i.pow_(-1)


def test_out_is_not_written_to_while_gradients_are_recorded():
    w = torch.ones(3, requires_grad=True)
    for call in (lambda o: torch.clamp(w, 0, 1, out=o), lambda o: torch.add(w, 1, out=o), lambda o: torch.lerp(w, w, 0.5, out=o)):
        out = torch.full((3,), 5.0)
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            call(out)
        assert out.tolist() == [5, 5, 5]


def test_out_with_operands_that_require_grad():
    """Refused where there would be a gradient, the tensors of joined lists included; comparisons and indices have none."""
    x = torch.ones(3, requires_grad=True)
    for call in (
        lambda: torch.add(x, 1, out=torch.empty(3)), lambda: torch.cat([x.detach(), x], out=torch.empty(6)),
        lambda: torch.stack((x, x), out=torch.empty(2, 3)), lambda: torch.cumsum(x, 0, out=torch.empty(3)),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            call()
    assert torch.eq(x, 1, out=torch.empty(3, dtype=torch.bool)).tolist() == [True] * 3
    assert torch.argmax(x, out=torch.empty((), dtype=torch.long)).item() == 0
    with torch.no_grad():
        assert torch.cat([x, x], out=torch.empty(6)).tolist() == [1] * 6
