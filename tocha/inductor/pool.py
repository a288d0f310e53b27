"""The threads kernels run on: a pool of our own, written in LLVM IR.

`tocha_run(task, ctx, n, grain)` runs `task(ctx, lo, hi)` on pieces of 0 … n that are multiples of `grain` long.
Threads take pieces from a counter until none are left, the caller included; the caller waits only for threads that
took one, so a thread that doesn't get a CPU delays nobody. Idle threads spin for some 50 µs, then sleep on a
condition variable. A second caller at the same time, or a task that itself calls, runs its pieces itself. After
fork() the child's pool is empty and fills when first used. Which thread runs a piece never shows in results: what a
piece computes depends on its bounds only, and kernels that sum over pieces use a grain of their own.

state = generation << 32 | open << 16 | number of threads that joined.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Any

from tocha import threads
from tocha.inductor import jit

_SPINS = 2000
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
@next = internal global i64 0, align 64
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

; Take pieces until none is left.
define internal void @pieces() {
entry:
  %f = load ptr, ptr @task
  %c = load ptr, ptr @ctx
  %n = load i64, ptr @total
  %p = load i64, ptr @piece
  br label %take
take:
  %lo = atomicrmw add ptr @next, i64 %p monotonic, align 8
  %end = add i64 %lo, %p
  %last = icmp slt i64 %end, %n
  %hi = select i1 %last, i64 %end, i64 %n
  %some = icmp slt i64 %lo, %n
  br i1 %some, label %run, label %done
run:
  call void %f(ptr %c, i64 %lo, i64 %hi)
  br label %take
done:
  ret void
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
  br i1 %more, label %spin, label %sleep
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
  call void @pieces()
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
  ; about four pieces a thread, each a multiple of the grain
  %many = mul i64 %members, 4
  %span = mul i64 %many, %grain
  %n1 = add i64 %n, %span
  %n2 = sub i64 %n1, 1
  %times = sdiv i64 %n2, %span
  %length = mul i64 %times, %grain
  store ptr %f, ptr @task
  store ptr %c, ptr @ctx
  store i64 %n, ptr @total
  store i64 %length, ptr @piece
  store i64 %members, ptr @team
  store atomic i64 0, ptr @next monotonic, align 8
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
  call void @pieces()
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
  store i64 %n, ptr @wanted
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
    text = (
        _POOL.replace("PAUSE", call).replace("SPINS", str(_SPINS)).replace("SIG_BLOCK", "0" if sys.platform == "linux" else "1")
    )
    return text if "sched_yield" in declaration else f"{declaration}\n{text}"


@functools.cache
def addresses() -> dict[str, int]:
    """The pool's functions by name; builds it on first use."""
    names = ("tocha_run", "tocha_set_threads", "tocha_reset")
    found = dict(zip(names, jit.load(_text(), names, {}), strict=True))
    set_threads: Any = ctypes.CFUNCTYPE(None, ctypes.c_int64)(found["tocha_set_threads"])
    reset: Any = ctypes.CFUNCTYPE(None)(found["tocha_reset"])
    reset()  # makes the mutex
    threads.follow(set_threads)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)
    return found
