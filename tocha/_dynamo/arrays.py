"""NumPy arrays in a trace: an array is a tensor on its memory, and NumPy's functions are the operators of the same meaning.

NumPy says which types a function computes in (`ufunc.resolve_dtypes`, or a call on a small sample), operands are converted to those, and
the operator promotes nothing. A function that has no exact counterpart, a write, or a question about elements breaks the graph.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import Any

import numpy as np

import tocha
from tocha._dynamo import calls
from tocha._dynamo.calls import rule
from tocha._dynamo.exc import Break, NotDynamic
from tocha._dynamo.frame import NULL
from tocha._dynamo.recorder import METHODS
from tocha._dynamo.source import Source
from tocha.dispatch.override import DisableTorchFunction
from tocha.dtypes import FROM_NP
from tocha.tensor import Tensor

_TYPES = frozenset(map(np.dtype, ("?", "i1", "i2", "i4", "i8", "u1", "f2", "f4", "f8", "c8", "c16")))
_LARGEST = 1024  # elements of an array written into a graph
_SAME = """sin cos tan sinh cosh tanh arcsin arccos arctan exp exp2 expm1 log log2 log10 log1p sqrt square floor ceil trunc isnan isinf isfinite
    logical_and logical_or logical_not logical_xor maximum minimum fmax fmin add subtract multiply true_divide negative absolute equal not_equal
    less less_equal greater greater_equal arctan2 hypot bitwise_and bitwise_or bitwise_xor matmul""".split()
_OPERATORS = {
    operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide, operator.matmul: np.matmul,
    operator.neg: np.negative, operator.eq: np.equal, operator.ne: np.not_equal, operator.lt: np.less, operator.le: np.less_equal,
    operator.gt: np.greater, operator.ge: np.greater_equal, operator.and_: np.bitwise_and, operator.or_: np.bitwise_or,
    operator.xor: np.bitwise_xor,
}  # fmt: skip


class Array:
    """See the module's text. With `scalar` it is one of NumPy's numbers."""

    __slots__ = ("scalar", "t")
    of_graph = True

    def __init__(self, t: Tensor, scalar: bool = False) -> None:
        self.t, self.scalar = t, scalar

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.t._a.dtype

    @property
    def like(self) -> Any:
        """A value of its class."""
        return self.dtype.type(0) if self.scalar else np.empty((0,) * max(self.t._a.ndim, 1))

    def _asked(self, *unused: Any) -> Any:
        raise Break("the elements of an array are asked for, which exist only when the graph runs")

    __bool__ = __index__ = __int__ = __float__ = __complex__ = __hash__ = __format__ = __len__ = __iter__ = __contains__ = _asked
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __abs__ = __round__ = __divmod__ = __array__ = _asked
    __getitem__ = __setitem__ = __delitem__ = __add__ = __radd__ = _asked


def outline(a: Any) -> Any:
    """What of an array a graph depends on."""
    return type(a), a.shape, a.dtype, a.strides, a.flags.writeable


def from_before(world: Any, a: Any, source: Source) -> Any:
    """An array from before the trace; NULL if no tensor can be on its memory."""
    if type(a) is not np.ndarray or a.dtype not in _TYPES or not a.flags.writeable or not a.flags.aligned or min(a.strides, default=0) < 0:
        return NULL
    source.check(f"is an array of shape {a.shape}, {a.dtype}, strides {a.strides}", "{c1}({v}) == {c0}", outline(a), outline)
    with DisableTorchFunction():
        real = tocha.from_numpy(a)
        fake = world.recorder.fake(real, source.label)
    world.remember(real, fake, source.child("{0}({})", "{}", tocha.from_numpy))
    return world.remember(a, Array(fake), source)


def on_memory(t: Tensor, scalar: bool) -> Any:
    """The array on a tensor's memory, or its number."""
    a = t.detach().numpy()
    return a[()] if scalar else a


def among(args: tuple[Any, ...], kwargs: dict[str, Any], kinds: Any = Array) -> bool:
    """Whether some argument is an array of the trace (or of other kinds), or a sequence with one."""
    return any(isinstance(x, kinds) or (type(x) in (list, tuple) and among(tuple(x), {}, kinds)) for x in (*args, *kwargs.values()))


def made(vm: Any, got: Any, name: str) -> Array:
    """An array made of data alone, at every call anew."""
    if type(got) is not np.ndarray or got.dtype not in _TYPES or not 0 < got.size <= _LARGEST:
        raise Break(f"{name} makes an array")
    return Array(vm.nested(tocha.tensor, (got.tolist(),), {"dtype": FROM_NP[got.dtype]}))


def _typed(a: Array, dtype: Any) -> Tensor:
    """An array as a tensor of a type."""
    return a.t if a.dtype == dtype else a.t.to(FROM_NP[np.dtype(dtype)])


def _kind(x: Any) -> Any:
    """What NumPy promotes: a type, or the class of a Python number."""
    if isinstance(x, (Array, np.generic)):
        return x.dtype
    if type(x) in (int, float, complex):
        return type(x)
    if type(x) is bool:
        return np.dtype(bool)
    raise Break(f"a function of arrays and a {type(x).__name__}")


def _operand(vm: Any, x: Any, dtype: Any) -> Tensor:
    if isinstance(x, Array):
        return _typed(x, dtype)
    return vm.nested(tocha.tensor, (np.dtype(dtype).type(x).item(),), {"dtype": FROM_NP[np.dtype(dtype)]})


def _check(vm: Any, *dtypes: Any) -> None:
    if vm.recorder.modes:
        raise Break("arrays inside a function mode")
    if not all(np.dtype(d) in _TYPES for d in dtypes):
        raise Break(f"arrays of {', '.join(map(str, dtypes))}")


def _ufunc(vm: Any, fn: np.ufunc, *operands: Any) -> Array:
    """An elementwise function or matmul in the types that NumPy chooses."""
    spelled = {"true_divide": "divide", "absolute": "abs", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
               "greater_equal": "ge", "negative": "neg"}  # fmt: skip
    name = "true_divide" if fn is np.true_divide else fn.__name__
    if name not in _SAME or len(operands) != fn.nin:
        raise Break(f"{name}() of an array")
    try:
        *given, result = fn.resolve_dtypes((*map(_kind, operands), *[None] * fn.nout))
        _check(vm, *given, result)
        if name == "matmul" and result == np.float16:
            raise Break("sums of halves, which NumPy rounds one by one")
        tensors = [_operand(vm, x, d) for x, d in zip(operands, given, strict=True)]
    except (TypeError, OverflowError) as error:
        raise Break(f"{name}() raises {error}") from error
    try:
        out = getattr(tocha, spelled.get(name, name))(*tensors)
    except RuntimeError as error:  # complex numbers in order, which only NumPy has
        raise Break(f"{name}() of an array of {given[0]}") from error
    return Array(out if out._a.dtype == result else out.to(FROM_NP[result]), out._a.ndim == 0)


def operate(vm: Any, op: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """An operator with an array."""
    if op not in _OPERATORS:
        raise Break(f"{op.__name__} of an array")
    return _ufunc(vm, _OPERATORS[op], *operands)


# ---- functions


def _reduction(name: str) -> Callable[..., Array]:
    torch_name = {"max": "amax", "min": "amin"}.get(name, name)

    def reduce(vm: Any, a: Any, axis: Any = None, *, keepdims: bool = False) -> Array:
        if not isinstance(a, Array) or a.scalar or not a.t._a.size or (a.dtype == np.float16 and name not in ("max", "min", "all", "any")):
            raise Break(f"{name}() of this array")
        sample = getattr(np, name)(np.ones((1,) * a.t._a.ndim, a.dtype), axis=axis, keepdims=keepdims)
        keeps = name in ("max", "min", "argmax", "argmin")
        within = a.dtype if keeps else np.dtype(bool) if name in ("all", "any") else sample.dtype
        _check(vm, within, sample.dtype)
        if a.dtype.kind == "c" and within.kind == "f":
            raise Break(f"{name}() of complex numbers")
        if type(axis) is tuple and name in ("prod", "argmax", "argmin"):
            raise Break(f"{name}() over several dimensions")
        t, more = _typed(a, within), {"correction": 0} if name in ("var", "std") else {}
        if axis is None and name in ("prod", "argmax", "argmin"):
            if keepdims:
                raise Break(f"{name}() with keepdims")
            out = getattr(t, torch_name)()
        else:
            dims = tuple(range(t._a.ndim)) if axis is None else axis
            out = getattr(t, torch_name)(dims, keepdim=keepdims, **more)
        return Array(out, isinstance(sample, np.generic))

    return reduce


def _shape(a: Any, *sizes: Any) -> Array:
    """reshape's result."""
    given = sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes
    return Array(a.t.reshape(tuple(given)))


def _transpose(vm: Any, a: Array, *axes: Any) -> Array:
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return Array(a.t.permute(tuple(given) if given else tuple(range(a.t._a.ndim))[::-1]))


def _astype(vm: Any, a: Array, dtype: Any) -> Array:
    _check(vm, dtype)
    if (a.dtype.kind == "f" and np.dtype(dtype).kind in "iu") or (a.dtype.kind == "c" and np.dtype(dtype).kind != "c"):
        raise Break("astype of floats to integers, or of complex numbers to real ones")
    return Array(_typed(a, dtype) if a.dtype != dtype else a.t.clone(), a.scalar)


def _concatenate(vm: Any, items: Any, axis: int = 0, *, function: Any = tocha.cat) -> Array:
    if not all(isinstance(x, Array) and not x.scalar for x in items):
        raise Break("concatenate of what isn't an array")
    dtype = np.result_type(*[x.dtype for x in items])
    _check(vm, dtype)
    return Array(function([_typed(x, dtype) for x in items], axis))


def _where(vm: Any, condition: Any, x: Any, y: Any) -> Array:
    if not isinstance(condition, Array):
        raise Break("where of a condition that is no array")
    samples = [np.empty(0, k) if isinstance(k, np.dtype) else k(0) for k in map(_kind, (x, y))]
    dtype = np.result_type(*samples)
    _check(vm, dtype)
    out = tocha.where(_typed(condition, bool), _operand(vm, x, dtype), _operand(vm, y, dtype))
    if out._a.ndim == 0:
        raise Break("where of numbers")
    return Array(out)


def _norm(vm: Any, x: Array, *, axis: Any = None, keepdims: bool = False) -> Array:
    dtype = x.dtype if x.dtype.kind == "f" else np.dtype(float)
    if type(axis) not in (int, type(None)) or x.scalar or x.dtype == np.float16 or x.dtype.kind == "c":
        raise Break("linalg.norm of matrices, halves or complex numbers")
    out = tocha.linalg.vector_norm(_typed(x, dtype), dim=axis, keepdim=keepdims)
    return Array(out, out._a.ndim == 0)


_METHODS: dict[str, Callable[..., Array]] = {n: _reduction(n) for n in "sum mean max min prod all any argmax argmin var std".split()}
_FUNCTIONS: dict[int, Callable[..., Array]] = {id(getattr(np, n)): f for n, f in _METHODS.items()}
_METHODS |= {
    "reshape": lambda vm, a, *s: _shape(a, *s), "ravel": lambda vm, a: _shape(a, -1), "flatten": lambda vm, a: Array(a.t.flatten().clone()),
    "transpose": _transpose, "astype": _astype, "copy": lambda vm, a: Array(a.t.clone(), a.scalar),
}  # fmt: skip
_FUNCTIONS |= {
    id(np.reshape): lambda vm, a, shape: _shape(a, shape), id(np.transpose): _transpose, id(np.concatenate): _concatenate,
    id(np.stack): lambda vm, items, axis=0: _concatenate(vm, items, axis, function=tocha.stack), id(np.where): _where,
    id(np.expand_dims): lambda vm, a, axis: Array(a.t.unsqueeze(axis)), id(np.linalg.norm): _norm,
}  # fmt: skip


def _from_tensors(vm: Any, x: Any) -> Any:
    return _of_tensor(vm, x) if isinstance(x, Tensor) else [_from_tensors(vm, v) for v in x] if type(x) in (list, tuple) else x


def call(vm: Any, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy with arrays of the trace, or with tensors: of those a ufunc gives a tensor, as Tensor.__array_wrap__ does."""
    tensors = among(args, kwargs, Tensor)
    if tensors:
        args = tuple([_from_tensors(vm, x) for x in args])
    if isinstance(fn, np.ufunc) and not kwargs:
        got = _ufunc(vm, fn, *args)
        return got if not tensors else got.t.to(tocha.uint8) if got.dtype == bool else got.t
    known = _FUNCTIONS.get(id(fn))
    if known is None or (tensors and fn not in (np.concatenate, np.stack, np.where)):  # others call the tensor's own method
        raise Break(f"{calls.title(fn)} of an array")
    return _called(vm, known, calls.title(fn), args, kwargs)


def _called(vm: Any, known: Callable[..., Array], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Array:
    _check(vm)
    try:
        return known(vm, *args, **kwargs)
    except (TypeError, ValueError, IndexError, AttributeError, RuntimeError) as error:  # other arguments than are known here, or wrong ones
        raise Break(f"{name} of an array with these arguments") from error


# ---- attributes and items


def attribute(vm: Any, a: Array, name: str) -> Any:
    """An attribute of an array."""
    if name in ("shape", "ndim", "size", "itemsize", "nbytes"):
        return getattr(np.empty(a.t._a.shape, a.dtype), name)
    if name == "dtype":
        return a.dtype
    if name == "T":
        return _transpose(vm, a)
    if name in ("real", "imag") and a.dtype.kind == "c" and not a.scalar:
        return Array(getattr(a.t, name))
    if name in _BOUND:
        return types.MethodType(_BOUND[name], a)
    raise Break(f"{name} of an array")


def _bound(name: str) -> Any:
    def method(a: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(a, name)(*args, **kwargs)  # after a break; a trace has the rule

    @rule(method)
    def run(vm: Any, args: Any, kwargs: Any) -> Any:
        return _called(vm, _METHODS[name], name, args, kwargs)

    return method


_BOUND = {name: _bound(name) for name in _METHODS}


def getitem(vm: Any, a: Array, key: Any) -> Array:
    """Items by numbers, slices, None and Ellipsis (a view), or by an array of integers."""
    parts = key if type(key) is tuple else (key,)
    if any(type(p) not in (int, slice, type(None), type(...)) for p in parts):
        if not isinstance(key, Array) or key.dtype.kind != "i" or key.scalar:
            raise Break("an item of an array by this index")
        return Array(a.t[_typed(key, np.int64)])
    if a.scalar or any(type(p) is slice and type(p.step) is int and p.step < 0 for p in parts):
        raise Break("an item of an array by this index")
    out = a.t[key]
    number = all(type(p) is int for p in parts) and out._a.ndim == 0
    return Array(out.clone() if number else out, number)


# ---- from and to tensors


def _of_tensor(vm: Any, t: Tensor) -> Array:
    if vm.recorder.varying:
        raise NotDynamic
    _check(vm)
    if type(t) is not Tensor or t._rg or t._a.dtype not in _TYPES:
        raise Break("Tensor.numpy() of this tensor")
    return Array(t.detach())


@rule(METHODS.numpy)
def _numpy(vm: Any, args: Any, kwargs: Any) -> Any:
    if len(args) != 1 or kwargs:
        raise Break("Tensor.numpy() with arguments")
    return _of_tensor(vm, args[0])


@rule(tocha.from_numpy)
def _from_numpy(vm: Any, args: Any, kwargs: Any) -> Any:
    if not isinstance(args[0], Array) or args[0].scalar:
        raise Break("from_numpy of this object")
    return args[0].t.detach()


def _making(fn: Any, copies: bool) -> None:
    @rule(fn)
    def make(vm: Any, args: Any, kwargs: Any) -> Any:
        if not among(args, kwargs):
            return vm.call_function(fn, args, kwargs)
        if not isinstance(args[0], Array) or args[0].scalar or len(args) > 1 or set(kwargs) - {"dtype"}:
            raise Break(f"{calls.title(fn)} of arrays")
        t = args[0].t.clone() if copies else args[0].t.detach()
        return t if kwargs.get("dtype") is None else t.to(kwargs["dtype"])


_making(tocha.as_tensor, False)
_making(tocha.tensor, True)


def _creating(fn: Any) -> None:
    @rule(fn)
    def create(vm: Any, args: Any, kwargs: Any) -> Any:
        name = calls.title(fn)
        if len(args) == 1 and not kwargs and fn in (np.array, np.asarray) and type(args[0]) in (Tensor, Array):
            found = args[0] if isinstance(args[0], Array) else _of_tensor(vm, args[0])
            return Array(found.t.clone()) if fn is np.array or found.scalar else found
        if not all(map(calls.is_data, (*args, *kwargs.values()))):
            raise Break(f"{name} of objects")
        return made(vm, fn(*args, **kwargs), name)


for _fn in (np.array, np.asarray, np.zeros, np.ones, np.full, np.arange, np.linspace, np.eye):
    _creating(_fn)
