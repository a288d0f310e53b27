"""One pickle to an object, restricted or trusting."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

from tocha.serialization._names import is_torch, resolve
from tocha.serialization._restricted import Interpreter, Refused

Persistent = Callable[[Any], Any]
_ADVICE = (
    "Weights only load failed: {why}. Loading with `weights_only=False` can run any code that the file "
    "holds; do it only with a file from a source you trust"
)


class Source:
    """Pickles that lie one after another in `data`."""

    def __init__(self, data: Any, at: int = 0) -> None:
        self.data = memoryview(data if isinstance(data, bytes) else bytes(data))
        self.at = at

    def next(
        self,
        persistent: Persistent | None,
        *,
        weights_only: bool,
        pickle_module: Any,
        options: dict[str, Any],
    ) -> Any:
        """Load the next pickle and move behind it."""
        if weights_only:
            return self._restricted(persistent, options)
        return self._trusting(persistent, pickle_module, options)

    def _restricted(self, persistent: Persistent | None, options: dict[str, Any]) -> Any:
        machine = Interpreter(self.data, persistent, at=self.at, encoding=options.get("encoding", "utf-8"))
        try:
            out = machine.load()
        except Refused as error:
            raise pickle.UnpicklingError(_ADVICE.format(why=error)) from None
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"Weights only load failed: {error}") from error.__cause__
        self.at = machine.at
        return out

    def _trusting(self, persistent: Persistent | None, pickle_module: Any, options: dict[str, Any]) -> Any:
        class Unpickler(pickle_module.Unpickler):  # type: ignore[misc]
            def find_class(self, module: str, name: str) -> Any:
                if is_torch(module):
                    return resolve(module, name)
                return super().find_class(module, name)

            def persistent_load(self, pid: Any) -> Any:
                if persistent is None:
                    raise pickle.UnpicklingError("the pickle refers to data outside it")
                return persistent(pid)

        stream = io.BytesIO(self.data.obj)  # shares the bytes, no copy
        stream.seek(self.at)
        try:
            out = Unpickler(stream, **{"encoding": "utf-8", **options}).load()
        except (EOFError, IndexError, OverflowError, MemoryError) as error:
            inside = error.__traceback__
            if self.at >= len(self.data) or (inside is not None and inside.tb_next is not None):
                raise  # Python code that the unpickler called raised it: a class, or map_location
            raise pickle.UnpicklingError(f"pickle data was truncated or damaged: {error}") from error
        self.at = stream.tell()
        return out
