"""The threads kernels run on: a pool of our own, written in LLVM IR.

`tocha_run(task, ctx, n, grain)` runs `task(ctx, lo, hi)` on pieces of 0 … n that are multiples of `grain` long.
Every thread, the caller included, has a share of the pieces that lie side by side, the same one each time, so that it finds in its cache
what it wrote for the operator before; who is done with his own takes from the others'. The caller waits only for threads that
took a piece, so a thread that doesn't get a CPU delays nobody. Idle threads spin for some 50 µs, for some 100 more they offer
their CPU to others over and over (Python between two operators often takes as long), then they sleep on a
condition variable, from which they take 20 µs to come. A second caller at the same time, or a task that itself calls, runs its pieces itself. After
fork() the child's pool is empty and fills when first used. Which thread runs a piece never shows in results: what a
piece computes depends on its bounds only, and kernels that sum over pieces use a grain of their own.

state = generation << 32 | open << 16 | number of threads that joined.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
from typing import Any

from tocha import threads
from tocha.inductor import jit

_SPINS, _YIELDS = 2000, 500  # pauses of some 20 ns, then calls of some 0.2 µs
_MOST = 256  # threads
_PAUSE = {
    "x86": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "arm": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "other": ("declare i32 @sched_yield()", "call i32 @sched_yield()"),
}

# Without threads (systems that have no pthreads): the caller does it all.
_SERIAL = """
define void @tocha_run(ptr %task, ptr %ctx, i64 %n, i64 %grain) {
  call void %task(ptr %ctx, i64 0, i64 %n)
  ret void
}
define void @tocha_set_threads(i64 %n) {
  ret void
}
define void @tocha_reset() {
  ret void
}
"""

_POOL = """
@state = internal global i64 0, align 64
@next = internal global [MOST x [8 x i64]] zeroinitializer, align 64
@busy = internal global i64 0, align 64
@sleepers = internal global i64 0, align 64
@wanted = internal global i64 1, align 64
@started = internal global i64 1
@task = internal global ptr null, align 64
@ctx = internal global ptr null
@total = internal global i64 0
@piece = internal global i64 0
@team = internal global i64 0
@mutex = internal global [128 x i8] zeroinitializer, align 64
@cond = internal global [128 x i8] zeroinitializer, align 64
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sigfillset(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)

; Take pieces until none is left, first of the share of thread %id, then of the shares after it.
define internal void @pieces(i64 %id) {
entry:
  %f = load ptr, ptr @task
  %c = load ptr, ptr @ctx
  %n = load i64, ptr @total
  %p = load i64, ptr @piece
  %p4 = mul i64 %p, 4
  %members = load i64, ptr @team
  br label %share
share:
  %k = phi i64 [ 0, %entry ], [ %k1, %empty ]
  %any = icmp slt i64 %k, %members
  br i1 %any, label %open, label %done
open:
  %ahead = add i64 %id, %k
  %t = urem i64 %ahead, %members
  %k1 = add i64 %k, 1
  %next = getelementptr [8 x i64], ptr @next, i64 %t
  %t1 = add i64 %t, 1
  %limit = call i64 @start(i64 %t1)
  br label %look
look:
  %now = load atomic i64, ptr %next monotonic, align 8
  %left = icmp slt i64 %now, %limit
  br i1 %left, label %take, label %empty
empty:
  br label %share
take:
  ; a quarter of what is left, so that the last pieces are short and all threads end together
  %rest = sub i64 %limit, %now
  %quarter = sdiv i64 %rest, %p4
  %least = icmp slt i64 %quarter, 1
  %times = select i1 %least, i64 1, i64 %quarter
  %length = mul i64 %times, %p
  %end = add i64 %now, %length
  %swap = cmpxchg ptr %next, i64 %now, i64 %end monotonic monotonic, align 8
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %run, label %look
run:
  %last = icmp slt i64 %end, %n
  %hi = select i1 %last, i64 %end, i64 %n
  call void %f(ptr %c, i64 %now, i64 %hi)
  br label %look
done:
  ret void
}

; Where the share of thread %t begins: a multiple of the piece's length.
define internal i64 @start(i64 %t) {
  %n = load i64, ptr @total
  %p = load i64, ptr @piece
  %members = load i64, ptr @team
  %n1 = add i64 %n, %p
  %n2 = sub i64 %n1, 1
  %pieces = sdiv i64 %n2, %p
  %part = mul i64 %pieces, %t
  %first = sdiv i64 %part, %members
  %start = mul i64 %first, %p
  ret i64 %start
}

define internal ptr @worker(ptr %argument) {
entry:
  %id = ptrtoint ptr %argument to i64
  %signals = alloca [128 x i8], align 16
  call i32 @sigfillset(ptr %signals)
  call i32 @pthread_sigmask(i32 SIG_BLOCK, ptr %signals, ptr null)
  br label %wait
wait:
  %seen = phi i64 [ 0, %entry ], [ %generation, %leave ], [ %generation, %missed ], [ %generation, %spare ]
  br label %spin
spin:
  %k = phi i64 [ 0, %wait ], [ %k1, %again ]
  %s1 = load atomic i64, ptr @state acquire, align 8
  %g1 = lshr i64 %s1, 32
  %new1 = icmp ne i64 %g1, %seen
  br i1 %new1, label %look, label %again
again:
  PAUSE
  %k1 = add i64 %k, 1
  %more = icmp slt i64 %k1, SPINS
  br i1 %more, label %spin, label %polite
polite:
  %y = phi i64 [ 0, %again ], [ %y1, %still ]
  %s3 = load atomic i64, ptr @state acquire, align 8
  %g3 = lshr i64 %s3, 32
  %new3 = icmp ne i64 %g3, %seen
  br i1 %new3, label %look, label %still
still:
  call i32 @sched_yield()
  %y1 = add i64 %y, 1
  %patient = icmp slt i64 %y1, YIELDS
  br i1 %patient, label %polite, label %sleep
sleep:
  call i32 @pthread_mutex_lock(ptr @mutex)
  atomicrmw add ptr @sleepers, i64 1 seq_cst, align 8
  br label %check
check:
  %s2 = load atomic i64, ptr @state seq_cst, align 8
  %g2 = lshr i64 %s2, 32
  %new2 = icmp ne i64 %g2, %seen
  br i1 %new2, label %awake, label %block
block:
  call i32 @pthread_cond_wait(ptr @cond, ptr @mutex)
  br label %check
awake:
  atomicrmw sub ptr @sleepers, i64 1 seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %look
look:
  %s = load atomic i64, ptr @state acquire, align 8
  %generation = lshr i64 %s, 32
  %openbit = and i64 %s, 65536
  %open = icmp ne i64 %openbit, 0
  br i1 %open, label %join, label %missed
missed:
  br label %wait
join:
  %joined = add i64 %s, 1
  %swap = cmpxchg ptr @state, i64 %s, i64 %joined acq_rel acquire, align 8
  %in = extractvalue { i64, i1 } %swap, 1
  br i1 %in, label %member, label %look
member:
  %size = load i64, ptr @team
  %mine = icmp slt i64 %id, %size
  br i1 %mine, label %work, label %spare
spare:
  atomicrmw sub ptr @state, i64 1 release, align 8
  br label %wait
work:
  call void @pieces(i64 %id)
  br label %leave
leave:
  atomicrmw sub ptr @state, i64 1 release, align 8
  br label %wait
}

; Start threads until as many as wanted exist; called by the one who is busy.
define internal void @fill() {
entry:
  %thread = alloca i64
  br label %head
head:
  %have = load i64, ptr @started
  %want = load i64, ptr @wanted
  %short = icmp slt i64 %have, %want
  br i1 %short, label %make, label %done
make:
  %id = inttoptr i64 %have to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %id)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %give_up
made:
  %t = load ptr, ptr %thread
  call i32 @pthread_detach(ptr %t)
  %have1 = add i64 %have, 1
  store i64 %have1, ptr @started
  br label %head
give_up:
  store i64 %have, ptr @wanted
  br label %done
done:
  ret void
}

define void @tocha_run(ptr %f, ptr %c, i64 %n, i64 %grain) {
entry:
  %small = icmp sle i64 %n, %grain
  %threads = load i64, ptr @wanted
  %single = icmp sle i64 %threads, 1
  %serial = or i1 %small, %single
  br i1 %serial, label %alone, label %try
try:
  %got = cmpxchg ptr @busy, i64 0, i64 1 acquire monotonic, align 8
  %free = extractvalue { i64, i1 } %got, 1
  br i1 %free, label %team, label %alone
alone:
  call void %f(ptr %c, i64 0, i64 %n)
  ret void
team:
  %have = load i64, ptr @started
  %enough = icmp sge i64 %have, %threads
  br i1 %enough, label %publish, label %more
more:
  call void @fill()
  br label %publish
publish:
  %members = load i64, ptr @wanted
  store ptr %f, ptr @task
  store ptr %c, ptr @ctx
  store i64 %n, ptr @total
  store i64 %grain, ptr @piece
  store i64 %members, ptr @team
  br label %share
share:
  %t = phi i64 [ 0, %publish ], [ %t1, %share ]
  %start = call i64 @start(i64 %t)
  %next = getelementptr [8 x i64], ptr @next, i64 %t
  store atomic i64 %start, ptr %next monotonic, align 8
  %t1 = add i64 %t, 1
  %others = icmp slt i64 %t1, %members
  br i1 %others, label %share, label %announce
announce:
  %old = load atomic i64, ptr @state monotonic, align 8
  %generation = lshr i64 %old, 32
  %generation1 = add i64 %generation, 1
  %shifted = shl i64 %generation1, 32
  %opened = or i64 %shifted, 65536
  store atomic i64 %opened, ptr @state seq_cst, align 8
  %asleep = load atomic i64, ptr @sleepers seq_cst, align 8
  %any = icmp ne i64 %asleep, 0
  br i1 %any, label %wake, label %own
wake:
  call i32 @pthread_mutex_lock(ptr @mutex)
  call i32 @pthread_cond_broadcast(ptr @cond)
  call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %own
own:
  call void @pieces(i64 0)
  %before = atomicrmw and ptr @state, i64 -65537 acq_rel, align 8
  br label %wait
wait:
  %k = phi i64 [ 0, %own ], [ %k1, %pause ], [ %k1, %yield ]
  %s = load atomic i64, ptr @state acquire, align 8
  %inside = and i64 %s, 65535
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %done, label %still
still:
  %k1 = add i64 %k, 1
  %long = icmp sgt i64 %k1, SPINS
  br i1 %long, label %yield, label %pause
yield:
  call i32 @sched_yield()
  br label %wait
pause:
  PAUSE
  br label %wait
done:
  store atomic i64 0, ptr @busy release, align 8
  ret void
}

define void @tocha_set_threads(i64 %n) {
  %few = icmp slt i64 %n, MOST
  %wanted = select i1 %few, i64 %n, i64 MOST
  store i64 %wanted, ptr @wanted
  ret void
}

; In a child after fork: nobody else exists.
define void @tocha_reset() {
  store i64 0, ptr @state
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 1, ptr @started
  call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  call i32 @pthread_cond_init(ptr @cond, ptr null)
  ret void
}
"""


def _text() -> str:
    if sys.platform == "win32":
        return _SERIAL
    triple = jit.host()[0]
    kind = "x86" if triple.startswith(("x86", "i686", "i386")) else "arm" if triple.startswith(("aarch64", "arm64")) else "other"
    declaration, call = _PAUSE[kind]
    fields = {
        "PAUSE": call, "SPINS": _SPINS, "YIELDS": _YIELDS, "MOST": _MOST, "SIG_BLOCK": 0 if sys.platform == "linux" else 1,
    }  # fmt: skip
    text = re.sub("|".join(fields), lambda found: str(fields[found[0]]), _POOL)
    return text if "sched_yield" in declaration else f"{declaration}\n{text}"


@functools.cache
def addresses() -> dict[str, int]:
    """The pool's functions by name; builds it on first use."""
    names = ("tocha_run", "tocha_set_threads", "tocha_reset")
    found = dict(zip(names, jit.load(_text(), names, {}, by_hand=True), strict=True))
    set_threads: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64)(found["tocha_set_threads"])
    reset: Any = ctypes.CFUNCTYPE(None)(found["tocha_reset"])
    reset()  # makes the mutex
    threads.follow(set_threads)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return found
