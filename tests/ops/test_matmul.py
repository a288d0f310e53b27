"""Matrix products: edge shapes, types, aliasing of arguments, error text."""

import pytest

import tocha as torch
import tocha.nn.functional as F


def test_vectors_on_either_side():
    a = torch.arange(6.0).reshape(2, 3)
    v = torch.tensor([1.0, 2.0, 3.0])
    assert (a @ v).tolist() == [8.0, 26.0]
    assert (torch.tensor([1.0, 10.0]) @ a).tolist() == [30.0, 41.0, 52.0]
    assert (v @ v).item() == 14.0
    assert (torch.ones(4, 2, 3) @ v).shape == (4, 2)


def test_nothing_to_sum_gives_zeros_and_zero_gradients():
    a, b = torch.zeros(2, 0, requires_grad=True), torch.zeros(0, 3, requires_grad=True)
    out = a @ b
    assert out.tolist() == [[0.0] * 3] * 2
    out.sum().backward()
    assert a.grad.shape == (2, 0) and b.grad.shape == (0, 3)


def test_operands_of_any_strides():
    x = torch.arange(24.0).reshape(2, 3, 4)
    y = x.transpose(0, 2)[::2]
    dense = y.contiguous()
    assert torch.equal(y @ torch.ones(2, 5), dense @ torch.ones(2, 5))
    row = torch.ones(1, 3).expand(4, 3)
    assert torch.equal(row @ row.t(), torch.full((4, 4), 3.0))


def test_batch_against_one_matrix_sums_its_gradient():
    a = torch.ones(5, 2, 3)
    w = torch.ones(3, 4, requires_grad=True)
    (a @ w).sum().backward()
    assert torch.equal(w.grad, torch.full((3, 4), 10.0))


def test_bfloat16_accumulates_in_float32():
    x = torch.full((1, 4096), 0.01, dtype=torch.bfloat16)
    out = x @ torch.ones(4096, 1, dtype=torch.bfloat16)
    assert out.dtype is torch.bfloat16
    assert out.item() == 41.0  # 4096 * bfloat16(0.01), rounded once


def test_integers_wrap_and_booleans_are_refused():
    x = torch.tensor([[100, 100]], dtype=torch.int8)
    assert (x @ x.t()).tolist() == [[32]]  # 20000 mod 256
    with pytest.raises(RuntimeError):
        torch.ones(2, 2, dtype=torch.bool) @ torch.ones(2, 2, dtype=torch.bool)


def test_beta_zero_ignores_nan():
    nan = torch.full((2, 2), float("nan"))
    assert torch.equal(torch.addmm(nan, torch.eye(2), torch.eye(2), beta=0), torch.eye(2))


def test_addmm_in_place_reads_its_operands_first():
    x = torch.eye(2) * 2
    x.addmm_(x, x)
    assert x.tolist() == [[6.0, 0.0], [0.0, 6.0]]


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: torch.ones(2, 3) @ torch.ones(4, 5), "2x3 and 4x5"),
        (lambda: torch.mm(torch.ones(2, 3), torch.ones(3, 2, dtype=torch.float64)), "same dtype"),
        (lambda: F.linear(torch.ones(2, 3), torch.ones(2, 2)), "2x3 and 2x2"),
        (lambda: torch.dot(torch.ones(2), torch.ones(3)), "inconsistent tensor size"),
    ],
)
def test_errors_name_the_shapes(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_linear_of_a_vector_and_of_no_rows():
    w, b = torch.arange(6.0).reshape(2, 3), torch.tensor([1.0, -1.0])
    assert F.linear(torch.ones(3), w, b).tolist() == [4.0, 11.0]
    w.requires_grad_(True)
    F.linear(torch.ones(0, 3), w, b).sum().backward()
    assert w.grad.abs().sum().item() == 0.0


def test_einsum():
    a, b = torch.arange(6.0).reshape(2, 3), torch.arange(12.0).reshape(3, 4)
    assert torch.equal(torch.einsum("ij,jk", a, b), a @ b)
    assert torch.einsum("ij,jk->ki", a, b).shape == (4, 2)
    assert torch.einsum("ii->i", torch.arange(9.0).reshape(3, 3)).tolist() == [0.0, 4.0, 8.0]
    assert torch.einsum("...i,...i->...", torch.ones(5, 2, 3), torch.ones(2, 3)).shape == (5, 2)
    assert torch.equal(torch.einsum(a, [0, 1], b, [1, 2], [0, 2]), a @ b)
    with pytest.raises(RuntimeError, match="size"):
        torch.einsum("ij,jk->ik", a, torch.ones(4, 4))


def test_einsum_contracts_several_operands():
    torch.manual_seed(0)
    x, y, z = torch.randn(2, 3, 4), torch.randn(4, 5), torch.randn(2, 5)
    found = torch.einsum("abc,cd,ad->ab", x, y, z)
    assert torch.allclose(found, ((x @ y) * z[:, None]).sum(-1), atol=1e-5)


def test_tensordot_and_kron():
    assert torch.tensordot(torch.ones(2, 3, 4), torch.ones(4, 3, 5), dims=([1, 2], [1, 0])).tolist() == [[12.0] * 5] * 2
    assert torch.kron(torch.tensor([1.0, 2.0]), torch.tensor([[1.0], [3.0]])).tolist() == [[1.0, 2.0], [3.0, 6.0]]


def test_products_of_bools_are_not_implemented():
    b = torch.ones(2, 2, dtype=torch.bool)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        b @ b


def test_half_addmm_rounds_once():
    m = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).bfloat16()
    x = torch.tensor([[1.0078125, -0.5], [0.33203125, 3.0]]).bfloat16()
    got = torch.addmm(x, m, x, beta=3.4445)
    exact = x.double() * 3.444499969482422 + x.double()
    assert torch.equal(got, exact.bfloat16())


@pytest.mark.parametrize(("a", "b"), [((1, 1), (1, 5)), ((5, 1), (1, 1)), ((1, 1), (1, 1))])
def test_zero_times_nan_is_nan_for_one_by_one_too(a, b):
    """NumPy scales where a factor is one number, and skips it for 0."""
    left, right = torch.zeros(a), torch.full(b, float("nan"))
    assert (left @ right).isnan().all() and F.linear(left, right.t()).isnan().all()
    x, weight = left.clone().requires_grad_(), right.t().clone().requires_grad_()
    F.linear(x, weight, torch.zeros(len(weight))).backward(torch.zeros(len(x), len(weight)))
    assert x.grad.isnan().all() and (weight.grad == 0).all()


BOOLS = torch.ones(1, 2, 2, dtype=torch.bool)


@pytest.mark.parametrize(
    "product",
    [
        lambda b, v: torch.nn.functional.linear(b[0], b[0]),
        lambda b, v: torch.nn.functional.linear(b[0], b[0], v),
        lambda b, v: torch.nn.functional.linear(b, b[0]),
        lambda b, v: torch.nn.functional.bilinear(b[0], b[0], b),
        lambda b, v: torch.nn.functional.conv1d(b, b),
        lambda b, v: torch.mm(b[0], b[0]),
        lambda b, v: torch.bmm(b, b),
        lambda b, v: torch.addmm(b[0], b[0], b[0]),
        lambda b, v: torch.mv(b[0], v),
        lambda b, v: torch.dot(v, v),
        lambda b, v: torch.dot(v[:0], v[:0]),
        lambda b, v: torch.einsum("ij,jk->ik", b[0], b[0]),
        lambda b, v: torch.einsum("i,i->", v, v),
    ],
)
def test_products_of_bools_are_refused(product):
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        product(BOOLS, BOOLS[0, 0])


def test_bools_where_nothing_is_added():
    b = BOOLS[0]
    assert torch.einsum("i,j->ij", b[0], torch.tensor([True, False])).tolist() == [[True, False], [True, False]]
    assert torch.mm(b[:0], b).dtype is torch.bool and torch.mm(b[:0], b).shape == (0, 2)
    assert torch.mm(b[:, :0], b[:0]).tolist() == [[False, False], [False, False]]
    assert torch.nn.functional.linear(b[:0], b).shape == torch.mv(b[:0], b[0]).shape + (2,) == (0, 2)


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("addmm", [(2, 3), (2, 4), (4, 3)]),
        ("addmm", [(3,), (2, 4), (4, 3)]),
        ("addmv", [(2,), (2, 4), (4,)]),
        ("addr", [(2, 3), (2,), (3,)]),
        ("baddbmm", [(5, 2, 3), (5, 2, 4), (5, 4, 3)]),
        ("addbmm", [(2, 3), (5, 2, 4), (5, 4, 3)]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_beta_zero_gives_the_input_zeros_as_gradient(name, shapes, dtype):
    input = torch.full(shapes[0], float("nan"), dtype=dtype, requires_grad=True)
    a, b = (torch.ones(shape, dtype=dtype, requires_grad=True) for shape in shapes[1:])
    zero, plain = torch.zeros(shapes[0], dtype=dtype), getattr(torch, name)
    out = plain(input, a, b, beta=0, alpha=0.5)
    assert torch.equal(out, plain(zero, a, b, alpha=0.5))
    out.sum().backward()
    assert torch.equal(input.grad, zero) and a.grad.any() and b.grad.any()
    only = plain(input, a.detach(), b.detach(), beta=0.0)
    assert torch.equal(torch.autograd.grad(only.sum(), input)[0], zero)
    with torch.no_grad():
        assert not plain(input, a, b, beta=0).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_alpha_zero_ignores_nan_in_the_product_as_blas_does(dtype):
    bad, one, v = torch.full((2, 2), torch.nan, dtype=dtype), torch.ones(2, 2, dtype=dtype), torch.ones(2, dtype=dtype)
    assert torch.addmm(one, bad, one, beta=3, alpha=0).tolist() == [[3, 3], [3, 3]]
    assert torch.addmm(one, one, bad, beta=0, alpha=0).tolist() == [[0, 0], [0, 0]]
    assert torch.addbmm(one, bad[None], one[None], alpha=0).tolist() == [[1, 1], [1, 1]]
    if not dtype.is_complex:
        assert torch.addmv(v, bad, v, alpha=0.0).tolist() == [1, 1]
    assert one.clone().addmm_(bad, one, alpha=0).tolist() == [[1, 1], [1, 1]]


def test_alpha_zero_where_torch_multiplies_it():
    bad, one, v = torch.full((2, 2), torch.nan), torch.ones(2, 2), torch.ones(2)
    assert torch.baddbmm(one[None], bad[None], one[None], alpha=0).isnan().all()  # no BLAS for fewer than 400 products
    assert torch.addr(one, bad[0], v, alpha=0).isnan().all()
    assert torch.addmm(one.half(), bad.half(), one.half(), alpha=0).isnan().all()
    large = torch.full((1, 8, 8), torch.nan)
    assert torch.equal(torch.baddbmm(torch.ones(1, 8, 8), large, large, alpha=0), torch.ones(1, 8, 8))
