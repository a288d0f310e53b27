"""Modules whose parameters get their shapes at the first call (torch docs: torch.nn.modules.lazy)."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

from tocha.nn.parameter import is_lazy

__all__ = ["LazyModuleMixin"]


class LazyModuleMixin:
    """Mixed in before a module class; `initialize_parameters(*args)` runs at the first call, then the class
    becomes `cls_to_become`. A lazy module also takes its shapes from a state dictionary loaded into it.
    """

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)  # type: ignore[attr-defined]
        self._initialize_hook = self.register_forward_pre_hook(  # type: ignore[attr-defined]
            self._infer_parameters, with_kwargs=True
        )
        warnings.warn(
            "Lazy modules are a new feature under heavy development so changes to the API or functionality "
            "can happen at any moment.",
            stacklevel=2,
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        # uninitialised parameters are saved as they are, so that a lazy module can be restored lazily
        for table in (self._parameters, self._buffers):  # type: ignore[attr-defined]
            for name, value in table.items():
                if value is None or name in self._non_persistent_buffers_set:  # type: ignore[attr-defined]
                    continue
                destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()

    def _lazy_load_hook(
        self,
        state_dict: Any,
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name, value in itertools.chain(self._parameters.items(), self._buffers.items()):  # type: ignore[attr-defined]
            key = prefix + name
            if key in state_dict and value is not None and is_lazy(value) and not is_lazy(state_dict[key]):
                import tocha

                with tocha.no_grad():
                    value.materialize(state_dict[key].shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Give the parameters the shapes that the input batch needs; every lazy class defines it."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether some parameter or buffer has no shape yet."""
        members = itertools.chain(self._parameters.values(), self._buffers.values())  # type: ignore[attr-defined]
        return any(is_lazy(value) for value in members)

    def _infer_parameters(self, module: Any, args: Any, kwargs: Any = None) -> None:
        """The pre-hook of the first call: initialise, then become an ordinary module."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")  # type: ignore[attr-defined]
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> Any:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. "
            "Run a dummy forward pass to correctly initialize the modules"
        )
