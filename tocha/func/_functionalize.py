"""torch.func.functionalize."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` with the same results and the same changes to its arguments (torch docs: torch.func.functionalize). What it removes,
    mutations and views of intermediate values, concerns tracers; torch.compile and torch.fx here remove them themselves."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='{remove}'): received invalid argument for `remove`. Valid options are: remove='mutations', "
            "remove='mutations_and_views'"
        )

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return wrapped
