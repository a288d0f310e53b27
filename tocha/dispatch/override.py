"""Everything that may take a call away from the plain path: __torch_function__, __torch_dispatch__, modes, interpreters.

The plain path asks two cheap questions: is a mode on (`FUNCTION_MODES`, `INTERPRETERS` not empty) and is every
argument of a plain class. The rest of this file answers when one of them says no.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any

from tocha.autograd.names import named
from tocha.backends import namespace
from tocha.backends.meta import WrapperArray
from tocha.device import CPU, Size, device
from tocha.dtypes import get_default_dtype
from tocha.tensor import Tensor, View, wrap_as

# Non-empty while any thread has such a mode on; each thread's own stack is in `stacks`.
FUNCTION_MODES: list[Any] = []
INTERPRETERS: list[Any] = []

PLAIN: set[Any] = {Tensor}  # no __torch_function__ of their own
NO_DISPATCH: set[Any] = {Tensor}  # no __torch_dispatch__
#: Classes of this package whose elements are not (only) in their own array: batched and dual tensors.
HOLLOW: set[Any] = set()


class _Stacks(threading.local):
    def __init__(self) -> None:
        self.function_modes: list[Any] = []
        self.interpreters: list[Any] = []
        self.subclass_functions_disabled = 0
        self.functions_disabled = 0  # ... and modes too
        self.outside: list[tuple[int, int]] = []  # what was in force around each running engine
        self.autocast: Any = None  # tocha.dispatch.autocast's State while it is on, and at all times
        self.autocast_state: Any = None


stacks = _Stacks()


def disabled_torch_function(func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
    """Marks a subclass as treated like a plain Tensor (torch._C._disabled_torch_function_impl)."""
    return func(*args, **(kwargs or {}))


def classify(cls: type) -> None:
    """Enter a new Tensor subclass in the tables of plain classes."""
    if not hasattr(cls, "__torch_dispatch__"):
        NO_DISPATCH.add(cls)
        if _function_of(cls) is disabled_torch_function:
            PLAIN.add(cls)


def in_memory(*tensors: Any) -> bool:
    """Whether writing to these tensors' own arrays is all there is to change: they are no wrappers around others."""
    return not any(isinstance(t, Tensor) and (t.__class__ in HOLLOW or t.__class__ not in NO_DISPATCH) for t in tensors)


def require(holds: Any, error: type[Exception], text: str) -> None:
    """`error` unless every element of a condition is true: at once on the CPU, by graphs when they run."""
    a = elements(holds)
    namespace(a).require(a, error, text)


def elements(tensor: Any) -> Any:
    """The array with a tensor's elements: of all examples if it is batched, of the primal if it is dual."""
    while tensor.__class__ in HOLLOW:
        tensor = tensor.inner
    return tensor._a


def _function_of(cls: type) -> Any:
    found = getattr(cls, "__torch_function__", None)
    return getattr(found, "__func__", found)


def _has_function(cls: type) -> bool:
    function = _function_of(cls)
    return function is not None and function is not disabled_torch_function


class _Overrides(dict[type, bool]):
    """Whether arguments of a type need a closer look: types with __torch_function__ or __torch_dispatch__, containers."""

    def __missing__(self, cls: type) -> bool:
        if cls in PLAIN or cls is Size:  # which holds whole numbers
            look = False
        elif issubclass(cls, (list, tuple)):
            look = True
        else:
            look = cls in HOLLOW or _has_function(cls) or (issubclass(cls, Tensor) and hasattr(cls, "__torch_dispatch__"))
        self[cls] = look
        return look


OVERRIDES = _Overrides()


class _Handlers(dict[type, bool]):
    """Whether a Tensor class has a __torch_function__ other than Tensor's own, which leaves what isn't a tensor alone."""

    def __missing__(self, cls: type) -> bool:
        self[cls] = has = _has_function(cls) and _function_of(cls) is not _function_of(Tensor)
        return has


HANDLERS = _Handlers()


def overrides(a: Any, depth: int = 0) -> bool:
    """Whether an argument whose type is in question has, or holds (to a depth of two), a __torch_function__."""
    cls = a.__class__
    if (cls is tuple or cls is list) and depth < 3:
        for item in a:
            if OVERRIDES[item.__class__] and overrides(item, depth + 1):
                return True
        return False
    return OVERRIDES[cls]


def overloaded(args: Iterable[Any]) -> list[Any]:
    """The arguments whose __torch_function__ must be asked: each type once, subclasses before their bases."""
    found: list[Any] = []
    if not stacks.subclass_functions_disabled and not stacks.functions_disabled:
        for a in args:
            _collect_overloaded(a, 0, found)
    return found


def _collect_overloaded(a: Any, depth: int, found: list[Any]) -> None:
    cls = a.__class__
    if not OVERRIDES[cls] or any(type(f) is cls for f in found):
        return
    if isinstance(a, (list, tuple)) and not isinstance(a, Tensor):
        if depth < 2 and _function_of(cls) is None:
            for item in a:
                _collect_overloaded(item, depth + 1, found)
        return
    if cls in HOLLOW or not _has_function(cls):
        return
    place = next((i for i, f in enumerate(found) if issubclass(cls, type(f))), len(found))
    found.insert(place, a)


def _unpacked(run: Callable[..., Any], public: Any, implementation: Any, *args: Any, **kwargs: Any) -> Any:
    return run(public, implementation, args, kwargs)


def dispatch_function(
    public: Callable[..., Any], implementation: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
    relevant: tuple[Any, ...] | None = None,
) -> Any:  # fmt: skip
    """Run a public function for which a mode is on or an argument (one of `relevant`, if given) looked unusual."""
    asked = overloaded((*args, *kwargs.values()) if relevant is None else relevant)
    modes = () if stacks.functions_disabled else stacks.function_modes
    if not asked and not modes:
        from tocha.dispatch.interpret import run_function

        if stacks.autocast is not None and not stacks.functions_disabled:
            within = functools.partial(_unpacked, run_function, public, implementation)
            return stacks.autocast.run(public, within, args, kwargs)
        return run_function(public, implementation, args, kwargs)
    types = tuple(type(a) for a in asked)
    if modes:
        mode = stacks.function_modes.pop()
        try:
            got = mode.__torch_function__(public, types, args, kwargs)
        finally:
            stacks.function_modes.append(mode)
        if got is not NotImplemented:
            return got
    for a in asked:
        got = type(a).__torch_function__(public, types, args, kwargs)
        if got is not NotImplemented:
            return got
    asked_of = [f"  - mode object {modes[-1]!r}"] if modes else []
    asked_of += [f"  - tensor subclass {t!r}" for t in types]
    raise TypeError(
        f"Multiple dispatch failed for 'torch.{getattr(public, '__name__', public)}'; all __torch_function__ handlers "
        "returned NotImplemented:\n\n" + "\n".join(asked_of)
    )


def overridable(relevant: Callable[..., Iterable[Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function so that overrides are asked; `relevant`, called like it, returns the arguments to look at."""

    def inner(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            looked_at = tuple(relevant(*args, **kwargs))
            if (stacks.function_modes and not stacks.functions_disabled) or overloaded(looked_at):
                return dispatch_function(wrapped, function, args, kwargs, looked_at)
            return function(*args, **kwargs)

        return wrapped

    return inner


class DisableTorchFunctionSubclass:
    """Inside, subclasses' __torch_function__ is not asked (torch docs: torch._C.DisableTorchFunctionSubclass)."""

    def __enter__(self) -> None:
        stacks.subclass_functions_disabled += 1

    def __exit__(self, *exc: object) -> None:
        stacks.subclass_functions_disabled -= 1


class DisableTorchFunction:
    """Inside, neither subclasses nor function modes are asked."""

    def __enter__(self) -> None:
        stacks.functions_disabled += 1

    def __exit__(self, *exc: object) -> None:
        stacks.functions_disabled -= 1


def hide_overrides() -> None:
    """Ask nobody until `restore_overrides`: the engine's own work isn't made of public calls."""
    stacks.outside.append((stacks.functions_disabled, stacks.subclass_functions_disabled))
    stacks.functions_disabled = 1


def restore_overrides() -> None:
    """Undo the last `hide_overrides`."""
    stacks.functions_disabled, stacks.subclass_functions_disabled = stacks.outside.pop()


class user_code:
    """Around a user's function that the engine calls: what it does is asked about as outside the engine."""

    def __enter__(self) -> None:
        self._held = stacks.functions_disabled, stacks.subclass_functions_disabled
        if stacks.outside:
            stacks.functions_disabled, stacks.subclass_functions_disabled = stacks.outside[-1]

    def __exit__(self, *exc: object) -> None:
        stacks.functions_disabled, stacks.subclass_functions_disabled = self._held


def default_torch_function(cls: type, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `Tensor.__torch_function__` does: run the function, hand results out as the subclass."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        got = func(*args, **kwargs)
    return got if func in KEEPS_CLASS else _convert(got, cls)


KEEPS_CLASS: set[Any] = set()  # results of these functions stay what they are


def _convert(got: Any, cls: type) -> Any:
    if cls is Tensor:
        return got
    if isinstance(got, Tensor) and not isinstance(got, cls):
        return alias_as(cls, got)
    if isinstance(got, (tuple, list)):
        items = [_convert(item, cls) for item in got]
        return type(got)(*items) if hasattr(got, "_fields") else type(got)(items)
    return got


def alias_as(cls: type, source: Tensor) -> Any:
    """`source` with its history, as an instance of `cls`."""
    out = wrap_as(cls, source._a)
    out._rg, out._node, out._nr, out._vc = source._rg, source._node, source._nr, source._vc
    view = source._view
    out._view = None if view is None else View(view.base, view.chain, view.version, view.kind)
    out._extra = None
    if source._rg is True and source._node is None:
        from tocha.dispatch.inplace import CopyBackwards

        out._node = named(CopyBackwards, "AliasBackward0")((source,), None)
    return out


def wrapper(cls: type, size: tuple[int, ...], strides: Any, offset: int, dtype: Any, where: Any, requires_grad: bool) -> Any:
    """A tensor of class `cls` without data (Tensor._make_wrapper_subclass)."""
    if not hasattr(cls, "__torch_dispatch__"):
        raise RuntimeError(f"_make_wrapper_subclass: {cls.__name__} must define __torch_dispatch__, which its operators run")
    kind = (dtype or get_default_dtype()).np
    steps = None if strides is None else tuple(s * kind.itemsize for s in strides)
    array = WrapperArray(tuple(int(s) for s in size), kind, steps, offset * kind.itemsize)
    array.device = device(where) if where is not None else CPU
    out = wrap_as(cls, array)
    if requires_grad:
        out.requires_grad = True
    return out


def detach_subclass(source: Tensor, out: Tensor) -> Tensor:
    """`source.detach()` keeps a subclass unless it is a Parameter-like plain class."""
    if source.__class__ in PLAIN or stacks.subclass_functions_disabled:
        return out
    return _convert(out, source.__class__)


def has_dispatch(a: Any) -> bool:
    """Whether the tensor's class has a __torch_dispatch__."""
    if not isinstance(a, Tensor):
        return False
    return getattr(a.__class__, "__torch_dispatch__", None) is not None


def dispatch_prim(prim: Any, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Run a primitive for which an interpreter is on or an argument has __torch_dispatch__."""
    from tocha.dispatch import interpret

    return interpret.run(prim, args, params)


def _delegated(name: str) -> property:
    def get(self: Any) -> Any:
        return getattr(self.inner, name)

    def put(self: Any, value: Any) -> None:
        if "inner" in self.__dict__:
            setattr(self.inner, name, value)

    return property(get, put)


class Hollow(Tensor):
    """Base of tensors that stand for another one, `inner`, which also has their place on the tape."""

    inner: Tensor
    _rg = _delegated("_rg")
    _node = _delegated("_node")
    _nr = _delegated("_nr")
    data = property(lambda self: self.detach(), lambda self, value: check_own_memory(self, "setting .data"))


def check_own_memory(tensor: Tensor, operator: str) -> None:
    """Raise if a tensor has no memory of its own that it could be made to look at otherwise."""
    if isinstance(tensor, Hollow):
        raise RuntimeError(f"{operator} isn't possible on a mapped (or dual) tensor inside vmap (or forward mode); use a view or a copy")


__all__ = ["FUNCTION_MODES", "HANDLERS", "INTERPRETERS", "NO_DISPATCH", "OVERRIDES", "PLAIN", "View"]
