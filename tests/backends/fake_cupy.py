"""A stand-in for CuPy on the CPU, as strict as CuPy is: what would fail on a GPU fails here.

Its arrays are not NumPy's, don't turn into them by themselves and don't mix with them; 0-d results are arrays; only names,
parameters and bfloat16 loops that CuPy has (cupy_names.json, written from a real one) exist; indices outside an array wrap
around; ufunc methods and atomics exist only where CuPy has them. `install()` puts it in the place of CuPy.
"""

from __future__ import annotations

import itertools
import json
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import scipy.special

from tests.backends.fake_device import Device, Event, Flags, Stream

NAMES: dict[str, Any] = json.loads(Path(__file__).with_name("cupy_names.json").read_text())
_BF16 = np.dtype(ml_dtypes.bfloat16)
_CONTAINERS = frozenset(np.dtype(getattr(ml_dtypes, n)) for n in dir(ml_dtypes) if n.startswith("float8"))
_SCALARS = (bool, int, float, complex, np.generic)
_GENERAL = frozenset(
    ("concatenate", "stack", "take", "ascontiguousarray", "broadcast_to", "moveaxis", "flip", "tile", "roll", "copyto")
)
_memories: weakref.WeakValueDictionary[int, Memory] = weakref.WeakValueDictionary()


class Memory:
    def __init__(self, root: Any) -> None:
        self.root, self.ptr, self.size = root, root.__array_interface__["data"][0], max(root.nbytes, 1)


class MemoryPointer:
    def __init__(self, mem: Memory, offset: int) -> None:
        self.mem, self.ptr = mem, mem.ptr + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


class _Interface:
    def __init__(self, interface: dict[str, Any], owner: Any) -> None:
        self.__array_interface__, self.owner = interface, owner


def _memory_of(n: Any) -> Memory:
    root = n
    while isinstance(root.base, np.ndarray):
        root = root.base
    found = _memories.get(id(root))
    if found is None:
        found = _memories[id(root)] = Memory(root)
    return found


def _fits(shape: Any, dtype: Any) -> None:
    """An allocation that no device has room for fails as CuPy's do."""
    count = int(np.prod(shape, dtype=np.float64)) * np.dtype(dtype).itemsize
    if count > 1 << 40:
        sys.modules["tocha.backends._cuda_memory"].allocate(count)


def _compute(*arrays: Any) -> None:
    """Refuse what CuPy has no kernels for."""
    for a in arrays:
        if isinstance(a, ndarray) and a.dtype in _CONTAINERS:
            raise ValueError(f"Unsupported dtype {a.dtype}")


class ndarray:
    __array_priority__ = 100
    _n: Any
    data: MemoryPointer
    base: Any

    def __init__(self, shape: Any, dtype: Any = float, memptr: Any = None, strides: Any = None, order: str = "C") -> None:
        dtype = np.dtype(dtype)
        if memptr is None:
            if dtype in _CONTAINERS:
                raise ValueError(f"Unsupported dtype {dtype}")
            self._set(np.empty(shape, dtype, order=order))
            return
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        raw = {"data": (memptr.ptr, False), "shape": shape, "strides": strides, "typestr": f"|V{dtype.itemsize}", "version": 3}
        self._n = np.asarray(_Interface(raw, memptr.mem)).view(dtype)
        self.data, self.base = memptr, None

    def _set(self, n: Any, owner: ndarray | None = None) -> ndarray:
        self._n = n
        if owner is not None:
            offset = n.__array_interface__["data"][0] - owner.data.mem.ptr
            self.data, self.base = MemoryPointer(owner.data.mem, offset), owner if owner.base is None else owner.base
        else:
            memory = _memory_of(n)
            self.data, self.base = MemoryPointer(memory, n.__array_interface__["data"][0] - memory.ptr), None
        return self

    shape = property(lambda self: self._n.shape)
    dtype = property(lambda self: self._n.dtype)
    strides = property(lambda self: self._n.strides)
    ndim = property(lambda self: self._n.ndim)
    size = property(lambda self: self._n.size)
    nbytes = property(lambda self: self._n.nbytes)
    itemsize = property(lambda self: self._n.itemsize)
    flags = property(lambda self: Flags(self._n))
    device = property(lambda self: Device())
    T = property(lambda self: _wrap(self._n.T, self))
    __cuda_array_interface__ = property(lambda self: {
        "shape": self.shape, "typestr": self.dtype.str, "data": (self.data.ptr, False), "version": 3, "strides": self.strides})  # fmt: skip

    @property
    def real(self) -> ndarray:
        return _wrap(self._n.real, self)

    @real.setter
    def real(self, value: Any) -> None:
        self._n.real = _unwrap(value)

    @property
    def imag(self) -> ndarray:
        return _wrap(self._n.imag, self)

    @imag.setter
    def imag(self, value: Any) -> None:
        self._n.imag = _unwrap(value)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`.")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"] = kwargs["out"][0]
        found = FUNCTIONS[function.__name__]
        return (found if method == "__call__" else getattr(found, method))(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in (np.shape, np.ndim, np.size):
            return getattr(args[0], function.__name__)
        raise TypeError(f"np.{function.__name__} was called on a CuPy array: call it through the namespace")

    def get(self) -> Any:
        _compute(self) if not self.flags.forc else None
        return np.array(self._n)

    def view(self, dtype: Any = None) -> ndarray:
        return _wrap(self._n.view(dtype) if dtype is not None else self._n.view(), self)

    def copy(self, order: str = "C") -> ndarray:
        _compute(self)
        return _fresh(self._n.copy(order))

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: bool = True) -> ndarray:
        _compute(self)
        if np.dtype(dtype) in _CONTAINERS:
            raise ValueError(f"Unsupported dtype {dtype}")
        if np.dtype(dtype) == self.dtype and not copy:
            return self
        if _BF16 in (self.dtype, np.dtype(dtype)) and "c" in (self.dtype.kind, np.dtype(dtype).kind):
            raise TypeError("no conversion between bfloat16 and complex")
        if self.dtype.kind == "c" and np.dtype(dtype).kind not in "cb":
            raise AssertionError("ComplexWarning: casting discards the imaginary part")
        return _fresh(self._n.astype(dtype, order=order))

    def fill(self, value: Any) -> None:
        _compute(self)
        self._n.fill(_unwrap(value))

    def item(self) -> Any:
        return self._n.item()

    def tolist(self) -> Any:
        return self._n.tolist()

    def dot(self, b: ndarray, out: Any = None) -> ndarray:
        return _matmul(self, b, "dot")

    def __matmul__(self, b: ndarray) -> ndarray:
        return _matmul(self, b, "matmul")

    def transpose(self, *axes: Any) -> ndarray:
        return _wrap(self._n.transpose(*axes), self)

    def reshape(self, *shape: Any, order: str = "C") -> ndarray:
        got = self._n.reshape(*shape, order=order)
        return _wrap(got, self) if np.may_share_memory(got, self._n) and got.size else _fresh(got)

    def ravel(self) -> ndarray:
        return self.reshape(-1)

    def squeeze(self, axis: Any = None) -> ndarray:
        return _wrap(self._n.squeeze(axis), self)

    def swapaxes(self, a: int, b: int) -> ndarray:
        return _wrap(self._n.swapaxes(a, b), self)

    def __getitem__(self, key: Any) -> ndarray:
        key, advanced = _key(key, self)
        if advanced:
            _compute(self)
            return _fresh(np.asarray(self._n[key]))
        key = key if isinstance(key, tuple) else (key,)
        return _wrap(self._n[key if any(k is Ellipsis for k in key) else (*key, Ellipsis)], self)

    def __setitem__(self, key: Any, value: Any) -> None:
        _compute(self)
        if isinstance(value, np.ndarray) and value.ndim:
            raise ValueError("non-scalar numpy.ndarray cannot be used for fill")
        key, _ = _key(key, self)
        if isinstance(value, ndarray) and value.dtype.kind == "c" and self.dtype.kind not in "cb":
            raise AssertionError("ComplexWarning")
        self._n[key] = _unwrap(value)

    def __len__(self) -> int:
        return len(self._n)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._n)

    def __int__(self) -> int:
        return int(self._n)

    def __float__(self) -> float:
        return float(self._n)

    def __index__(self) -> int:
        return self._n.__index__()

    __hash__ = None  # type: ignore[assignment]

    def __dlpack__(self, *, stream: Any = None, **kwargs: Any) -> Any:
        return self

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


def _reduction(name: str) -> Any:
    takes_type = name in ("sum", "prod", "mean")

    def method(self: ndarray, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        _compute(self)
        n = self._n
        if name in ("max", "min") and not n.size and 0 in [n.shape[i] for i in _axes(axis, n.ndim)]:
            raise ValueError("zero-size array to reduction operation which has no identity")
        if n.dtype == _BF16:
            got = getattr(n.astype(np.float32), name)(axis=axis, keepdims=keepdims)
            return _fresh(np.asarray(got).astype(_BF16 if name not in ("all", "any", "argmax", "argmin") else None))
        extra = {"dtype": dtype} if takes_type else {}
        got = _fresh(np.asarray(getattr(n, name)(axis=axis, keepdims=keepdims, **extra)))
        if out is not None:
            out[...] = got
            return out
        return got

    def plain(self: ndarray, axis: Any = None, out: Any = None, keepdims: bool = False) -> ndarray:
        return method(self, axis, None, out, keepdims)

    return method if takes_type or name.startswith("arg") else plain


def _method(name: str, parameters: tuple[str, ...]) -> Any:
    def method(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        _compute(self)
        assert len(args) <= len(parameters) and set(kwargs) <= set(parameters), f"ndarray.{name} takes {parameters}"
        if name == "take":
            kwargs["mode"] = "wrap"
        got = getattr(self._n, name)(*_unwrap(args), **{k: _unwrap(v) for k, v in kwargs.items()})
        return tuple(_fresh(g) for g in got) if isinstance(got, tuple) else _fresh(got)

    return method


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)


for _name in ("sum", "prod", "mean", "max", "min", "all", "any", "argmax", "argmin"):
    setattr(ndarray, _name, _reduction(_name))
for _name, _parameters in {
    "take": ("indices", "axis", "out"), "argsort": ("axis", "kind"), "argpartition": ("kth", "axis"), "cumsum": ("axis", "dtype", "out"),
    "cumprod": ("axis", "dtype", "out"), "clip": ("min", "max", "out"), "conj": (), "nonzero": (), "repeat": ("repeats", "axis"),
    "round": ("decimals", "out"), "flatten": ("order",), "var": ("axis", "dtype", "out", "ddof", "keepdims"),
    "std": ("axis", "dtype", "out", "ddof", "keepdims"),
}.items():  # fmt: skip
    setattr(ndarray, _name, _method(_name, _parameters))


def _wrap(n: Any, owner: ndarray) -> ndarray:
    return object.__new__(ndarray)._set(np.asarray(n), owner)


def _fresh(n: Any) -> ndarray:
    n = np.asarray(n)
    return object.__new__(ndarray)._set(n if n.base is None else n.copy("K"))


def _unwrap(x: Any) -> Any:
    if isinstance(x, ndarray):
        return x._n
    if isinstance(x, (list, tuple)):
        return type(x)(_unwrap(i) for i in x)
    return x


def _key(key: Any, a: ndarray) -> tuple[Any, bool]:
    """An index with CuPy arrays replaced by NumPy's, wrapped around; and whether it gathers."""
    items = key if isinstance(key, tuple) else (key,)
    out, advanced, axis = [], False, 0
    plain = all(k is not None and k is not Ellipsis for k in items)
    for k in items:
        if isinstance(k, (ndarray, np.ndarray, list)):
            advanced = True
            k = np.asarray(_unwrap(k))
            if plain and k.dtype.kind in "iu" and axis < a.ndim and a.shape[axis]:
                k = k.astype(np.int64) % a.shape[axis]
        axis += k.ndim if isinstance(k, np.ndarray) and k.dtype.kind == "b" else 1
        out.append(k)
    return (tuple(out) if isinstance(key, tuple) else out[0]), advanced


def _matmul(a: Any, b: Any, name: str, out: Any = None) -> ndarray:
    if not (isinstance(a, ndarray) and isinstance(b, ndarray)):
        raise TypeError("Argument 'b' has incorrect type (expected cupy._core.core._ndarray_base)")
    _compute(a, b)
    kind = np.promote_types(a.dtype, b.dtype)
    if kind == _BF16 and max(a.ndim, b.ndim) > 2:
        raise TypeError("CuPy's matmul takes a batch of bfloat16 matrices for integers")
    x, y = (v.astype(np.float32) if v.dtype.itemsize == 2 and v.dtype.kind not in "iu" else v for v in (a._n, b._n))
    got = _fresh(np.asarray(getattr(np, name)(x, y)).astype(kind, copy=False))
    if out is not None:
        out[...] = got
        return out
    return got


def _at(address: int, shape: Any, strides: Any, dtype: Any) -> Any:
    memory = next(m for m in _memories.values() if m.ptr <= address < m.ptr + m.size)
    return ndarray(shape, dtype, MemoryPointer(memory, address - memory.ptr), strides)._n


def _gemm_strided_batched(
    handle: int, trans_a: int, trans_b: int, m: int, n: int, k: int, alpha: int, a: int, kind_a: int, lda: int, step_a: int,
    b: int, kind_b: int, ldb: int, step_b: int, beta: int, c: int, kind_c: int, ldc: int, step_c: int, batch: int, compute: int, algo: int,
) -> None:  # fmt: skip
    """cublasGemmStridedBatchedEx without transposition, on matrices whose columns lie one after the other."""
    assert (trans_a, trans_b, compute, algo) == (0, 0, 68, 99)
    assert kind_a == kind_b == kind_c
    dtype = {2: np.dtype(np.float16), 14: _BF16}[kind_a]
    x = _at(a, (batch, m, k), (2 * step_a, 2, 2 * lda), dtype).astype(np.float32)
    y = _at(b, (batch, k, n), (2 * step_b, 2, 2 * ldb), dtype).astype(np.float32)
    _at(c, (batch, m, n), (2 * step_c, 2, 2 * ldc), dtype)[...] = (x @ y).astype(dtype)


class ufunc:
    def __init__(self, name: str, function: Any, special: bool = False) -> None:
        self.name = self.__name__ = name
        self.function, self.special = function, special

    def __call__(self, *args: Any, out: Any = None, dtype: Any = None, casting: str = "same_kind") -> Any:
        for a in args:
            if not isinstance(a, (ndarray, *_SCALARS)):
                raise TypeError(f"Unsupported type {type(a)}")
        _compute(*args, out)
        half = any(getattr(a, "dtype", None) == _BF16 for a in args)
        if half and (self.special or self.name not in NAMES["ufunc_bf16"]):
            raise TypeError(f"Wrong type bfloat16 of arguments for {self.name}")
        values = [_unwrap(a) for a in args]
        with np.errstate(all="ignore"):
            if half:
                values = [v.astype(np.float32) if getattr(v, "dtype", None) == _BF16 else v for v in values]
                got = self.function(*values)
                got = got.astype(_BF16) if got.dtype == np.float32 else got
            else:
                got = self.function(*values, **({} if dtype is None else {"dtype": dtype}))
        if isinstance(got, tuple):
            return tuple(_fresh(g) for g in got)
        got = np.asarray(got)
        if out is None:
            return _fresh(got)
        if not np.can_cast(got.dtype, out.dtype, casting):
            raise TypeError(f"cannot cast {got.dtype} to {out.dtype}")
        if np.broadcast_shapes(got.shape, out.shape) != out.shape:
            raise ValueError("Out shape is mismatched")
        out._n[...] = got
        return out

    def at(self, a: ndarray, indices: Any, b: Any = None) -> None:
        kinds = {"add": "iufe", "maximum": "iuf", "minimum": "iuf", "subtract": "iu"}
        if self.name not in kinds:
            raise NotImplementedError(f"`{self.name}.at` is not supported yet")
        if a.dtype.itemsize < 4 or a.dtype.kind not in "iuf":
            raise TypeError(f"cupy.{self.name}.at does not support {a.dtype}")
        key, _ = _key(indices, a)
        self.function.at(a._n, key, _unwrap(b) if not isinstance(b, ndarray) else b._n.astype(a.dtype))

    def reduceat(self, array: ndarray, indices: ndarray, axis: int = 0, dtype: Any = None) -> ndarray:
        if self.name != "add":
            raise NotImplementedError(f"`{self.name}.reduceat` is not supported yet")
        return _fresh(np.add.reduceat(array._n, indices._n, axis))


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    condition = condition.astype(bool, copy=False)
    return ufunc("where", np.where)(condition, x, y)


def _function(name: str, function: Any, host: bool = False) -> Any:
    parameters = NAMES["parameters"].get(name)

    def call(*args: Any, **kwargs: Any) -> Any:
        if parameters is not None:
            assert len(args) <= len(parameters), f"cupy.{name} takes {parameters}"
            unknown = set(kwargs) - set(parameters)
            assert not unknown, f"cupy.{name} has no parameter {unknown}"
        flat = [*args, *kwargs.values()]
        flat = list(itertools.chain.from_iterable(a if isinstance(a, (list, tuple)) else [a] for a in flat))
        for a in flat:
            if isinstance(a, np.ndarray) and not host and a.ndim:
                raise TypeError(f"Unsupported type {type(a)}")
            if isinstance(a, ndarray):
                _compute(a)
                if a.dtype == _BF16 and name not in _GENERAL:
                    raise TypeError(f"cupy.{name} on bfloat16")
        got = function(*_unwrap(args), **{k: _unwrap(v) for k, v in kwargs.items()})
        owner = next((a for a in flat if isinstance(a, ndarray)), None)
        if isinstance(got, (tuple, list)):
            return type(got)(_fresh(g) if isinstance(g, (np.ndarray, np.generic)) else g for g in got)
        if not isinstance(got, (np.ndarray, *_SCALARS)):
            return got
        if owner is not None and isinstance(got, np.ndarray) and got.base is not None and np.may_share_memory(got, owner._n):
            return _wrap(got, owner)
        return _fresh(got) if isinstance(got, (np.ndarray, *_SCALARS)) else got

    call.__name__ = name
    return call


def _asarray(a: Any, dtype: Any = None, order: Any = None, copy: bool = False) -> ndarray:
    if hasattr(a, "__cuda_array_interface__") and not isinstance(a, ndarray):
        raw = a.__cuda_array_interface__
        memory = next(m for m in _memories.values() if m.ptr <= raw["data"][0] < m.ptr + m.size)
        return ndarray(raw["shape"], raw["typestr"], MemoryPointer(memory, raw["data"][0] - memory.ptr), raw["strides"])
    if isinstance(a, ndarray):
        return a if (dtype is None or a.dtype == dtype) and not copy else a.astype(dtype or a.dtype)
    n = np.array(a, dtype=dtype)
    if n.dtype in _CONTAINERS or n.dtype == object:
        raise ValueError(f"Unsupported dtype {n.dtype}")
    return _fresh(n)


def _lexsort(keys: Any) -> ndarray:
    return _fresh(np.lexsort(keys._n))


def _put_along_axis(*args: Any) -> None:
    raise AssertionError("use the namespace's own")


class ElementwiseKernel:
    """Only the kernel that notes bad indices."""

    def __init__(self, inputs: str, outputs: str, code: str, name: str) -> None:
        assert name == "tocha_check_index"

    def __call__(self, index: ndarray, low: int, size: int, flag: ndarray) -> None:
        if ((index._n < low) | (index._n >= size)).any():
            flag._n[0] = 1


FUNCTIONS: dict[str, Any] = {}


def _fill() -> None:
    creation = {"arange", "empty", "zeros", "ones", "full", "tri", "eye", "linspace", "ogrid"}
    for name in NAMES["cupy"]:
        found = getattr(np, name, None)
        if isinstance(found, np.ufunc):
            FUNCTIONS[name] = ufunc(found.__name__, found)
        elif isinstance(found, type) or found is None or isinstance(found, (float, types.ModuleType)):
            FUNCTIONS[name] = found
        elif callable(found):
            FUNCTIONS[name] = _function(name, found, name in creation)
        else:
            FUNCTIONS[name] = found
    for name in ("sinc", "angle", "nan_to_num", "i0", "clip", "fix", "real", "imag"):
        if name in FUNCTIONS:
            FUNCTIONS[name] = _function(name, getattr(np, name))
    FUNCTIONS.update(
        asarray=_asarray, array=lambda a, dtype=None, copy=True: _asarray(a, dtype, copy=copy), where=_where, lexsort=_lexsort,
        put_along_axis=_put_along_axis, ndarray=ndarray, ufunc=ufunc, asnumpy=lambda a: a.get(), ElementwiseKernel=ElementwiseKernel,
        matmul=lambda a, b, out=None: _matmul(a, b, "matmul", out), dot=lambda a, b, out=None: _matmul(a, b, "dot", out),
        from_dlpack=lambda x: x.__dlpack__(stream=None),
    )  # fmt: skip
    FUNCTIONS["take"] = _function("take", lambda a, indices, axis=None: np.take(a, indices, axis, mode="wrap"))
    FUNCTIONS["empty_like"] = lambda a, dtype=None: _fresh(np.empty_like(a._n, dtype=dtype))
    for name in ("ones", "zeros", "empty"):

        def make(shape: Any, dtype: Any = float, order: str = "C", name: str = name) -> ndarray:
            if np.dtype(dtype) in _CONTAINERS:
                raise ValueError(f"Unsupported dtype {dtype}")
            _fits(shape, dtype)
            return _fresh(getattr(np, name)(shape, dtype, order))

        FUNCTIONS[name] = make


def _module(name: str, names: dict[str, Any]) -> Any:
    module: Any = types.ModuleType(name)
    vars(module).update({k: v for k, v in names.items() if v is not None})
    sys.modules[name] = module
    return module


def install() -> Any:
    """Make `import cupy` find this and forget a CUDA namespace made before. Returns the module."""
    _fill()
    errors = types.SimpleNamespace(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {}))

    def malloc(size: int) -> None:
        raise errors.OutOfMemoryError(size)

    pool = types.SimpleNamespace(
        malloc=malloc, used_bytes=lambda: sum(m.size for m in _memories.values()), free_all_blocks=lambda: None,
        total_bytes=lambda: sum(m.size for m in _memories.values()),
    )  # fmt: skip
    runtime = types.SimpleNamespace(
        getDeviceCount=lambda: 1, getDevice=lambda: 0, deviceSynchronize=lambda: None, CUDARuntimeError=type("CUDARuntimeError", (RuntimeError,), {}),
        memGetInfo=lambda: (1 << 30, 1 << 31), deviceCanAccessPeer=lambda a, b: 0, setDevice=lambda i: None,
        getDeviceProperties=lambda i: {"name": b"Fake", "major": 9, "minor": 0, "totalGlobalMem": 1 << 31, "multiProcessorCount": 1, "warpSize": 32},
    )  # fmt: skip
    cuda = types.SimpleNamespace(
        runtime=runtime,
        Device=Device,
        MemoryPointer=MemoryPointer,
        memory=errors,
        set_allocator=lambda f: None,
        is_available=lambda: True,
        Stream=Stream,
        Event=Event,
        device=types.SimpleNamespace(get_cublas_handle=lambda: 0),
        get_current_stream=lambda: Stream.current[-1],
        get_elapsed_time=lambda a, b: 1.0,
    )
    fft = types.SimpleNamespace(**{n: _function("fft." + n, getattr(np.fft, n)) for n in NAMES["fft"] if hasattr(np.fft, n)})
    cupy = _module(
        "cupy", {**FUNCTIONS, "cuda": cuda, "fft": fft, "get_default_memory_pool": lambda: pool, "__version__": NAMES["version"]}
    )
    special = {n: ufunc(n, getattr(scipy.special, n), True) for n in NAMES["special"] if hasattr(scipy.special, n)}
    _module("cupyx", {"scipy": _module("cupyx.scipy", {"special": _module("cupyx.scipy.special", special)})})
    cublas = types.SimpleNamespace(gemmStridedBatchedEx=_gemm_strided_batched)
    for path in ("", ".cuda", ".cuda.libs"):
        sys.modules["cupy_backends" + path] = types.SimpleNamespace(cublas=cublas)  # type: ignore[assignment]
    tricks = types.SimpleNamespace(as_strided=lambda x, shape, strides: ndarray(shape, x.dtype, x.data, strides))
    sys.modules["cupy.lib"] = sys.modules["cupy.lib.stride_tricks"] = tricks  # type: ignore[assignment]
    import tocha.backends

    tocha.backends.NAMESPACES.pop(ndarray, None)
    for name in ("cuda", "_cuda_functions", "_cuda_memory"):
        sys.modules.pop(f"tocha.backends.{name}", None)
        vars(tocha.backends).pop(name, None)
    return cupy


_BINARY = {
    "add": "add", "sub": "subtract", "mul": "multiply", "truediv": "true_divide", "floordiv": "floor_divide", "mod": "remainder",
    "pow": "power", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor", "lshift": "left_shift", "rshift": "right_shift",
}  # fmt: skip


def _dunders() -> None:
    def set_binary(symbol: str, name: str) -> None:
        setattr(ndarray, f"__{symbol}__", lambda a, b: FUNCTIONS[name](a, b))
        setattr(ndarray, f"__r{symbol}__", lambda a, b: FUNCTIONS[name](b, a))
        setattr(ndarray, f"__i{symbol}__", lambda a, b: FUNCTIONS[name](a, b, out=a))

    for symbol, name in _BINARY.items():
        set_binary(symbol, name)
    for symbol, name in {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }.items():
        setattr(ndarray, f"__{symbol}__", lambda a, b, name=name: FUNCTIONS[name](a, b))
    for symbol, name in {"neg": "negative", "invert": "invert", "abs": "absolute"}.items():
        setattr(ndarray, f"__{symbol}__", lambda a, name=name: FUNCTIONS[name](a))


_dunders()
