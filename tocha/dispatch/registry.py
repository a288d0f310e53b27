"""The operator registry: every public spelling of an operator comes from one registration.

    @op("torch method inplace out")
    def clamp(input, min=None, max=None): ...

gives `torch.clamp`, `Tensor.clamp`, `Tensor.clamp_`, `torch.clamp_` and `torch.clamp(..., out=)`. Spelling words:
`torch`, `method`, `inplace`, `out` (accepts out=; `strictout`: of
the result's own type only; `typedout`: whose type is the default for dtype=), `property`, or a namespace, possibly with
another name: `F`, `linalg:norm`, `special:expit`. Each public function asks for overrides (`__torch_function__`, modes) first,
except under `bare`, which is `torch` for a plain question about Python objects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from tocha.autograd.graph import next_order
from tocha.autograd.mode import state
from tocha.dispatch.attributes import overridable_property
from tocha.dispatch.override import FUNCTION_MODES, OVERRIDES, dispatch_function, overrides
from tocha.tensor import Tensor

F = TypeVar("F", bound=Callable[..., Any])

# Namespace ("torch", "F", "linalg", "fft", "special", ...) -> name -> function. Methods go onto Tensor at once.
NAMESPACES: dict[str, dict[str, Callable[..., Any]]] = {"torch": {}, "F": {}}
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "x2": "other"}
_QUALIFIED = {"torch": "torch", "F": "torch.nn.functional", "windows": "torch.signal.windows"}


def op(
    spellings: str, *, name: str | None = None, alias: tuple[str, ...] = (), short: Callable[..., Any] | None = None,
    into: Callable[..., Any] | None = None, doc: str | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """Register a function as an operator under the given spellings (see the module's text). Returns the bare
    function, which code inside tocha calls. `short` is tried first on positional arguments: the result for the
    commonest plain case in the fewest steps, or None for the general way. `into(arrays and numbers, ...)` is the call as a
    pointwise rule, its operands and parameters, or None: what in-place forms and out= run on memory as it is. `doc`: of a function made for
    this name; it gets both."""

    def register(function: F) -> F:
        own = name or function.__name__
        if doc is not None:
            function.__name__, function.__doc__ = own, doc
        if short is not None:
            function.short = short  # type: ignore[attr-defined]
        if into is not None:
            function.into = into  # type: ignore[attr-defined]
        for spelled in (own, *alias):
            add_spellings(spelled, function, spellings.split())
        return function

    return register


def add_spellings(name: str, function: Callable[..., Any], words: list[str], inplace: Any = None) -> None:
    """Enter `function` under each word; `inplace` is the in-place form where it isn't the generic one."""
    out = next((word for word in ("out", "strictout", "typedout") if word in words), None)
    if "inplace" in words:
        mutate = inplace or _inplace_form(name, function)
        setattr(Tensor, name + "_", public(mutate, name + "_", "Tensor"))
        if "torch" in words:
            _enter("torch", name + "_", public(mutate, name + "_", "torch"))
        if "F" in words:
            _enter("F", name + "_", public(mutate, name + "_", "torch.nn.functional"))
    for word in words:
        space, _, other = word.partition(":")
        spelled = other or name
        if space in ("inplace", "out", "strictout", "typedout"):
            continue
        if space == "bare":
            _enter("torch", spelled, function)
        elif space == "method":
            setattr(Tensor, spelled, public(function, spelled, "Tensor"))
        elif space == "property":
            setattr(Tensor, spelled, overridable_property(function))
        else:
            _enter(space, spelled, public(function, spelled, _QUALIFIED.get(space, "torch." + space), out=out))


def _enter(space: str, name: str, function: Callable[..., Any]) -> None:
    table = NAMESPACES.setdefault(space, {})
    if name in table:
        raise ValueError(f"operator {space}.{name} is registered twice")
    table[name] = function


def public(function: Callable[..., Any], name: str, module: str, out: str | None = None) -> Callable[..., Any]:
    """The function users see: asks for overrides, accepts NumPy's argument names, and out= where `out`."""
    if getattr(function, "is_public", False):  # the pointwise family makes its own, faster form
        return function.make_public(name, module, out)  # type: ignore[attr-defined]
    implementation = _with_out(function, name, out) if out else function
    short = getattr(function, "short", None)
    positional, numbers = () if short is None else _positional(function), _number_parameters(function)
    first_number = numbers[0][0] if numbers else 0

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if FUNCTION_MODES:
            return dispatch_function(call, implementation, args, kwargs)
        if short is not None:
            if not kwargs:
                got = short(*args)
            elif tuple(kwargs) == positional[len(args) : len(args) + len(kwargs)]:
                got = short(*args, *kwargs.values())
            else:
                got = None
            if got is not None:
                return got
        for a in args:
            if OVERRIDES[a.__class__] and overrides(a):
                return dispatch_function(call, implementation, args, kwargs)
        if kwargs:
            for a in kwargs.values():
                if OVERRIDES[a.__class__] and overrides(a):
                    return dispatch_function(call, implementation, args, kwargs)
            if not _NUMPY_NAMES.keys().isdisjoint(kwargs):
                kwargs = {_rename(k, function): v for k, v in kwargs.items()}
        if numbers and (kwargs or len(args) > first_number):
            args, kwargs = _with_numbers(name, numbers, args, kwargs)
        try:
            return implementation(*args, **kwargs) if kwargs else function(*args)
        except Exception as error:
            if not isinstance(error, TypeError):
                _check_types(function, name, args, kwargs)
            raise

    name_it(call, name, module)
    return call


def _positional(function: Any) -> tuple[str, ...]:
    """Names of the parameters that may be given by position."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return tuple(function.__code__.co_varnames[: function.__code__.co_argcount])


_NUMBERS = {kind + end: kind for kind in ("float", "Number") for end in ("", " | None")}


def _number_parameters(function: Any) -> tuple[tuple[int, str, str], ...]:
    """Position, name and kind of the parameters that are annotated as numbers."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    kinds = [
        (i if i < code.co_argcount else 1 << 30, n, _NUMBERS.get(function.__annotations__.get(n))) for i, n in enumerate(names)
    ]
    return tuple((i, n, kind) for i, n, kind in kinds if kind is not None)


def _with_numbers(
    name: str, numbers: tuple[tuple[int, str, str], ...], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """0-d tensors given for numbers as numbers; TypeError for other tensors, and those whose gradient would get lost."""
    for position, parameter, kind in numbers:
        value = args[position] if position < len(args) else kwargs.get(parameter)
        if value.__class__ is float or value.__class__ is int or not isinstance(value, Tensor):
            continue
        if position < len(args):
            got = as_number(value, name, f"'{parameter}' (position {position + 1})", kind)
            args = (*args[:position], got, *args[position + 1 :])
        else:
            kwargs = {**kwargs, parameter: as_number(value, name, f"'{parameter}'", kind)}
    return args, kwargs


def as_number(value: Tensor, name: str, where: str, kind: str = "Number") -> Any:
    """The number that a 0-d tensor without history stands for."""
    if value._a.ndim or value._rg:
        raise TypeError(
            f"{name}(): argument {where} must be {kind}, not Tensor (one of no dimensions that doesn't require grad would do)"
        )
    return value.item()


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float, Tensor)) or hasattr(value, "__index__") or hasattr(value, "__float__")


#: What annotations of parameters ask for, where torch asks as well.
_WANTED: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "Tensor": ("Tensor", lambda v: isinstance(v, Tensor)),
    "Tensor | None": ("Tensor", lambda v: v is None or isinstance(v, Tensor)),
    "int": ("int", lambda v: hasattr(v, "__index__") and v.__class__ is not bool),
    "int | None": ("int", lambda v: v is None or (hasattr(v, "__index__") and v.__class__ is not bool)),
    "float": ("float", _is_real),
    "bool": ("bool", lambda v: v.__class__ is bool),
}


def _check_types(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """TypeError, in torch's words, if something was given of another type than the signature says. Asked only after a call
    failed, so that good calls don't pay."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    given = {**dict(zip(parameters[: code.co_argcount], args, strict=False)), **kwargs}
    for position, parameter in enumerate(parameters, 1):
        if parameter not in given:
            continue
        kind, fits = _WANTED.get(function.__annotations__.get(parameter, ""), ("", None))
        if fits is not None and not fits(given[parameter]):
            found = type(given[parameter]).__name__
            raise TypeError(f"{name}(): argument '{parameter}' (position {position}) must be {kind}, not {found}") from None


def name_it(call: Any, name: str, module: str) -> None:
    """Give a public function the name it is found under."""
    call.__name__, call.__module__ = name, "tocha" if module == "Tensor" else module.replace("torch", "tocha", 1)  # pickle looks there
    call.__qualname__ = "Tensor." + name if module == "Tensor" else name


@functools.cache
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    code = function.__code__
    return frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _rename(keyword: str, function: Callable[..., Any]) -> str:
    """NumPy's spelling of an argument to torch's, unless the function itself has it."""
    other = _NUMPY_NAMES.get(keyword)
    if other is None or keyword in _parameters(function) or other not in _parameters(function):
        return keyword
    return other


def _with_out(function: Callable[..., Any], name: str, kind: str) -> Callable[..., Any]:
    from tocha.dispatch.inplace import overwrite, write_out
    from tocha.dispatch.straight import straight

    into = getattr(function, "into", None)

    @functools.wraps(function)
    def call(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        if out is None:
            return function(*args, **kwargs)
        if out.__class__ is Tensor and (straight(name, function, out, args, kwargs) if into is None else overwrite(out, into, args, kwargs, name)):
            return out
        strict = kind == "strictout"
        if kind == "typedout" and kwargs.get("dtype") is not None:
            strict = True
        elif kind == "typedout" and isinstance(out, Tensor):
            kwargs["dtype"] = out.dtype
            if "device" in _parameters(function) and kwargs.get("device") is None:
                kwargs["device"] = out.device
        return write_out(name, function, out, args, kwargs, strict)

    return call


def _inplace_form(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    from tocha.dispatch.inplace import assign, check_writable, overwrite
    from tocha.dispatch.overlap import check_in_place, in_place_rule

    apart = in_place_rule(name, function)
    into = getattr(function, "into", None)

    @functools.wraps(function)
    def call(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        check_writable(input, name + "_")
        if apart is not None:
            check_in_place(name + "_", input, (*args, *kwargs.values()) if kwargs else args, apart)
        if into is not None and overwrite(input, into, (input, *args), kwargs, name + "_"):
            return input
        since = next_order() if input._rg and state.grad else None
        return assign(input, function(input, *args, **kwargs), name + "_", since)

    at_once: Any = lambda x, *args: x if x.__class__ is Tensor and overwrite(x, into, (x, *args), {}, name + "_") else None  # type: ignore[arg-type]  # noqa: E731
    call.__dict__["short"] = getattr(function, "in_place", at_once if into is not None else None)  # the function's own makes a new tensor
    return call
