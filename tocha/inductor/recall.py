"""Whether words of memory are what they were, asked in one native loop."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from tocha.inductor import entry

_LOOP = """
declare i64 @PyLong_AsSsize_t(ptr)
declare ptr @PyBool_FromLong(i64)

; unchanged(address of pairs (address, word), how many): in order, up to the first that differs
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
  %i = phi i64 [ 0, %entry ], [ %i1, %look ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %look, label %done
look:
  %pair = getelementptr [2 x i64], ptr %table, i64 %i
  %where = load ptr, ptr %pair
  %want.at = getelementptr i64, ptr %pair, i64 1
  %want = load i64, ptr %want.at
  %have = load volatile i64, ptr %where, align 4
  %same = icmp eq i64 %have, %want
  %i1 = add i64 %i, 1
  br i1 %same, label %head, label %done
done:
  %answer = zext i1 %more to i64
  %result = xor i64 %answer, 1
  %object = call ptr @PyBool_FromLong(i64 %result)
  ret ptr %object
}
"""


@functools.cache
def unchanged() -> Callable[[int, int], bool]:
    """The builtin; it trusts that a word's address is good if the words before it are as they were."""
    names = ("PyLong_AsSsize_t", "PyBool_FromLong")
    imports = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}
    return entry._builtin("unchanged", _LOOP, imports)
