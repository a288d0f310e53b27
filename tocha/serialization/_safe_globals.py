"""What a restricted load may name, and what it may do with each name."""

from __future__ import annotations

import operator
import pickle
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from tocha.device import Size, device
from tocha.serialization import _names, rebuild
from tocha.tensor import Tensor

# Never allowed, even if the user lists them: everything in them acts on the machine.
_BLOCKED = frozenset(("sys", "os", "posix", "nt", "subprocess", "builtins.eval", "builtins.exec"))
_KEY_BUDGET = 10_000


_lock = threading.RLock()
_listed: dict[str, Any] = {}


def _name_of(obj: Any) -> str:
    found = _names.torch_name(obj)
    module, name = found if found is not None else (obj.__module__, getattr(obj, "__qualname__", obj.__name__))
    return f"{module}.{name}"


def _entries(items: Iterable[Any]) -> dict[str, Any]:
    found = {}
    for item in items:
        if isinstance(item, tuple):
            if len(item) != 2 or not isinstance(item[1], str):
                raise ValueError("add_safe_globals: a pair must be (class or function, 'module.name')")
            found[item[1]] = item[0]
        else:
            found[_name_of(item)] = item
    return found


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let restricted loads use these classes and functions; a pair (object, "module.name") gives the file's
    name for it (torch docs: torch.serialization.add_safe_globals)."""
    with _lock:
        _listed.update(_entries(safe_globals))


def get_safe_globals() -> list[Any]:
    """The classes and functions the user has listed."""
    with _lock:
        return [obj if _default_name(obj) == name else (obj, name) for name, obj in _listed.items()]


def _default_name(obj: Any) -> str | None:
    try:
        return _name_of(obj)
    except (AttributeError, pickle.PicklingError):
        return None


def clear_safe_globals() -> None:
    """Forget everything the user has listed."""
    with _lock:
        _listed.clear()


class safe_globals:
    """Context manager: `add_safe_globals` for the length of a block."""

    def __init__(self, safe_globals: list[Any]) -> None:
        self._wanted = safe_globals
        self._before: dict[str, Any] = {}

    def __enter__(self) -> None:
        with _lock:
            self._before = dict(_listed)
        add_safe_globals(self._wanted)

    def __exit__(self, *exc: object) -> None:
        with _lock:
            _listed.clear()
            _listed.update(self._before)


# ---- the built-in table: a caller checks its arguments and makes the object


def check_key(key: Any) -> Any:
    """Refuse dictionary keys whose hash would recurse deeply or without end."""
    if not isinstance(key, tuple):
        return key
    pending: list[tuple[Any, int]] = [(key, 0)]
    budget = _KEY_BUDGET
    while pending:
        part, depth = pending.pop()
        budget -= 1
        if depth > 50 or budget < 0:
            raise pickle.UnpicklingError("a dictionary key or set member is nested too deeply")
        if isinstance(part, tuple):
            pending.extend((item, depth + 1) for item in part)
    return key


def _ordered_dict(*args: Any) -> OrderedDict[Any, Any]:
    pairs = args[0] if args else ()
    if len(args) > 1 or type(pairs) not in (list, tuple, dict):
        raise TypeError("OrderedDict takes a list of pairs")
    if type(pairs) is dict:
        return OrderedDict(pairs)
    out: OrderedDict[Any, Any] = OrderedDict()
    for key, value in pairs:
        out[check_key(key)] = value
    return out


def _set(*args: Any) -> set[Any]:
    items = args[0] if args else ()
    if len(args) > 1 or type(items) not in (list, tuple):
        raise TypeError("set takes a list")
    return {check_key(item) for item in items}


def _counter(*args: Any) -> Counter[Any]:
    counts = args[0] if args else {}
    if len(args) > 1 or type(counts) is not dict:
        raise TypeError("Counter takes a dict")
    out: Counter[Any] = Counter()
    dict.update(out, counts)
    return out


def _bytearray(*args: Any) -> bytearray:
    if not args:
        return bytearray()
    if len(args) == 1 and type(args[0]) in (bytes, list):
        return bytearray(args[0])
    return bytearray(_encode(*args))


def _encode(*args: Any) -> bytes:
    """`_codecs.encode`, by which protocol 2 writes bytes; other codecs could run or inflate anything."""
    if len(args) != 2 or type(args[0]) is not str or args[1] not in ("latin1", "latin-1"):
        raise TypeError("_codecs.encode is allowed for latin1 only")
    return args[0].encode("latin-1")


def _complex(*args: Any) -> complex:
    if not all(type(a) in (int, float) for a in args):
        raise TypeError("complex takes numbers")
    return complex(*args)


def _size(*args: Any) -> Size:
    if len(args) != 1:
        raise TypeError("Size takes one sequence of integers")
    return Size(operator.index(n) for n in args[0])


def _device(*args: Any) -> device:
    if not all(type(a) in (str, int) for a in args):
        raise TypeError("device takes a name and an index")
    return device(*args)


def _parameter(data: Any = None, requires_grad: bool = True) -> Any:
    return rebuild._rebuild_parameter(data, requires_grad, None)


def _from_type(func: Any, new_type: Any, args: Any, state: Any) -> Any:
    from tocha.nn.parameter import Parameter

    with _lock:
        listed = list(_listed.values())
    if func not in _PLAIN_REBUILDERS and func not in listed:
        raise pickle.UnpicklingError("_rebuild_from_type_v2 is allowed with torch's own rebuild functions only")
    if new_type not in (Tensor, Parameter) and new_type not in listed:
        raise pickle.UnpicklingError("_rebuild_from_type_v2 is allowed for torch.Tensor and listed classes only")
    return rebuild._rebuild_from_type_v2(func, new_type, args, _checked_state(state))


def _parameter_with_state(data: Any, requires_grad: bool, backward_hooks: Any, state: Any) -> Any:
    return rebuild._rebuild_parameter_with_state(data, requires_grad, backward_hooks, _checked_state(state))


def _checked_state(state: Any) -> Any:
    if type(state) is not dict or not all(type(key) is str for key in state):
        raise pickle.UnpicklingError("a tensor's attributes must be a dict with string keys")
    return state


def _uncallable(name: str) -> Callable[..., Any]:
    def refuse(*args: Any) -> Any:
        raise pickle.UnpicklingError(f"the file calls {name}, which restricted loading does not do")

    return refuse


class Global:
    """A name a file may use: `value` where it is passed along, `call` where it is called."""

    __slots__ = ("call", "listed", "name", "value")

    def __init__(self, name: str, value: Any, call: Callable[..., Any] | None, listed: bool = False) -> None:
        self.name = name
        self.value = value
        self.call = call if call is not None else _uncallable(name)
        self.listed = listed


_CALLS: dict[str, tuple[Any, Callable[..., Any] | None]] = {
    "collections.OrderedDict": (OrderedDict, _ordered_dict),
    "collections.Counter": (Counter, _counter),
    "builtins.set": (set, _set),
    "builtins.bytearray": (bytearray, _bytearray),
    "builtins.complex": (complex, _complex),
    "_codecs.encode": (_encode, _encode),
    "torch.Size": (Size, _size),
    "torch.device": (device, _device),
    "torch.Tensor": (Tensor, None),
}
_CALLS |= {f"{m}.{n}": (f, f) for (m, n), f in _names.rebuilders().items() if n != "_load_from_bytes"}
_PLAIN_REBUILDERS = tuple(f for (_, n), f in _names.rebuilders().items() if n.startswith("_rebuild_") and n[-2:] != "v2")
_PLAIN_REBUILDERS += (rebuild._rebuild_tensor_v2,)
_CALLS["torch._tensor._rebuild_from_type_v2"] = (rebuild._rebuild_from_type_v2, _from_type)
_CALLS["torch._utils._rebuild_parameter_with_state"] = (
    rebuild._rebuild_parameter_with_state,
    _parameter_with_state,
)
_CALLS |= {f"{m}.{n}": (t, None) for (m, n), t in _names.STORAGE_TYPES.items()}
_CALLS |= {f"{m}.{n}": (d, None) for (m, n), d in _names.DTYPES.items()}
_PYTHON_2 = {"__builtin__": "builtins"}


def lookup(module: str, name: str) -> Global | None:
    """What a restricted load may use under this name, or None."""
    module = _PYTHON_2.get(module, module)
    full = f"{module}.{name}"
    if module.partition(".")[0] in _BLOCKED or full in _BLOCKED:
        return None
    with _lock:
        if full in _listed:
            return Global(full, _listed[full], _listed[full], listed=True)
    if full in _CALLS:
        return Global(full, *_CALLS[full])
    if full == "torch.nn.parameter.Parameter":
        from tocha.nn.parameter import Parameter

        return Global(full, Parameter, _parameter)
    return None


def listed_types() -> tuple[type, ...]:
    """The classes the user has listed."""
    with _lock:
        return tuple(obj for obj in _listed.values() if isinstance(obj, type))
