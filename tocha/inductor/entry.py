"""How Python enters a kernel: a builtin function (METH_FASTCALL) written in LLVM IR beside the loops.

    builtin(buffer arrays…, scalar arguments…, work)

`work` is the number of units, or for kernels with sizes an int64 array of [units, grain, sizes…]. Kernels with a hole for an epilogue
(tocha.inductor.templates.epilogue) take its address before `work`, and the arrays it is given after it. The builtin reads the
addresses out of the ndarray objects itself, releases the GIL for work of several pieces and runs the loops on the pool: about 0.1 µs
plus 10 ns an argument. It trusts its caller, `tocha.backends.native`, with shapes and types.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tocha.inductor import jit, pool
from tocha.inductor.codegen_llvm import VALUE, generate
from tocha.inductor.loop_ir import FLOATS, INTEGERS, Buffer, Kernel, Param, Size, walk
from tocha.inductor.loop_ir import Call as CallNode

_METH_FASTCALL = 0x80
_HEAD = object.__basicsize__  # of every Python object: reference count and type
_PYTHON = (
    "PyFloat_AsDouble", "PyLong_AsSsize_t", "PyLong_AsUnsignedLongLongMask", "PyErr_Occurred", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyErr_BadArgument",
)  # fmt: skip
DECLARATIONS = """
@ndarray_type = external global i8
@none = external global i64
declare double @PyFloat_AsDouble(ptr)
declare i64 @PyLong_AsSsize_t(ptr)
declare i64 @PyLong_AsUnsignedLongLongMask(ptr)
declare ptr @PyErr_Occurred()
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_BadArgument()
declare void @tocha_run(ptr, ptr, i64, i64)
"""


@functools.cache
def known_symbols() -> dict[str, int]:
    """Addresses of what `DECLARATIONS` names."""
    found = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in _PYTHON}
    return {**found, "ndarray_type": id(np.ndarray), "none": id(None), "tocha_run": pool.addresses()["tocha_run"]}


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def op(self, line: str) -> str:
        self.count += 1
        self.lines.append(f"  %e{self.count} = {line}")
        return f"%e{self.count}"

    def add(self, *lines: str) -> None:
        self.lines += lines


MOST_FINISHED = 28  # arrays of an epilogue
HOLE = Param("finish", "i64")


def _entry(kernel: Kernel, grain: int, body: str = "body") -> str:
    """The builtin's text. A `body` of another name finds the grain in the slot behind all others."""
    t = _Text()
    buffers, params, sizes = len(kernel.buffers), len(kernel.params), len(kernel.sizes)
    slots, more = buffers + params + sizes + 1, HOLE in kernel.params
    room = slots + (MOST_FINISHED if more else 0)
    t.add("define ptr @entry(ptr %self, ptr %args, i64 %count) {", "entry:", f"  %ctx = alloca [{room + 1} x i64], align 16")
    taken = buffers + params + 1
    if more:
        right = t.op(f"icmp ult i64 {t.op(f'sub i64 %count, {taken}')}, {MOST_FINISHED + 1}")
    else:
        right = t.op(f"icmp eq i64 %count, {taken}")
    t.add(
        f"  br i1 {right}, label %arguments, label %bad",
        "bad:",
        "  call i32 @PyErr_BadArgument()",
        "  ret ptr null",
        "arguments:",
    )

    def argument(number: int) -> str:
        return t.op(f"load ptr, ptr {t.op(f'getelementptr ptr, ptr %args, i64 {number}')}, align 8")

    def slot(number: int) -> str:
        return t.op(f"getelementptr i64, ptr %ctx, i64 {number}")

    def address(object: str) -> str:
        kind = t.op(f"load ptr, ptr {t.op(f'getelementptr i8, ptr {object}, i64 {_HEAD - 8}')}, align 8")
        label = f"is{t.count}"
        t.add(
            f"  %{label} = icmp eq ptr {kind}, @ndarray_type",
            f"  br i1 %{label}, label %{label}.array, label %bad",
            f"{label}.array:",
        )
        return t.op(f"load ptr, ptr {t.op(f'getelementptr i8, ptr {object}, i64 {_HEAD}')}, align 8")

    for number in range(buffers):
        t.add(f"  store ptr {address(argument(number))}, ptr {slot(number)}, align 8")
    for number, param in enumerate(kernel.params, buffers):
        t.add(_scalar(t, param.type, argument(number), slot(number)))
    work = argument(buffers + params)
    if sizes:
        numbers = address(work)
        units = t.op(f"load i64, ptr {numbers}, align 8")
        grain_name = t.op(f"load i64, ptr {t.op(f'getelementptr i64, ptr {numbers}, i64 1')}, align 8")
        for number in range(sizes):
            size = t.op(f"load i64, ptr {t.op(f'getelementptr i64, ptr {numbers}, i64 {number + 2}')}, align 8")
            t.add(f"  store i64 {size}, ptr {slot(buffers + params + number)}, align 8")
    else:
        units, grain_name = t.op(f"call i64 @PyLong_AsSsize_t(ptr {work})"), str(grain)
    t.add(f"  store i64 {units}, ptr {slot(slots - 1)}, align 8")
    if body != "body":
        t.add(f"  store i64 {grain_name}, ptr {slot(room)}, align 8")
    if params or not sizes:
        failed = t.op(f"icmp ne ptr {t.op('call ptr @PyErr_Occurred()')}, null")
        t.add(f"  br i1 {failed}, label %failed, label %run", "failed:", "  ret ptr null")
    else:
        t.add("  br label %run")
    t.add("run:")
    if more:
        t.add(
            *_MORE.replace("FIRST", str(taken))
            .replace("SLOT", str(slots - taken))
            .replace("TYPE", str(_HEAD - 8))
            .replace("DATA", str(_HEAD))
            .splitlines()
        )
    finish = ["  call void @finish(ptr %ctx, i64 0, i64 0)"] if kernel.finish else []
    large = t.op(f"icmp sgt i64 {units}, {grain_name}")
    t.add(
        f"  br i1 {large}, label %long, label %short",
        "short:", f"  call void @{body}(ptr %ctx, i64 0, i64 {units})", *finish, "  br label %done",
        "long:", "  %thread = call ptr @PyEval_SaveThread()",
        f"  call void @tocha_run(ptr @{body}, ptr %ctx, i64 {units}, i64 {grain_name})", *finish,
        "  call void @PyEval_RestoreThread(ptr %thread)", "  br label %done",
        "done:", *_return_none(t), "}",
    )  # fmt: skip
    return "\n".join(t.lines) + "\n"


# The addresses of arguments from the FIRST on, behind the other slots.
_MORE = """\
  br label %others
others:
  %other = phi i64 [ FIRST, %run ], [ %other.next, %other.array ]
  %other.more = icmp slt i64 %other, %count
  br i1 %other.more, label %other.look, label %start
other.look:
  %other.argument = getelementptr ptr, ptr %args, i64 %other
  %other.object = load ptr, ptr %other.argument, align 8
  %other.type = getelementptr i8, ptr %other.object, i64 TYPE
  %other.kind = load ptr, ptr %other.type, align 8
  %other.is = icmp eq ptr %other.kind, @ndarray_type
  br i1 %other.is, label %other.array, label %bad
other.array:
  %other.at = getelementptr i8, ptr %other.object, i64 DATA
  %other.data = load ptr, ptr %other.at, align 8
  %other.number = add i64 %other, SLOT
  %other.slot = getelementptr i64, ptr %ctx, i64 %other.number
  store ptr %other.data, ptr %other.slot, align 8
  %other.next = add i64 %other, 1
  br label %others
start:"""


def _scalar(t: _Text, type: str, object: str, slot: str) -> str:
    if type in FLOATS:
        value = t.op(f"call double @PyFloat_AsDouble(ptr {object})")
        if type == "f32":
            value = t.op(f"fptrunc double {value} to float")
        return f"  store {VALUE[type]} {value}, ptr {slot}, align 8"
    value = t.op(f"call i64 @PyLong_AsUnsignedLongLongMask(ptr {object})")
    return f"  store i64 {value}, ptr {slot}, align 8"


def scalar_arguments(params: Sequence[Param], first: int, slot: int) -> str:
    """The lines that put arguments `first`, … of a builtin into the slots from `slot` on of its ctx."""
    t = _Text()
    for number, param in enumerate(params):
        argument = t.op(f"load ptr, ptr {t.op(f'getelementptr ptr, ptr %args, i64 {first + number}')}, align 8")
        t.add(_scalar(t, param.type, argument, t.op(f"getelementptr i64, ptr %ctx, i64 {slot + number}")))
    return "\n".join(t.lines)


def _return_none(t: _Text) -> list[str]:
    """None with a new reference. Python 3.12 made it immortal: there its count must not be touched without need."""
    import sys

    if sys.version_info >= (3, 12):
        return ["  ret ptr @none"]
    return [
        "  %old = load i64, ptr @none, align 8",
        "  %new = add i64 %old, 1",
        "  store i64 %new, ptr @none, align 8",
        "  ret ptr @none",
    ]


class _MethodDef(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


def build(kernel: Kernel, grain: int) -> Callable[..., None]:
    """The builtin that runs `kernel`, compiled; CompileError if that can't be. Pieces of work are multiples of `grain` units."""
    return assemble(kernel, DECLARATIONS + _entry(kernel, grain), {})


def source(kernel: Kernel, grain: int) -> str:
    """The module that `build` compiles."""
    return DECLARATIONS + _entry(kernel, grain) + _internal(kernel)


def _internal(kernel: Kernel) -> str:
    return generate(kernel, jit.has_fma(), jit.moving_width()).replace("define void @", "define internal void @")


def assemble(kernel: Kernel, text: str, symbols: dict[str, int]) -> Callable[..., Any]:
    """The builtin `entry` of a module that holds `kernel` and `text`, which may refer to what `DECLARATIONS` and `symbols` name."""
    text += _internal(kernel)
    imports = {**known_symbols(), **symbols}
    for node in walk((*kernel.body, *kernel.finish)):
        if isinstance(node, CallNode):
            imports[node.function] = jit.libm_address(node.function)
    return _builtin(kernel.name, text, imports)


def build_template(
    name: str, buffers: tuple[str, ...], sizes: tuple[str, ...], code: str, hole: bool = False, short_loops: bool = False,
    params: tuple[Param, ...] = (),
) -> Callable[..., None]:  # fmt: skip
    """The builtin around hand-written IR: `code` defines `body` (tocha.inductor.codegen_llvm), whose slots are `buffers`, `params` and
    `sizes`; with a `hole`, in the place of parameters the address of an epilogue's code, or 0, and behind the number of units the addresses
    of its arrays. With `short_loops`, where it gains something, LLVM looks for loops to unroll and vectorise."""
    head = Kernel(name, tuple([Buffer(b, "i8") for b in buffers]), (HOLE,) if hole else params, tuple(map(Size, sizes)), ())
    code = code.replace("define internal void @body(", "define void @body(")  # which code in haste hands over to
    text = DECLARATIONS + _entry(head, 1) + code
    if not short_loops and jit.in_haste(text):
        return _builtin_in_haste(head, code, text)
    return _builtin(name, text, known_symbols(), by_hand=not short_loops)


def _builtin(name: str, text: str, imports: dict[str, int], by_hand: bool = False) -> Callable[..., Any]:
    return at_address(name, jit.load(text, ("entry",), imports, by_hand)[0])


def _builtin_in_haste(head: Kernel, code: str, text: str) -> Callable[..., Any]:
    """The builtin of `text`, whose code is compiled in haste until there is a better one."""
    slots = len(head.buffers) + len(head.params) + len(head.sizes) + 1
    now = _NOW.replace("GRAIN", str(slots + (MOST_FINISHED if HOLE in head.params else 0)))
    definition = _MethodDef(head.name.encode(), None, _METH_FASTCALL, b"A native kernel.")

    def exchange(found: list[int]) -> None:
        ctypes.c_void_p.from_address(best).value, definition.function = found

    first = DECLARATIONS + _entry(head, 1, "now") + now + code
    definition.function, best = jit.load_twice(text, first, ("entry", "best"), known_symbols(), ("body", "entry"), exchange)
    return _of(definition)


# A share of the work in up to sixteen stretches, so that most of a long call is done by better code that comes meanwhile.
_NOW = """
@best = global ptr @body, align 8
define internal void @now(ptr %ctx, i64 %lo, i64 %hi) {
entry:
  %grain.at = getelementptr i64, ptr %ctx, i64 GRAIN
  %grain = load i64, ptr %grain.at, align 8
  %all = sub i64 %hi, %lo
  %sixteen = mul i64 %grain, 16
  %whole = sdiv i64 %all, %sixteen
  %more = add i64 %whole, 1
  %step = mul i64 %more, %grain
  br label %next
next:
  %from = phi i64 [ %lo, %entry ], [ %to, %some ]
  %left = icmp slt i64 %from, %hi
  br i1 %left, label %some, label %done
some:
  %end = add i64 %from, %step
  %last = icmp sge i64 %end, %hi
  %to = select i1 %last, i64 %hi, i64 %end
  %code = load atomic ptr, ptr @best acquire, align 8
  call void %code(ptr %ctx, i64 %from, i64 %to)
  br label %next
done:
  ret void
}
"""


def at_address(name: str, found: int) -> Callable[..., Any]:
    """The builtin whose code is there."""
    return _of(_MethodDef(name.encode(), found, _METH_FASTCALL, b"A native kernel."))


def _of(definition: _MethodDef) -> Callable[..., Any]:
    # Immortal: builtins point at it until they are gone, which this module may be before.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(definition))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    builtin: Callable[..., Any] = make(ctypes.addressof(definition), None, None)
    return builtin


@functools.cache
def usable() -> bool:
    """Whether arrays lie in memory as the builtins read them (not on a Python without the GIL)."""
    probe = np.arange(3.0)[1:]
    if _HEAD != 16:
        return False
    return ctypes.c_void_p.from_address(id(probe) + _HEAD).value == probe.__array_interface__["data"][0]


__all__ = ["FLOATS", "INTEGERS", "build", "build_template", "usable"]
