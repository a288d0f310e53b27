"""A pickle interpreter that can only build data.

It runs the opcodes of protocols 2 to 5 itself. A name outside the table of `_safe_globals` ends the load
before anything is called, sizes are checked against the bytes that are left, and nothing recurses.
Source: Python's `pickletools` for the meaning of opcodes.
"""

from __future__ import annotations

import pickle
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from tocha.serialization._safe_globals import Global, check_key, listed_types, lookup

_MARK = object()
_DICTS = (dict, OrderedDict, Counter)
_SCALARS = (str, int, float, bool, bytes, type(None))
_CODE = {name: code[0] for name, code in vars(pickle).items() if isinstance(code, bytes) and len(code) == 1}


class Refused(pickle.UnpicklingError):
    """The file names something a restricted load does not allow."""


class Interpreter:
    """Reads one pickle after another from `data`, from position `at` on.

    `persistent` turns a persistent id into an object; `find` answers names (tests and scans replace it).
    """

    def __init__(
        self,
        data: Any,
        persistent: Callable[[Any], Any] | None = None,
        *,
        at: int = 0,
        encoding: str = "utf-8",
        find: Callable[[str, str], Global | None] = lookup,
    ) -> None:
        self._data = memoryview(data)
        self.at = at
        self._persistent = persistent
        self._encoding = encoding
        self._find = find
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._callers: Exception | None = None  # what code of the caller's raised: no word about the file

    def load(self) -> Any:
        """The next object. UnpicklingError for damaged or forbidden input, EOFError if nothing is left; what the caller's
        code raises (map_location, classes it allowed) comes through as it is."""
        if self.at >= len(self._data):
            raise EOFError("Ran out of input")
        self._stack, self._memo = [], {}
        try:
            return self._run()
        except (pickle.UnpicklingError, RuntimeError, MemoryError, ImportError):
            raise
        except Exception as error:
            if error is self._callers:
                raise
            if isinstance(error, (EOFError, IndexError)):
                raise pickle.UnpicklingError("pickle data was truncated") from None
            raise pickle.UnpicklingError(f"the pickle is damaged at byte {self.at}: {error}") from error

    def _run(self) -> Any:
        data, stack, handlers = self._data, self._stack, _HANDLERS
        while True:
            if self.at >= len(data):
                raise EOFError
            code = data[self.at]
            self.at += 1
            if code == _STOP:
                if len(stack) != 1 or stack[0] is _MARK:
                    raise pickle.UnpicklingError("the pickle leaves more or less than one object")
                return _plain(stack[0])
            handler = handlers.get(code)
            if handler is None:
                raise Refused(f"opcode {code:#04x} ({chr(code)!r}) is not supported in restricted loading")
            handler(self)

    # ---- reading

    def _take(self, count: int) -> memoryview:
        end = self.at + count
        if count < 0 or end > len(self._data):
            raise EOFError
        part = self._data[self.at : end]
        self.at = end
        return part

    def _byte(self) -> int:
        value: int = self._data[self.at]
        self.at += 1
        return value

    def _unsigned(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _signed(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little", signed=True)

    def _line(self) -> str:
        start = self.at
        window = bytes(self._data[start : start + 1024])
        end = window.find(b"\n")
        if end < 0:
            raise pickle.UnpicklingError("a name is not terminated")
        self.at = start + end + 1
        return window[:end].decode("utf-8")

    def _python2_string(self, size: int) -> Any:
        raw = bytes(self._take(size))
        return raw if self._encoding == "bytes" else raw.decode(self._encoding)

    # ---- the stack

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise pickle.UnpicklingError("unexpected MARK")
        return value

    def _pop_mark(self) -> list[Any]:
        stack = self._stack
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
            if at < 0:
                raise pickle.UnpicklingError("no MARK on the stack")
        items = stack[at + 1 :]
        del stack[at:]
        return items

    def _top(self) -> Any:
        if self._stack[-1] is _MARK:
            raise pickle.UnpicklingError("unexpected MARK")
        return self._stack[-1]

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    # ---- containers

    def _append(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not list and not (isinstance(target, list) and isinstance(target, listed_types())):
            raise Refused(f"can't append to a {type(target).__name__}")
        target.extend(map(_plain, items))

    def _set_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) not in _DICTS and not (isinstance(target, dict) and isinstance(target, listed_types())):
            raise Refused(f"can't set items of a {type(target).__name__}")
        if len(items) % 2:
            raise pickle.UnpicklingError("a dictionary key has no value")
        for i in range(0, len(items), 2):
            key = items[i]
            target[key if type(key) in _SCALARS else check_key(_plain(key))] = _plain(items[i + 1])

    def _add_items(self, items: list[Any]) -> None:
        target = self._top()
        if type(target) is not set:
            raise Refused(f"can't add to a {type(target).__name__}")
        target.update(check_key(_plain(item)) for item in items)

    # ---- names and calls

    def _global(self, module: str, name: str) -> None:
        found = self._find(module, name)
        if found is None:
            raise Refused(_refusal(module, name))
        self._push(found)

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Global) or type(arguments) is not tuple:
            raise Refused(f"the file calls a {type(function).__name__}, which is not a function from the allowed list")
        self._push(self._ask(function.call, *arguments) if function.listed else function.call(*arguments))

    def _new_object(self) -> None:
        arguments, kind = self._pop(), self._pop()
        if not isinstance(kind, Global) or type(arguments) is not tuple or not isinstance(kind.value, type):
            raise Refused("the file makes an object of something that is not an allowed class")
        self._push(self._ask(kind.value.__new__, kind.value, *arguments) if kind.listed else kind.call(*arguments))

    def _build(self) -> None:
        state, target = _plain(self._pop()), self._top()
        if type(target) in listed_types():
            self._ask(_set_state, target, state)
        elif type(target) is OrderedDict and type(state) is dict and all(type(k) is str for k in state):
            target.__dict__.update(state)
        else:
            raise Refused(f"the file sets the state of a {type(target).__name__}, which is not in the allowed list")

    def _persistent_id(self) -> None:
        pid = self._pop()
        if self._persistent is None:
            raise pickle.UnpicklingError("the pickle refers to data outside it")
        if type(pid) is not tuple:
            raise pickle.UnpicklingError("a persistent id must be a tuple")
        self._push(self._ask(self._persistent, pid))

    def _ask(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call code of the caller's, whose errors are not the file's."""
        try:
            return function(*arguments)
        except Exception as error:
            self._callers = error
            raise


def _plain(value: Any) -> Any:
    return value.value if value.__class__ is Global else value


def _set_state(target: Any, state: Any) -> None:
    if hasattr(target, "__setstate__"):
        target.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        target.__dict__.update(attributes)
    for name, value in (slots or {}).items():
        setattr(target, name, value)


def _refusal(module: str, name: str) -> str:
    return (
        f"Unsupported global: GLOBAL {module}.{name} was not an allowed global by default. Nothing from "
        f"the file was run. If you trust {name}, allow it with "
        f"`torch.serialization.add_safe_globals([{name}])`"
    )


# ---- opcodes

_STOP = _CODE["STOP"]


def _protocol(m: Interpreter) -> None:
    version = m._byte()
    if version > pickle.HIGHEST_PROTOCOL:
        raise pickle.UnpicklingError(f"pickle protocol {version} is not known")


def _memoize(m: Interpreter, index: int) -> None:
    m._memo[index] = m._top()


def _get(m: Interpreter, index: int) -> None:
    if index not in m._memo:
        raise pickle.UnpicklingError(f"memo entry {index} was never stored")
    m._push(m._memo[index])


def _tuple(m: Interpreter, count: int) -> None:
    stack = m._stack
    if len(stack) < count or any(v is _MARK for v in stack[-count:]):
        raise pickle.UnpicklingError("too few objects for a tuple")
    items = tuple(map(_plain, stack[-count:]))
    del stack[-count:]
    stack.append(items)


def _stack_global(m: Interpreter) -> None:
    name, module = m._pop(), m._pop()
    if type(name) is not str or type(module) is not str:
        raise pickle.UnpicklingError("a global must be named by strings")
    m._global(module, name)


def _pairs(m: Interpreter) -> None:
    items = m._pop_mark()
    m._push({})
    m._set_items(items)


def _one_item(m: Interpreter) -> None:
    value, key = m._pop(), m._pop()
    m._set_items([key, value])


def _one_append(m: Interpreter) -> None:
    m._append([m._pop()])


_HANDLERS: dict[int, Callable[[Interpreter], None]] = {
    _CODE[name]: handler
    for name, handler in {
        "PROTO": _protocol,
        "FRAME": lambda m: m._take(8) and None,
        "MARK": lambda m: m._push(_MARK),
        "POP": lambda m: m._stack.pop() and None,
        "POP_MARK": lambda m: m._pop_mark() and None,
        "NONE": lambda m: m._push(None),
        "NEWTRUE": lambda m: m._push(True),
        "NEWFALSE": lambda m: m._push(False),
        "BININT": lambda m: m._push(m._signed(4)),
        "BININT1": lambda m: m._push(m._byte()),
        "BININT2": lambda m: m._push(m._unsigned(2)),
        "LONG1": lambda m: m._push(m._signed(m._byte())),
        "LONG4": lambda m: m._push(m._signed(m._signed(4))),
        "BINFLOAT": lambda m: m._push(struct.unpack(">d", m._take(8))[0]),
        "SHORT_BINUNICODE": lambda m: m._push(str(m._take(m._byte()), "utf-8", "surrogatepass")),
        "BINUNICODE": lambda m: m._push(str(m._take(m._unsigned(4)), "utf-8", "surrogatepass")),
        "BINUNICODE8": lambda m: m._push(str(m._take(m._unsigned(8)), "utf-8", "surrogatepass")),
        "SHORT_BINBYTES": lambda m: m._push(bytes(m._take(m._byte()))),
        "BINBYTES": lambda m: m._push(bytes(m._take(m._unsigned(4)))),
        "BINBYTES8": lambda m: m._push(bytes(m._take(m._unsigned(8)))),
        "BYTEARRAY8": lambda m: m._push(bytearray(m._take(m._unsigned(8)))),
        "SHORT_BINSTRING": lambda m: m._push(m._python2_string(m._byte())),
        "BINSTRING": lambda m: m._push(m._python2_string(m._signed(4))),
        "EMPTY_TUPLE": lambda m: m._push(()),
        "TUPLE1": lambda m: _tuple(m, 1),
        "TUPLE2": lambda m: _tuple(m, 2),
        "TUPLE3": lambda m: _tuple(m, 3),
        "TUPLE": lambda m: m._push(tuple(map(_plain, m._pop_mark()))),
        "EMPTY_LIST": lambda m: m._push([]),
        "LIST": lambda m: m._push(list(map(_plain, m._pop_mark()))),
        "APPEND": _one_append,
        "APPENDS": lambda m: m._append(m._pop_mark()),
        "EMPTY_DICT": lambda m: m._push({}),
        "DICT": _pairs,
        "SETITEM": _one_item,
        "SETITEMS": lambda m: m._set_items(m._pop_mark()),
        "EMPTY_SET": lambda m: m._push(set()),
        "ADDITEMS": lambda m: m._add_items(m._pop_mark()),
        "BINPUT": lambda m: _memoize(m, m._byte()),
        "LONG_BINPUT": lambda m: _memoize(m, m._unsigned(4)),
        "MEMOIZE": lambda m: _memoize(m, len(m._memo)),
        "BINGET": lambda m: _get(m, m._byte()),
        "LONG_BINGET": lambda m: _get(m, m._unsigned(4)),
        "GLOBAL": lambda m: m._global(m._line(), m._line()),
        "STACK_GLOBAL": _stack_global,
        "REDUCE": lambda m: m._reduce(),
        "NEWOBJ": lambda m: m._new_object(),
        "BUILD": lambda m: m._build(),
        "BINPERSID": lambda m: m._persistent_id(),
    }.items()
}


def scan_globals(data: Any) -> list[str]:
    """The names in a pickle that a restricted load would refuse, in order, without loading it."""
    import pickletools

    found: dict[str, None] = {}
    strings: list[str] = []
    argument: Any
    for opcode, argument, _ in pickletools.genops(bytes(data)):
        if "UNICODE" in opcode.name:
            strings.append(argument)
        name = ""
        if opcode.name == "GLOBAL":
            name = argument
        elif opcode.name == "STACK_GLOBAL":
            name = " ".join(strings[-2:])
        if name and lookup(*name.split(" ", 1)) is None:
            found[name.replace(" ", ".", 1)] = None
    return list(found)
