"""What the tracer knows about callables: which are torch's, which are inlined, which builtins look at their arguments alone, and those
with a rule of their own."""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import itertools
import operator
import re
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tocha import dtypes
from tocha._dynamo.generators import Generator
from tocha._dynamo.guards import literal_types
from tocha._dynamo.sizes import Sizes, VaryingSize
from tocha._dynamo.world import _IDENTICAL, SIMPLE, is_face, ours
from tocha.device import Size, device
from tocha.dispatch.registry import NAMESPACES
from tocha.nn import Module
from tocha.nn.modules import _hooks
from tocha.tensor import Tensor

EnumMeta = enum.EnumMeta
MODULE_CALL, MODULE_GETATTR, MODULE_SETATTR = (vars(Module)[n] for n in ("__call__", "__getattr__", "__setattr__"))
NATIVE = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType, operator.itemgetter, operator.attrgetter, operator.methodcaller, functools._lru_cache_wrapper,
    type(re.compile("").search),
)  # fmt: skip
BUILTIN_CLASSES = frozenset(
    (
        int, float, complex, bool, str, bytes, bytearray, list, tuple, dict, set, frozenset, range, slice, enumerate, zip, map, filter, reversed,
        collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter, itertools.chain, itertools.islice,
        itertools.repeat, itertools.count, itertools.product, itertools.combinations, itertools.permutations, itertools.starmap,
        itertools.accumulate, itertools.takewhile, itertools.dropwhile, itertools.zip_longest, itertools.pairwise, itertools.compress,
        itertools.cycle, itertools.groupby, itertools.filterfalse, Size, functools.partial, types.SimpleNamespace, types.MethodType,
        operator.itemgetter, operator.attrgetter, object, re.Match, re.Pattern,
    )
)  # fmt: skip
MAKEABLE_BASES = frozenset((object, dict, list, tuple, collections.OrderedDict, BaseException, Exception))
_DATA = frozenset((*literal_types(), bool, type(None), range, type(...), Size))
_PURE = frozenset(
    getattr(builtins, n)
    for n in ("abs", "ascii", "bin", "chr", "divmod", "hex", "max", "min", "oct", "ord", "pow", "round", "sorted", "callable")
)
_PURE_MODULES = frozenset(
    ("math", "cmath", "_operator", "operator", "itertools", "_functools", "functools", "_struct", "_collections")
)
_STORE_NAMES = frozenset(
    """append extend insert __init__ appendleft setdefault pop popleft clear copy get items keys values update __setitem__ __setattr__ reverse
    popitem move_to_end __getitem__ __new__ __iter__ __len__""".split()
)
#: Methods of containers that ask their argument for its identity alone, if it has no __eq__ of its own.
MEMBERS = frozenset(("add", "discard", "remove", "__contains__"))
#: Builtins that take any object and ask it nothing.
INDIFFERENT: tuple[Any, ...] = (callable,)
_INLINED_OURS = (
    "tocha.nn.modules",
    "tocha.nn.utils",
    "tocha.nn.attention",
    "tocha.distributions",
    "tocha.amp.autocast_mode",
    "tocha.autograd.mode",
    "tocha.nn.parallel",
    "tocha.optim.swa_utils",
    "tocha.demo",
    "tocha._dynamo.verify",
    "tocha._dynamo.functions",
    "tocha._dynamo.transforms",
    "tocha._dynamo.library",
    "tocha._checks",
    "tocha._higher_order_ops",
    "tocha.utils._pytree",
)
_NOT_INLINED = frozenset(
    """importlib threading logging inspect warnings numpy scipy random os io pickle subprocess ast re unittest multiprocessing asyncio weakref
    tempfile time datetime traceback linecache tokenize copy""".split()
)


@functools.cache
def torch_functions() -> dict[int, Any]:
    """The public functions of tensors, by id: calls of these are recorded."""
    found = {id(f): f for table in NAMESPACES.values() for f in table.values()}
    for c in Tensor.__mro__[:-1]:
        for name, f in vars(c).items():
            if isinstance(f, types.FunctionType) and name not in ("__init_subclass__", "__new__"):
                found[id(f)] = f
    return found


def is_overridable(fn: Any) -> bool:
    """Whether modes and `__torch_function__` are asked about a function."""
    return id(fn) in torch_functions() and fn.__name__ != "as_subclass"


def outside(cls: type) -> bool:
    """Whether a class belongs to this package or the standard library, which don't change."""
    return (ours(cls.__module__) and not cls.__module__.startswith(_INLINED_OURS)) or cls.__module__ in ("builtins",)


def lookup(cls: type, name: str) -> Any:
    """What a class has under a name, unbound; None if nothing."""
    for c in cls.__mro__:
        if name in vars(c):
            return vars(c)[name]
    return None


def python_method(obj: Any, name: str) -> Any:
    """A special method that a class defines in Python, None otherwise."""
    kind = type(obj)
    if kind in (Size, Generator, VaryingSize, Sizes) or (getattr(kind, "of_graph", False) and name != "__call__"):
        return None
    found = lookup(kind, name)
    return found if isinstance(found, types.FunctionType) else None


def python_made(cls: type) -> bool:
    return any(isinstance(lookup(cls, n), (types.FunctionType, staticmethod)) for n in ("__init__", "__new__"))


def kept_out(fn: types.FunctionType) -> str | None:
    """Why a Python function is called, not inlined."""
    if getattr(fn, "_torchdynamo_disable", False):
        return f"{fn.__qualname__} is disabled: {getattr(fn, '_torchdynamo_disable_msg', None) or 'torch.compiler.disable'}"
    module = fn.__module__ or ""
    if ours(module) and not module.startswith(_INLINED_OURS):
        return f"{module}.{fn.__qualname__} is called"
    if module.partition(".")[0] in _NOT_INLINED or "site-packages/numpy" in fn.__code__.co_filename:
        return f"{module}.{fn.__qualname__} is called"
    return None


def global_hooks() -> Mapping[int, bool]:
    """Non-empty while hooks on all modules are registered."""
    return _hooks._global_call_hooks


def title(fn: Any) -> str:
    """A callable's name."""
    return f"{getattr(fn, '__qualname__', type(fn).__name__)}()"


# ---- data


def is_data(value: Any, depth: int = 0) -> bool:
    """Whether a value is made of builtin data only, so that native code may look at all of it."""
    kind = type(value)
    if kind in _DATA or isinstance(value, (dtypes.dtype, device, type, enum.Enum, types.ModuleType)):
        return True
    if depth < 8 and kind in (tuple, list, set, frozenset):
        return all(is_data(v, depth + 1) for v in value)
    if depth < 8 and kind in (dict, collections.OrderedDict):
        return all(is_data(k, depth + 1) and is_data(v, depth + 1) for k, v in value.items())
    return False


def is_constant(value: Any) -> bool:
    return value is None or (type(value) in _DATA and type(value) is not Size) or isinstance(value, _IDENTICAL)


def is_entered(value: Any) -> bool:
    """Whether what stands for a value from before may be given to native code."""
    kind = type(value)
    return (
        isinstance(value, (Tensor, tuple, type))
        or kind
        in (
            list,
            dict,
            set,
            frozenset,
            collections.deque,
            collections.OrderedDict,
            collections.defaultdict,
            collections.Counter,
            slice,
        )
        or kind
        in (types.FunctionType, types.MethodType, functools.partial, types.CellType, types.ModuleType, types.BuiltinFunctionType)
        or isinstance(value, (*_IDENTICAL, *SIMPLE))
        or is_data(value)
    )


def compares_in_python(value: Any, depth: int = 0) -> bool:
    """Whether comparing or hashing a value may run Python code."""
    kind = type(value)
    if kind in _DATA or isinstance(value, (Tensor, type, enum.Enum, dtypes.dtype, device, VaryingSize)):
        return False
    if kind in (list, tuple, set, frozenset, collections.deque):
        return depth < 4 and any(compares_in_python(v, depth + 1) for v in value)
    if isinstance(value, dict) and kind in BUILTIN_CLASSES:
        return depth < 4 and any(compares_in_python(v, depth + 1) for v in value.values())
    return any(isinstance(lookup(kind, n), types.FunctionType) for n in ("__eq__", "__hash__", "__lt__"))


_DUNDERS = {
    operator.eq: "eq", operator.ne: "ne", operator.lt: "lt", operator.le: "le", operator.gt: "gt", operator.ge: "ge", operator.add: "add",
    operator.sub: "sub", operator.mul: "mul", operator.truediv: "truediv", operator.floordiv: "floordiv", operator.mod: "mod",
    operator.pow: "pow", operator.matmul: "matmul", operator.and_: "and", operator.or_: "or", operator.xor: "xor",
    operator.lshift: "lshift", operator.rshift: "rshift", operator.neg: "neg", operator.pos: "pos", operator.invert: "invert",
    operator.iadd: "iadd", operator.isub: "isub", operator.imul: "imul", operator.itruediv: "itruediv", operator.ifloordiv: "ifloordiv",
    operator.imod: "imod", operator.ipow: "ipow", operator.iand: "iand", operator.ior: "ior", operator.ixor: "ixor",
    operator.imatmul: "imatmul",
}  # fmt: skip
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le", "eq": "eq", "ne": "ne"}


_SPECIAL = [f"__{prefix}{name}__" for name in _DUNDERS.values() for prefix in ("", "r")]


def has_python_operators(value: Any) -> bool:
    """Whether a value's class may define operators in Python."""
    kind = type(value)
    if isinstance(value, Tensor):
        return is_face(kind)
    if kind in _DATA or kind in BUILTIN_CLASSES or isinstance(value, (*_IDENTICAL, device)):
        return kind in (list, tuple, dict, set) and compares_in_python(value)
    if issubclass(kind, SIMPLE) and not any(isinstance(lookup(kind, n), types.FunctionType) for n in _SPECIAL):
        return False
    return bool(kind.__flags__ & (1 << 9)) and not ours(kind.__module__)


def methods_of_operator(op: Callable[..., Any], operands: tuple[Any, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The special methods that Python tries for an operator, in order."""
    name = _DUNDERS.get(op)
    if name is None:
        return
    if len(operands) == 1:
        yield f"__{name}__", operands
        return
    a, b = operands
    plain = name[1:] if name.startswith("i") and name != "invert" else name
    reflected = f"__{_MIRRORED[name]}__" if name in _MIRRORED else f"__r{plain}__"
    if name != plain:
        yield f"__{name}__", (a, b)
    if type(b) is not type(a) and isinstance(b, type(a)):
        yield reflected, (b, a)
        yield f"__{plain}__", (a, b)
    else:
        yield f"__{plain}__", (a, b)
        if type(b) is not type(a) or name in _MIRRORED:
            yield reflected, (b, a)


def by_identity(operands: tuple[Any, ...]) -> bool:
    """Whether == of these asks for identity only."""
    return not any(compares_in_python(a) for a in operands) and all(
        lookup(type(a), "__eq__") is object.__eq__ or is_data(a) for a in operands
    )


# ---- builtins


def of_numpy(fn: Any) -> bool:
    """Whether a callable is a function of NumPy's, or the class of one of its numbers: of numbers they give numbers."""
    if isinstance(fn, type):
        return issubclass(fn, np.generic)
    return isinstance(fn, (np.ufunc, type(np.sum))) and not fn.__name__.startswith("save")  # to files


def is_pure(fn: Any) -> bool:
    """Whether a builtin looks at nothing but its arguments."""
    if isinstance(fn, type):
        return True
    if fn in _PURE:
        return True
    if isinstance(fn, (operator.itemgetter, operator.attrgetter, operator.methodcaller)):
        return True
    if isinstance(fn, functools._lru_cache_wrapper):
        return False
    own = getattr(fn, "__self__", None)
    owner = getattr(fn, "__objclass__", None)
    if owner is None and own is not None and not isinstance(own, types.ModuleType):
        owner = own if isinstance(own, type) else type(own)
    if owner is not None:
        return (
            owner in BUILTIN_CLASSES
            or owner in _KINDS
            or owner.__module__ in ("builtins", "itertools")
            or any((b in MAKEABLE_BASES or b in SIMPLE) and b is not object for b in owner.__mro__)
        )
    return getattr(fn, "__module__", None) in _PURE_MODULES


_KINDS = frozenset((type({}.keys()), type({}.values()), type({}.items()), Generator))


def only_stores(fn: Any) -> bool:
    """Whether a builtin keeps its arguments without asking them anything."""
    return (
        getattr(fn, "__name__", "") in _STORE_NAMES
        or fn in (functools.partial, types.MethodType, types.SimpleNamespace)
        or fn is object
    )


#: Functions that users put into graphs as they are.
ALLOWED: set[Any] = set()
Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
_RULES: dict[int, tuple[Any, Rule]] = {}


def rule_of(fn: Any) -> Rule | None:
    """The rule of a callable's own."""
    found = _RULES.get(id(fn))
    return None if found is None else found[1]


def rule(*functions: Any) -> Callable[[Rule], Rule]:
    """Register what a call of some functions does in a trace."""

    def register(made: Rule) -> Rule:
        _RULES.update({id(f): (f, made) for f in functions})
        return made

    return register
