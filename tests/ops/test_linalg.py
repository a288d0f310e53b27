"""torch.linalg: definitions, errors, info, gradients where matrices are singular."""

import math

import pytest

import tocha as torch

L = torch.linalg
A = torch.tensor([[4.0, 1.0], [2.0, 3.0]], dtype=torch.float64)


def _close(x, y):
    assert torch.allclose(x, y, atol=1e-9)


def test_factorisations_multiply_to_the_matrix():
    torch.manual_seed(0)
    for m, n in ((3, 3), (5, 3), (3, 5)):
        a = torch.randn(2, m, n, dtype=torch.float64)
        q, r = L.qr(a)
        _close(q @ r, a)
        u, s, vh = L.svd(a, full_matrices=False)
        _close(u * s[:, None] @ vh, a)
        p, lower, upper = L.lu(a)
        _close(p @ lower @ upper, a)
        _close(a @ L.pinv(a) @ a, a)
    w, v = L.eigh(A + A.T)
    _close(v * w @ v.T, A + A.T)
    w, v = L.eig(A)
    _close((v * w @ L.inv(v)).real, A)


def test_solve_of_vectors_batches_and_from_the_right():
    b = torch.tensor([1.0, 2.0], dtype=torch.float64)
    _close(A @ L.solve(A, b), b)
    batch = A.expand(3, 2, 2)
    assert L.solve(batch, torch.ones(3, 2, dtype=torch.float64)).shape == (3, 2)
    assert L.solve(batch, torch.ones(2, 5, dtype=torch.float64)).shape == (3, 2, 5)
    right = torch.ones(4, 2, dtype=torch.float64)
    _close(L.solve(A, right, left=False) @ A, right)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: L.inv(torch.zeros(2, 2)), "diagonal element 1 is zero"),
        (lambda: L.inv(torch.stack([torch.eye(2), torch.zeros(2, 2)])), "Batch element 1"),
        (lambda: L.cholesky(-torch.eye(2)), "leading minor of order 1"),
        (lambda: L.solve(torch.zeros(2, 2), torch.ones(2)), "singular"),
        (lambda: L.svd(torch.full((2, 2), math.nan)), "non-finite"),
    ],
)
def test_failures_are_linalg_errors(call, text):
    with pytest.raises(L.LinAlgError, match=text):
        call()


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda: L.det(torch.ones(2, 3)), "2 by 3 matrices"),
        (lambda: L.inv(torch.ones(2)), "at least 2 dimensions"),
        (lambda: L.det(torch.ones(2, 2, dtype=torch.int64)), "floating point or complex"),
        (lambda: L.solve(torch.eye(2), torch.ones(3)), "Incompatible shapes"),
        (lambda: L.matrix_norm(torch.eye(2), "max"), "not supported"),
        (lambda: L.qr(torch.eye(2), mode="full"), "unrecognized mode"),
        (lambda: L.cross(torch.ones(2), torch.ones(2)), "must have length 3"),
        (lambda: L.vector_norm(torch.ones(0), math.inf), "identity"),
    ],
)
def test_wrong_arguments_are_runtime_errors(call, text):
    with pytest.raises(RuntimeError, match=text):
        call()


def test_info_instead_of_errors():
    assert L.inv_ex(torch.stack([torch.eye(2), torch.zeros(2, 2)])).info.tolist() == [0, 1]
    assert L.cholesky_ex(torch.diag(torch.tensor([1.0, -1.0]))).info.item() == 2
    assert L.lu_factor_ex(torch.zeros(2, 2)).pivots.tolist() == [1, 2]


def test_empty_matrices_and_batches():
    empty = torch.ones(0, 0)
    assert L.det(empty).item() == 1.0 and L.inv(empty).shape == (0, 0)
    assert L.pinv(torch.ones(0, 3)).shape == (3, 0)
    assert L.lu(torch.ones(0, 3, 3)).U.shape == (0, 3, 3)
    assert L.solve(torch.ones(0, 2, 2), torch.ones(0, 2, 1)).shape == (0, 2, 1)
    assert L.matrix_rank(torch.ones(2, 0, 3)).tolist() == [0, 0]


def test_det_has_a_gradient_where_it_is_zero():
    x = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    L.det(x).backward()
    _close(x.grad, torch.tensor([[4.0, -2.0], [-2.0, 1.0]], dtype=torch.float64))


def test_norms():
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
    assert [L.norm(x, p).item() for p in ("fro", "nuc", 1, -1, math.inf, 2)] == pytest.approx([5.0, 5.0, 4.0, 3.0, 7.0, 5.0])
    assert L.norm(x).item() == 5.0 and L.vector_norm(x, 0).item() == 2.0
    assert L.matrix_norm(x, 1, keepdim=True).shape == (1, 1)
    z = torch.zeros(3, requires_grad=True)
    L.vector_norm(z).backward()
    assert z.grad.tolist() == [0.0, 0.0, 0.0]
    assert L.cond(torch.zeros(2, 2), 1).item() == math.inf


def test_powers_and_exponential():
    _close(L.matrix_power(A, -2) @ A @ A, torch.eye(2, dtype=torch.float64))
    assert torch.equal(L.matrix_power(A, 0), torch.eye(2, dtype=torch.float64))
    turn = torch.tensor([[0.0, -math.pi / 2], [math.pi / 2, 0.0]], dtype=torch.float64)
    _close(L.matrix_exp(turn), torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64))


def test_least_squares_fits_a_line():
    x = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]])
    found = L.lstsq(x, torch.tensor([[1.0], [3.0], [5.0]]), driver="gelsd")
    assert found.solution.flatten().tolist() == pytest.approx([2.0, 1.0], abs=1e-5)
    assert found.rank.item() == 2 and found.residuals.item() == pytest.approx(0.0, abs=1e-9)


def test_r_alone_has_no_gradient():
    x = torch.eye(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="mode='r'"):
        L.qr(x, mode="r").R.sum().backward()


def test_ldl_solves_indefinite_systems():
    a = torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]], dtype=torch.float64)
    packed, pivots = L.ldl_factor(a)
    b = torch.ones(3, 1, dtype=torch.float64)
    _close(a @ L.ldl_solve(packed, pivots, b), b)


def test_norms_by_their_older_names():
    a = torch.arange(12.0).reshape(3, 4)
    torch.testing.assert_close(torch.frobenius_norm(a, 1), torch.tensor([3.7416575, 11.22497, 19.131126]))
    assert torch.frobenius_norm(a, [0, 1], True).shape == (1, 1)
    torch.testing.assert_close(torch.frobenius_norm(a, []), torch.tensor(22.494444))
    with pytest.raises(RuntimeError, match="at most 2 dimensions"):
        torch.frobenius_norm(torch.ones(2, 3, 4), (0, 1, 2))
    torch.testing.assert_close(torch.nuclear_norm(a), torch.tensor(24.364631))
    assert torch.nuclear_norm(a, True).shape == torch.nuclear_norm(a, (0, 1), True).shape == (1, 1)
    torch.testing.assert_close(torch.nuclear_norm(torch.ones(2, 3, 4), dim=(0, 2)), torch.full((3,), 8**0.5))
    with pytest.raises(RuntimeError, match="2-tuple"):
        torch.nuclear_norm(a, 0)
    torch.testing.assert_close(torch.norm_except_dim(a), torch.tensor([[3.7416575], [11.22497], [19.131126]]))
    torch.testing.assert_close(torch.norm_except_dim(a, 2, -1), torch.tensor(22.494444))
    assert torch.norm_except_dim(a, 1, 0).tolist() == [[6], [22], [38]]
    assert torch.norm_except_dim(torch.ones(2, 3, 4), 2, 1).shape == (1, 3, 1)
    with pytest.raises(IndexError, match="got 5"):
        torch.norm_except_dim(a, 2, 5)


@pytest.mark.parametrize(("shape", "ord"), [((2, 0, 5), torch.inf), ((2, 5, 0), 1), ((2, 0, 5), 2)])
def test_matrix_norms_of_no_elements(shape, ord):
    assert torch.linalg.matrix_norm(torch.zeros(shape), ord).tolist() == [0, 0]
    with pytest.raises(IndexError, match="non-zero size"):
        torch.linalg.matrix_norm(torch.zeros(shape), -ord)
