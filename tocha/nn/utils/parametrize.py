"""Parameters computed from others at each access (torch docs: torch.nn.utils.parametrize)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import tocha
from tocha.nn.modules.container import ModuleDict, ModuleList
from tocha.nn.modules.module import Module
from tocha.nn.parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_enabled = 0
_cache: dict[tuple[int, str], Any] = {}


@contextmanager
def cached() -> Iterator[None]:
    """While inside, a parametrised tensor is computed at its first access only."""
    global _cache, _cache_enabled
    _cache_enabled += 1
    try:
        yield
    finally:
        _cache_enabled -= 1
        if not _cache_enabled:
            _cache = {}


def _register(module: Module, name: str, tensor: Any) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


def _require(same: bool, what: str, left: str, a: Any, right: str, b: Any) -> None:
    if not same:
        raise ValueError(f"{what}\n{left}: {a}\n{right}: {b}")


class ParametrizationList(ModuleList):
    """The parametrisations of one tensor, applied in order to `original`, or `original0`, `original1`, …"""

    unsafe: bool

    def __init__(self, modules: Sequence[Module], original: Any, unsafe: bool = False) -> None:
        if len(modules) == 0:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new = self._inverse_of(original)
        if not isinstance(new, tocha.Tensor) and not isinstance(new, Sequence):
            raise ValueError(
                f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, tocha.Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            _require(
                dtype == new.dtype,  # type: ignore[union-attr]
                "When `right_inverse` outputs one tensor, it may not change the dtype.",
                "original.dtype",
                dtype,
                "right_inverse(original).dtype",
                new.dtype,  # type: ignore[union-attr]
            )
            original.data = new.detach()  # type: ignore[union-attr]
            _register(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, tocha.Tensor):
                    raise ValueError(
                        "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). "
                        f"Got element {i} of the sequence with type {type(part).__name__}."
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part, original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _register(self, f"original{i}", part)
        if not self.unsafe:
            self._check_result(self(), shape, dtype)

    def _inverse_of(self, value: Any) -> Any:
        with tocha.no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):
                        value = module.right_inverse(value)
        return value

    @staticmethod
    def _check_result(result: Any, shape: Any, dtype: Any) -> None:
        if not isinstance(result, tocha.Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(result).__name__}.")
        _require(
            result.dtype == dtype,
            "Registering a parametrization may not change the dtype of the tensor, unless `unsafe` flag is enabled.",
            "unparametrized dtype",
            dtype,
            "parametrized dtype",
            result.dtype,
        )
        _require(
            result.shape == shape,
            "Registering a parametrization may not change the shape of the tensor, unless `unsafe` flag is enabled.",
            "unparametrized shape",
            shape,
            "parametrized shape",
            result.shape,
        )

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrised tensor becomes `value`, as far as the inverses go."""
        with tocha.no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, tocha.Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                self._set("original", value)
                return
            if not isinstance(value, Sequence):
                raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(value).__name__}.")
            if len(value) != self.ntensors:
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors of length "
                    f"{self.ntensors}. Got a sequence of length {len(value)}."
                )
            for i, part in enumerate(value):
                if not isinstance(part, tocha.Tensor):
                    raise ValueError(
                        f"`right_inverse` must return a sequence of tensors. Got element {i} of type {type(part).__name__}"
                    )
                self._set(f"original{i}", part)

    def _set(self, name: str, value: Any) -> None:
        original = getattr(self, name)
        _require(
            original.dtype == value.dtype,
            f"The tensor `right_inverse` returns for {name} must have its dtype.",
            f"{name}.dtype",
            original.dtype,
            "right_inverse.dtype",
            value.dtype,
        )
        original.data = value.detach()

    def forward(self) -> Any:
        """The parametrised tensor."""
        first, *rest = self
        if self.is_tensor:
            x = first(self.original)
        else:
            x = first(*(getattr(self, f"original{i}") for i in range(self.ntensors)))
        for module in rest:
            x = module(x)
        return x


def _inject_new_class(module: Module) -> None:
    """Give `module` a class of its own, which will carry the properties."""
    cls = type(module)

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        replica = memo[id(self)] = self.__new__(type(self))
        replica.__dict__ = copy.deepcopy(self.__dict__, memo)
        return replica

    def getstate(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(). See:\n"
            "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
            "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
        )

    members: dict[str, Any] = {"__getstate__": getstate, "__module__": __name__}
    if not hasattr(cls, "__deepcopy__"):
        members["__deepcopy__"] = deepcopy
    module.__class__ = type(f"Parametrized{cls.__name__}", (cls,), members)


def _inject_property(module: Module, tensor_name: str) -> None:
    def get(self: Any) -> Any:
        parametrization = self.parametrizations[tensor_name]
        if not _cache_enabled:
            return parametrization()
        key = (id(self), tensor_name)
        if _cache.get(key) is None:
            _cache[key] = parametrization()
        return _cache[key]

    def set(self: Any, value: Any) -> None:
        self.parametrizations[tensor_name].right_inverse(value)

    setattr(type(module), tensor_name, property(get, set))


def _check_next(module: Module, tensor_name: str, parametrization: Module) -> None:
    """Whether one more parametrisation keeps shape and dtype, and its inverse too."""
    before = getattr(module, tensor_name)
    after = parametrization(before)
    if not isinstance(after, tocha.Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(after).__name__}.")
    unless = "unless the `unsafe` flag is enabled."
    _require(
        after.dtype == before.dtype,
        f"Registering a parametrization may not change the dtype of the tensor, {unless}",
        f"module.{tensor_name}.dtype",
        before.dtype,
        f"parametrization(module.{tensor_name}).dtype",
        after.dtype,
    )
    _require(
        after.shape == before.shape,
        f"Registering a parametrization may not change the shape of the tensor, {unless}",
        f"module.{tensor_name}.shape",
        before.shape,
        f"parametrization(module.{tensor_name}).shape",
        after.shape,
    )
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        inverse = parametrization.right_inverse(after)
    except NotImplementedError:
        return
    if not isinstance(inverse, tocha.Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(inverse).__name__}")
    for what in ("dtype", "shape"):
        _require(
            getattr(inverse, what) == getattr(before, what),
            f"The tensor returned by parametrization.right_inverse must have the same {what} as module.{tensor_name}, {unless}",
            f"module.{tensor_name}.{what}",
            getattr(before, what),
            f"returned {what}",
            getattr(inverse, what),
        )


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Compute the parameter or buffer `tensor_name` of `module` by `parametrization` from now on.

    What was there becomes `module.parametrizations[tensor_name].original`, through the parametrisation's
    `right_inverse` if it has one. Further registrations are applied after the earlier ones. ValueError if
    shape or dtype change, unless `unsafe`.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_next(module, tensor_name, parametrization)
        entries = module.parametrizations[tensor_name]
        entries.append(parametrization)
        entries.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        original = getattr(module, tensor_name)
        entries = ParametrizationList([parametrization], original, unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _inject_new_class(module)
            module.parametrizations = ModuleDict()
        _inject_property(module, tensor_name)
        module.parametrizations[tensor_name] = entries
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether `module` has a parametrisation, of `tensor_name` if given."""
    entries = getattr(module, "parametrizations", None)
    if not isinstance(entries, ModuleDict):
        return False
    return len(entries) > 0 if tensor_name is None else tensor_name in entries


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make `tensor_name` an ordinary parameter or buffer again, with its current value or, if not
    `leave_parametrized`, its original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    entries = module.parametrizations[tensor_name]
    if entries.is_tensor:
        original = entries.original
        if leave_parametrized:
            with tocha.no_grad():
                original.data = getattr(module, tensor_name).detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
            "terms of a "
            "sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class of `module` without the one that parametrisations gave it."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Give `to_module` the parametrisations of `from_module` (of one tensor if named) and originals."""
    if not is_parametrized(from_module):
        return to_module
    names = list(from_module.parametrizations) if tensor_name is None else [tensor_name]
    for name in names:
        source = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in source:
            register_parametrization(to_module, name, parametrization)
        target = to_module.parametrizations[name]
        originals = ["original"] if source.is_tensor else [f"original{i}" for i in range(source.ntensors)]
        for original in originals:
            setattr(target, original, getattr(source, original))
    return to_module
