"""Compare gradients with finite differences (torch docs: torch.autograd.gradcheck)."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.autograd.engine import grad
from tocha.autograd.mode import enable_grad, no_grad
from tocha.tensor import Tensor


class GradcheckError(RuntimeError):
    """Raised by gradcheck when gradients disagree."""


def _outputs(got: Any) -> list[Tensor]:
    items = got if isinstance(got, (tuple, list)) else (got,)
    return [o for o in items if isinstance(o, Tensor) and (o.dtype.is_floating_point or o.dtype.is_complex)]


def _numerical(fn: Callable[..., list[Tensor]], x: Tensor, inputs: Sequence[Any], eps: float) -> list[np.ndarray[Any, Any]]:
    """For each output the Jacobian [x.numel, output.numel] by central differences; complex inputs are moved along both
    axes, giving the conjugate Wirtinger derivative."""
    flat = x._a.reshape(-1) if x._a.flags.c_contiguous else None
    columns: list[list[Any]] = []
    directions = (1.0, 1j) if x.dtype.is_complex else (1.0,)
    for i in np.ndindex(*x._a.shape) if flat is None else range(flat.size):
        cell: Any = x._a if flat is None else flat
        parts = []
        for direction in directions:
            old = cell[i]
            cell[i] = old + eps * direction
            high = [o._a.astype(np.complex128).reshape(-1).copy() for o in fn(*inputs)]
            cell[i] = old - eps * direction
            low = [o._a.astype(np.complex128).reshape(-1).copy() for o in fn(*inputs)]
            cell[i] = old
            parts.append([(h - low_) / (2 * eps) for h, low_ in zip(high, low, strict=True)])
        columns.append(parts)
    count = len(columns[0][0]) if columns else len(fn(*inputs))
    return [
        np.array([[p[k] for p in parts] for parts in columns]) if columns else np.zeros((0, len(directions), 0))
        for k in range(count)
    ]


def _analytical(output: Tensor, x: Tensor, cotangent: Any) -> np.ndarray[Any, Any]:
    g = grad(output, x, cotangent, retain_graph=True, allow_unused=True)[0]
    if g is None:
        return np.zeros(x._a.size, np.complex128)
    if g.shape != x.shape:
        raise GradcheckError(f"gradient has shape {list(g.shape)}, the input {list(x.shape)}")
    return np.asarray(g.detach()._a, np.complex128).reshape(-1)


def gradcheck(
    func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False, check_backward_ad: bool = True, fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:  # fmt: skip
    """Whether analytical gradients of `func` at `inputs` (float64 or complex128) equal numerical ones; raises
    GradcheckError with both values otherwise (or returns False if `raise_exception` is off)."""
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    try:
        _check(func, given, eps, atol, rtol, nondet_tol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(func: Any, inputs: tuple[Any, ...], eps: float, atol: float, rtol: float, nondet_tol: float) -> None:
    wanted = [(i, x) for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    for _, x in wanted:
        if x.dtype.name not in ("float64", "complex128"):
            warnings.warn(f"Input #{_} requires gradient and is not a double precision floating point or complex.", stacklevel=4)

    def run(*xs: Any) -> list[Tensor]:
        with no_grad():
            return _outputs(func(*xs))

    with enable_grad():
        outputs = _outputs(func(*inputs))
    for k, x in wanted:
        numerical = _numerical(run, x, inputs, eps)
        for j, y in enumerate(outputs):
            _compare(y, x, numerical[j], (k, j), atol, rtol, nondet_tol)


def _compare(y: Tensor, x: Tensor, numerical: Any, place: tuple[int, int], atol: float, rtol: float, nondet_tol: float) -> None:
    """One pair of output and input, one cotangent for each real degree of freedom of the output."""
    if not y.requires_grad:
        if np.abs(numerical).max(initial=0) > atol:
            raise GradcheckError(f"output {place[1]} depends on input {place[0]} numerically, but requires no gradient")
        return
    for m in range(y.numel()):
        for unit in (1.0, 1j) if y.dtype.is_complex else (1.0,):
            c = np.zeros(y._a.shape, y._a.dtype)
            c.reshape(-1)[m] = unit
            cotangent = y.detach().new_tensor(c)
            got = _analytical(y, x, cotangent)
            if nondet_tol >= 0 and np.abs(got - _analytical(y, x, cotangent)).max(initial=0) > nondet_tol:
                raise GradcheckError("Backward is not reentrant, i.e., running backward with same input and grad_output multiple times "
                                     "gives different values")  # fmt: skip
            column = numerical[:, :, m] if numerical.size else np.zeros((0, 1))
            moved = (column * np.conj(unit)).real
            expected = moved[:, 0] + (1j * moved[:, 1] if moved.shape[1] > 1 else 0)
            if not np.allclose(got, expected, rtol, atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian mismatch for output {place[1]} with respect to input {place[0]}, element {m} of the output\n"
                    f"numerical:{expected}\nanalytical:{got}"
                )


def gradgradcheck(
    func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
    fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """gradcheck of the gradient: second derivatives of `func`, also with respect to the incoming gradients."""
    given = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
    with enable_grad():
        outputs = [o for o in _outputs(func(*given)) if o.requires_grad]
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        cotangents = tuple(o.detach().new_tensor(generator.standard_normal(tuple(o.shape))).requires_grad_() for o in outputs)
    else:
        cotangents = tuple(grad_outputs) if isinstance(grad_outputs, (tuple, list)) else (grad_outputs,)
    count = len(given)

    def first(*args: Any) -> Any:
        xs, vs = args[:count], args[count:]
        with enable_grad():
            ys = [o for o in _outputs(func(*xs)) if o.requires_grad]
            wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
            grads = grad(ys, wanted, vs, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if isinstance(g, Tensor))

    return gradcheck(
        first, given + cotangents, eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception, nondet_tol=nondet_tol,
    )  # fmt: skip


class _CallableModule(types.ModuleType):
    """`torch.autograd.gradcheck` names both this module and the function in it: the module answers calls."""

    def __call__(self, *args: Any, **kwargs: Any) -> bool:
        return gradcheck(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
