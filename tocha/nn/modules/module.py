"""`Module`, the base class of every layer (torch docs: torch.nn.Module)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import tocha
from tocha.nn.modules import _hooks
from tocha.nn.modules._conversion import ConvertibleModule
from tocha.nn.modules._hooks import (
    CALL_TABLES,
    STATE_TABLES,
    HookedCalls,
    _global_buffer_registration_hooks,
    _global_call_hooks,
    _global_module_registration_hooks,
    _global_parameter_registration_hooks,
    hook_table,
    register_module_backward_hook,
    register_module_buffer_registration_hook,
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from tocha.nn.modules._state_dict import _EXTRA_STATE_KEY_SUFFIX, StatefulModule, _IncompatibleKeys
from tocha.nn.parameter import Parameter, is_lazy, zero_gradients

__all__ = [
    "Module",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
    "_IncompatibleKeys",
    "_EXTRA_STATE_KEY_SUFFIX",
]

T = TypeVar("T", bound="Module")

#: Classes of values that never are a parameter, buffer, child or table of hooks (None and tensors may be).
_PLAIN = frozenset({bool, int, float, complex, str, bytes, tuple, list, set})


def _addindent(text: str, spaces: int) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(" " * spaces + line for line in rest)])


def _not_implemented(self: Module, *args: Any) -> None:
    """Stands for `forward` in a class that doesn't define it."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


class Module(HookedCalls, StatefulModule, ConvertibleModule):
    """Base class of layers and models: attributes that are parameters, buffers or modules are registered by
    name.

    Call the module, not its `forward`: the call also runs the hooks.
    """

    dump_patches: bool = False
    _version: int = 1
    training: bool
    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    _modules: dict[str, Any]
    _non_persistent_buffers_set: set[str]
    call_super_init: bool = False
    forward: Callable[..., Any] = _not_implemented

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init:
            if kwargs:
                name = next(iter(kwargs))
                raise TypeError(f"{type(self).__name__}.__init__() got an unexpected keyword argument '{name}'")
            if args:
                raise TypeError(f"{type(self).__name__}.__init__() takes 1 positional argument but {len(args) + 1} were given")
        self.__dict__.update(training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _modules={})
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._hooked or _global_call_hooks:
            if self._compiled_call_impl is not None:
                return self._compiled_call_impl(*args, **kwargs)
            return self._call_impl(*args, **kwargs)
        return self.forward(*args, **kwargs)

    _wrapped_call_impl = __call__

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Compile this module's call in place with :func:`tocha.compile`; arguments are passed on."""
        self.__dict__["_compiled_call_impl"] = tocha.compile(self._call_impl, *args, **kwargs)
        self.__dict__["_hooked"] = True

    # -- attributes

    def __getattr__(self, name: str) -> Any:
        d = self.__dict__
        if "_modules" in d:  # else __init__ has not run yet
            if name in d["_parameters"]:
                return d["_parameters"][name]
            if name in d["_modules"]:
                return d["_modules"][name]
            if name in d["_buffers"]:
                return d["_buffers"][name]
            if name in CALL_TABLES or name in STATE_TABLES:
                return hook_table(self, name)
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        d = self.__dict__
        params = d.get("_parameters")
        if type(value) in _PLAIN:
            if params is None or not (name in params or name in d["_modules"] or name in d["_buffers"]):
                object.__setattr__(self, name, value)
                return
        elif isinstance(value, Parameter):
            if params is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
            return
        elif isinstance(value, Module):
            if params is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            d["_modules"][name] = self._run_registration(_global_module_registration_hooks, name, value)
            return
        elif params is None:
            object.__setattr__(self, name, value)
            return
        self._set_other(name, value)

    def _set_other(self, name: str, value: Any) -> None:
        """Assign a value that is no parameter and no module to a name that may be registered."""
        d = self.__dict__
        if name in d["_parameters"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{tocha.typename(value)}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            self.register_parameter(name, None)
        elif name in d["_modules"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{tocha.typename(value)}' as child module '{name}' (torch.nn.Module or None expected)"
                )
            d["_modules"][name] = self._run_registration(_global_module_registration_hooks, name, value)
        elif name in d["_buffers"] or _is_buffer(value):
            if value is not None and not isinstance(value, tocha.Tensor):
                raise TypeError(
                    f"cannot assign '{tocha.typename(value)}' as buffer '{name}' (torch.nn.Buffer, torch.Tensor or None expected)"
                )
            persistent = name not in d["_non_persistent_buffers_set"]
            if _is_buffer(value):
                self._forget(name, "_buffers")
                persistent = value.persistent  # type: ignore[union-attr]
            d["_buffers"][name] = self._run_registration(_global_buffer_registration_hooks, name, value)
            (d["_non_persistent_buffers_set"].discard if persistent else d["_non_persistent_buffers_set"].add)(name)
        else:
            object.__setattr__(self, name, value)
            if name in CALL_TABLES:
                d["_hooked"] = True

    def _forget(self, name: str, keep: str) -> None:
        """Unregister `name` everywhere but in the table `keep`, which is about to get it."""
        d = self.__dict__
        d.pop(name, None)
        for table in ("_parameters", "_buffers", "_modules"):
            if table != keep:
                d[table].pop(name, None)
        if keep != "_buffers":
            d["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        d = self.__dict__
        if name in d["_parameters"]:
            del d["_parameters"][name]
        elif name in d["_buffers"]:
            del d["_buffers"][name]
            d["_non_persistent_buffers_set"].discard(name)
        elif name in d["_modules"]:
            del d["_modules"][name]
        else:
            object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        d = self.__dict__
        names = [*dir(type(self)), *d, *d["_parameters"], *d["_modules"], *d["_buffers"]]
        return sorted({name for name in names if not name[0].isdigit()})

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__.setdefault("_non_persistent_buffers_set", set())
        # modules pickled by torch carry all hook tables, mostly empty
        if any(self.__dict__.get(table) for table in CALL_TABLES):
            self.__dict__["_hooked"] = True

    # -- registration

    def _check_name(self, kind: str, name: Any, table: str) -> None:
        d = self.__dict__
        if table not in d:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {tocha.typename(name)}")
        if hasattr(self, name) and name not in d[table]:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain "."' + (f", got: {name}" if kind == "module" else ""))
        if not name:
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def _run_registration(self, hooks: dict[int, Callable[..., Any]], name: str, value: Any) -> Any:
        for hook in hooks.values():
            output = hook(self, name, value)
            value = value if output is None else output
        return value

    def register_buffer(self, name: str, tensor: Any, persistent: bool = True) -> None:
        """Register a tensor that is state but no parameter; kept out of `state_dict` unless `persistent`."""
        self._check_name("buffer", name, "_buffers")
        if tensor is not None and not isinstance(tensor, tocha.Tensor):
            raise TypeError(f"cannot assign '{tocha.typename(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        tensor = self._run_registration(_global_buffer_registration_hooks, name, tensor)
        self._buffers[name] = tensor
        skipped = self._non_persistent_buffers_set
        (skipped.discard if persistent else skipped.add)(name)

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter (a leaf) or None under `name`."""
        self._check_name("parameter", name, "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{tocha.typename(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
                )
            if not is_lazy(param) and param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created "
                    "explicitly. To express parameters as a function of another Tensor, compute the value "
                    "in the "
                    "forward() method."
                )
            param = self._run_registration(_global_parameter_registration_hooks, name, param)
        self._parameters[name] = param

    def add_module(self, name: str, module: Module | None) -> None:
        """Register a child module (or None) under `name`."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{tocha.typename(module)} is not a Module subclass")
        self._check_name("module", name, "_modules")
        module = self._run_registration(_global_module_registration_hooks, name, module)
        self._modules[name] = module

    def register_module(self, name: str, module: Module | None) -> None:
        """Alias of :meth:`add_module`."""
        self.add_module(name, module)

    # -- access by dotted name

    def get_submodule(self, target: str) -> Module:
        """The module at the dotted path `target`, itself for an empty one; AttributeError if none."""
        module = self
        for item in target.split(".") if target else ():
            if not hasattr(module, item):
                raise AttributeError(f"{type(module).__name__} has no attribute `{item}`")
            module = getattr(module, item)
            if not isinstance(module, Module):
                raise AttributeError(f"`{item}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put `module` at the dotted path `target`; with `strict` one must already be there."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def _get_member(self, target: str) -> tuple[Module, str, Any]:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        return module, name, getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at the dotted path `target`; AttributeError if there is none."""
        _, name, value = self._get_member(target)
        if not isinstance(value, Parameter):
            raise AttributeError(f"`{name}` is not an nn.Parameter")
        return value

    def get_buffer(self, target: str) -> Any:
        """The buffer at the dotted path `target`; AttributeError if there is none."""
        module, name, value = self._get_member(target)
        if name not in module._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return value

    # -- iteration

    def _named_members(
        self, get: Callable[..., Any], prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) of this module and, with `recurse`, of all below."""
        yield from self._named_members(lambda m: m._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """All parameters, each once."""
        for _, param in self.named_parameters(recurse=recurse):
            yield param

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(dotted name, buffer) of this module and, with `recurse`, of all below."""
        yield from self._named_members(lambda m: m._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Any]:
        """All buffers, each once."""
        for _, buf in self.named_buffers(recurse=recurse):
            yield buf

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the direct children, each once."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The direct children, each once."""
        for _, module in self.named_children():
            yield module

    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """(dotted name, module) of this module and all below, parents first."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                path = f"{prefix}.{name}" if prefix else name
                yield from module.named_modules(memo, path, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """This module and all below, each once unless `remove_duplicate` is False."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    # -- whole-tree operations

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` on every module, children first."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Self:
        """Set training mode on this module and all below."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Self:
        """Set evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set `requires_grad` of all parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros in place."""
        zero_gradients(self.parameters(), set_to_none)

    # -- printing

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows of this module itself; override to describe its arguments."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        children = [f"({name}): {_addindent(repr(module), 2)}" for name, module in self._modules.items()]
        if not children and len(extra_lines) == 1:
            return f"{self._get_name()}({extra_lines[0]})"
        if not children and not extra_lines:
            return f"{self._get_name()}()"
        body = "\n  ".join(extra_lines + children)
        return f"{self._get_name()}(\n  {body}\n)"

    def _replicate_for_data_parallel(self) -> Self:
        """A shallow copy with its own member tables; its parameters become plain attributes of the copy."""
        replica = self.__new__(type(self))
        replica.__dict__ = self.__dict__.copy()
        replica._parameters = {}
        replica._buffers = replica._buffers.copy()
        replica._modules = replica._modules.copy()
        replica.__dict__["_is_replica"] = True
        return replica


def _is_buffer(value: Any) -> bool:
    return isinstance(value, tocha.Tensor) and getattr(value, "_is_buffer", False) is True


for _name in dir(_hooks):  # the tables stay reachable where torch keeps them
    if _name.startswith("_global_"):
        globals().setdefault(_name, getattr(_hooks, _name))
