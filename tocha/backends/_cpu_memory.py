"""The memory of CPU arrays: NumPy's allocations counted, limited, aligned and, if large, kept (tocha.inductor.memory), and what is said
when there is none left.

Counting starts with the first native kernel or the first question, since it takes the compiler. Tensors made before are counted when
they are first asked about. NumPy keeps its memory handler in a context variable and with every array: contexts that use tensors take
this one over (`enter`), others keep theirs, and an array is freed by the handler that made it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy._core.multiarray import get_handler_name

from tocha.errors import OutOfMemoryError

NAME = "tocha"
_SET_HANDLER, _DEFAULT_HANDLER = 304, 306  # in NumPy's table of C functions
_FULL = (1 << 63) - 1
_HOLDERS = 5


class _Handler(ctypes.Structure):
    """PyDataMem_Handler (NEP 49)."""

    _fields_ = [
        ("name", ctypes.c_char * 127), ("version", ctypes.c_uint8), ("ctx", ctypes.c_void_p), ("malloc", ctypes.c_void_p),
        ("calloc", ctypes.c_void_p), ("realloc", ctypes.c_void_p), ("free", ctypes.c_void_p),
    ]  # fmt: skip


def _pointer(capsule: Any, name: bytes | None) -> int:
    get = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
    found = get(capsule, name)
    assert found is not None
    return int(found)


class _Memory:
    """The handler in use. `figures` are counted by native code."""

    def __init__(self) -> None:
        from numpy._core import _multiarray_umath  # type: ignore[attr-defined]

        from tocha.inductor import memory

        table = (ctypes.c_void_p * (_DEFAULT_HANDLER + 1)).from_address(_pointer(_multiarray_umath._ARRAY_API, None))
        default = ctypes.cast(ctypes.c_void_p.from_address(table[_DEFAULT_HANDLER] or 0).value or 0, ctypes.py_object).value
        before = _Handler.from_address(_pointer(default, b"mem_handler"))
        if before.version != 1 or before.ctx:
            raise RuntimeError(f"NumPy's own memory handler {before.name!r} is of an unknown version")
        found = memory.addresses((before.malloc, before.calloc, before.free))
        self._handler = _Handler(NAME.encode(), 1, None, *[found[name] for name in ("malloc", "calloc", "realloc", "free")])
        make = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
            ("PyCapsule_New", ctypes.pythonapi)
        )
        self._capsule = make(ctypes.addressof(self._handler), b"mem_handler", None)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._handler))  # arrays may outlive every module
        self._set = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER] or 0)
        self.names = memory.FIGURES
        self.figures = (ctypes.c_int64 * len(self.names)).from_address(found["figures"])
        self.trim: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_int64)(found["trim"])
        self.count: Callable[[int], None] = ctypes.CFUNCTYPE(None, ctypes.c_int64)(found["count"])

    def enter(self) -> None:
        self._set(self._capsule)


@functools.cache
def _memory() -> _Memory | None:
    """The handler; None where it can't be had."""
    from tocha.inductor import memory

    if not memory.supported():
        return None
    try:
        made = _Memory()
    except (ImportError, AttributeError, RuntimeError) as error:
        from tocha.inductor import service

        service.failures.append(f"memory of arrays: {error}")
        return None
    global _started
    _started = True
    return made


_started = False


def start() -> None:
    """Have arrays made in this context from now on counted."""
    memory = _memory()
    if memory is not None:
        from tocha.backends.cpu import quiet

        memory.enter()
        with contextlib.suppress(RuntimeError):  # that is the context we are in
            quiet.run(memory.enter)


def enter() -> None:
    """The same in another context, if it has been started."""
    if _started and (memory := _memory()) is not None:
        memory.enter()


def keep_freed() -> None:
    """Let glibc keep up to 1 GiB of freed memory instead of returning it: arrays of 0.1 to 32 MiB, which training makes and drops all
    the time, are then not paid for page by page again (three to four times on layer_norm or softmax of 1.5 MiB)."""
    if not sys.platform.startswith("linux"):
        return
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:  # not glibc
        return
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    set_option(mmap_threshold, 32 << 20)
    set_option(trim_threshold, 1 << 30)
    set_option(top_pad, 64 << 20)


# ---- figures


_adopted: dict[int, Any] = {}  # weak references to arrays that another handler made


def _adopt() -> None:
    """Count what live tensors hold that was allocated by another handler."""
    memory = _memory()
    if memory is None:
        return
    for root, _ in _held():
        foreign = root.__class__ is np.ndarray and get_handler_name(root) not in (NAME, None)
        if foreign and root.nbytes and id(root) not in _adopted:
            _adopted[id(root)] = weakref.ref(root, functools.partial(_disown, id(root), root.nbytes))
            memory.count(root.nbytes)


def _disown(key: int, size: int, _: Any) -> None:
    del _adopted[key]
    memory = _memory()
    if memory is not None:
        memory.count(-size)


def figures() -> dict[str, int]:
    """What is counted, by the names of `tocha.inductor.memory.FIGURES`; zeros where nothing is."""
    from tocha.inductor import memory as native

    start()
    _adopt()
    memory = _memory()
    return dict.fromkeys(native.FIGURES, 0) if memory is None else dict(zip(memory.names, memory.figures, strict=True))


def _put(name: str, value: int) -> None:
    memory = _memory()
    if memory is not None:
        memory.figures[memory.names.index(name)] = value


def reset_peaks() -> None:
    """Peaks start from what is allocated and reserved now."""
    now = figures()
    _put("allocated_peak", now["allocated"])
    _put("reserved_peak", now["reserved"])


def reset_counts() -> None:
    """Counts of what was done start from 0."""
    figures()
    _put("blocks_made", 0)
    _put("refused", 0)


def set_limit(size: int | None) -> None:
    """Refuse what would take more than `size` bytes altogether; None: refuse nothing."""
    figures()
    if _memory() is None:
        raise RuntimeError("set_memory_limit: memory isn't counted here (it takes native code, on Linux or macOS)")
    _put("limit", _FULL if size is None else size)


def release() -> None:
    """Give back to the system what is kept for reuse: here, and in glibc."""
    memory = _memory() if _started else None
    if memory is not None:
        memory.trim(0)
    with contextlib.suppress(AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


# ---- when there is none


def _held() -> Iterator[tuple[Any, Any]]:
    """(array that owns memory, tensor) of all live tensors."""
    from tocha.backends.cpu import root

    for x in gc.get_objects():
        if hasattr(type(x), "_a"):
            array = getattr(x, "_a", None)
            if array.__class__ is np.ndarray:
                yield root(array), x


def _largest() -> list[tuple[int, Any]]:
    """The bytes and one tensor of each of the largest arrays."""
    found: dict[int, tuple[int, Any]] = {
        id(root): (root.nbytes, x) for root, x in _held() if isinstance(root, np.ndarray) and root.nbytes
    }
    return sorted(found.values(), key=lambda item: -item[0])[:_HOLDERS]


def _kind(x: Any) -> str:
    return "parameter" if x.requires_grad and x.is_leaf else "tensor"


def readable(size: int) -> str:
    """A number of bytes in the largest unit it fills."""
    for unit, step in (("EiB", 1 << 60), ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= step:
            return f"{size / step:.2f} {unit}"
    return f"{size} bytes"


def _holders() -> str:
    """What there is and who holds it."""
    text = "CPU out of memory."
    if _started and (memory := _memory()) is not None:
        now = dict(zip(memory.names, memory.figures, strict=True))
        text += f" {readable(now['allocated'])} are allocated, {readable(now['reserved'])} reserved."
        if now["limit"] != _FULL:
            text += f" The limit set by torch.cpu.set_memory_limit is {readable(now['limit'])}."
    lines = [f"{readable(held)}: {_kind(x)} of shape {tuple(x._a.shape)}, {x._a.dtype}" for held, x in _largest()]
    return text + "".join(f"\n  {line}" for line in (["Largest live tensors:", *lines] if lines else []))


def name_holders() -> None:
    """Have NumPy's error for an array that there is no memory for be a RuntimeError too, as torch's is, and say who holds memory.

    NumPy takes hold of the class when it is loaded: so the class itself is changed, which reaches allocations wherever they are made. It
    stays NumPy's error for whoever expects that.
    """
    try:
        from numpy._core._exceptions import _ArrayMemoryError as error
    except ImportError:  # another NumPy: its MemoryError it is
        return
    if OutOfMemoryError in error.__bases__:
        return
    made, described = error.__init__, error.__str__

    def __init__(self: Any, shape: tuple[int, ...], dtype: Any) -> None:
        made(self, shape, dtype)
        self.holders = _holders()

    def __str__(self: Any) -> str:
        return f"{described(self)}\n{self.holders}"

    error.__bases__ = (*error.__bases__, OutOfMemoryError)
    error.__init__, error.__str__ = __init__, __str__  # type: ignore[method-assign]
