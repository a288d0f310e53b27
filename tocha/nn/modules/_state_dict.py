"""Saving and loading the state of a module: `state_dict`, `load_state_dict` and their hooks."""

from __future__ import annotations

import itertools
import warnings
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

import tocha
from tocha.autograd.graph import RemovableHandle
from tocha.nn.modules._hooks import _WrappedHook, hook_table
from tocha.nn.parameter import Parameter, is_lazy

_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """What `load_state_dict` found not to match."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


def _never_called(method: str) -> RuntimeError:
    return RuntimeError(
        f"Reached a code path in Module.{method}() that should never be called: a class that defines one of "
        "get_extra_state and set_extra_state must define both."
    )


class StatefulModule:
    """The part of `Module` that reads and writes state dictionaries."""

    def get_extra_state(self) -> Any:
        """Extra picklable state for `state_dict`; override together with :meth:`set_extra_state`."""
        raise _never_called("get_extra_state")

    def set_extra_state(self, state: Any) -> None:
        """Receive at load time what :meth:`get_extra_state` returned."""
        raise _never_called("set_extra_state")

    def _has_extra_state(self, method: str) -> bool:
        return getattr(type(self), method) is not getattr(StatefulModule, method)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after `state_dict`; it edits in place."""
        hook._from_public_api = True  # type: ignore[attr-defined]
        return self._register_state_dict_hook_raw(hook)

    def _register_state_dict_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """As the post hook, but the hook may return a dictionary to use instead."""
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError(
                "Cannot register the same function as the state dict post hook that was previously "
                "registered "
                "via register_state_dict_post_hook"
            )
        return self._register_state_dict_hook_raw(hook)

    def _register_state_dict_hook_raw(self, hook: Callable[..., Any]) -> RemovableHandle:
        table = hook_table(self, "_state_dict_hooks")
        handle = RemovableHandle(table)
        table[handle.id] = hook
        return handle

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before `state_dict` collects anything."""
        table = hook_table(self, "_state_dict_pre_hooks")
        handle = RemovableHandle(table)
        table[handle.id] = hook
        return handle

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., Any], with_module: bool = False) -> RemovableHandle:
        table = hook_table(self, "_load_state_dict_pre_hooks")
        handle = RemovableHandle(table)
        table[handle.id] = _WrappedHook(hook, self if with_module else None)
        return handle

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, metadata, strict, missing, unexpected, errors)` before."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading; it may edit the key lists in place."""
        table = hook_table(self, "_load_state_dict_post_hooks")
        handle = RemovableHandle(table)
        table[handle.id] = hook
        return handle

    def _save_to_state_dict(self, destination: dict[Any, Any], prefix: str, keep_vars: bool) -> None:
        """Put this module's own parameters, persistent buffers and extra state into `destination`."""
        for name, param in self._parameters.items():  # type: ignore[attr-defined]
            if param is not None:
                destination[prefix + name] = param if keep_vars else param.detach()
        for name, buf in self._buffers.items():  # type: ignore[attr-defined]
            if buf is not None and name not in self._non_persistent_buffers_set:  # type: ignore[attr-defined]
                destination[prefix + name] = buf if keep_vars else buf.detach()
        if self._has_extra_state("get_extra_state"):
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers by dotted name, detached unless `keep_vars`."""
        if args:
            warnings.warn(
                "Positional args are being deprecated, use kwargs instead: state_dict(destination=…, prefix=…, keep_vars=…)",
                FutureWarning,
                stacklevel=2,
            )
            defaults = (destination, prefix, keep_vars)
            destination, prefix, keep_vars = (*args[:3], *defaults[len(args) :])  # type: ignore[misc]
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local_metadata = {"version": self._version}  # type: ignore[attr-defined]
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local_metadata

        for hook in (self.__dict__.get("_state_dict_pre_hooks") or {}).values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():  # type: ignore[attr-defined]
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook in (self.__dict__.get("_state_dict_hooks") or {}).values():
            result = hook(self, destination, prefix, local_metadata)
            if getattr(hook, "_from_public_api", False):
                if result is not None:
                    raise RuntimeError("state_dict post-hook must return None")
            elif result is not None:
                destination = result
        return destination

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Copy this module's own entries of `state_dict`; report what doesn't fit in the three lists."""
        for hook in (self.__dict__.get("_load_state_dict_pre_hooks") or {}).values():
            hook(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

        skipped = self._non_persistent_buffers_set  # type: ignore[attr-defined]
        buffers = ((k, v) for k, v in self._buffers.items() if k not in skipped)  # type: ignore[attr-defined]
        assign = local_metadata.get("assign_to_params_buffers", False)
        for name, target in itertools.chain(self._parameters.items(), buffers):  # type: ignore[attr-defined]
            if target is None:
                continue
            key = prefix + name
            if key in state_dict:
                self._load_entry(name, key, target, state_dict[key], assign, error_msgs)
            elif strict:
                missing_keys.append(key)

        extra_key = prefix + _EXTRA_STATE_KEY_SUFFIX
        if self._has_extra_state("set_extra_state"):
            if extra_key in state_dict:
                self.set_extra_state(state_dict[extra_key])
            elif strict:
                missing_keys.append(extra_key)
        elif strict and extra_key in state_dict:
            unexpected_keys.append(extra_key)
        if strict:
            self._find_unexpected(state_dict, prefix, extra_key, unexpected_keys)

    def _find_unexpected(self, state_dict: Mapping[str, Any], prefix: str, extra_key: str, unexpected: list[str]) -> None:
        known = set(self._parameters) | set(self._buffers)  # type: ignore[attr-defined]
        known -= self._non_persistent_buffers_set  # type: ignore[attr-defined]
        known = {k for k in known if (self._parameters.get(k, self._buffers.get(k))) is not None}  # type: ignore[attr-defined]
        for key in state_dict:
            if not key.startswith(prefix) or key == extra_key:
                continue
            head, *rest = key[len(prefix) :].split(".", 1)
            if rest:
                if head not in self._modules:  # type: ignore[attr-defined]
                    unexpected.append(key)
            elif head not in known:
                unexpected.append(key)

    def _load_entry(self, name: str, key: str, target: Any, value: Any, assign: bool, errors: list[str]) -> None:
        if not isinstance(value, tocha.Tensor):
            errors.append(
                f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object '
                "from "
                f"checkpoint but received {type(value)}"
            )
            return
        lazy = is_lazy(target)
        # a scalar saved as one element by old versions
        if not lazy and target.dim() == 0 and value.dim() == 1 and value.shape[0] == 1:
            value = value[0]
        if not lazy and value.shape != target.shape:
            errors.append(
                f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
                f"the shape in current model is {target.shape}."
            )
            return
        if not lazy and target.is_meta and not value.is_meta and not assign:
            warnings.warn(
                f"for {key}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                "current "
                "model, which is a no-op. (Did you mean to pass `assign=True` to assign items in the state "
                "dictionary to their corresponding key in the module instead of copying them in place?)",
                stacklevel=2,
            )
        try:
            with tocha.no_grad():
                if not assign:
                    target.copy_(value)
                elif isinstance(target, Parameter) and not isinstance(value, Parameter):
                    setattr(self, name, Parameter(value, requires_grad=target.requires_grad))
                else:
                    if isinstance(target, Parameter):
                        value.requires_grad_(target.requires_grad)
                    setattr(self, name, value)
        except Exception as e:
            errors.append(
                f'While copying the parameter named "{key}", whose dimensions in the model are '
                f"{target.size()} and "
                f"whose dimensions in the checkpoint are {value.size()}, an exception occurred : {e.args}."
            )

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copy (or with `assign` take over) parameters and buffers from `state_dict`.

        Returns the missing and unexpected keys. Raises RuntimeError listing every problem: sizes always,
        keys if `strict`.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing: list[str] = []
        unexpected: list[str] = []
        errors: list[str] = []
        metadata = getattr(state_dict, "_metadata", None)
        entries: Any = OrderedDict(state_dict)  # hooks may edit it
        if metadata is not None:
            entries._metadata = metadata
        _load_tree(self, entries, "", metadata or {}, assign, missing, unexpected, errors)

        if strict:
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {_quoted(unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {_quoted(missing)}. ")
        if errors:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(type(self).__name__, "\n\t".join(errors)))
        return _IncompatibleKeys(missing, unexpected)


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{k}"' for k in keys)


def _load_tree(
    module: Any,
    state_dict: Mapping[str, Any],
    prefix: str,
    metadata: Mapping[str, Any],
    assign: bool,
    missing: list[str],
    unexpected: list[str],
    errors: list[str],
) -> None:
    local = metadata.get(prefix[:-1], {})
    if assign:
        local["assign_to_params_buffers"] = True
    # every key problem is collected here; load_state_dict decides whether it is an error
    module._load_from_state_dict(state_dict, prefix, local, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            below = prefix + name + "."
            # children must not see keys of their siblings when they hunt for unexpected ones
            own = OrderedDict((k, v) for k, v in state_dict.items() if k.startswith(below))
            _load_tree(child, own, below, metadata, assign, missing, unexpected, errors)
    hooks = module.__dict__.get("_load_state_dict_post_hooks")
    if hooks:
        report = _IncompatibleKeys(missing, unexpected)
        for hook in hooks.values():
            if hook(module, report) is not None:
                raise AssertionError(
                    "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                    "return new "
                    "values, if incompatible_keys need to be modified, it should be done inplace."
                )
