"""torch._inductor's front: modes and options of torch.compile, and `compile` for a graph already captured."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from tocha._inductor import config
from tocha.utils._pytree import tree_flatten, tree_unflatten

_MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "lite": {"fallback_by_default": True, "selective_decompose": True, "reorder_for_peak_memory": False, "use_pre_grad_passes": False,
             "use_joint_graph_passes": False, "use_post_grad_passes": False, "dce": False, "allow_buffer_reuse": False},
    "reduce-overhead": {"triton.cudagraphs": True},
    "max-autotune-no-cudagraphs": {"max_autotune": True, "coordinate_descent_tuning": True},
    "max-autotune": {"max_autotune": True, "triton.cudagraphs": True, "coordinate_descent_tuning": True},
}  # fmt: skip


def list_mode_options(mode: str | None = None, dynamic: bool | None = None) -> dict[str, Any]:
    """What each mode of torch.compile sets, or one of them. RuntimeError for a mode there isn't."""
    if mode is None:
        return {name: dict(options) for name, options in _MODES.items()}
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    return dict(_MODES[mode])


def list_options() -> list[str]:
    """Names that torch.compile's `options` takes."""
    return config.names()  # type: ignore[attr-defined]


def check_options(options: dict[str, Any]) -> None:
    """RuntimeError for an option there isn't, or a value of another type than its default."""
    known = config.get_config_copy()  # type: ignore[attr-defined]
    for given, value in options.items():
        name = given.replace("-", "_")
        if name not in known:
            raise RuntimeError(f"Unexpected optimization option {given}, known options are {list(known)}")
        if known[name] is not None and type(value) is not type(known[name]):
            raise RuntimeError(
                f"Unexpected type of attr {given}, got {type(value).__name__} should be {type(known[name]).__name__}"
            )
        with config.patch({name: value}):  # type: ignore[attr-defined]
            pass  # says what changes nothing


def compile(gm: Any, example_inputs: Sequence[Any], options: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Native code for a GraphModule, for inputs like these (torch docs: torch._inductor.compile)."""
    from tocha._dynamo.backends import inductor

    check_options(options or {})
    spec: list[Any] = []

    def forward(*inputs: Any) -> list[Any]:
        leaves, found = tree_flatten(gm.forward(*inputs))
        spec[:] = [found]
        return leaves

    made = inductor(types.SimpleNamespace(forward=forward, meta={}), list(example_inputs))
    return lambda *inputs: tree_unflatten(made(*inputs), spec[0])
