"""The optimizer base class: parameter groups, state, hooks and checkpoints.

Source: torch docs, torch.optim.Optimizer. State keys, group keys and the shape of `state_dict()` are
torch's, so checkpoints move both ways.
"""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import tocha
from tocha.nn.parameter import zero_gradients
from tocha.utils.hooks import RemovableHandle

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required"]

#: What an optimizer accepts: tensors, (name, tensor) pairs, or dicts with the key "params".
ParamsT = Iterable[Any]

_global_step_pre_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()
_global_step_post_hooks: OrderedDict[int, Callable[..., Any]] = OrderedDict()

#: Hook tables of one optimizer. They are not part of a pickle: `__setstate__` makes empty ones.
_HOOK_TABLES = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


class _RequiredParameter:
    """The default of an option that every parameter group has to give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()


def _register(table: OrderedDict[int, Any], hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    if prepend:
        table.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before the step of every optimizer; it may return new (args,
    kwargs).
    """
    return _register(_global_step_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable[..., Any]) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after the step of every optimizer."""
    return _register(_global_step_post_hooks, hook)


def _use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """Run a step without recording, or with, when the optimizer was made with `differentiable=True`."""

    @functools.wraps(step)
    def wrapper(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with tocha.set_grad_enabled(bool(self.defaults.get("differentiable", False))):
            return step(self, *args, **kwargs)

    return wrapper


class Optimizer:
    """Base of all optimizers: `Optimizer(params, defaults)`; a subclass gives `step`.

    `params` is an iterable of tensors, of (name, tensor) pairs, or of dicts with the key "params" and
    options of their own. Raises TypeError for anything else and ValueError for an empty list, non-leaf
    tensors or repeated parameters.
    """

    _optimizer_step_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_step_post_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Callable[..., Any]]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Callable[..., Any]]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for table in _HOOK_TABLES:
            setattr(self, table, OrderedDict())
        self._patch_step_function()
        if isinstance(params, tocha.Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {params.type()}"
            )
        self.state: defaultdict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    # --- pickling and printing --------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for table in _HOOK_TABLES:
            self.__dict__.setdefault(table, OrderedDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines.extend(f"    {key}: {group[key]}" for key in sorted(group) if key != "params")
            lines.append("")
        return "\n".join(lines[:-1]) + "\n)"

    # --- hooks ------------------------------------------------------------------------------------

    @staticmethod
    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        """`func` (a step) with the step hooks run around it."""

        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self, *_ = args
            for hook in [*_global_step_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
                result = hook(self, args, kwargs)
                if result is None:
                    continue
                if not (isinstance(result, tuple) and len(result) == 2):
                    raise RuntimeError(f"{func} must return None or a tuple of (new_args, new_kwargs), but got {result}.")
                args, kwargs = result
            out = func(*args, **kwargs)
            for hook in [*self._optimizer_step_post_hooks.values(), *_global_step_post_hooks.values()]:
                hook(self, args, kwargs)
            return out

        wrapper.hooked = True  # type: ignore[attr-defined]
        return wrapper

    def _patch_step_function(self) -> None:
        """Let the step of this class, whoever wrote it, run the step hooks."""
        cls = type(self)
        if not getattr(cls.step, "hooked", False):
            cls.step = self.profile_hook_step(cls.step)  # type: ignore[method-assign]

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before each step; it may return new (args, kwargs)."""
        return _register(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return _register(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict()` is made."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict()`; it may return another dict."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; it may return another dict."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after `load_state_dict`."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    # --- checkpoints ------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State and options, with parameters replaced by their running number. Tensors are not copied."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                number.setdefault(id(p), len(number))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        is_tensor = tocha.is_tensor
        state = {(number[id(key)] if is_tensor(key) else key): value for key, value in self.state.items()}
        out: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, out)
            if replaced is not None:
                out = replaced
        return out

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take state and options from `state_dict`, by the order of parameters; everything is copied.

        Floating-point state is cast to its parameter's dtype and device, except "step". Raises ValueError
        when groups or their sizes differ; then nothing is changed.
        """
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        saved_groups = state_dict["param_groups"]
        if len(self.param_groups) != len(saved_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(self.param_groups, saved_groups)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")

        param_of: dict[Any, tuple[Any, dict[str, Any]]] = {}
        groups = []
        for group, saved in zip(self.param_groups, saved_groups):
            param_of.update((key, (p, saved)) for key, p in zip(saved["params"], group["params"]))
            new = {key: deepcopy(value) for key, value in saved.items() if key != "params"}
            if "param_names" in group:
                new.setdefault("param_names", group["param_names"])
            new["params"] = group["params"]
            groups.append(new)

        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in param_of:
                param, saved = param_of[key]
                state[param] = _state_for(param, value, None, saved)
            else:
                state[key] = deepcopy(value)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Any, value: Any, param_id: int, param_groups: list[dict[str, Any]], key: Any = None
    ) -> Any:
        """A copy of the state tensor `value` with the dtype and device that the state of `param` has to
        have.
        """
        group = next((g for g in param_groups if param_id in g["params"]), {})
        return _tensor_for(param, value, key, group)

    # --- steps and groups -------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros when `set_to_none` is False."""
        for group in self.param_groups:
            zero_gradients(group["params"], set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One update; `closure` re-evaluates the model and returns the loss. Subclasses give the rule."""
        raise NotImplementedError(f"{type(self).__name__}.step: an optimizer has to define `step`")

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a dict with the key "params" and options; missing options take the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params, names = _params_and_names(group["params"])
        for p in params:
            if not isinstance(p, tocha.Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(p).__name__}")
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        group["params"] = params
        if names is not None:
            group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            import warnings

            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; "
                "in future, this will cause an error; see github.com/pytorch/pytorch/issues/40967 "
                "for more information",
                stacklevel=3,
            )
        if self.param_groups and ("param_names" in group) != ("param_names" in self.param_groups[0]):
            kind = "without" if "param_names" not in group else "with"
            raise ValueError(
                f"all optimizer param groups should be with/without names. cannot add param group {kind} names to the optimizer"
            )
        known = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in known for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        param_group.update(group)
        self.param_groups.append(param_group)


def _params_and_names(params: Any) -> tuple[list[Any], list[str] | None]:
    """The "params" of a group as a list of tensors and, for (name, tensor) pairs, their names."""
    if isinstance(params, tocha.Tensor):
        return [params], None
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of "
            "tensors in sets "
            "will change between runs. Please use a list instead."
        )
    items = list(params)
    pairs = [isinstance(item, tuple) for item in items]
    if not any(pairs):
        return items, None
    if not all(pairs):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    return [item[1] for item in items], [item[0] for item in items]


def _tensor_for(param: Any, value: Any, key: Any, group: dict[str, Any]) -> Any:
    if key == "step":
        # A step counter keeps its dtype: in float16 it would stop counting at 2048.
        if group.get("capturable") or group.get("fused"):
            return value.to(dtype=tocha.float32, device=param.device, copy=True)
        return value.clone()
    if param.is_floating_point():
        return value.to(dtype=param.dtype, device=param.device, copy=True)
    return value.to(device=param.device, copy=True)


def _state_for(param: Any, value: Any, key: Any, group: dict[str, Any]) -> Any:
    """A copy of the state `value` of `param`, tensors inside containers included."""
    if isinstance(value, tocha.Tensor):
        return _tensor_for(param, value, key, group)
    if isinstance(value, dict):
        return {k: _state_for(param, v, k, group) for k, v in value.items()}
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_state_for(param, v, None, group) for v in value)
    return deepcopy(value)
