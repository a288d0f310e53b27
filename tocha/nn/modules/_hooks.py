"""Hooks of modules: registration on one module or on all, and the call path that runs them.

Hook tables are created on first use, so a module without hooks carries none and `Module.__call__` goes
straight to `forward`. Order and meaning of every kind follow torch docs: torch.nn.Module.register_*_hook.
"""

from __future__ import annotations

import functools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import tocha
from tocha.autograd.graph import RemovableHandle

#: Tables whose presence on a module makes its calls take the path through `_call_impl`.
CALL_TABLES = frozenset(
    {
        "_backward_pre_hooks",
        "_backward_hooks",
        "_forward_hooks",
        "_forward_hooks_with_kwargs",
        "_forward_hooks_always_called",
        "_forward_pre_hooks",
        "_forward_pre_hooks_with_kwargs",
    }
)
#: Tables that only `state_dict` and `load_state_dict` read.
STATE_TABLES = frozenset(
    {
        "_state_dict_hooks",
        "_state_dict_pre_hooks",
        "_load_state_dict_pre_hooks",
        "_load_state_dict_post_hooks",
    }
)

_global_forward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_forward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_forward_hooks_always_called: OrderedDict[int, bool] = OrderedDict()
_global_forward_hooks_with_kwargs: OrderedDict[int, bool] = OrderedDict()
_global_backward_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_backward_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_parameter_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_module_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_buffer_registration_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

#: Non-empty while any hook on all modules' calls is registered. A plain dict: compiled calls ask its words of memory (tocha._dynamo.words).
_global_call_hooks: dict[int, bool] = {}
_global_is_full_backward_hook: bool | None = None


def hook_table(module: Any, name: str) -> OrderedDict[int, Any]:
    """The hook table `name` of `module`, created when it has none yet."""
    table = module.__dict__.get(name)
    if table is None:
        table = module.__dict__[name] = OrderedDict()
        if name in CALL_TABLES:
            module.__dict__["_hooked"] = True
    return table


def _add(table: OrderedDict[int, Any], hook: Any, extra: Sequence[dict[int, Any]], prepend: bool) -> RemovableHandle:
    handle = RemovableHandle(table, extra_dict=extra)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def _add_global(
    table: OrderedDict[int, Any], hook: Callable[..., Any], extra: Sequence[dict[int, Any]] = ()
) -> RemovableHandle:
    handle = _add(table, hook, [*extra, _global_call_hooks], False)
    _global_call_hooks[handle.id] = True
    return handle


def register_module_buffer_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, buffer)` at every `register_buffer`; what it returns replaces the buffer."""
    return _add(_global_buffer_registration_hooks, hook, [], False)


def register_module_module_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, child)` at every registration of a child; a returned module replaces it."""
    return _add(_global_module_registration_hooks, hook, [], False)


def register_module_parameter_registration_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, name, param)` at every `register_parameter`; a returned value replaces it."""
    return _add(_global_parameter_registration_hooks, hook, [], False)


def register_module_forward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, args)` before the `forward` of every module."""
    return _add_global(_global_forward_pre_hooks, hook)


def register_module_forward_hook(
    hook: Callable[..., Any], *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after the `forward` of every module."""
    extra = [_global_forward_hooks_with_kwargs, _global_forward_hooks_always_called]
    handle = _add_global(_global_forward_hooks, hook, extra)
    if with_kwargs:
        _global_forward_hooks_with_kwargs[handle.id] = True
    if always_call:
        _global_forward_hooks_always_called[handle.id] = True
    return handle


def register_module_full_backward_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the gradients of every module's inputs are computed."""
    return _add_global(_global_backward_pre_hooks, hook)


def register_module_full_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` when the gradients of a module's inputs are computed."""
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is False:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only one of them."
        )
    _global_is_full_backward_hook = True
    return _add_global(_global_backward_hooks, hook)


def register_module_backward_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Deprecated: as the full backward hook, but sees the gradients of a module's last node only."""
    global _global_is_full_backward_hook
    if _global_is_full_backward_hook is True:
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only one of them."
        )
    _global_is_full_backward_hook = False
    return _add_global(_global_backward_hooks, hook)


class _WrappedHook:
    """A hook that also receives its module, held weakly so that the hook doesn't keep it alive."""

    def __init__(self, hook: Callable[..., Any], module: Any = None) -> None:
        import weakref

        self.hook = hook
        functools.update_wrapper(self, hook)
        self.with_module = module is not None
        if self.with_module:
            self.module: Any = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self.with_module:
            return self.hook(*args, **kwargs)
        module = self.module()
        if module is None:
            raise RuntimeError("You are trying to call the hook of a dead Module!")
        return self.hook(module, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        state = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            state["module"] = self.module()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        import weakref

        self.hook = state["hook"]
        self.with_module = state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


class HookedCalls:
    """The part of `Module` that registers and runs hooks."""

    _hooked = False
    _compiled_call_impl: Callable[..., Any] | None = None
    _is_full_backward_hook: bool | None = None

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)`, or with kwargs third, before `forward`; it may return new arguments."""
        flags = hook_table(self, "_forward_pre_hooks_with_kwargs")
        handle = _add(hook_table(self, "_forward_pre_hooks"), hook, [flags], prepend)
        if with_kwargs:
            flags[handle.id] = True
        return handle

    def register_forward_hook(
        self,
        hook: Callable[..., Any],
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` (with kwargs third if asked) after `forward`; it may return a
        new output.

        With `always_call` the hook also runs when the call raised.
        """
        kw_flags = hook_table(self, "_forward_hooks_with_kwargs")
        always = hook_table(self, "_forward_hooks_always_called")
        handle = _add(hook_table(self, "_forward_hooks"), hook, [kw_flags, always], prepend)
        if with_kwargs:
            kw_flags[handle.id] = True
        if always_call:
            always[handle.id] = True
        return handle

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before this module's backward; it may return new gradients."""
        return _add(hook_table(self, "_backward_pre_hooks"), hook, [], prepend)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` after the backward; it may return others."""
        if self._is_full_backward_hook is False:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
            )
        self._is_full_backward_hook = True
        return _add(hook_table(self, "_backward_hooks"), hook, [], prepend)

    def register_backward_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Deprecated: as the full backward hook, but sees the gradients of the output's node only."""
        if self._is_full_backward_hook is True:
            raise RuntimeError(
                "Cannot use both regular backward hooks and full backward hooks on a single Module. Please use only one of them."
            )
        self._is_full_backward_hook = False
        return _add(hook_table(self, "_backward_hooks"), hook, [], False)

    def _get_backward_hooks(self) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
        """Full and non-full backward hooks, the ones on all modules first."""
        full: list[Callable[..., Any]] = []
        other: list[Callable[..., Any]] = []
        if _global_backward_hooks:
            (full if _global_is_full_backward_hook else other).extend(_global_backward_hooks.values())
        own = self.__dict__.get("_backward_hooks")
        if own:
            (full if self._is_full_backward_hook else other).extend(own.values())
        return full, other

    def _get_backward_pre_hooks(self) -> list[Callable[..., Any]]:
        own = self.__dict__.get("_backward_pre_hooks") or {}
        return [*_global_backward_pre_hooks.values(), *own.values()]

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """`forward` with every hook that applies."""
        get = self.__dict__.get
        own_after = get("_forward_hooks")
        if not (
            own_after or get("_forward_pre_hooks") or get("_backward_hooks") or get("_backward_pre_hooks") or _global_call_hooks
        ):
            return self.forward(*args, **kwargs)  # type: ignore[attr-defined]

        called: set[int] = set()
        try:
            return self._run_with_hooks(args, kwargs, called)
        except Exception:
            self._run_always_called(args, kwargs, called)
            raise

    def _run_with_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> Any:
        args, kwargs = self._run_pre_hooks(args, kwargs)
        pre = self._get_backward_pre_hooks()
        full, other = self._get_backward_hooks()
        probe = None
        if full or pre:
            from tocha.nn.modules._backward_hook import BackwardHook

            probe = BackwardHook(self, full, pre)
            args = probe.setup_input_hook(args)
        result = self.forward(*args, **kwargs)  # type: ignore[attr-defined]
        for hook_id, hook, with_kwargs in self._forward_hook_list():
            if hook_id in _global_forward_hooks_always_called or hook_id in self.__dict__.get("_forward_hooks_always_called", ()):
                called.add(hook_id)
            out = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            if out is not None:
                result = out
        if probe is not None:
            if not isinstance(result, (tocha.Tensor, tuple)):
                warnings.warn(
                    "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors "
                    f"but received {type(result)}",
                    stacklevel=3,
                )
            result = probe.setup_output_hook(result)
        if other:
            self._attach_node_hooks(result, other)
        return result

    def _run_pre_hooks(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        own = self.__dict__.get("_forward_pre_hooks") or {}
        flags = self.__dict__.get("_forward_pre_hooks_with_kwargs") or ()
        for hook_id, hook in [*_global_forward_pre_hooks.items(), *own.items()]:
            if hook_id in flags:
                new = hook(self, args, kwargs)
                if new is None:
                    continue
                if not (isinstance(new, tuple) and len(new) == 2):
                    raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {new}.")
                args, kwargs = new
            else:
                new = hook(self, args)
                if new is not None:
                    args = new if isinstance(new, tuple) else (new,)
        return args, kwargs

    def _forward_hook_list(self) -> list[tuple[int, Callable[..., Any], bool]]:
        own = self.__dict__.get("_forward_hooks") or {}
        flags = self.__dict__.get("_forward_hooks_with_kwargs") or ()
        everywhere = [(i, h, i in _global_forward_hooks_with_kwargs) for i, h in _global_forward_hooks.items()]
        return everywhere + [(i, h, i in flags) for i, h in own.items()]

    def _run_always_called(self, args: tuple[Any, ...], kwargs: dict[str, Any], called: set[int]) -> None:
        """After an exception: run the `always_call` hooks that haven't run; their own failures only warn."""
        own = self.__dict__.get("_forward_hooks_always_called") or ()
        for hook_id, hook, with_kwargs in self._forward_hook_list():
            everywhere = hook_id in _global_forward_hooks_always_called
            if hook_id in called or not (everywhere or hook_id in own):
                continue
            try:
                out = hook(self, args, kwargs, None) if with_kwargs else hook(self, args, None)
                if out is not None:
                    warnings.warn("an always_call forward hook's result is ignored after an exception", stacklevel=4)
            except Exception as e:
                which = "global module forward hook" if everywhere else "module forward hook"
                warnings.warn(
                    f"{which} with ``always_call=True`` raised an exception that was silenced as another "
                    "error "
                    f"was raised in forward: {e}",
                    stacklevel=4,
                )

    def _attach_node_hooks(self, result: Any, hooks: list[Callable[..., Any]]) -> None:
        """Non-full backward hooks go on the node of the first tensor found in the output."""
        value = result
        while not isinstance(value, tocha.Tensor):
            value = next(v for v in value.values() if isinstance(v, tocha.Tensor)) if isinstance(value, dict) else value[0]
        node = value.grad_fn
        if node is not None:
            for hook in hooks:
                node.register_hook(_WrappedHook(hook, self))
