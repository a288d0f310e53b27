"""Memory of CPU arrays: the four functions of a NumPy memory handler (NEP 49) as machine code, without a Python call for an allocation.

    malloc(ctx, bytes)    calloc(ctx, count, bytes)    realloc(ctx, block, bytes)    free(ctx, block, bytes)

Blocks below 32 MiB come from the allocator that NumPy had before (glibc, which keeps freed memory and joins what lies side by side:
docs/design.md has the measurement), from 1 KiB on aligned to cache lines. From 256 KiB on they take turns in beginning at one of eight places
of a page: the CPU takes addresses with the same last twelve bits for the same, so that where results begin a line after operands, loads wait
for stores (ReLU of 4 MB: 4 %), and where all begin alike, rows of 4 KiB share one set of the cache (sums along eight rows at once: 3 times).
Larger ones, which glibc would hand back to the system each time and pay for page by page again, are mapped here, in huge pages, and kept
for the next of their size. Everything is counted; an allocation beyond the limit, or that the system refuses, returns null.

Before a block stand its bytes as asked for, where what was taken begins and, of a mapped one, its bytes as taken. (NumPy's argument of
`free` isn't the one of `malloc` for arrays without elements.)

    figures = allocated, its peak, reserved, its peak, blocks, blocks ever made, refused, bytes refused last, limit, kept, most to keep
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys

from tocha.inductor import jit

FIGURES = (
    "allocated", "allocated_peak", "reserved", "reserved_peak", "blocks", "blocks_made", "refused", "refused_bytes", "limit", "kept", "keep",
)  # fmt: skip
LARGE = 32 << 20  # the most that glibc keeps
SPREAD = 256 << 10  # bytes from which on blocks take turns in where they begin
KEEP = 1 << 30
_KEPT_BLOCKS = 32
_MAP = {"linux": 0x22, "darwin": 0x1002}  # MAP_PRIVATE | MAP_ANONYMOUS

_TEXT = """
@memory_figures = global [11 x i64] [i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 0, i64 9223372036854775807, i64 0, i64 KEEP], align 64
@lock = internal global i32 0, align 64
@number = internal global i64 0
@turns = internal global i64 0, align 64
@starts = internal global [KEPT_BLOCKS x ptr] zeroinitializer
@sizes = internal global [KEPT_BLOCKS x i64] zeroinitializer
declare ptr @base_malloc(ptr, i64)
declare ptr @base_calloc(ptr, i64, i64)
declare void @base_free(ptr, ptr, i64)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i32 @sched_yield()
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

define internal void @lock_kept() {
entry:
  br label %try
try:
  %old = atomicrmw xchg ptr @lock, i32 1 acquire
  %free = icmp eq i32 %old, 0
  br i1 %free, label %done, label %busy
busy:
  call i32 @sched_yield()
  br label %try
done:
  ret void
}

define internal void @unlock_kept() {
  store atomic i32 0, ptr @lock release, align 4
  ret void
}

; Add to the figure at %at, whose peak is the next one.
define internal void @grow(i64 %at, i64 %bytes) {
  %figure = getelementptr i64, ptr @memory_figures, i64 %at
  %peak = getelementptr i64, ptr %figure, i64 1
  %old = atomicrmw add ptr %figure, i64 %bytes monotonic
  %new = add i64 %old, %bytes
  %most = load atomic i64, ptr %peak monotonic, align 8
  %higher = icmp sgt i64 %new, %most
  br i1 %higher, label %raise, label %done
raise:
  atomicrmw max ptr %peak, i64 %new monotonic
  br label %done
done:
  ret void
}

define internal void @shrink(i64 %at, i64 %bytes) {
  %figure = getelementptr i64, ptr @memory_figures, i64 %at
  atomicrmw sub ptr %figure, i64 %bytes monotonic
  ret void
}

define internal void @refuse(i64 %bytes) {
  atomicrmw add ptr getelementptr (i64, ptr @memory_figures, i64 6), i64 1 monotonic
  store atomic i64 %bytes, ptr getelementptr (i64, ptr @memory_figures, i64 7) monotonic, align 8
  ret void
}

; Take entry %i out of the kept blocks; the lock is held.
define internal void @drop(i64 %i) {
  %size.at = getelementptr i64, ptr @sizes, i64 %i
  %start.at = getelementptr ptr, ptr @starts, i64 %i
  %size = load i64, ptr %size.at
  call void @shrink(i64 9, i64 %size)
  %n = load i64, ptr @number
  %n1 = sub i64 %n, 1
  store i64 %n1, ptr @number
  %after = sub i64 %n1, %i
  %bytes = mul i64 %after, 8
  %next.size = getelementptr i64, ptr %size.at, i64 1
  %next.start = getelementptr ptr, ptr %start.at, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %size.at, ptr %next.size, i64 %bytes, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %start.at, ptr %next.start, i64 %bytes, i1 false)
  ret void
}

; Give the block kept for longest back to the system; the lock is held.
define internal void @release_oldest() {
  %start = load ptr, ptr @starts
  %size = load i64, ptr @sizes
  call void @drop(i64 0)
  call void @shrink(i64 2, i64 %size)
  call i32 @munmap(ptr %start, i64 %size)
  ret void
}

; Give back what is kept beyond %most bytes.
define void @memory_trim(i64 %most) {
entry:
  call void @lock_kept()
  br label %head
head:
  %kept = load i64, ptr getelementptr (i64, ptr @memory_figures, i64 9)
  %excess = icmp sgt i64 %kept, %most
  br i1 %excess, label %one, label %done
one:
  call void @release_oldest()
  br label %head
done:
  call void @unlock_kept()
  ret void
}

; The smallest kept block of %need to 9/8 %need bytes, and its size; null if there is none.
define internal ptr @reuse(i64 %need, ptr %size.out) {
entry:
  %slack = lshr i64 %need, 3
  %most = add i64 %need, %slack
  %most1 = add i64 %most, 1
  call void @lock_kept()
  %n = load i64, ptr @number
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %best = phi i64 [ -1, %entry ], [ %best1, %next ]
  %least = phi i64 [ %most1, %entry ], [ %least1, %next ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %next, label %chosen
next:
  %size.at = getelementptr i64, ptr @sizes, i64 %i
  %size = load i64, ptr %size.at
  %fits = icmp sge i64 %size, %need
  %smaller = icmp slt i64 %size, %least
  %better = and i1 %fits, %smaller
  %best1 = select i1 %better, i64 %i, i64 %best
  %least1 = select i1 %better, i64 %size, i64 %least
  %i1 = add i64 %i, 1
  br label %head
chosen:
  %some = icmp sge i64 %best, 0
  br i1 %some, label %take, label %none
take:
  %start.at = getelementptr ptr, ptr @starts, i64 %best
  %start = load ptr, ptr %start.at
  call void @drop(i64 %best)
  call void @unlock_kept()
  store i64 %least, ptr %size.out
  ret ptr %start
none:
  call void @unlock_kept()
  ret ptr null
}

; Keep a block for later, or give it back to the system.
define internal void @keep(ptr %start, i64 %size) {
entry:
  %most = load i64, ptr getelementptr (i64, ptr @memory_figures, i64 10)
  %fits = icmp sle i64 %size, %most
  br i1 %fits, label %room, label %unmap
unmap:
  call void @shrink(i64 2, i64 %size)
  call i32 @munmap(ptr %start, i64 %size)
  ret void
room:
  %others = sub i64 %most, %size
  call void @memory_trim(i64 %others)
  call void @lock_kept()
  %n = load i64, ptr @number
  %full = icmp sge i64 %n, KEPT_BLOCKS
  br i1 %full, label %evict, label %put
evict:
  call void @release_oldest()
  br label %put
put:
  %at = load i64, ptr @number
  %size.at = getelementptr i64, ptr @sizes, i64 %at
  %start.at = getelementptr ptr, ptr @starts, i64 %at
  store i64 %size, ptr %size.at
  store ptr %start, ptr %start.at
  %at1 = add i64 %at, 1
  store i64 %at1, ptr @number
  atomicrmw add ptr getelementptr (i64, ptr @memory_figures, i64 9), i64 %size monotonic
  call void @unlock_kept()
  ret void
}

; A mapped block for %bytes, zeroed if %zero; null if the system has none.
define internal ptr @take_large(i64 %bytes, i1 %zero) {
entry:
  %length.at = alloca i64
  %with = add i64 %bytes, 8191
  %need = and i64 %with, -4096
  %kept = call ptr @reuse(i64 %need, ptr %length.at)
  %again = icmp ne ptr %kept, null
  br i1 %again, label %old, label %fresh
old:
  %kept.block = getelementptr i8, ptr %kept, i64 4096
  br i1 %zero, label %clear, label %have
clear:
  call void @llvm.memset.p0.i64(ptr %kept.block, i8 0, i64 %bytes, i1 false)
  br label %have
fresh:
  %reserved = load i64, ptr getelementptr (i64, ptr @memory_figures, i64 2)
  %limit = load i64, ptr getelementptr (i64, ptr @memory_figures, i64 8)
  %after = add i64 %reserved, %need
  %beyond = icmp ugt i64 %after, %limit
  br i1 %beyond, label %trim, label %map
trim:
  call void @memory_trim(i64 0)
  br label %map
map:
  %second = phi i1 [ false, %fresh ], [ true, %trim ], [ true, %retry ]
  %new = call ptr @mmap(ptr null, i64 %need, i32 3, i32 MAP, i32 -1, i64 0)
  %failed = icmp eq ptr %new, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %none, label %mapped
none:
  br i1 %second, label %null, label %retry
retry:
  call void @memory_trim(i64 0)
  br label %map
null:
  ret ptr null
mapped:
  HUGE
  store i64 %need, ptr %length.at
  call void @grow(i64 2, i64 %need)
  br label %have
have:
  %start = phi ptr [ %kept, %old ], [ %kept, %clear ], [ %new, %mapped ]
  %block = getelementptr i8, ptr %start, i64 4096
  %length = load i64, ptr %length.at
  %size.at = getelementptr i8, ptr %block, i64 -24
  store i64 %length, ptr %size.at
  %start.at = getelementptr i8, ptr %block, i64 -8
  store ptr %start, ptr %start.at
  ret ptr %block
}

define internal i64 @with_head(i64 %bytes) {
  %small = icmp ult i64 %bytes, 1024
  %few = select i1 %small, i64 16, i64 80
  %spread = icmp uge i64 %bytes, SPREAD
  %head = select i1 %spread, i64 7696, i64 %few
  %whole = add i64 %bytes, %head
  ret i64 %whole
}

; A block from NumPy's own allocator, aligned to 64 bytes unless it is small.
define internal ptr @take_other(i64 %bytes, i1 %zero) {
entry:
  %whole = call i64 @with_head(i64 %bytes)
  br i1 %zero, label %cleared, label %plain
cleared:
  %raw.zero = call ptr @base_calloc(ptr null, i64 1, i64 %whole)
  br label %got
plain:
  %raw.plain = call ptr @base_malloc(ptr null, i64 %whole)
  br label %got
got:
  %raw = phi ptr [ %raw.zero, %cleared ], [ %raw.plain, %plain ]
  %some = icmp ne ptr %raw, null
  br i1 %some, label %place, label %none
none:
  ret ptr null
place:
  call void @grow(i64 2, i64 %whole)
  %raw.number = ptrtoint ptr %raw to i64
  %small = icmp ult i64 %bytes, 1024
  %less = select i1 %small, i64 15, i64 63
  %mask = xor i64 %less, -1
  %after = add i64 %raw.number, 16
  %up = add i64 %after, %less
  %aligned = and i64 %up, %mask
  %number = select i1 %small, i64 %after, i64 %aligned
  %spread = icmp uge i64 %bytes, SPREAD
  br i1 %spread, label %turn, label %put
turn:
  %count = atomicrmw add ptr @turns, i64 512 monotonic
  %offset = and i64 %count, 3584
  %past = add i64 %after, 4095
  %page = and i64 %past, -4096
  %far = add i64 %page, %offset
  br label %put
put:
  %start = phi i64 [ %number, %place ], [ %far, %turn ]
  %block = inttoptr i64 %start to ptr
  %raw.at = getelementptr i8, ptr %block, i64 -8
  store ptr %raw, ptr %raw.at
  ret ptr %block
}

define internal ptr @take(i64 %bytes, i1 %zero) {
entry:
  %sane = icmp ult i64 %bytes, 4611686018427387904
  br i1 %sane, label %ask, label %no
ask:
  %used = load atomic i64, ptr @memory_figures monotonic, align 8
  %after = add i64 %used, %bytes
  %limit = load i64, ptr getelementptr (i64, ptr @memory_figures, i64 8)
  %within = icmp sle i64 %after, %limit
  br i1 %within, label %kind, label %no
kind:
  %large = icmp uge i64 %bytes, LARGE
  br i1 %large, label %map, label %other
map:
  %from.map = call ptr @take_large(i64 %bytes, i1 %zero)
  br label %got
other:
  %from.other = call ptr @take_other(i64 %bytes, i1 %zero)
  br label %got
got:
  %block = phi ptr [ %from.map, %map ], [ %from.other, %other ]
  %some = icmp ne ptr %block, null
  br i1 %some, label %count, label %no
count:
  %bytes.at = getelementptr i8, ptr %block, i64 -16
  store i64 %bytes, ptr %bytes.at
  call void @grow(i64 0, i64 %bytes)
  atomicrmw add ptr getelementptr (i64, ptr @memory_figures, i64 4), i64 1 monotonic
  atomicrmw add ptr getelementptr (i64, ptr @memory_figures, i64 5), i64 1 monotonic
  ret ptr %block
no:
  call void @refuse(i64 %bytes)
  ret ptr null
}

define ptr @memory_malloc(ptr %ctx, i64 %bytes) {
  %block = call ptr @take(i64 %bytes, i1 false)
  ret ptr %block
}

define ptr @memory_calloc(ptr %ctx, i64 %count, i64 %each) {
  %product = call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %bytes = extractvalue { i64, i1 } %product, 0
  %over = extractvalue { i64, i1 } %product, 1
  %asked = select i1 %over, i64 -1, i64 %bytes
  %block = call ptr @take(i64 %asked, i1 true)
  ret ptr %block
}

define void @memory_free(ptr %ctx, ptr %block, i64 %unreliable) {
entry:
  %some = icmp ne ptr %block, null
  br i1 %some, label %look, label %done
look:
  %bytes.at = getelementptr i8, ptr %block, i64 -16
  %bytes = load i64, ptr %bytes.at
  %raw.at = getelementptr i8, ptr %block, i64 -8
  %raw = load ptr, ptr %raw.at
  call void @shrink(i64 0, i64 %bytes)
  call void @shrink(i64 4, i64 1)
  %large = icmp uge i64 %bytes, LARGE
  br i1 %large, label %mapped, label %other
mapped:
  %size.at = getelementptr i8, ptr %block, i64 -24
  %size = load i64, ptr %size.at
  call void @keep(ptr %raw, i64 %size)
  ret void
other:
  %whole = call i64 @with_head(i64 %bytes)
  call void @shrink(i64 2, i64 %whole)
  call void @base_free(ptr null, ptr %raw, i64 %whole)
  ret void
done:
  ret void
}

define ptr @memory_realloc(ptr %ctx, ptr %block, i64 %bytes) {
entry:
  %new = call ptr @take(i64 %bytes, i1 false)
  %some = icmp ne ptr %new, null
  %old = icmp ne ptr %block, null
  %both = and i1 %some, %old
  br i1 %both, label %copy, label %done
copy:
  %had.at = getelementptr i8, ptr %block, i64 -16
  %had = load i64, ptr %had.at
  %shorter = icmp ult i64 %had, %bytes
  %length = select i1 %shorter, i64 %had, i64 %bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %block, i64 %length, i1 false)
  call void @memory_free(ptr null, ptr %block, i64 0)
  br label %done
done:
  ret ptr %new
}

; In a child after fork: a thread that was at the kept blocks is gone and may have left them half-changed; then they are forgotten.
define void @memory_reset() {
entry:
  %held = atomicrmw xchg ptr @lock, i32 0 seq_cst
  %torn = icmp ne i32 %held, 0
  br i1 %torn, label %forget, label %done
forget:
  store i64 0, ptr @number
  store i64 0, ptr getelementptr (i64, ptr @memory_figures, i64 9)
  br label %done
done:
  ret void
}

; Count memory that comes from elsewhere (less of it: negative).
define void @memory_count(i64 %bytes) {
  call void @grow(i64 0, i64 %bytes)
  call void @grow(i64 2, i64 %bytes)
  ret void
}
"""

FUNCTIONS = ("malloc", "calloc", "realloc", "free", "trim", "count", "reset", "figures")
Base = tuple[int, int, int]  # addresses of the malloc, calloc and free that small blocks come from


def supported() -> bool:
    """Whether this system maps memory as the functions do."""
    return sys.platform in _MAP and sys.maxsize > 2**32


@functools.cache
def addresses(base: Base) -> dict[str, int]:
    """The functions by name, and the address of the figures; CompileError if they can't be had. `base` must not need a context."""
    huge = "call i32 @madvise(ptr %new, i64 %need, i32 14)" if sys.platform == "linux" else ""  # MADV_HUGEPAGE
    text = _TEXT.replace("KEPT_BLOCKS", str(_KEPT_BLOCKS)).replace("KEEP", str(KEEP)).replace("LARGE", str(LARGE))
    text = text.replace("SPREAD", str(SPREAD)).replace("i32 MAP,", f"i32 {_MAP[sys.platform]},").replace("HUGE", huge)
    symbols = dict(zip(("base_malloc", "base_calloc", "base_free"), base, strict=True))
    names = tuple(f"memory_{name}" for name in FUNCTIONS)
    found = dict(zip(FUNCTIONS, jit.load(text, names, symbols, by_hand=True), strict=True))
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=ctypes.CFUNCTYPE(None)(found["reset"]))
    return found
