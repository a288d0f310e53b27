"""Parameters with masked entries (torch docs: torch.nn.utils.prune)."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import tocha
from tocha.nn.modules.module import Module

__all__ = [
    "BasePruningMethod",
    "CustomFromMask",
    "Identity",
    "L1Unstructured",
    "LnStructured",
    "PruningContainer",
    "RandomStructured",
    "RandomUnstructured",
    "custom_from_mask",
    "global_unstructured",
    "identity",
    "is_pruned",
    "l1_unstructured",
    "ln_structured",
    "random_structured",
    "random_unstructured",
    "remove",
]


class BasePruningMethod(ABC):
    """A forward pre-hook that sets the parameter from `{name}_orig` and the buffer `{name}_mask`."""

    PRUNING_TYPE: ClassVar[str]
    _tensor_name: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The mask for scores `t`, starting from `default_mask`."""

    def apply_mask(self, module: Module) -> Any:
        """The masked parameter."""
        if not hasattr(self, "_tensor_name"):
            raise AssertionError(f"Module {module} has to be pruned")
        mask = getattr(module, self._tensor_name + "_mask")
        original = getattr(module, self._tensor_name + "_orig")
        return mask.to(dtype=original.dtype) * original

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Any = None, **kwargs: Any) -> Any:
        """Prune the parameter `name` of `module`, what is left of it if it is pruned already; returns the
        hook."""
        method = cls(*args, **kwargs)
        method._tensor_name = name
        found = _find_hook(module, name)
        applied: BasePruningMethod = method
        if found is not None:
            key, old = found
            applied = old if isinstance(old, PruningContainer) else PruningContainer(old)
            applied.add_pruning_method(method)
        value = getattr(module, name)
        if importance_scores is None:
            importance_scores = value
        elif importance_scores.shape != value.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got "
                f"{importance_scores.shape} vs {value.shape}"
            )
        if found is None:
            mask = applied.compute_mask(importance_scores, tocha.ones_like(value))
            module.register_parameter(name + "_orig", value)
            del module._parameters[name]
        else:
            previous = getattr(module, name + "_mask").detach().clone()
            mask = applied.compute_mask(importance_scores, previous)
            del module._forward_pre_hooks[key]
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, applied.apply_mask(module))
        module.register_forward_pre_hook(applied)
        return applied

    def prune(self, t: Any, default_mask: Any = None, importance_scores: Any = None) -> Any:
        """A tensor with this method's mask applied, without any module."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError("importance_scores should have the same shape as tensor t")
        mask = tocha.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Module) -> None:
        """Make the masked parameter an ordinary one; the hook itself stays."""
        name = self._tensor_name
        masked = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = masked.data
        del module._parameters[name + "_orig"]
        del module._buffers[name + "_mask"]
        setattr(module, name, original)


def _find_hook(module: Module, name: str) -> tuple[int, BasePruningMethod] | None:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            return key, hook
    return None


class PruningContainer(BasePruningMethod):
    """Several methods on one parameter, each for what the ones before it left."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        for method in args:
            if not self._pruning_methods:
                self._tensor_name = method._tensor_name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod) -> None:
        """Add a method for the same parameter."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method._tensor_name != self._tensor_name:
            raise ValueError(
                "Can only add pruning methods acting on the parameter named "
                f"'{self._tensor_name}' to PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods = (*self._pruning_methods, method)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: int) -> BasePruningMethod:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The last method's mask on the part that is not pruned yet."""
        method = self._pruning_methods[-1]
        part: Any
        if method.PRUNING_TYPE == "unstructured":
            part = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim % t.dim()  # type: ignore[attr-defined]
            left = default_mask.sum(dim=[d for d in range(t.dim()) if d != dim]) != 0
            part = (*(slice(None),) * dim, left)
        elif method.PRUNING_TYPE == "global":
            part = (slice(None),) * t.dim()
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = default_mask.clone()
        mask[part] = method.compute_mask(t[part], default_mask=default_mask[part]).to(dtype=mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Masks nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The default mask."""
        return default_mask


class _Amount(BasePruningMethod):
    def __init__(self, amount: int | float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount

    def _count(self, size: int) -> int:
        count = _compute_nparams_toprune(self.amount, size)
        _validate_pruning_amount(count, size)
        return count


class RandomUnstructured(_Amount):
    """Masks `amount` random entries, a number or a share."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The default mask with more zeros."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[tocha.topk(tocha.rand_like(t).view(-1), k=count).indices] = 0
        return mask


class L1Unstructured(_Amount):
    """Masks the `amount` entries, a number or a share, with the smallest absolute value."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The default mask with more zeros."""
        count = self._count(t.nelement())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[tocha.topk(tocha.abs(t).view(-1), k=count, largest=False).indices] = 0
        return mask


class _Structured(_Amount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _check(self, t: Any) -> int:
        _validate_structured_pruning(t)
        _validate_pruning_dim(t, self.dim)
        return self._count(t.shape[self.dim])

    def _masked(self, default_mask: Any, kept: Any) -> Any:
        """The default mask without the channels that are not `kept`."""
        dim = self.dim % default_mask.dim()
        shape = [-1 if d == dim else 1 for d in range(default_mask.dim())]
        return default_mask * kept.to(default_mask.dtype).view(shape)


class RandomStructured(_Structured):
    """Masks `amount` random channels along `dim`."""

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The default mask with more zeros."""
        count = self._check(t)
        if not count:
            return default_mask
        prob = tocha.rand(t.shape[self.dim])
        return self._masked(default_mask, prob > tocha.kthvalue(prob, k=count).values)


class LnStructured(_Structured):
    """Masks the `amount` channels along `dim` with the smallest `n`-norm."""

    def __init__(self, amount: int | float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """The default mask with more zeros."""
        count = self._check(t)
        if not count:
            return default_mask
        size = t.shape[self.dim]
        kept = tocha.topk(_compute_norm(t, self.n, self.dim), k=size - count, largest=True).indices
        return self._masked(default_mask, tocha.zeros(size, device=t.device).index_fill_(0, kept, 1))


class CustomFromMask(BasePruningMethod):
    """Masks by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Any) -> None:
        self.mask = mask

    def compute_mask(self, t: Any, default_mask: Any) -> Any:
        """Both masks together."""
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Add mask and hook to a parameter without masking anything."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Mask random entries of a parameter."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: int | float, importance_scores: Any = None) -> Module:
    """Mask the entries of a parameter with the smallest absolute value or importance."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Mask random channels of a parameter."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: int | float, n: Any, dim: int, importance_scores: Any = None) -> Module:
    """Mask the channels of a parameter with the smallest norm."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Any) -> Module:
    """Mask a parameter by a given mask."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Any, pruning_method: type[BasePruningMethod], importance_scores: Any = None, **kwargs: Any
) -> None:
    """Mask entries of several parameters, [(module, name), …], compared with each other."""
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    scores = importance_scores or {}
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    flat = tocha.cat([scores.get((m, n), getattr(m, n)).reshape(-1) for m, n in parameters])
    masks = tocha.cat([getattr(m, n + "_mask", tocha.ones_like(getattr(m, n))).reshape(-1) for m, n in parameters])
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    mask = container.compute_mask(flat, masks)
    start = 0
    for module, name in parameters:
        value = getattr(module, name)
        custom_from_mask(module, name, mask=mask[start : start + value.numel()].view_as(value))
        start += value.numel()


def remove(module: Module, name: str) -> Module:
    """Make a pruned parameter an ordinary one with zeros; ValueError if it isn't pruned."""
    found = _find_hook(module, name)
    if found is None:
        raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")
    found[1].remove(module)
    del module._forward_pre_hooks[found[0]]
    return module


def is_pruned(module: Module) -> bool:
    """Whether some parameter of `module` or below is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


def _validate_pruning_amount_init(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if (isinstance(amount, numbers.Integral) and amount < 0) or (
        not isinstance(amount, numbers.Integral) and not 0.0 <= float(amount) <= 1.0
    ):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_pruning_amount(amount: int, tensor_size: int) -> None:
    if amount > tensor_size:
        raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={tensor_size}")


def _validate_structured_pruning(t: Any) -> None:
    if len(t.shape) <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. Found tensor of shape "
            f"{t.shape} with {len(t.shape)} dims"
        )


def _validate_pruning_dim(t: Any, dim: int) -> None:
    if dim >= t.dim():
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount: int | float, tensor_size: int) -> int:
    """A number as it is, a share of the size rounded."""
    return int(amount) if isinstance(amount, numbers.Integral) else round(amount * tensor_size)


def _compute_norm(t: Any, n: Any, dim: int) -> Any:
    """The `n`-norm of every channel along `dim`."""
    others = [d for d in range(t.dim()) if d != dim % t.dim()]
    return tocha.norm(t, p=n, dim=others)
