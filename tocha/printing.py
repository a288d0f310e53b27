"""How tensors print: `repr`, and the options that shape it (torch docs: torch.set_printoptions)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tocha import dtypes
from tocha.backends import namespace
from tocha.dispatch.override import PLAIN
from tocha.dispatch.registry import op, public
from tocha.tensor import Tensor


@dataclass
class Options:
    """What set_printoptions sets."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS = Options()
_PROFILES = {
    "default": Options(),
    "short": Options(precision=2, edgeitems=2),
    "full": Options(threshold=math.inf),
}


@op("torch")
def set_printoptions(
    precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None, linewidth: int | None = None,
    profile: str | None = None, sci_mode: bool | None = None,
) -> None:  # fmt: skip
    """Set digits, length from which to shorten, items kept at edges, line width and scientific notation (None: as the
    values need), or start from a profile: 'default', 'short', 'full' (torch docs: torch.set_printoptions)."""
    chosen = _PROFILES.get(profile) if profile is not None else None
    if profile is not None and chosen is None:
        raise ValueError(f"profile must be one of {', '.join(_PROFILES)}, got {profile!r}")
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    for name, value in given.items():
        found = value if value is not None else None if chosen is None else getattr(chosen, name)
        if found is not None:
            setattr(PRINT_OPTS, name, found)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force."""
    return dict(vars(PRINT_OPTS))


@contextmanager
def printoptions(**options: Any) -> Iterator[None]:
    """set_printoptions for a while."""
    before = replace(PRINT_OPTS)
    set_printoptions(**options)
    try:
        yield
    finally:
        PRINT_OPTS.__dict__.update(vars(before))


# ---- numbers


def _number_format(values: Any) -> tuple[int, Callable[[Any], str]]:
    """The width that the values (a flat array) need, and the function that prints one of them at that width."""
    if values.dtype.kind in "biu":
        width = max((len(str(v)) for v in values.tolist()), default=1)
        return width, lambda v: str(v).rjust(width)
    finite = values[np.isfinite(values) & (values != 0)].tolist()
    if not finite:
        return 1, lambda v: f"{v:.0f}" + ("." if math.isfinite(v) else "")
    sizes = [abs(v) for v in finite]
    low, high = min(sizes), max(sizes)
    whole = all(v == math.ceil(v) for v in finite)
    scientific = PRINT_OPTS.sci_mode
    if scientific is None:
        scientific = high / low > 1000 or high > 1e8 or (not whole and low < 1e-4)
    digits = PRINT_OPTS.precision
    if scientific:
        width = max(len(f"{v:.{digits}e}") for v in finite)
        return width, lambda v: f"{v:{width}.{digits}e}"
    if whole:
        width = max(len(f"{v:.0f}") for v in finite) + 1
        return width, lambda v: (f"{v:.0f}." if math.isfinite(v) else f"{v:.0f}").rjust(width)
    width = max(len(f"{v:.{digits}f}") for v in finite)
    return width, lambda v: f"{v:{width}.{digits}f}"


def _format(values: Any) -> tuple[int, Callable[[Any], str]]:
    """`_number_format`, for complex values of both parts."""
    if values.dtype.kind != "c":
        return _number_format(values)
    width_real, real = _number_format(values.real)
    width_imag, imag = _number_format(values.imag)

    def one(v: complex) -> str:
        tail = imag(v.imag).lstrip() + "j"
        return real(v.real) + (tail if tail[0] in "+-" else "+" + tail)

    return width_real + width_imag + 1, one


# ---- nesting


def _edges(array: Any) -> Any:
    """The part of a large array that is printed."""
    keep = PRINT_OPTS.edgeitems
    for axis in range(array.ndim):
        n = array.shape[axis]
        if n > 2 * keep:
            array = np.take(array, [*range(keep), *range(n - keep, n)], axis)
    return array


def _rows(array: Any, indent: int, shorten: bool, width: int, one: Callable[[Any], str]) -> str:
    keep = PRINT_OPTS.edgeitems
    cut = shorten and array.shape[0] > 2 * keep
    if array.ndim > 1:
        parts = [_rows(a, indent + 1, shorten, width, one) for a in (_ends(array) if cut else array)]
        if cut:
            parts.insert(keep, "...")
        return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"
    items = [one(v) for v in (_ends(array) if cut else array).tolist()]
    if cut:
        items.insert(keep, " ..." if keep else "...")
    each = max(1, (PRINT_OPTS.linewidth - indent) // (width + 2))
    lines = [", ".join(items[i : i + each]) for i in range(0, len(items), each)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _ends(array: Any) -> Any:
    keep = PRINT_OPTS.edgeitems
    return np.concatenate([array[:keep], array[array.shape[0] - keep :]])


def _contents(tensor: Tensor, indent: int) -> str:
    """The values, between their brackets."""
    if not tensor._a.size:
        return "[]"
    array = namespace(tensor._a).to_host(tensor._a)
    if array.dtype in dtypes.HALF_NP:
        array = array.astype(np.float32)
    shorten = bool(array.size > PRINT_OPTS.threshold)
    with np.errstate(all="ignore"):
        width, one = _format((_edges(array) if shorten else array).reshape(-1))
        return one(array.item()) if array.ndim == 0 else _rows(array, indent, shorten, width, one)


# ---- the whole


def _suffixes(tensor: Tensor) -> list[str]:
    found = []
    device = tensor.device
    default = dtypes.get_default_dtype()
    if device.type != "cpu":
        found.append(f"device='{device}'")
    hidden = not tensor._a.size and tensor.ndim != 1
    if device.type == "meta" or hidden or (tensor._a.size and not PRINT_OPTS.edgeitems):
        found.append(f"size={tuple(tensor.shape)}")
    usual = {default} if device.type == "meta" or not tensor._a.size else {default, dtypes.int64, dtypes.bool_}
    if tensor._a.size and device.type != "meta":
        usual.add(default.to_complex())
    if tensor.dtype not in usual:
        found.append(f"dtype={tensor.dtype}")
    try:
        node = tensor.grad_fn
    except RuntimeError:  # a view whose history was spoilt by an in-place change
        return [*found, "grad_fn=<Invalid>"]
    if node is not None:
        found.append(f"grad_fn=<{node.name().rpartition(':')[2]}>")
    elif tensor.requires_grad:
        found.append("requires_grad=True")
    return found


def tensor_repr(input: Tensor, *, tensor_contents: str | None = None) -> str:
    """`tensor([...], dtype=..., ...)`, the values shortened and aligned as the options say."""
    kind = type(input)
    plain = kind is Tensor or (kind in PLAIN and kind.__name__ == "Parameter")
    prefix = "tensor(" if plain else f"{kind.__name__}("
    indent = len(prefix)
    if tensor_contents is None:
        tensor_contents = "..." if input.is_meta else _contents(input, indent)
    text = prefix + tensor_contents
    used = len(text) - text.rfind("\n") + 1
    for suffix in _suffixes(input):
        if used + len(suffix) + 2 > PRINT_OPTS.linewidth:
            text += ",\n" + " " * indent + suffix
            used = indent + len(suffix)
        else:
            text += ", " + suffix
            used += len(suffix) + 2
    return text + ")"


Tensor.__repr__ = public(tensor_repr, "__repr__", "Tensor")  # type: ignore[method-assign]
