"""torch.library: operators of libraries, registered by name and found as `torch.ops.<namespace>.<name>` (torch docs)."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tocha.autograd.function import Function
from tocha.autograd.graph import version_of
from tocha.autograd.mode import state
from tocha.backends import for_device
from tocha.device import CPU
from tocha.dispatch.overload import OpOverloadPacket, namespace
from tocha.dispatch.override import stacks
from tocha.tensor import Tensor
from tocha.utils._pytree import tree_leaves

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "impl", "impl_abstract", "infer_schema",
    "register_autograd", "register_fake", "register_kernel", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip

_OPERATORS: dict[str, CustomOpDef] = {}
_DEVICES = {"CPU": "cpu", "CUDA": "cuda", "Meta": "meta", "CompositeExplicitAutograd": None, "default": None, "": None}
_COMPOSITE = ("CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA")


class CustomOpDef:
    """One operator: kernels by device type (None: any), what it does to meta tensors, and its gradient."""

    def __init__(self, qualname: str, schema: str | None = None, mutates: Sequence[str] = ()) -> None:
        space, _, name = qualname.partition("::")
        if not name or not space:
            raise ValueError(f"expected an operator's name like 'mylib::myop', got {qualname!r}")
        self._qualname, self._namespace, self._name = qualname, space, name.partition(".")[0]
        self.schema, self.mutates = schema, tuple(mutates)
        self.kernels: dict[str | None, Callable[..., Any]] = {}
        self.composite: Callable[..., Any] | None = None
        self.fake: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None
        self.setup_context: Callable[..., Any] | None = None
        self._signature: inspect.Signature | None = None
        self._function = type(self._name, (_Call,), {"operator": self, "__module__": __name__})

    @property
    def _opoverload(self) -> Any:
        return getattr(namespace(self._namespace), self._name).default

    def register_kernel(self, device_types: Any, func: Any = None, /) -> Any:
        """Set the kernel for one or several device types ('cpu', 'cuda'; None: all)."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            kinds = [device_types] if device_types is None or isinstance(device_types, str) else device_types
            for kind in kinds:
                self.kernels[kind] = function
            self._signature = self._signature or inspect.signature(function)
            return function

        return register if func is None else register(func)

    def register_fake(self, fn: Callable[..., Any], /) -> Callable[..., Any]:
        """Set what gives outputs of the right shape and type for meta tensors."""
        self.fake = fn
        return fn

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None) -> None:
        """Set `backward(ctx, *grads)` and `setup_context(ctx, inputs, output)`."""
        self.backward, self.setup_context = backward, setup_context

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Set the rule under vmap: `func(info, in_dims, *args)` returning outputs and their batch dimensions."""
        if func is None:
            return self.register_vmap
        self._function.vmap = staticmethod(func)  # type: ignore[attr-defined]
        return func

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.composite is not None:
            return self.composite(*args, **kwargs)
        if self._signature is not None:
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            args = bound.args
        elif kwargs:
            raise TypeError(f"{self._qualname}: give arguments by position")
        if self.backward is not None and state.grad and (any(isinstance(a, (list, tuple)) for a in args) or self.returns_lists()):
            if stacks.interpreters:
                raise NotImplementedError(
                    f"{self._qualname}: a gradient formula with lists of tensors inside a transform of torch.func; call it under torch.no_grad()"
                )
            lists = _Lists(args)
            out = lists.back(self._function.apply(lists, *lists.flat(args, lists.given)))  # type: ignore[attr-defined]
        else:
            out = self._function.apply(*args)  # type: ignore[attr-defined]
        for tensor in tree_leaves(self.written(args)):
            if isinstance(tensor, Tensor):
                version_of(tensor).bump(self._qualname)
        return out

    def returns_lists(self) -> bool:
        """Whether a result may be a list of tensors, as the schema or the kernel's annotations say."""
        found = self.schema.rpartition("->")[2] if self.schema else str(self._signature and self._signature.return_annotation)
        return re.search(r"\[\]|[lL]ist\[|Sequence\[|None|_empty", found) is not None

    def written(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments that the operator writes to."""
        names = list(self._signature.parameters) if self._signature is not None else []
        return [args[names.index(name)] for name in self.mutates]

    def run_fake(self, args: tuple[Any, ...]) -> Any:
        """What the operator returns for meta tensors; one that only writes needs no fake for that."""
        if self.fake is not None:
            return self.fake(*args)
        if self.schema is not None and self.schema.endswith("-> ()"):
            return None
        raise NotImplementedError(f"{self._qualname}: no fake implementation was registered for meta tensors (register_fake)")

    def run(self, args: tuple[Any, ...]) -> Any:
        """The kernel for where the tensors are."""
        kinds = {a.device.type for a in tree_leaves(args) if isinstance(a, Tensor)}
        if "meta" in kinds:
            return self.run_fake(args)
        opaque = getattr(for_device(CPU), "opaque", None)
        if opaque is not None:  # a program is traced
            return opaque(self, args)
        kernel = next((self.kernels[k] for k in (*kinds, None) if k in self.kernels), None)
        if kernel is None:
            raise NotImplementedError(
                f"Could not run '{self._qualname}' with arguments from the {' and '.join(sorted(kinds)) or 'cpu'} backend: it has "
                f"kernels for {sorted(map(str, self.kernels)) or 'nothing'}"
            )
        return kernel(*args)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"


class _Lists:
    """How the items of lists stand in a row among a call's arguments and results: the tape knows tensors one by one."""

    def __init__(self, args: Sequence[Any]) -> None:
        self.given, self.returned = self.outline(args), self.outline(())
        self.several = False

    @staticmethod
    def outline(values: Sequence[Any]) -> list[int | None]:
        """The length of each list, None for what is none."""
        return [len(v) if isinstance(v, (list, tuple)) else None for v in values]

    @staticmethod
    def flat(values: Sequence[Any], outline: list[int | None]) -> list[Any]:
        """The items in a row; None stands for a whole list of them."""
        pairs = zip(values, outline, strict=True)
        return [x for v, n in pairs for x in ((v,) if n is None else (None,) * n if v is None else v)]

    @staticmethod
    def nested(row: Iterable[Any], outline: list[int | None]) -> list[Any]:
        """The values again."""
        left = iter(row)
        return [next(left) if n is None else [next(left) for _ in range(n)] for n in outline]

    def back(self, row: Any) -> Any:
        """An operator's results."""
        got = self.nested(row, self.returned)
        return tuple(got) if self.several else got[0]


class _Call(Function):
    """A call of an operator as one node of the tape. After a `_Lists` come the items of its arguments."""

    operator: CustomOpDef

    @classmethod
    def _run_backward(cls, ctx: Any, grads: list[Any]) -> Any:
        lists = getattr(ctx, "lists", None)
        if lists is None:
            return cls._formula(ctx, grads)
        needs = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(lists.nested(needs[1:], lists.given))
        try:
            got = cls._formula(ctx, lists.nested(grads, lists.returned))
        finally:
            ctx.needs_input_grad = needs
        return (None, *lists.flat(got if isinstance(got, tuple) else (got,), lists.given))

    @classmethod
    def _formula(cls, ctx: Any, grads: list[Any]) -> Any:
        if cls.operator.backward is None:
            raise RuntimeError(
                f"Trying to backward through {cls.operator._qualname} but no autograd formula was registered. Please use "
                "register_autograd to add one."
            )
        return cls.operator.backward(ctx, *grads)

    @classmethod
    def forward(cls, ctx: Any, *args: Any) -> Any:
        lists = args[0] if args and isinstance(args[0], _Lists) else None
        if lists is not None:
            ctx.lists, args = lists, tuple(lists.nested(args[1:], lists.given))
        out = cls.operator.run(args)
        if cls.operator.setup_context is not None:
            cls.operator.setup_context(ctx, args, out)
        if lists is None:
            return out
        lists.several, values = isinstance(out, tuple), out if isinstance(out, tuple) else (out,)
        lists.returned = lists.outline(values)
        return tuple(lists.flat(values, lists.returned))


def _operator(op: Any) -> CustomOpDef:
    """The operator of a name, an overload or a definition, entered if it is new."""
    if isinstance(op, CustomOpDef):
        return op
    qualname = op if isinstance(op, str) else op.name()
    qualname = qualname.partition(".")[0]
    found = _OPERATORS.get(qualname)
    return found if found is not None else _enter(CustomOpDef(qualname))


def _enter(operator: CustomOpDef) -> CustomOpDef:
    if operator._namespace == "aten":
        raise RuntimeError(f"torch.library: operators of aten can't be replaced ({operator._qualname})")
    _OPERATORS[operator._qualname] = operator
    packet: OpOverloadPacket = namespace(operator._namespace).register(
        operator._name, lambda overload, args, kwargs: operator(*args, **kwargs)
    )
    packet._known = None
    return operator


def custom_op(
    name: str, fn: Callable[..., Any] | None = None, /, *, mutates_args: Any, device_types: Any = None, schema: str | None = None,
    tags: Sequence[Any] | None = None,
) -> Any:  # fmt: skip
    """Make a function an operator: `@custom_op("mylib::sin", mutates_args=())` (torch docs: torch.library.custom_op)."""

    def make(function: Callable[..., Any]) -> CustomOpDef:
        mutates = () if mutates_args == "unknown" else tuple(mutates_args)
        operator = _enter(CustomOpDef(name, schema or infer_schema(function, mutates_args=mutates), mutates))
        operator.register_kernel(device_types, function)
        return operator

    return make if fn is None else make(fn)


def define(qualname: str, schema: str, *, lib: Any = None, tags: Any = ()) -> None:
    """Declare an operator; `impl` gives it kernels."""
    _enter(CustomOpDef(qualname, schema))


def impl(qualname: str, types: Any, func: Any = None, *, lib: Any = None) -> Any:
    """Set an operator's kernel for device types ('cpu', 'cuda', 'default') or dispatch keys."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for kind in (types,) if isinstance(types, str) else types:
            _set_kernel(_operator(qualname), kind, function)
        return function

    return register if func is None else register(func)


def _set_kernel(operator: CustomOpDef, key: str, function: Callable[..., Any]) -> None:
    if key in _COMPOSITE:
        operator.composite = function
    elif key == "Meta":
        operator.register_fake(function)
    else:
        operator.register_kernel(_DEVICES.get(key, key), function)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Set an operator's kernel for device types."""
    return _operator(op).register_kernel(device_types, func)


def register_fake(op: Any, func: Any = None, /, *, lib: Any = None, _stacklevel: int = 1, allow_override: bool = False) -> Any:
    """Set what an operator does to meta tensors; the operator may be defined later, or never."""
    return _operator(op).register_fake if func is None else _operator(op).register_fake(func)


impl_abstract = register_fake


def register_autograd(op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Any = None) -> None:
    """Set an operator's gradient."""
    _operator(op).register_autograd(backward, setup_context=setup_context)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Set an operator's rule under vmap."""
    return _operator(op).register_vmap(func)


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any, schema: str | None = None) -> Any:
    """`custom_op` for functions that launch Triton kernels."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """The kernel: nothing needs to look into it."""
    return triton_kernel


def fallthrough_kernel() -> Any:
    """RuntimeError: there is no dispatch key below to fall through to."""
    raise RuntimeError("fallthrough_kernel: there is no dispatcher to fall through")


def get_ctx() -> Any:
    """RuntimeError: fake implementations here see no data-dependent sizes."""
    raise RuntimeError("torch.library.get_ctx: outputs whose sizes depend on values can't be declared")


_TYPES = {
    "Tensor": "Tensor", "int": "SymInt", "float": "float", "bool": "bool", "str": "str", "Optional[Tensor]": "Tensor?",
}  # fmt: skip


def infer_schema(
    prototype_function: Callable[..., Any], /, *, mutates_args: Iterable[str] = (), op_name: str | None = None
) -> str:
    """The schema of a function from its annotations, in torch's words."""
    signature = inspect.signature(prototype_function)
    parts: list[str] = []
    mutated = set(mutates_args)
    for name, parameter in signature.parameters.items():
        kind = _schema_type(parameter.annotation)
        if name in mutated:
            kind = kind.replace("Tensor", f"Tensor(a{len(parts)}!)")
        default = "" if parameter.default is inspect.Parameter.empty else f"={parameter.default!r}"
        parts.append(f"{kind} {name}{default}")
    result = _schema_type(signature.return_annotation)
    return f"{op_name or ''}({', '.join(parts)}) -> {'()' if result == 'None' else result}"


def _schema_type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:torch|tocha|typing|tocha\.tensor)\.", "", text).replace("tensor.Tensor", "Tensor")
    optional = re.fullmatch(r"(?:Optional\[(.+)\]|(.+?) \| None)", text)
    if optional:
        return _schema_type(optional[1] or optional[2]) + "?"
    several = re.fullmatch(r"(?:[Ll]ist|Sequence)\[(.+)\]", text)
    return _schema_type(several[1]) + "[]" if several else _TYPES.get(text, text)


class Library:
    """A namespace's operators: `Library("mylib", "DEF").define("add(Tensor a, Tensor b) -> Tensor")`, then `impl`."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Declare an operator by its schema; returns its name."""
        name = schema.partition("(")[0].strip()
        _enter(CustomOpDef(f"{self.ns}::{name}", schema))
        return name

    def impl(
        self, op_name: Any, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False, **unused: Any
    ) -> None:
        """Set an operator's kernel for a dispatch key."""
        name = op_name if isinstance(op_name, str) else op_name._opname
        if self.ns == "aten":
            raise RuntimeError(f"torch.library: operators of aten can't be replaced (aten::{name})")
        _set_kernel(_operator(f"{self.ns}::{name.rpartition('::')[2]}"), dispatch_key or self.dispatch_key, fn)

    def _destroy(self) -> None:
        """Operators stay registered."""
