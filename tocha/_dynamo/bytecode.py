"""Bytecode of CPython 3.11 to 3.13 in one form: the differences between versions end in this file.

    instruction ::= (name, arg, line)        jumps name the index of an instruction; fused instructions are taken apart

What the interpreter needs not see (caches, RESUME, TO_BOOL before a branch, KW_NAMES) is dropped or folded into a neighbour.
"""

from __future__ import annotations

import dis
import sys
import types
from typing import Any, NamedTuple

VERSION = sys.version_info[:2]
_DROPPED = frozenset(
    ("CACHE", "RESUME", "NOP", "PRECALL", "TO_BOOL", "EXTENDED_ARG", "KW_NAMES", "COPY_FREE_VARS", "EXIT_INIT_CHECK")
)
_RENAMED = {
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_CLOSURE": "LOAD_FAST",
    "JUMP_FORWARD": "JUMP",
    "JUMP_BACKWARD": "JUMP",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP",
    "FORMAT_WITH_SPEC": "FORMAT_WITH_SPEC",
    "JUMP_IF_TRUE_OR_POP": "JUMP_IF_TRUE_OR_POP",
}
#: How many instructions after FOR_ITER's target the loop goes on once the iterator is popped (END_FOR, POP_TOP).
_AFTER_LOOP = {(3, 11): 0, (3, 12): 1}.get(VERSION, 2)
_PAIRS = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
#: What looks at the frames of running functions, which the interpreter's are not.
_FRAME_READERS = frozenset(("locals", "globals", "eval", "exec", "breakpoint", "currentframe", "_getframe"))
_FRAME_ATTRIBUTES = frozenset(("currentframe", "_getframe"))
_INTRINSICS = {3: "STOPITERATION_ERROR", 5: "UNARY_POSITIVE", 6: "LIST_TO_TUPLE"}


class Instruction(NamedTuple):
    name: str
    arg: Any
    line: int


class Handler(NamedTuple):
    """A row of the exception table: where to go, how deep the stack is there, whether the place is pushed."""

    target: int
    depth: int
    lasti: bool


class Code(NamedTuple):
    """A code object taken apart. `handlers[i]` is what catches an exception of instruction i."""

    instructions: list[Instruction]
    handlers: list[Handler | None]
    unsupported: str | None


_decoded: dict[int, tuple[types.CodeType, Code]] = {}  # by identity: equal code may be of another file


def decode(code: types.CodeType) -> Code:
    """The code's instructions; `unsupported` names what keeps the interpreter from running them."""
    found = _decoded.get(id(code))
    if found is None:
        found = _decoded[id(code)] = (code, _decode(code))
    return found[1]


def _decode(code: types.CodeType) -> Code:
    out: list[Instruction] = []
    places: dict[int, int] = {}  # byte offset to index
    jumps: list[int] = []
    offsets: list[int] = []
    line, keywords = code.co_firstlineno, ()
    unsupported = "coroutine" if code.co_flags & 0x380 else None
    for raw in dis.get_instructions(code):
        places[raw.offset] = len(out)
        if raw.positions is not None and raw.positions.lineno is not None:
            line = raw.positions.lineno
        if raw.opname == "KW_NAMES":
            keywords = raw.argval if isinstance(raw.argval, tuple) else code.co_consts[raw.arg or 0]
        if raw.opname in _DROPPED:
            continue
        for name, arg in _normal(raw, keywords):
            if name in _JUMPS:
                jumps.append(len(out))
            if (name == "LOAD_GLOBAL" and arg in _FRAME_READERS) or (
                name in ("LOAD_ATTR", "LOAD_METHOD") and arg in _FRAME_ATTRIBUTES
            ):
                unsupported = unsupported or f"{arg}, which looks at frames"
            if name not in SUPPORTED:
                unsupported = unsupported or f"opcode {name}"
            out.append(Instruction(name, arg, line))
            offsets.append(raw.offset)
        if raw.opname == "CALL":
            keywords = ()
    for i in jumps:
        name, arg, at = out[i]
        target = places[arg]
        out[i] = Instruction(name, target + _AFTER_LOOP if name == "FOR_ITER" else target, at)
    return Code(out, _handlers(code, places, offsets), unsupported)


def _normal(raw: dis.Instruction, keywords: tuple[str, ...]) -> list[tuple[str, Any]]:
    name, arg = raw.opname, raw.argval
    if name in _PAIRS:
        return list(zip(_PAIRS[name], arg, strict=True))
    if name == "RETURN_CONST":
        return [("LOAD_CONST", arg), ("RETURN_VALUE", None)]
    if name == "LOAD_GLOBAL":
        null = [("PUSH_NULL", None)] if (raw.arg or 0) & 1 else []
        return [*null, ("LOAD_GLOBAL", arg)] if VERSION < (3, 13) else [("LOAD_GLOBAL", arg), *null]
    if name == "LOAD_ATTR" and VERSION >= (3, 12) and (raw.arg or 0) & 1:
        return [("LOAD_METHOD", arg)]
    if name == "LOAD_SUPER_ATTR":
        return [("LOAD_SUPER_ATTR", arg)] + ([("AS_METHOD", None)] if (raw.arg or 0) & 1 else [])
    if name in ("CALL", "CALL_KW"):
        return [(name, (raw.arg, keywords))]
    if name.startswith("POP_JUMP"):
        return [(name.replace("FORWARD_", "").replace("BACKWARD_", ""), arg)]
    if name in ("CALL_FUNCTION_EX", "MAKE_FUNCTION", "RAISE_VARARGS", "RERAISE", "COPY", "SWAP", "SET_FUNCTION_ATTRIBUTE"):
        return [(name, raw.arg or 0)]
    if name in ("FORMAT_VALUE", "CONVERT_VALUE", "IS_OP", "CONTAINS_OP", "UNPACK_EX"):
        return [(name, raw.arg or 0)]
    if name == "BINARY_OP":
        return [(name, raw.argrepr)]
    if name == "CALL_INTRINSIC_1":
        return [(_INTRINSICS.get(raw.arg or 0, f"INTRINSIC_{raw.arg}"), None)]
    return [(_RENAMED.get(name, name), arg)]


def _handlers(code: types.CodeType, places: dict[int, int], offsets: list[int]) -> list[Handler | None]:
    found: list[Handler | None] = [None] * len(offsets)
    for row in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        handler = Handler(places[row.target], row.depth, row.lasti)
        for i, offset in enumerate(offsets):
            if row.start <= offset < row.end:
                found[i] = handler
    return found


_JUMPS = frozenset(
    (
        "JUMP", "FOR_ITER", "SEND", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE",
        "JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP",
    )
)  # fmt: skip
SUPPORTED = _JUMPS | frozenset(
    (
        "LOAD_FAST", "STORE_FAST", "DELETE_FAST", "LOAD_FAST_AND_CLEAR", "LOAD_CONST", "LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL",
        "LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "MAKE_CELL", "LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR",
        "LOAD_SUPER_ATTR", "AS_METHOD", "BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR",
        "UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT", "UNARY_NOT", "COMPARE_OP", "IS_OP", "CONTAINS_OP",
        "BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_MAP", "BUILD_CONST_KEY_MAP", "BUILD_SLICE", "BUILD_STRING",
        "LIST_APPEND", "SET_ADD", "MAP_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE", "LIST_TO_TUPLE",
        "UNPACK_SEQUENCE", "UNPACK_EX", "FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC", "CONVERT_VALUE",
        "PUSH_NULL", "POP_TOP", "COPY", "SWAP", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE",
        "RETURN_VALUE", "RETURN_GENERATOR", "YIELD_VALUE", "GET_ITER", "GET_YIELD_FROM_ITER", "END_SEND", "END_FOR", "CLEANUP_THROW",
        "STOPITERATION_ERROR", "BEFORE_WITH", "WITH_EXCEPT_START", "PUSH_EXC_INFO", "POP_EXCEPT", "CHECK_EXC_MATCH", "RAISE_VARARGS",
        "RERAISE", "LOAD_ASSERTION_ERROR", "LOAD_BUILD_CLASS", "IMPORT_NAME", "IMPORT_FROM", "GET_LEN", "MATCH_SEQUENCE", "MATCH_MAPPING",
        "MATCH_KEYS", "MATCH_CLASS",
    )
)  # fmt: skip
