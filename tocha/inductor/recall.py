"""Whether words of memory are what they were, asked in one native loop."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from tocha.inductor import entry

_LOOP = """
declare i64 @PyLong_AsSsize_t(ptr)
declare ptr @PyBool_FromLong(i64)

; unchanged(address of pairs (address, word), how many): in order, up to the first that differs; `how many` is a multiple of STEP
define ptr @entry(ptr %self, ptr %args, i64 %given) {
entry:
  %pairs.object = load ptr, ptr %args
  %count.at = getelementptr ptr, ptr %args, i64 1
  %count.object = load ptr, ptr %count.at
  %pairs = call i64 @PyLong_AsSsize_t(ptr %pairs.object)
  %count = call i64 @PyLong_AsSsize_t(ptr %count.object)
  %table = inttoptr i64 %pairs to ptr
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %tail ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look0, label %done
LOOKS
tail:
  %next = add i64 %i, STEP
  br label %head
done:
  %answer = phi i64 [ 1, %head ], ZEROS
  %object = call ptr @PyBool_FromLong(i64 %answer)
  ret ptr %object
}
"""
_LOOK = """
lookN:
  %iN = add i64 %i, N
  %pairN = getelementptr [2 x i64], ptr %table, i64 %iN
  %whereN = load ptr, ptr %pairN
  %wantN.at = getelementptr i64, ptr %pairN, i64 1
  %wantN = load i64, ptr %wantN.at
  %haveN = load volatile i64, ptr %whereN, align 4
  %sameN = icmp eq i64 %haveN, %wantN
  br i1 %sameN, label %THEN, label %done"""
STEP = 8  # several words a turn: the turn itself takes as long as a word


def _text() -> str:
    places = range(STEP)
    looks = [_LOOK.replace("THEN", f"look{i + 1}" if i + 1 < STEP else "tail").replace("N", str(i)) for i in places]
    zeros = ", ".join(f"[ 0, %look{i} ]" for i in places)
    return _LOOP.replace("LOOKS", "".join(looks)).replace("ZEROS", zeros).replace("STEP", str(STEP))


@functools.cache
def unchanged() -> Callable[[int, int], bool]:
    """The builtin; it trusts that a word's address is good if the words before it are as they were."""
    names = ("PyLong_AsSsize_t", "PyBool_FromLong")
    imports = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}
    return entry._builtin("unchanged", _text(), imports)
