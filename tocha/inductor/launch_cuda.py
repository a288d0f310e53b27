"""Triton kernels on CUDA without torch: Triton compiles them, CuPy loads and launches them.

A kernel is compiled for a machine, argument types, what is known about alignment, and a block's size; the machine code is kept by
tocha.inductor.cache, so that a warm start doesn't even import Triton. Compiling needs no GPU.
"""

from __future__ import annotations

import functools
import itertools
import json
import linecache
import tempfile
import threading
from typing import Any, NamedTuple

import numpy as np

from tocha.inductor import cache, jit, service
from tocha.inductor.codegen_triton import Source, generate
from tocha.inductor.jit import CompileError
from tocha.inductor.loop_ir import Kernel, Size

_SPELLED = {"bool": "i1", "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64"}
_SCALARS = {"f32": np.float32, "f64": np.float64, "bool": np.bool_}  # integers by their name
_SCALARS |= {f"{kind}{bits}": getattr(np, f"{'u' if kind == 'u' else ''}int{bits}") for kind in "iu" for bits in (8, 16, 32, 64)}
_NARROW = 2**31 - 2**16  # offsets below it are computed in 32 bits, a block beyond included
_FLAT_BLOCK, _FLAT_WARPS = 1024, 4  # elements a program of a pointwise kernel takes, and its warps
_PER_WARP = 1024  # elements of rows for each warp of a program
_LONGEST = 16384  # elements of a row that stay in registers
_PIECE = 8192  # elements of a longer row taken at a time
_LOCK = threading.Lock()  # Triton's settings are the process's
_numbers = itertools.count(1)


class Shape(NamedTuple):
    """How a kernel is compiled: BLOCK, ROWS (0: pointwise) and warps."""

    block: int
    rows: int
    warps: int


class Binary(NamedTuple):
    """Machine code, its entry's name, the shared memory it wants, and how many pointers Triton adds to its arguments."""

    code: bytes
    name: str
    shared: int
    extra: int


@functools.cache
def versions() -> str:
    """What the machine code depends on besides the source."""
    from importlib.metadata import version

    from tocha.version import __version__

    return f"tocha {__version__} triton {version('triton')}"


FLAT = Shape(_FLAT_BLOCK, 0, _FLAT_WARPS)


@functools.cache
def row_shape(n: int) -> tuple[Shape, bool]:
    """The shape for rows of n elements, and whether they are walked a block at a time."""
    if n > _LONGEST:
        return Shape(_PIECE, 1, 16), True
    block = 1 << max(0, n - 1).bit_length()
    rows = max(1, 1024 // block)
    return Shape(block, rows, min(16, max(1, block * rows // _PER_WARP))), False


# ---- compiling


def signature(source: Source, wide: bool) -> dict[str, str]:
    """Triton's type of every argument."""
    size = "i64" if wide else "i32"
    found = {f"{name}_ptr": "*" + _SPELLED.get(type, type) for name, type in source.buffers}
    found |= {name: _SPELLED.get(type, type) for name, type in source.params} | dict.fromkeys(source.sizes, size)
    return found | ({"units": size, "ROWS": "constexpr"} if source.rows else {"elements": size}) | {"BLOCK": "constexpr"}


def compiled(source: Source, wide: bool, shape: Shape, divisible: tuple[str, ...], architecture: int) -> Binary:
    """Machine code for compute capability `architecture` (90 for 9.0). `divisible` names the arguments that are multiples of 16
    (bytes for pointers). From the cache if it is there; CompileError if Triton isn't installed or refuses the kernel."""
    types = signature(source, wide)
    key = cache.key_of("triton", source.text, repr((types, shape, divisible, architecture)), versions())
    data = cache.read(key)
    if data is None:
        if jit._only_cached:
            raise jit.NotCached(key)
        made = _compile(source, types, shape, divisible, architecture)
        head = json.dumps([made.name, made.shared, made.extra]).encode()
        cache.write(key, len(head).to_bytes(4, "little") + head + made.code)
        return made
    end = 4 + int.from_bytes(data[:4], "little")
    name, shared, extra = json.loads(data[4:end])
    return Binary(data[end:], name, shared, extra)


def _compile(source: Source, types: dict[str, str], shape: Shape, divisible: tuple[str, ...], architecture: int) -> Binary:
    try:
        import triton
        from triton import knobs
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as error:
        raise CompileError(
            f"CUDA kernels are compiled with Triton, which could not be imported ({error}): pip install triton"
        ) from error
    names = list(types)
    constants = {(names.index("BLOCK"),): shape.block} | ({(names.index("ROWS"),): shape.rows} if source.rows else {})
    attributes = {(names.index(name),): [["tt.divisibility", 16]] for name in divisible}
    options = {"num_warps": shape.warps, "enable_fp_fusion": False}
    with _LOCK, tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = folder  # Triton's own cache would keep everything twice
        try:
            ast = ASTSource(_function(source), types, constants, attributes)
            made = triton.compile(ast, target=GPUTarget("cuda", architecture, 32), options=options)
        except Exception as error:  # Triton raises what it likes
            raise CompileError(f"Triton refuses {source.name}: {error}\n{source.text}") from error
    entry = made.asm["ptx"].split(".entry", 1)[1].split(")", 1)[0]
    extra = entry.count(".param") - sum(t != "constexpr" for t in types.values())
    if made.metadata.global_scratch_size or extra < 0:
        raise CompileError(f"{source.name} wants arguments that are not known here")
    return Binary(made.asm["cubin"], made.metadata.name, made.metadata.shared, extra)


def _function(source: Source) -> Any:
    """The printed function. Triton reads its source through `linecache`."""
    name = f"<tocha kernel {next(_numbers)}: {source.name}>"
    linecache.cache[name] = (len(source.text), None, source.text.splitlines(True), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(source.text, name, "exec"), space)
    return space[source.name]


# ---- launching


class CudaKernel:
    """A kernel that takes CuPy arrays: its sources, and the functions compiled from them for the devices and arguments met.

    With `ask`, compiling is asked of tocha.inductor.service, and runs return False if it fails, or isn't done yet where nobody waits for it.
    """

    def __init__(self, kernel: Kernel, ask: bool = False) -> None:
        self.kernel, self.ask = kernel, ask
        self.sources: dict[tuple[bool, bool], Source] = {}
        self.functions: dict[Any, Any] = {}

    def source(self, looped: bool = False, wide: bool = False) -> Source:
        found = self.sources.get((looped, wide))
        if found is None:
            found = self.sources[looped, wide] = generate(self.kernel, looped, wide)
        return found

    def elements(self, arrays: list[Any], params: list[Any], count: int, sizes: dict[str, int], span: int) -> bool:
        """Run a pointwise kernel for `count` elements. `arrays` in the order of the kernel's buffers, `params` in that of its parameters;
        `span` is more than any offset."""
        return self._launch(arrays, params, count, sizes, FLAT, False, max(span, count) > _NARROW)

    def rows(
        self, arrays: list[Any], params: list[Any], units: int, n: int, sizes: dict[str, int] | None = None, span: int = 0
    ) -> bool:
        """Run a row kernel for `units` rows of n elements. Outputs must not be inputs where rows are longer than 16384."""
        shape, looped = row_shape(n)
        return self._launch(
            arrays, params, units, {"n": n} if sizes is None else sizes, shape, looped, max(span, units * n) > _NARROW
        )

    def _launch(
        self, arrays: list[Any], params: list[Any], count: int, sizes: dict[str, int], shape: Shape, looped: bool, wide: bool
    ) -> bool:
        if count == 0:
            return True
        source = self.source(looped, wide)
        pointers = [a.data.ptr for a in arrays]
        given = [sizes[name] for name in source.sizes]
        index = np.int64 if wide else np.int32
        known = tuple([p % 16 == 0 for p in pointers]), tuple([n % 16 == 0 for n in (*given, count)])
        key = (arrays[0].device.id, shape, looped, wide, known)
        found = self.functions.get(key)
        if found.__class__ is not _Function:
            found = self._function(key, source, wide, shape, known)
            if found is None:
                return False
        scalars = [_SCALARS[type](v) for v, (_, type) in zip(params, source.params, strict=True)]
        arguments = (*arrays, *scalars, *map(index, given), index(count), *found.extra)
        each = shape.rows or shape.block
        found.function((-(-count // each), 1, 1), (shape.warps * 32, 1, 1), arguments, shared_mem=found.shared)
        return True

    def _function(self, key: Any, source: Source, wide: bool, shape: Shape, known: Any) -> _Function | None:
        """The function for a key, None if it isn't there yet or can't be made."""
        if key not in self.functions:
            import cupy

            names = [*[f"{name}_ptr" for name, _ in source.buffers], *source.sizes, "units" if source.rows else "elements"]
            divisible = tuple([n for n, yes in zip(names, (*known[0], *known[1]), strict=True) if yes])
            capability = int(cupy.cuda.Device().compute_capability)
            if self.ask:
                self.functions[key] = None
                service.request(
                    lambda: compiled(source, wide, shape, divisible, capability), lambda got: self.functions.__setitem__(key, got)
                )
            else:
                self.functions[key] = compiled(source, wide, shape, divisible, capability)
        elif self.functions[key] is None and service.now():
            service.settle(lambda: self.functions[key] is not None)
        made = self.functions[key]
        if isinstance(made, Binary):
            self.functions[key] = made = _load(made)
        return made if isinstance(made, _Function) else None


class _Function(NamedTuple):
    function: Any
    shared: int
    extra: tuple[Any, ...]


def _load(made: Binary) -> _Function:
    """The function on the current device."""
    import cupy

    module = cupy.cuda.function.Module()
    module.load(made.code)
    function = module.get_function(made.name)
    if made.shared > 48 * 1024:
        cupy.cuda.driver.funcSetAttribute(function.ptr, 8, made.shared)  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    return _Function(function, made.shared, (np.uint64(0),) * made.extra)


def place_sizes(kernel: Kernel, layout: Any) -> dict[str, int]:
    """The sizes of a pointwise kernel that isn't flat, by name, from the layout of its arrays."""
    if not kernel.sizes:
        return {}
    found = {f"n{d}": n for d, n in enumerate(layout.shape)}
    for a, steps in enumerate(layout.strides):
        found |= {f"s{a}_{d}": s for d, s in enumerate(steps)}
    return {s.name: found[s.name] for s in kernel.sizes if s not in (Size("block"), Size("blocks"))}


def span_of(layout: Any) -> int:
    """More than the size of any offset in arrays of a layout."""
    return 1 + max(sum((n - 1) * abs(s) for n, s in zip(layout.shape, steps, strict=True)) for steps in layout.strides)
