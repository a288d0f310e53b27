"""Per-thread state: whether gradients are recorded, and the context kernels run in.

`state.grad` is 0 (off), 1 (on) or 2 (on, with saved-tensor hooks or anomaly mode: the recorder takes its slow path),
so that the fast path asks one question.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from tocha.backends import cpu

F = TypeVar("F", bound=Callable[..., Any])


#: Non-empty while any thread is in inference mode: whoever makes a tensor then asks `state` about its own thread.
INFERENCE: list[Any] = []
#: Non-empty once inference mode was ever used: from then on what the tape saves is looked at.
INFERENCE_USED: list[Any] = []


class _State(threading.local):
    grad: int
    inference: bool
    enabled: bool
    lenient: bool
    anomaly: Any
    saved_hooks: list[tuple[Callable[..., Any], Callable[..., Any]]]
    saved_hooks_disabled: str | None
    runs: list[Any]

    def __init__(self) -> None:
        self.grad = 1
        self.inference = False
        self.enabled = False  # what is_grad_enabled says in inference mode, where nothing is recorded whatever it says
        self.lenient = False  # in a gradient transform called in inference mode: inference tensors are recorded as any other
        self.anomaly = None
        self.saved_hooks = []
        self.saved_hooks_disabled = None
        self.runs = []  # the engine's walks under way, the innermost last
        self.run = cpu.quiet.run  # what is called through it divides by zero silently

    def refresh(self) -> None:
        """Choose the recorder's slow path when something must see every saved tensor."""
        if self.grad:
            self.grad = 2 if self.saved_hooks or self.anomaly else 1


state = _State()


def is_grad_enabled() -> bool:
    """Whether operators record a tape in this thread."""
    return state.enabled if state.inference else bool(state.grad)


class _ContextDecorator:
    """A context manager that also decorates functions, generator functions and classes' methods."""

    def clone(self) -> _ContextDecorator:
        return self.__class__()

    def __enter__(self) -> Any:
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self.clone():
                return function(*args, **kwargs)

        return inside  # type: ignore[return-value]

    def _wrap_generator(self, function: Any) -> Any:
        """The mode holds while the generator runs, not while it is suspended."""

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            send: Any = functools.partial(next, generator)
            while True:
                try:
                    with self.clone():
                        item = send()
                except StopIteration as stop:
                    return stop.value
                try:
                    sent = yield item
                    send = functools.partial(generator.send, sent)
                except GeneratorExit:
                    with self.clone():
                        generator.close()
                    raise
                except BaseException as error:
                    send = functools.partial(generator.throw, error)

        return inside


class set_grad_enabled(_ContextDecorator):
    """Switch recording on or off, as a function (at once) or as a context manager (torch docs: torch.set_grad_enabled)."""

    def __init__(self, mode: bool) -> None:
        self.previous = is_grad_enabled()
        self.mode = mode
        _set_grad(mode)

    def clone(self) -> set_grad_enabled:
        return self.__class__(self.mode)

    def __call__(self, function: F) -> F:
        _set_grad(self.previous)  # used as a decorator: constructing it must not have switched the mode
        return super().__call__(function)

    def __enter__(self) -> None:
        _set_grad(self.mode)

    def __exit__(self, *exc: object) -> None:
        _set_grad(self.previous)


def _set_grad(mode: bool) -> None:
    state.enabled = bool(mode)
    state.grad = 1 if mode and not state.inference else 0
    state.refresh()


class no_grad(_ContextDecorator):
    """Record nothing inside (torch docs: torch.no_grad). Usable bare (`@no_grad`) or called (`@no_grad()`)."""

    on = False

    def __new__(cls, function: Any = None) -> Any:
        if function is not None:
            return object.__new__(cls)(function)
        return object.__new__(cls)

    def __init__(self, function: Any = None) -> None:
        self._previous: list[bool] = []

    def __enter__(self) -> None:
        self._previous.append(is_grad_enabled())
        _set_grad(self.on)

    def __exit__(self, *exc: object) -> None:
        _set_grad(self._previous.pop())


class enable_grad(no_grad):
    """Record again inside `no_grad` (torch docs: torch.enable_grad)."""

    on = True


class transform_grad(_ContextDecorator):
    """`enable_grad` for transforms that differentiate on their own account: records in inference mode too."""

    def __init__(self) -> None:
        self._previous: list[tuple[bool, bool, bool]] = []

    def __enter__(self) -> None:
        self._previous.append((is_grad_enabled(), state.inference, state.lenient))
        if state.inference:
            state.inference, state.lenient = False, True
        _set_grad(True)

    def __exit__(self, *exc: object) -> None:
        enabled, state.inference, state.lenient = self._previous.pop()
        _set_grad(enabled)


class inference_mode(_ContextDecorator):
    """Like `no_grad`, and tensors made inside count no versions: outside they can be read, but neither changed in place nor
    saved for backward (torch docs: torch.inference_mode). `mode=False` leaves the mode for a while."""

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):
            return object.__new__(cls)._init(True)(mode)
        return object.__new__(cls)._init(mode)

    _previous: list[tuple[bool, bool]]

    def _init(self, mode: bool) -> inference_mode:
        self.mode, self._previous = bool(mode), []
        return self

    def clone(self) -> inference_mode:
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        self._previous.append((is_grad_enabled(), state.inference))
        if self.mode:
            INFERENCE.append(None)
            if not INFERENCE_USED:
                INFERENCE_USED.append(None)
        state.inference = self.mode
        _set_grad(not self.mode)

    def __exit__(self, *exc: object) -> None:
        if self.mode:
            INFERENCE.pop()
        enabled, state.inference = self._previous.pop()
        _set_grad(enabled)


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on in this thread."""
    return state.inference
