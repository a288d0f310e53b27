"""torch.ops: operators as objects, `torch.ops.aten.add.Tensor`, by which __torch_dispatch__ and libraries name them.

`torch.ops.<namespace>.<operator>` is an OpOverloadPacket, `.<overload>` one OpOverload. Those of `aten` run the public
function of that name (or the entry of `tocha.dispatch.aten`); other namespaces hold what torch.library registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tocha.dispatch.override import DisableTorchFunction


class Schema:
    """What is known of an operator's signature: its name and whether it changes its first argument."""

    def __init__(self, name: str, overload_name: str) -> None:
        self.name, self.overload_name = name, overload_name
        operator = name.partition("::")[2]
        self.is_mutable = overload_name == "out" or (operator.endswith("_") and not operator.endswith("__"))

    def __str__(self) -> str:
        return f"{self.name}.{self.overload_name}(...)"


class OpOverload:
    """One overload of an operator. There is one object for each, so `func is torch.ops.aten.mm.default` works."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket, self._overloadname = packet, overload
        self._opname, self.namespace = packet._name, packet._namespace
        self.__name__, self.__module__ = f"{packet._name}.{overload}", f"torch._ops.{packet._namespace}"
        self._schema = Schema(f"{self.namespace}::{self._opname}", "" if overload == "default" else overload)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket.run(self._overloadname, args, kwargs)

    @property
    def op(self) -> Callable[..., Any]:
        return self.__call__

    def name(self) -> str:
        suffix = "" if self._overloadname == "default" else "." + self._overloadname
        return f"{self.namespace}::{self._opname}{suffix}"

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"

    def __deepcopy__(self, memo: Any) -> OpOverload:
        return self

    def __reduce__(self) -> Any:
        return find, (self.namespace, self._opname, self._overloadname)


class OpOverloadPacket:
    """All overloads of an operator."""

    def __init__(
        self, namespace: str, name: str, run: Callable[[str, tuple[Any, ...], dict[str, Any]], Any], known: tuple[str, ...] | None
    ) -> None:
        self._namespace, self._name, self._run, self._known = namespace, name, run, known
        self._qualified_op_name = f"{namespace}::{name}"
        self.__name__ = name
        self._overloads: dict[str, OpOverload] = {}

    def run(self, overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the implementation; functions of `torch.ops` lie below __torch_function__."""
        with DisableTorchFunction():
            return self._run(overload, args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run("default", args, kwargs)

    def overloads(self) -> list[str]:
        """Names of the overloads."""
        return list(self._known or self._overloads or ("default",))

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(overload)
        found = self._overloads.get(overload)
        if found is None:
            if self._known is not None and overload not in self._known:
                raise AttributeError(f"The underlying op of '{self}' has no overload name '{overload}'")
            found = self._overloads[overload] = OpOverload(self, overload)
        return found

    def __str__(self) -> str:
        return f"{self._namespace}.{self._name}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"

    def __deepcopy__(self, memo: Any) -> OpOverloadPacket:
        return self


class OpNamespace:
    """`torch.ops.<name>`: makes the packets of a namespace when first asked for."""

    def __init__(self, name: str) -> None:
        self.name = self.__name__ = name
        self.registered: dict[str, OpOverloadPacket] = {}

    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(name)
        found = self.registered.get(name)
        if found is None:
            found = self._make(name)
            if found is None:
                raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{name}'")
            self.registered[name] = found
        return found

    def _make(self, name: str) -> OpOverloadPacket | None:
        if self.name == "aten":
            from tocha.dispatch import aten

            return aten.packet(name)
        return None

    def register(self, name: str, run: Callable[..., Any]) -> OpOverloadPacket:
        """Enter an operator of a library; `run(overload, args, kwargs)` calls it."""
        packet = self.registered[name] = OpOverloadPacket(self.name, name, run, None)
        return packet

    def __dir__(self) -> list[str]:
        return sorted(self.registered)

    def __repr__(self) -> str:
        return f"<OpNamespace '{self.name}'>"


_NAMESPACES: dict[str, OpNamespace] = {}


def namespace(name: str) -> OpNamespace:
    """`torch.ops.<name>`."""
    found = _NAMESPACES.get(name)
    if found is None:
        found = _NAMESPACES[name] = OpNamespace(name)
    return found


def find(space: str, name: str, overload: str) -> OpOverload:
    """One overload by its names."""
    return getattr(getattr(namespace(space), name), overload)
