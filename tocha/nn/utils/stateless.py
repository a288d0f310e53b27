"""Calls of a module with other parameters than its own (torch docs: torch.func.functional_call)."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import tocha
from tocha.nn.modules.module import Module

__all__ = ["functional_call"]


def _tied_names(module: Module) -> list[set[str]]:
    """Groups of names under which the same parameter or buffer is found."""
    groups: dict[int, set[str]] = {}
    named = [
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ]
    for name, tensor in named:
        groups.setdefault(id(tensor), set()).add(name)
    return [names for names in groups.values() if len(names) > 1]


def _untie(module: Module, values: dict[str, Any]) -> dict[str, Any]:
    """`values` with each given tensor also under the names it is tied to."""
    result = dict(values)
    for names in _tied_names(module):
        given = names & values.keys()
        if not given:
            continue
        first = values[min(given)]
        if any(values[name] is not first for name in given):
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(given)}, which are tied. Consider using tie_weights=False"
            )
        result.update(dict.fromkeys(names, first))
    return result


def _check_names(module: Module, values: dict[str, Any]) -> None:
    known = {name for name, _ in module.named_parameters(remove_duplicate=False)}
    known |= {name for name, _ in module.named_buffers(remove_duplicate=False)}
    unexpected, missing = sorted(values.keys() - known), sorted(known - values.keys())
    errors = []
    if unexpected:
        errors.append("Unexpected key(s): " + ", ".join(map(repr, unexpected)) + ".")
    if missing:
        errors.append("Missing key(s): " + ", ".join(map(repr, missing)) + ".")
    if errors:
        lines = "\n\t".join(errors)
        raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{lines}")


_ABSENT = object()


def _swap(owner: Module, name: str, value: Any) -> Any:
    """Put `value` where `name` of `owner` lives and return what was there."""
    for table in (owner._parameters, owner._buffers):
        if name in table:
            old, table[name] = table[name], value
            return old
    old = owner.__dict__.get(name, _ABSENT)
    if value is _ABSENT:
        owner.__dict__.pop(name, None)
    else:
        owner.__dict__[name] = value
    return old


@contextlib.contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    tie_weights: bool = False,
    strict: bool = False,
    stack_weights: bool = False,
) -> Iterator[None]:
    """While inside, `module` has the given tensors; the dictionary keeps what became of them."""
    values = _untie(module, parameters_and_buffers) if tie_weights else dict(parameters_and_buffers)
    for value in values.values():
        if value is not None and not isinstance(value, tocha.Tensor):
            raise TypeError(f"{value} is not an instance of torch.Tensor")
    if strict:
        _check_names(module, values)
    owners = {}
    for path in values:
        prefix, _, name = path.rpartition(".")
        owners[path] = (module.get_submodule(prefix), name)
    saved = {}
    try:
        for path, value in values.items():
            saved[path] = _swap(*owners[path], value)
        yield
    finally:
        for path in reversed(saved):
            last = _swap(*owners[path], saved[path])
            if path in parameters_and_buffers:
                parameters_and_buffers[path] = last


def _functional_call(
    module: Module,
    parameters_and_buffers: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module` with the given parameters and buffers, a dictionary or several with distinct keys.

    Tensors not given are the module's own; a tensor tied to a given one follows it if `tie_weights`.
    In-place updates of given buffers stay with them.
    """
    if isinstance(parameters_and_buffers, Sequence):
        merged: dict[str, Any] = {}
        for part in parameters_and_buffers:
            if not isinstance(part, dict):
                raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
            repeated = merged.keys() & part.keys()
            if repeated:
                raise ValueError(
                    f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous"
                )
            merged.update(part)
        parameters_and_buffers = merged
    elif not isinstance(parameters_and_buffers, dict):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(parameters_and_buffers)}"
        )
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Any],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated place of `torch.func.functional_call`."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in "
        "a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
