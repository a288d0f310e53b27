"""Kernels over lists of arrays, such as all parameters of an optimizer: one entry into native code for the whole list.

    builtin(list of arrays for each buffer…, scalar arguments…) -> bool

Row i of the lists, one array for each buffer, is what the kernel's flat loop runs over; rows are laid end to end and
cut into pieces for the pool, so that many small arrays and few large ones are both shared out. The builtin looks at
every array first: the type the kernel has for the buffer, dense in C order, one shape in a row, no two of a row in
one place. It returns False, with nothing written, where that doesn't hold: the caller does it another way. Rows that
overlap each other in memory (parameters sharing theirs) are run in order on one thread. A row costs some 10 ns a
buffer.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tocha.inductor import entry
from tocha.inductor.loop_ir import (
    BITS,
    HALVES,
    Buffer,
    Convert,
    Declare,
    Expr,
    Index,
    Kernel,
    Load,
    Loop,
    Param,
    Read,
    Size,
    Store,
    convert,
    verify,
    walk,
)
from tocha.inductor.lower import Guard, Unsupported, trace
from tocha.inductor.pointwise import grain_of

_DENSE, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # flags of an ndarray (NumPy's C API)

# Slots of ctx: the table of rows, their number, the scalar arguments. A row: its first unit's number, its units, what `body` gets for it.
_LOOK = """
@list_type = external global i8
@descrs = internal constant [BUFFERS x ptr] [DESCRS]
@flags = internal constant [BUFFERS x i32] [FLAGS]
declare ptr @PyMem_RawMalloc(i64)
declare void @PyMem_RawFree(ptr)
declare ptr @PyBool_FromLong(i64)

; The number of elements of an array as buffer %b wants it, else -1.
define internal i64 @elements(ptr %array, i64 %b) {
entry:
  %type.at = getelementptr i8, ptr %array, i64 8
  %type = load ptr, ptr %type.at
  %plain = icmp eq ptr %type, @ndarray_type
  br i1 %plain, label %look, label %no
look:
  %descr.at = getelementptr i8, ptr %array, i64 56
  %descr = load ptr, ptr %descr.at
  %descr.want.at = getelementptr ptr, ptr @descrs, i64 %b
  %descr.want = load ptr, ptr %descr.want.at
  %typed = icmp eq ptr %descr, %descr.want
  %flags.at = getelementptr i8, ptr %array, i64 64
  %flags = load i32, ptr %flags.at
  %flags.want.at = getelementptr i32, ptr @flags, i64 %b
  %flags.want = load i32, ptr %flags.want.at
  %common = and i32 %flags, %flags.want
  %flagged = icmp eq i32 %common, %flags.want
  %good = and i1 %typed, %flagged
  br i1 %good, label %count, label %no
count:
  %nd.at = getelementptr i8, ptr %array, i64 24
  %nd32 = load i32, ptr %nd.at
  %nd = sext i32 %nd32 to i64
  %dims.at = getelementptr i8, ptr %array, i64 32
  %dims = load ptr, ptr %dims.at
  br label %head
head:
  %d = phi i64 [ 0, %count ], [ %d1, %times ]
  %size = phi i64 [ 1, %count ], [ %size1, %times ]
  %more = icmp slt i64 %d, %nd
  br i1 %more, label %times, label %yes
times:
  %dim.at = getelementptr i64, ptr %dims, i64 %d
  %dim = load i64, ptr %dim.at
  %size1 = mul i64 %size, %dim
  %d1 = add i64 %d, 1
  br label %head
yes:
  ret i64 %size
no:
  ret i64 -1
}
"""

_COMPARE = """
@widths = internal constant [BUFFERS x i64] [WIDTHS]
define internal i1 @same_shape(ptr %x, ptr %y) {
entry:
  %xn.at = getelementptr i8, ptr %x, i64 24
  %yn.at = getelementptr i8, ptr %y, i64 24
  %xn = load i32, ptr %xn.at
  %yn = load i32, ptr %yn.at
  %same = icmp eq i32 %xn, %yn
  br i1 %same, label %start, label %no
start:
  %nd = sext i32 %xn to i64
  %xd.at = getelementptr i8, ptr %x, i64 32
  %yd.at = getelementptr i8, ptr %y, i64 32
  %xd = load ptr, ptr %xd.at
  %yd = load ptr, ptr %yd.at
  br label %head
head:
  %d = phi i64 [ 0, %start ], [ %d1, %next ]
  %more = icmp slt i64 %d, %nd
  br i1 %more, label %compare, label %yes
compare:
  %a.at = getelementptr i64, ptr %xd, i64 %d
  %b.at = getelementptr i64, ptr %yd, i64 %d
  %a = load i64, ptr %a.at
  %b = load i64, ptr %b.at
  %equal = icmp eq i64 %a, %b
  br i1 %equal, label %next, label %no
next:
  %d1 = add i64 %d, 1
  br label %head
yes:
  ret i1 true
no:
  ret i1 false
}

; Whether what is written to in different rows doesn't overlap.
define internal i1 @disjoint(ptr %table, i64 %n) {
entry:
  br label %buffers
buffers:
  %b = phi i64 [ 0, %entry ], [ %b1, %buffer.next ]
  %some = icmp slt i64 %b, BUFFERS
  br i1 %some, label %buffer, label %yes
buffer:
  %width.at = getelementptr i64, ptr @widths, i64 %b
  %width = load i64, ptr %width.at
  %slot = add i64 %b, 2
  %written = icmp ne i64 %width, 0
  br i1 %written, label %rows, label %buffer.next
rows:
  %i = phi i64 [ 0, %buffer ], [ %i1, %row.next ]
  ; rows before this one lie from %bottom to below %top
  %top = phi i64 [ 0, %buffer ], [ %top1, %row.next ]
  %bottom = phi i64 [ -1, %buffer ], [ %bottom1, %row.next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %row, label %buffer.next
row:
  %row.at = getelementptr [ROW x i64], ptr %table, i64 %i
  %size.at = getelementptr i64, ptr %row.at, i64 1
  %size = load i64, ptr %size.at
  %bytes = mul i64 %size, %width
  %low.at = getelementptr i64, ptr %row.at, i64 %slot
  %low = load i64, ptr %low.at
  %high = add i64 %low, %bytes
  %above = icmp uge i64 %low, %top
  %below = icmp ule i64 %high, %bottom
  %outside = or i1 %above, %below
  %higher = icmp ugt i64 %high, %top
  %lower = icmp ult i64 %low, %bottom
  %top1 = select i1 %higher, i64 %high, i64 %top
  %bottom1 = select i1 %lower, i64 %low, i64 %bottom
  br i1 %outside, label %row.next, label %others
others:
  %j = phi i64 [ 0, %row ], [ %j1, %other ]
  %before = icmp slt i64 %j, %i
  br i1 %before, label %other, label %row.next
other:
  %other.at = getelementptr [ROW x i64], ptr %table, i64 %j
  %osize.at = getelementptr i64, ptr %other.at, i64 1
  %osize = load i64, ptr %osize.at
  %obytes = mul i64 %osize, %width
  %olow.at = getelementptr i64, ptr %other.at, i64 %slot
  %olow = load i64, ptr %olow.at
  %ohigh = add i64 %olow, %obytes
  %left = icmp ult i64 %low, %ohigh
  %right = icmp ult i64 %olow, %high
  %overlap = and i1 %left, %right
  %j1 = add i64 %j, 1
  br i1 %overlap, label %no, label %others
row.next:
  %i1 = add i64 %i, 1
  br label %rows
buffer.next:
  %b1 = add i64 %b, 1
  br label %buffers
yes:
  ret i1 true
no:
  ret i1 false
}

"""

_PIECE = """
; The kernel on units %lo ... %hi of all rows laid end to end.
define internal void @piece(ptr %ctx, i64 %lo, i64 %hi) {
entry:
  %own = alloca [OWN x i64], align 16
  %table = load ptr, ptr %ctx
  %n.at = getelementptr i64, ptr %ctx, i64 1
  %n = load i64, ptr %n.at
  %params.from = getelementptr i64, ptr %ctx, i64 2
  %params.to = getelementptr i64, ptr %own, i64 BUFFERS
  call void @llvm.memcpy.p0.p0.i64(ptr %params.to, ptr %params.from, i64 PARAM_BYTES, i1 false)
  br label %search
search:
  %l = phi i64 [ 0, %entry ], [ %l1, %halve ]
  %r = phi i64 [ %n, %entry ], [ %r1, %halve ]
  %between = sub i64 %r, %l
  %open = icmp sgt i64 %between, 1
  br i1 %open, label %halve, label %rows
halve:
  %half = lshr i64 %between, 1
  %m = add i64 %l, %half
  %m.at = getelementptr [ROW x i64], ptr %table, i64 %m
  %m.start = load i64, ptr %m.at
  %below = icmp sle i64 %m.start, %lo
  %l1 = select i1 %below, i64 %m, i64 %l
  %r1 = select i1 %below, i64 %r, i64 %m
  br label %search
rows:
  %i = phi i64 [ %l, %search ], [ %i1, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %row, label %done
row:
  %row.at = getelementptr [ROW x i64], ptr %table, i64 %i
  %start = load i64, ptr %row.at
  %inside = icmp slt i64 %start, %hi
  br i1 %inside, label %run, label %done
run:
  %size.at = getelementptr i64, ptr %row.at, i64 1
  %size = load i64, ptr %size.at
  %pointers = getelementptr i64, ptr %row.at, i64 2
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %pointers, i64 POINTER_BYTES, i1 false)
  %from0 = sub i64 %lo, %start
  %later = icmp sgt i64 %from0, 0
  %from = select i1 %later, i64 %from0, i64 0
  %to0 = sub i64 %hi, %start
  %ends = icmp slt i64 %to0, %size
  %to = select i1 %ends, i64 %to0, i64 %size
  %some = icmp slt i64 %from, %to
  br i1 %some, label %work, label %next
work:
  call void @body(ptr %own, i64 %from, i64 %to)
  br label %next
next:
  %i1 = add i64 %i, 1
  br label %rows
done:
  ret void
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

_UPDATE = """
define ptr @entry(ptr %self, ptr %args, i64 %count) {
entry:
  %ctx = alloca [CTX x i64], align 16
  %right = icmp eq i64 %count, COUNT
  br i1 %right, label %lists, label %bad
bad:
  call i32 @PyErr_BadArgument()
  ret ptr null
lists:
  %k = phi i64 [ 0, %entry ], [ %k1, %fits ]
  %k.more = icmp slt i64 %k, BUFFERS
  br i1 %k.more, label %list, label %scalars
list:
  %list.at = getelementptr ptr, ptr %args, i64 %k
  %list.object = load ptr, ptr %list.at
  %list.type.at = getelementptr i8, ptr %list.object, i64 8
  %list.type = load ptr, ptr %list.type.at
  %is.list = icmp eq ptr %list.type, @list_type
  br i1 %is.list, label %length, label %bad
length:
  %length.at = getelementptr i8, ptr %list.object, i64 16
  %list.length = load i64, ptr %length.at
  %first.at = load ptr, ptr %args
  %first.length.at = getelementptr i8, ptr %first.at, i64 16
  %n = load i64, ptr %first.length.at
  %k1 = add i64 %k, 1
  %long.enough = icmp eq i64 %list.length, %n
  br i1 %long.enough, label %fits, label %bad
fits:
  br label %lists
scalars:
SCALARS
  %error = call ptr @PyErr_Occurred()
  %failed = icmp ne ptr %error, null
  br i1 %failed, label %raise, label %allocate
raise:
  ret ptr null
allocate:
  %list0 = load ptr, ptr %args
  %rows.at = getelementptr i8, ptr %list0, i64 16
  %rows.n = load i64, ptr %rows.at
  %bytes = mul i64 %rows.n, ROW_BYTES
  %table = call ptr @PyMem_RawMalloc(i64 %bytes)
  %got = icmp ne ptr %table, null
  br i1 %got, label %fill, label %refuse
fill:
  store ptr %table, ptr %ctx
  %n.at = getelementptr i64, ptr %ctx, i64 1
  store i64 %rows.n, ptr %n.at
  br label %rows
rows:
  %i = phi i64 [ 0, %fill ], [ %i1, %row.done ]
  %total = phi i64 [ 0, %fill ], [ %total1, %row.done ]
  %more = icmp slt i64 %i, %rows.n
  br i1 %more, label %row, label %run
row:
  %row.at = getelementptr [ROW x i64], ptr %table, i64 %i
  store i64 %total, ptr %row.at
  %row.size.at = getelementptr i64, ptr %row.at, i64 1
  %items0.at = getelementptr i8, ptr %list0, i64 24
  %items0 = load ptr, ptr %items0.at
  %array0.at = getelementptr ptr, ptr %items0, i64 %i
  %array0 = load ptr, ptr %array0.at
  br label %columns
columns:
  %b = phi i64 [ 0, %row ], [ %b1, %column.done ]
  %b.more = icmp slt i64 %b, BUFFERS
  br i1 %b.more, label %column, label %row.done
column:
  %lb.at = getelementptr ptr, ptr %args, i64 %b
  %lb = load ptr, ptr %lb.at
  %items.at = getelementptr i8, ptr %lb, i64 24
  %items = load ptr, ptr %items.at
  %array.at = getelementptr ptr, ptr %items, i64 %i
  %array = load ptr, ptr %array.at
  %size = call i64 @elements(ptr %array, i64 %b)
  %usable = icmp sge i64 %size, 0
  br i1 %usable, label %shape, label %refuse
shape:
  store i64 %size, ptr %row.size.at
  %same = call i1 @same_shape(ptr %array0, ptr %array)
  br i1 %same, label %place, label %refuse
place:
  %data.at = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data.at
  %slot = add i64 %b, 2
  %slot.at = getelementptr i64, ptr %row.at, i64 %slot
  store ptr %data, ptr %slot.at
  br label %twins
twins:
  %c = phi i64 [ 0, %place ], [ %c1, %twin ]
  %c.more = icmp slt i64 %c, %b
  br i1 %c.more, label %twin, label %column.done
twin:
  %c.slot = add i64 %c, 2
  %c.at = getelementptr i64, ptr %row.at, i64 %c.slot
  %c.data = load ptr, ptr %c.at
  %c1 = add i64 %c, 1
  %alias = icmp eq ptr %c.data, %data
  br i1 %alias, label %refuse, label %twins
column.done:
  %b1 = add i64 %b, 1
  br label %columns
row.done:
  %row.size = load i64, ptr %row.size.at
  %total1 = add i64 %total, %row.size
  %i1 = add i64 %i, 1
  br label %rows
run:
  %large = icmp sgt i64 %total, GRAIN
  br i1 %large, label %long, label %short
short:
  call void @piece(ptr %ctx, i64 0, i64 %total)
  br label %done
long:
  %thread = call ptr @PyEval_SaveThread()
  %apart = call i1 @disjoint(ptr %table, i64 %rows.n)
  br i1 %apart, label %shared, label %alone
shared:
  call void @tocha_run(ptr @piece, ptr %ctx, i64 %total, i64 GRAIN)
  br label %back
alone:
  call void @piece(ptr %ctx, i64 0, i64 %total)
  br label %back
back:
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
done:
  call void @PyMem_RawFree(ptr %table)
  %true = call ptr @PyBool_FromLong(i64 1)
  ret ptr %true
refuse:
  call void @PyMem_RawFree(ptr %table)
  %false = call ptr @PyBool_FromLong(i64 0)
  ret ptr %false
}
"""

# The entry of a reduction: a list of arrays, and a dense array of one dimension for the partial results, CHUNK elements each.
_REDUCE = """
define ptr @entry(ptr %self, ptr %args, i64 %count) {
entry:
  %ctx = alloca [2 x i64], align 16
  %right = icmp eq i64 %count, 2
  br i1 %right, label %list, label %bad
bad:
  call i32 @PyErr_BadArgument()
  ret ptr null
list:
  %list0 = load ptr, ptr %args
  %list.type.at = getelementptr i8, ptr %list0, i64 8
  %list.type = load ptr, ptr %list.type.at
  %is.list = icmp eq ptr %list.type, @list_type
  br i1 %is.list, label %results, label %bad
results:
  %out.at = getelementptr ptr, ptr %args, i64 1
  %out = load ptr, ptr %out.at
  %room = call i64 @elements(ptr %out, i64 1)
  %usable.out = icmp sge i64 %room, 0
  br i1 %usable.out, label %allocate, label %bad
allocate:
  %out.data.at = getelementptr i8, ptr %out, i64 16
  %out.data = load ptr, ptr %out.data.at
  %rows.at = getelementptr i8, ptr %list0, i64 16
  %rows.n = load i64, ptr %rows.at
  %items.at = getelementptr i8, ptr %list0, i64 24
  %items = load ptr, ptr %items.at
  %bytes = mul i64 %rows.n, ROW_BYTES
  %table = call ptr @PyMem_RawMalloc(i64 %bytes)
  %got = icmp ne ptr %table, null
  br i1 %got, label %fill, label %refuse
fill:
  store ptr %table, ptr %ctx
  %n.at = getelementptr i64, ptr %ctx, i64 1
  store i64 %rows.n, ptr %n.at
  br label %rows
rows:
  %i = phi i64 [ 0, %fill ], [ %i1, %place ]
  %total = phi i64 [ 0, %fill ], [ %total1, %place ]
  %more = icmp slt i64 %i, %rows.n
  br i1 %more, label %row, label %run
row:
  %array.at = getelementptr ptr, ptr %items, i64 %i
  %array = load ptr, ptr %array.at
  %size = call i64 @elements(ptr %array, i64 0)
  %usable = icmp sge i64 %size, 0
  br i1 %usable, label %fits, label %refuse
fits:
  %up = add i64 %size, LAST
  %units = udiv i64 %up, CHUNK
  %total1 = add i64 %total, %units
  %inside = icmp sle i64 %total1, %room
  br i1 %inside, label %place, label %refuse
place:
  %row.at = getelementptr [ROW x i64], ptr %table, i64 %i
  store i64 %total, ptr %row.at
  %units.at = getelementptr i64, ptr %row.at, i64 1
  store i64 %units, ptr %units.at
  %data.at = getelementptr i8, ptr %array, i64 16
  %data = load ptr, ptr %data.at
  %x.at = getelementptr i64, ptr %row.at, i64 2
  store ptr %data, ptr %x.at
  %offset = mul i64 %total, WIDTH
  %partial = getelementptr i8, ptr %out.data, i64 %offset
  %partial.at = getelementptr i64, ptr %row.at, i64 3
  store ptr %partial, ptr %partial.at
  %size.at = getelementptr i64, ptr %row.at, i64 4
  store i64 %size, ptr %size.at
  %i1 = add i64 %i, 1
  br label %rows
run:
  %large = icmp sgt i64 %total, GRAIN
  br i1 %large, label %long, label %short
short:
  call void @piece(ptr %ctx, i64 0, i64 %total)
  br label %done
long:
  %thread = call ptr @PyEval_SaveThread()
  call void @tocha_run(ptr @piece, ptr %ctx, i64 %total, i64 GRAIN)
  call void @PyEval_RestoreThread(ptr %thread)
  br label %done
done:
  call void @PyMem_RawFree(ptr %table)
  %true = call ptr @PyBool_FromLong(i64 1)
  ret ptr %true
refuse:
  call void @PyMem_RawFree(ptr %table)
  %false = call ptr @PyBool_FromLong(i64 0)
  ret ptr %false
}
"""


class Made(NamedTuple):
    """A kernel, the guards under which it serves, the least number of elements worth a thread, and the parameters it takes."""

    kernel: Kernel
    guards: tuple[Guard, ...]
    grain: int
    params: tuple[str, ...]


def make(
    name: str,
    rule: Callable[..., tuple[Any, ...]],
    buffers: Sequence[Buffer],
    written: Sequence[str],
    compute: str,
    params: dict[str, Any],
) -> Made:
    """The kernel of a rule that gives several values: `rule(o, element of each buffer…, **params)` returns what is stored in `written`.

    Computed in type `compute`; `params` and guards are those of `tocha.inductor.lower`. Raises Unsupported.
    """
    index = Index("i")
    inputs: list[Expr] = []
    for buffer in buffers:
        found: Expr = Load(buffer.name, index, buffer.type)
        inputs.append(convert(convert(found, "f32") if buffer.type in HALVES else found, compute))
    values: list[Any] = []

    def first(o: Any, *elements: Any, **numbers: Any) -> Any:
        values.extend(rule(o, *elements, **numbers))
        return values[0]

    _, run = trace(first, inputs, params)
    if run.hard:
        raise Unsupported(f"{name}: a function that isn't exact everywhere")
    types = {b.name: b.type for b in buffers}
    # All values before all stores: what is stored may be what another value is computed from.
    new = [
        Declare(f"new_{target}", types[target], _stored(v.expr, types[target])) for target, v in zip(written, values, strict=True)
    ]
    stores = [Store(target, index, Read(d.name, d.type)) for target, d in zip(written, new, strict=True)]
    body = (Loop("i", Size("lo"), Size("hi"), (*new, *stores), "vector"),)
    used = {n for n in walk(body) if isinstance(n, Param)}
    named = tuple(n for n, v in params.items() if v.__class__ is float and Param(n, "f64") in used)
    kernel = Kernel(name, tuple(buffers), tuple(Param(n, "f64") for n in named), (), body)
    verify(kernel)
    return Made(kernel, tuple(run.guards), grain_of(body), named)


def _stored(value: Expr, type: str) -> Expr:
    """`value` as `type`; one that was just rounded to it isn't rounded again."""
    return value.x if isinstance(value, Convert) and value.x.type == type else convert(value, type)


def build(kernel: Kernel, dtypes: Sequence[Any], grain: int) -> Callable[..., bool]:
    """The builtin that runs a flat `kernel` on lists of arrays; `dtypes` are NumPy's for its buffers. CompileError if that can't be."""
    if kernel.sizes or kernel.finish:
        raise ValueError(f"{kernel.name}: a kernel over lists has one flat loop, no sizes and no last step")
    buffers, params = len(kernel.buffers), len(kernel.params)
    written = {s.buffer for s in walk(kernel.body) if isinstance(s, Store)}
    flags = [_DENSE | _ALIGNED | (_WRITEABLE if b.name in written else 0) for b in kernel.buffers]
    widths = [BITS[b.type] // 8 if b.name in written else 0 for b in kernel.buffers]
    fields = {
        "POINTER_BYTES": 8 * buffers, "PARAM_BYTES": 8 * params, "ROW_BYTES": 8 * (buffers + 2), "WIDTHS": _array("i64", widths), "GRAIN": grain,
        "SCALARS": entry.scalar_arguments(kernel.params, buffers, 2), "COUNT": buffers + params, "CTX": params + 2, "OWN": buffers + params + 1,
        "BUFFERS": buffers, "ROW": buffers + 2,
    }  # fmt: skip
    return _assemble(kernel, dtypes, flags, _LOOK + _COMPARE + _PIECE + _UPDATE, fields)


def build_reduction(kernel: Kernel, dtypes: Sequence[Any], chunk: int) -> Callable[..., bool]:
    """The builtin(list of arrays, partial results) of a `kernel` that reduces `chunk` elements a unit (tocha.inductor.reduce.chunks)."""
    flags = [_DENSE | _ALIGNED, _DENSE | _ALIGNED | _WRITEABLE]
    fields = {
        "POINTER_BYTES": 24, "PARAM_BYTES": 0, "ROW_BYTES": 40, "CHUNK": chunk, "LAST": chunk - 1, "WIDTH": dtypes[1].itemsize, "GRAIN": 1,
        "OWN": 4, "BUFFERS": 2, "ROW": 5,
    }  # fmt: skip
    return _assemble(kernel, dtypes, flags, _LOOK + _PIECE + _REDUCE, fields)


def _assemble(
    kernel: Kernel, dtypes: Sequence[Any], flags: Sequence[int], text: str, fields: dict[str, Any]
) -> Callable[..., bool]:
    """The builtin of a text in which `fields` are filled in."""
    symbols = {f"descr{i}": id(dtype) for i, dtype in enumerate(dtypes)}
    declared = "".join(f"@{name} = external global i8\n" for name in symbols)
    fields = {**fields, "DESCRS": _array("ptr", [f"@{s}" for s in symbols]), "FLAGS": _array("i32", flags)}
    text = re.sub("|".join(rf"\b{name}\b" for name in fields), lambda found: str(fields[found[0]]), text)
    return entry.assemble(kernel, entry.DECLARATIONS + declared + text, {**symbols, **_python()})


def _array(type: str, values: Sequence[Any]) -> str:
    return ", ".join(f"{type} {v}" for v in values)


def _python() -> dict[str, int]:
    names = ("PyMem_RawMalloc", "PyMem_RawFree", "PyBool_FromLong")
    found = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}
    return {**found, "list_type": id(list)}
