"""Conjugate and negative views: shared memory, pending marks, writing through, gradients. Values from torch 2.13."""

import copy
import io
import pickle

import numpy as np
import pytest

import tocha as torch

ROWS = [[1 + 2j, 3 - 4j], [5j, -1 + 0j]]


def x():
    return torch.tensor(ROWS)


def conjugated(rows):
    return [[v.conjugate() for v in row] for row in rows]


def test_conj_is_a_view_with_conjugation_pending():
    a = x()
    c = a.conj()
    assert type(c) is torch.Tensor
    assert c.is_conj()
    assert c._base is a
    assert c.data_ptr() == a.data_ptr()
    assert c.tolist() == conjugated(ROWS)
    assert not c.conj().is_conj()
    a[0, 0] = 7j
    assert c[0, 0].item() == -7j
    assert a.real.conj().data_ptr() == a.data_ptr()


VIEWS = [
    lambda c: c.t(), lambda c: c[0], lambda c: c.view(4), lambda c: c.expand(2, 2, 2), lambda c: c.unbind()[1], lambda c: c.detach(),
    lambda c: c.as_strided((2,), (1,)), lambda c: c.diagonal(), lambda c: c.contiguous(),
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS)
def test_views_of_it_have_it_pending_too(view):
    assert view(x().conj()).is_conj()
    assert view(x().conj()).tolist() == view(x().conj_physical()).tolist()


@pytest.mark.parametrize("name", ["H", "mH"])
def test_conjugate_transposes_share_memory(name):
    a = x()
    h = getattr(a, name)
    assert h.is_conj()
    assert h.stride() == (1, 2)
    h[0, 1] = 8 + 9j
    assert a[1, 0].item() == 8 - 9j
    assert a.adjoint().data_ptr() == a.data_ptr()


def test_kernels_get_values():
    a, c = x(), x().conj()
    p = a.conj_physical()
    assert torch.equal(c + 1, p + 1)
    assert torch.equal(c @ a, p @ a)
    assert torch.equal(c.abs(), p.abs())
    assert torch.equal(torch.cat([c, a]), torch.cat([p, a]))
    assert torch.equal(c.sum(), p.sum())
    assert torch.equal(c[torch.tensor([1])], p[torch.tensor([1])])
    assert torch.equal(torch.where(torch.tensor(True), c, a), p)
    assert c.to(torch.complex128).tolist() == p.tolist()
    assert not c.clone().is_conj()
    assert torch.equal(c.resolve_conj(), p)
    assert a.resolve_conj() is a
    assert repr(c) == repr(p)


def test_parts_of_a_conjugate_view():
    a = x()
    part = a.conj().imag
    assert part.is_neg()
    assert part.stride() == (4, 2)
    assert part.tolist() == [[-2.0, 4.0], [-5.0, -0.0]]
    assert part.sort()[0].tolist() == [[-2.0, 4.0], [-5.0, -0.0]]
    assert (-part).tolist() == [[2.0, -4.0], [5.0, 0.0]]
    assert not a.conj().real.is_neg()
    assert not part.resolve_neg().is_neg()
    both = torch._neg_view(a.conj())
    assert (both.is_conj(), both.is_neg()) == (True, True)
    assert both.tolist() == [[-1 + 2j, -3 - 4j], [5j, 1]]
    assert torch._neg_view(a).conj().imag.tolist() == [[2.0, -4.0], [5.0, 0.0]]
    assert torch._neg_view(a).conj().real.tolist() == [[-1.0, -3.0], [-0.0, 1.0]]
    assert torch._neg_view(torch._neg_view(a)).is_neg() is False


WRITES = [
    (lambda d: d.fill_(1j), [[-1j, -1j], [-1j, -1j]]),
    (lambda d: d.__setitem__((0, 0), 7j), [[-7j, 3 - 4j], [5j, -1]]),
    (lambda d: d.copy_(x()), [[1 - 2j, 3 + 4j], [-5j, -1]]),
    (lambda d: d.add_(1j), [[1 + 1j, 3 - 5j], [4j, -1 - 1j]]),
    (lambda d: d.mul_(1j), [[2 - 1j, -4 - 3j], [5, 1j]]),
    (lambda d: d[0].zero_(), [[0, 0], [5j, -1]]),
    (lambda d: d.index_put_((torch.tensor([0]),), torch.tensor(3j)), [[-3j, -3j], [5j, -1]]),
    (lambda d: d.masked_fill_(torch.eye(2).bool(), 2j), [[-2j, 3 - 4j], [5j, -2j]]),
    (lambda d: d.imag.fill_(9.0), [[1 - 9j, 3 - 9j], [-9j, -1 - 9j]]),
    (lambda d: d.imag.add_(1.0), [[1 + 1j, 3 - 5j], [4j, -1 - 1j]]),
    (lambda d: setattr(d, "imag", torch.tensor(5.0)), [[1 - 5j, 3 - 5j], [-5j, -1 - 5j]]),
    (lambda d: torch.add(x(), 1j, out=d), [[1 - 3j, 3 + 3j], [-6j, -1 - 1j]]),
    (lambda d: torch.mm(x(), x(), out=d), [[17 - 19j, 8 - 6j], [-10, 21 - 15j]]),
    (lambda d: d.conj_physical_(), [[1 - 2j, 3 + 4j], [-5j, -1]]),
    (lambda d: d.scatter_(0, torch.tensor([[0, 1]]), 1j), [[-1j, 3 - 4j], [5j, -1j]]),
    (lambda d: d.index_add_(0, torch.tensor([0]), x()[:1]), [[2, 6], [5j, -1]]),
    (lambda d: d._base.copy_(d), [[1 - 2j, 3 + 4j], [-5j, -1]]),
]  # fmt: skip


@pytest.mark.parametrize(("write", "expected"), WRITES)
def test_writing_through_reaches_the_base(write, expected):
    base = x()
    version = base._version
    write(base.conj())
    assert base.tolist() == expected
    assert base._version > version


def test_gradients():
    w = torch.tensor([[1j, 2], [3, 4j]])
    z = x().requires_grad_()
    assert type(z.conj().grad_fn).__name__ == "ConjBackward0"
    (z.conj() * w).sum().backward(torch.tensor(1 + 0j))
    assert z.grad.tolist() == [[1j, 2], [3, 4j]]
    z = x().requires_grad_()
    y = z * 1
    y.conj()[0] = y[1] * 2j
    (y * w).sum().backward(torch.tensor(1 + 0j))
    assert z.grad.tolist() == [[0, 0], [5, -8j]]
    z = x().requires_grad_()
    y = z * 1
    y.conj().imag.mul_(3.0)
    (y * w).sum().backward(torch.tensor(1 + 0j))
    assert z.grad.tolist() == [[-3j, 2], [3, -12j]]


def test_other_libraries_get_no_raw_memory():
    c = x().conj()
    with pytest.raises(RuntimeError, match="conjugate bit set"):
        c.numpy()
    with pytest.raises(RuntimeError, match="conjugate bit set"):
        np.asarray(c)
    with pytest.raises(RuntimeError, match="negative bit set"):
        c.imag.numpy()
    with pytest.raises(BufferError):
        c.__dlpack__()
    assert c.numpy(force=True).tolist() == conjugated(ROWS)
    for f in (torch.view_as_real, lambda v: v.view(torch.float32)):
        with pytest.raises(RuntimeError, match="resolve_conj"):
            f(c)
    assert torch.view_as_real(c.resolve_conj())[0, 0].tolist() == [1.0, -2.0]


def test_copies_and_files():
    a = x()
    for part in (a.conj(), a.conj().imag):
        assert copy.deepcopy(part).tolist() == part.tolist()
        assert pickle.loads(pickle.dumps(part)).tolist() == part.tolist()
    file = io.BytesIO()
    torch.save({"a": a, "c": a.conj()}, file)
    file.seek(0)
    got = torch.load(file)
    assert got["c"].is_conj()
    got["c"].zero_()
    assert got["a"].tolist() == [[0, 0], [0, 0]]


def test_inside_interpreters_conjugation_is_done_at_once():
    got = torch.func.vmap(lambda v: v.conj() * 2)(x())
    assert got.tolist() == [[2 * v.conjugate() for v in row] for row in ROWS]
    primal, tangent = torch.func.jvp(lambda v: v.conj(), (x(),), (x() * 1j,))
    assert tangent.tolist() == conjugated([[1j * v for v in row] for row in ROWS])
    assert primal.resolve_conj().tolist() == conjugated(ROWS)


def test_single_numbers_pending_conjugation():
    x, y = torch.tensor(1 + 2j).conj(), torch.tensor(1j).conj()
    assert [(x * y).item(), (x / y).item(), (x / 2).item()] == [-2 - 1j, 2 + 1j, 0.5 - 1j]
    assert torch.dist(x, y).item() == pytest.approx(2**0.5)
