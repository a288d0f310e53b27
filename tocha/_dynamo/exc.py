"""torch._dynamo.exc: what capture raises."""

from __future__ import annotations

__all__ = [
    "BackendCompilerFailed",
    "InternalTorchDynamoError",
    "RecompileError",
    "RecompileLimitExceeded",
    "TorchDynamoException",
    "UncapturedHigherOrderOpError",
    "Unsupported",
    "UserError",
]


class TorchDynamoException(RuntimeError):
    """Base of the errors of this package."""


class InternalTorchDynamoError(TorchDynamoException):
    """A fault in capture itself."""


class Unsupported(TorchDynamoException):
    """With fullgraph=True: the function has a graph break. The message names it and its place."""


class RecompileLimitExceeded(Unsupported):
    """With fullgraph=True: more variants were needed than config.recompile_limit."""


class RecompileError(TorchDynamoException):
    """A capture was needed where set_stance or config.error_on_recompile forbids it."""


class UncapturedHigherOrderOpError(Unsupported):
    """A higher-order operator's function isn't one it can take."""


class ConstraintViolationError(RuntimeError):
    """A dimension marked by mark_dynamic has a size out of its bounds, or the program needs one size there."""


class CheckFailed(TorchDynamoException):
    """With check=True: a graph's results aren't eager mode's. The message names the first operator that differs."""


class UserError(Unsupported):
    """The program asks for something that capture can't do."""


class BackendCompilerFailed(TorchDynamoException):
    """The backend raised `inner_exception`."""

    def __init__(self, backend_fn: object, inner_exception: BaseException) -> None:
        name = getattr(backend_fn, "__name__", type(backend_fn).__name__)
        super().__init__(f"backend={name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}")
        self.backend_name, self.inner_exception = name, inner_exception


class Break(BaseException):
    """This instruction can't be part of the graph: the segment ends before it."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint


class Restart(BaseException):
    """Trace the segment again and end it before instruction number `at`: it ran into a break halfway."""

    def __init__(self, at: int, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.at, self.reason, self.hint = at, reason, hint


class NotDynamic(BaseException):
    """The segment can't be captured with varying sizes; it is captured for the sizes at hand."""


class Refused(BaseException):
    """The segment can't be captured at all; it runs in plain Python."""
