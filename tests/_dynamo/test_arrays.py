"""NumPy arrays in captures: values, types and memory are NumPy's."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tocha._dynamo.testing import CompileCounter

A = np.array([[0.25, 1.5, 3.0], [0.5, 2.0, 7.0]])
TYPES = ("?", "i1", "i2", "i4", "i8", "u1", "f4", "f8")


def alike(a: Any, b: Any) -> bool:
    """The same class and type, the same values but for the last bits."""
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and alike(a.detach().numpy(), b.detach().numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        close = 1e-6 if a.real.dtype.itemsize == 4 else 1e-13
        return (
            type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and bool(np.allclose(a, b, close, close, equal_nan=True))
        )
    return type(a) is type(b) and bool(a == b)


def check(function: Callable[..., Any], *args: Any, backend: Any = None) -> None:
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(function, backend=backend or counter, fullgraph=True)
    for _ in range(2):
        theirs, ours = copy.deepcopy(args), copy.deepcopy(args)
        assert alike(function(*theirs), compiled(*ours))
        assert alike(theirs, ours)
    assert counter.frame_count == (0 if backend else 1)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: (np.sin(a), np.exp(a) / 2, np.sqrt(a), np.log1p(a), np.arctan2(a, 2), -a, 1 - a, a > 1, a != 3, np.hypot(a, a)),
        lambda a: (np.maximum(a, 1), np.where(a > 1, a, -a), np.where(a > 1, a, 0), np.logical_not(a), np.square(a), np.floor(a)),
        lambda a: (a.sum(), a.mean(0), np.max(a, axis=1), a.min(axis=1, keepdims=True), a.prod(), np.argmax(a, axis=0), a.argmin()),
        lambda a: (a.var(), np.std(a, axis=0), np.all(a), np.any(a > 5, axis=1), np.sum(a, axis=(0, 1)), np.linalg.norm(a, axis=1)),
        lambda a: (a @ a.T, np.matmul(a, np.ones(3)), a[0] @ a[1], a.reshape(3, 2), a.reshape((6,)), a.ravel(), a.flatten(), a.copy()),
        lambda a: (a[0], a[:, 1:], a[None, ..., ::2], a[1, 2], a[np.array([1, 0])], a.transpose(1, 0), np.expand_dims(a, 1)),
        lambda a: (np.concatenate([a, a.astype(np.float32)], axis=1), np.stack([a, a + 1]), a * np.float32(2), a + np.linspace(0, 1, 3)),
        lambda a: (a.shape, a.ndim, a.dtype, a.size, isinstance(a, np.ndarray), type(a[0, 0]), type(a), a.astype(np.float32).dtype),
        lambda a: (torch.from_numpy(a) * 2, torch.as_tensor(a, dtype=torch.float32), torch.tensor(a), torch.from_numpy(np.exp(a)).sum()),
    ],
)
@pytest.mark.parametrize("backend", [None, "inductor"])
def test_functions(function: Any, backend: Any) -> None:
    for a in (A, A.astype(np.float32), np.asfortranarray(A), A[:, ::1].copy()):
        check(function, a, backend=backend)


@pytest.mark.parametrize("fn", "sin sqrt exp negative square add subtract multiply true_divide maximum less equal logical_and arctan2".split())
def test_types_are_chosen_as_numpy_chooses_them(fn: str) -> None:
    ufunc = getattr(np, fn)
    for kind in TYPES:
        a = np.array([0, 1, 2, 3]).astype(kind)
        others = [[a]] if ufunc.nin == 1 else [[a, 2], [a, 1.5], [a, np.float32(2)], [a, True], *[[a, np.ones(4, k)] for k in TYPES]]
        for operands in others:
            compiled = torch.compile(lambda *xs: ufunc(*xs), backend="eager")
            with np.errstate(all="ignore"):
                try:
                    expected = ufunc(*operands)
                except TypeError:
                    continue
                assert alike(expected, compiled(*operands)), (kind, operands)


def test_reductions_of_all_types() -> None:
    for name in "sum mean max min prod all any argmax std".split():
        for kind in TYPES:
            a = np.array([[0, 1, 2], [3, 1, 0]]).astype(kind)
            for axis in (None, 0, 1):
                compiled = torch.compile(lambda a, n=name, axis=axis: getattr(a, n)(axis=axis), backend="eager")
                assert alike(getattr(a, name)(axis=axis), compiled(a)), (name, kind, axis)


def test_memory_is_shared_where_numpy_shares_it() -> None:
    def f(x: Any, a: Any) -> Any:
        return x.numpy(), x.numpy()[1:], a.T, a, torch.from_numpy(a), np.asarray(x), np.array(x), a.ravel()

    compiled = torch.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        x, a = torch.arange(4.0), A.copy()
        outs = compiled(x, a)
        assert outs[3] is a
        for got, plain in zip(outs, f(x, a), strict=True):
            found, expected = (np.asarray(o) for o in (got, plain))
            for base in (x.numpy(), a):
                assert np.shares_memory(found, base) == np.shares_memory(expected, base)
        a[0, 0] = 9
        assert outs[2][0, 0] == 9


def test_writes_and_questions_break_the_graph() -> None:
    def f(a: Any, x: Any) -> Any:
        b = np.sin(a)
        b[0] = 1
        a += 1
        c = b * 2 if a[0, 0] > 1 else b
        return c + float(a[0, 1]), len(a), [row.sum() for row in a], x + torch.from_numpy(a).float().sum()

    compiled = torch.compile(f, backend="eager")
    for _ in range(3):
        theirs, ours = A.copy(), A.copy()
        assert alike(f(theirs, torch.ones(3)), compiled(ours, torch.ones(3)))
        assert alike(theirs, ours)


def test_gradients_flow_beside_arrays() -> None:
    def f(x: Any) -> Any:
        return (torch.from_numpy(np.tanh(x.detach().numpy())) * x).sum()

    for function in (f, torch.compile(f, fullgraph=True)):
        x = torch.tensor([0.0, 1.0], requires_grad=True)
        function(x).backward()
        assert torch.allclose(x.grad, torch.tensor([0.0, 0.7615942]))
    with pytest.raises(RuntimeError, match="detach"):
        torch.compile(lambda x: x.numpy() * 2, backend="eager")(torch.ones(2, requires_grad=True))


def test_arrays_are_guarded() -> None:
    compiled = torch.compile(lambda a: np.sum(a * 2, axis=0), backend="eager")
    for a in (A, A.T, A.astype(np.float32), A[0], A[:, ::-1], np.arange(3), np.array(["a"] * 2, object)[:0], A.astype(">f8")):
        assert alike(np.sum(a * 2, axis=0), compiled(a))
    frozen = A.copy()
    frozen.flags.writeable = False
    assert alike(np.sum(frozen * 2, axis=0), compiled(frozen))


def test_halves() -> None:
    def f(x: Any) -> Any:
        a = x.numpy()
        joined = np.concatenate([a, np.array([1.5, -2.0], dtype=np.float16)])
        computed = torch.from_numpy(np.sin(a) * a / 3 + np.float16(1.1)), torch.from_numpy(a + np.arange(12))
        return computed, joined.max(), (a * np.pi).astype(np.float32)

    def summed(x: Any) -> Any:
        a = x.numpy()
        return a.sum(), a.mean(), a @ a, np.linalg.norm(a)

    x = (torch.arange(-6, 6) / 3).half()
    for backend in (None, "inductor"):
        check(f, x, backend=backend)
        check(lambda a: (np.exp(a), a * 2 > 1, np.where(a > 0, a, 1)), x.numpy(), backend=backend)
    assert alike(summed(x), torch.compile(summed)(x))  # NumPy's own: it rounds each partial sum


Z = np.array([[1 + 2j, -3j], [0.5, -2 - 1j]])


@pytest.mark.parametrize("backend", [None, "inductor"])
def test_complex_numbers(backend: Any) -> None:
    def f(a: Any) -> Any:
        return np.exp(a) / 3 + 1j, np.abs(a) * 2, a.real + a.imag, a @ a, a == a, -a, np.sqrt(a), a * np.float32(2), a.sum(0), a.mean(), a.prod()

    def g(a: Any) -> Any:
        return np.where(np.abs(a) > 1, a, 0), np.concatenate([a, a.real]), np.any(a), torch.from_numpy(a) * 2, a[0, 0], np.log1p(a), np.tanh(a)

    for z in (Z, Z.astype(np.complex64)):
        check(f, z, backend=backend)
        check(g, z, backend=backend)


def test_what_only_numpy_does_with_complex_numbers() -> None:
    functions: list[Any] = [lambda a: np.maximum(a, 1), lambda a: a > 0, lambda a: a.max(), lambda a: a.var(), np.linalg.norm, lambda a: a.argmin()]
    for f in functions:
        assert alike(f(Z), torch.compile(lambda a, f=f: f(a), backend="eager")(Z))
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(lambda a, f=f: f(a), fullgraph=True)(Z)


@pytest.mark.parametrize(
    "f", [lambda x: x.numpy().__add__(1), lambda x: x.numpy().__getitem__(0), lambda x: x.numpy().__len__(), lambda x: x.numpy().__iadd__(1)]
)
def test_special_methods_called_by_name(f: Any) -> None:
    assert np.array_equal(torch.compile(f)(torch.ones(3)), f(torch.ones(3)))


def test_functions_of_numpy_on_tensors() -> None:
    def f(x: Any) -> Any:
        return np.sin(x) * x, np.add(x, np.ones(2)), np.maximum(x, 0.7), np.exp(torch.arange(3)), np.greater(x, 0.7), np.sin(x[0])

    def g(x: Any) -> Any:
        return np.concatenate([x, x * 2]), np.where(x > 0.7, x, 0), np.stack([x, x])

    x = torch.tensor([0.5, 1.0])
    for function in (f, g):
        ours, plain = torch.compile(function, fullgraph=True)(x), function(x)
        for a, b in zip(ours, plain, strict=True):
            assert type(a) is type(b) and a.dtype == b.dtype
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-7)
    w = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        torch.compile(lambda w: np.sin(w))(w)
