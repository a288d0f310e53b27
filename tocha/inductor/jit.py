"""Machine code from LLVM IR, for the CPU that runs.

One linker (LLJIT) serves the process. Compiled kernels live until the process ends: their code may be on another thread's stack.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tocha.inductor import cache

# Compilation holds LOCK, and so does fork(): a child must not inherit LLVM half-way through a change. What compiles beside others holds AT_WORK
# instead, and LOCK within it to link. Who takes both takes them in this order.
AT_WORK = threading.Lock()
LOCK = threading.RLock()


class CompileError(RuntimeError):
    """LLVM refused a kernel or a symbol it needs is missing."""


class NotCached(Exception):
    """A kernel would have to be compiled."""


_only_cached = False


@contextlib.contextmanager
def only_cached() -> Iterator[None]:
    """Inside, `load` raises NotCached rather than compile. Held with LOCK."""
    global _only_cached
    _only_cached = True
    try:
        yield
    finally:
        _only_cached = False


_soon: Callable[[Callable[[], None]], None] | None = None


@contextlib.contextmanager
def haste(soon: Callable[[Callable[[], None]], None]) -> Iterator[None]:
    """Inside, long code may be compiled in haste, and well by what is given to `soon`, which has other threads call it. Held with LOCK."""
    global _soon
    _soon = soon
    try:
        yield
    finally:
        _soon = None


@functools.cache
def binding() -> Any:
    """llvmlite's binding, initialised for this machine."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


class Target(NamedTuple):
    """What code is for, in LLVM's names: `x86_64-unknown-linux-gnu`, `skylake-avx512`, `+avx512f,…`."""

    triple: str
    cpu: str
    features: str


class _Other(threading.local):
    """The target of this thread, if it isn't this machine."""

    target: Target | None = None


_other = _Other()


@contextlib.contextmanager
def targeting(target: Target) -> Iterator[None]:
    """Inside, this thread prints and compiles kernels for another CPU, and loads none."""
    llvm = binding()
    with LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    before, _other.target = _other.target, target
    try:
        yield
    finally:
        _other.target = before


def host() -> tuple[str, str, str]:
    """Triple, CPU and features that kernels are compiled for: this machine's, but for `targeting`."""
    return _other.target or _host()


@functools.cache
def _host() -> tuple[str, str, str]:
    """Triple, CPU and features kernels are compiled for; `TOCHA_ISA=avx2` or `sse` does without newer instructions of an x86 CPU."""
    llvm = binding()
    features = llvm.get_host_cpu_features().flatten().split(",")
    without = _WITHOUT.get(os.environ.get("TOCHA_ISA", ""), ())
    if without:
        features = ["-" + f[1:] if f[1:].startswith(without) else f for f in features]
    if "+avx512f" in features:  # LLVM keeps to half vectors on Intel's CPUs, for the sake of the first that had whole ones
        features.append("-prefer-256-bit")
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), ",".join(features)


_WITHOUT = {"avx2": ("avx512", "avx10"), "sse": ("avx", "fma", "f16c", "vaes", "vpclmul")}


def moving_width() -> int | None:
    """Bits of the vectors to move elements in, None for the widest. Zen 4 streams from beyond a core's caches faster in half vectors (two
    operands of 4 MB: 155 and 171 µs)."""
    return 256 if host()[1] == "znver4" else None


def has_fma() -> bool:
    """Whether the CPU rounds x * y + z once; without, `llvm.fma` would be a slow call."""
    triple, _, features = host()
    return "+fma" in features.split(",") or triple.startswith(("aarch64", "arm64"))


@functools.cache
def versions() -> str:
    import llvmlite

    from tocha.version import __version__

    return f"tocha {__version__} llvmlite {llvmlite.__version__} {binding().llvm_version_info}"


def _machine(opt: int = 3) -> Any:
    triple, cpu, features = host()
    target = binding().Target.from_triple(triple)
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small")


@functools.cache
def _linker() -> Any:
    # JITLink lays a kernel's sections side by side. LLVM's older linker may put them out of each other's reach when a process has little
    # free address space in between, and then aborts.
    made = binding().create_lljit_compiler(_machine(), use_jit_link=True, suppress_errors=True)
    _immortal(made)
    return made


def _immortal(x: Any) -> None:
    """Never collect `x`: machine code it owns may run until the process is gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(x))


@functools.cache
def _libm() -> Any:
    name = ctypes.util.find_library("m")
    return ctypes.CDLL(name) if name else ctypes.CDLL(None)


def libm_address(function: str) -> int:
    """Where a function of the C library's mathematics is; CompileError if it has none of that name."""
    try:
        return ctypes.cast(getattr(_libm(), function), ctypes.c_void_p).value or 0
    except AttributeError:
        raise CompileError(f"the C library has no function {function}") from None


def compile_object(text: str, by_hand: bool = False, well: bool = True) -> bytes:
    """An object file from a module's IR, optimised. Code written `by_hand` is vectors already and its loops lie as they should: it takes a
    few passes, and what LLVM spends most of its time on, finding and changing loops, is left out (half of a cold start, for the same speed).
    If it needn't be compiled `well`, its instructions are translated one by one: a fifth of the time, for the same bits two to six times slower."""
    llvm = binding()
    machine = _machine(3 if well else 0)
    try:
        # A context of its own, so that another thread may compile meanwhile.
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple, module.data_layout = machine.triple, str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"LLVM refuses a kernel: {error}") from error
    options = llvm.create_pipeline_tuning_options(speed_level=3)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    if by_hand:
        manager = llvm.create_new_module_pass_manager()
        for name in _BY_HAND if well else _BY_HAND[:1]:
            getattr(manager, f"add_{name}_pass")()
    else:
        manager = builder.getModulePassManager()
    manager.run(module, builder)
    return _emitted(machine, module)


_BY_HAND = ("always_inliner", "sroa", "instruction_combine", "simplify_cfg")


def _emitted(machine: Any, module: Any) -> bytes:
    """The machine code of a module. It takes longest, and llvmlite would let no other thread in; LLVM asks only that contexts differ."""
    llvm = binding()
    emit = llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory
    with llvm.ffi.OutputString() as error:
        buffer = getattr(emit, "_cfn", emit)(machine, module, 1, error)
        if not buffer:
            raise CompileError(f"LLVM can't write a kernel: {error}")
    try:
        return ctypes.string_at(llvm.ffi.lib.LLVMPY_GetBufferStart(buffer), llvm.ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        llvm.ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


class Loaded(NamedTuple):
    """An object file that was linked: its key, and the names of its symbols."""

    key: str
    exports: tuple[str, ...]
    imports: frozenset[str]


_count = 0
_noted: list[list[Loaded]] = []


@contextlib.contextmanager
def noting(loads: list[Loaded]) -> Iterator[None]:
    """Inside, enter into `loads` what `load` links."""
    with LOCK:
        _noted.append(loads)
        try:
            yield
        finally:
            _noted.remove(loads)


def note(loads: list[Loaded]) -> None:
    """Enter what was linked before as what serves now."""
    for noted in _noted:
        noted += loads


def load(text: str, exports: tuple[str, ...], imports: dict[str, int], by_hand: bool = False) -> list[int]:
    """Addresses of the functions `exports` of a module, compiled (see `compile_object`) unless the cache has it. `imports` are symbols by
    address."""
    with LOCK:
        if _other.target is not None:
            raise CompileError(f"a kernel for {_other.target.cpu} can't run here")
        key = _key(text, by_hand)
        found = load_object(key, exports, imports)
        if found is None:
            if _only_cached:
                raise NotCached(key)
            data = compile_object(text, by_hand)
            cache.write(key, data)
            found = _linked(data, exports, imports)
        for loads in _noted:
            loads.append(Loaded(key, exports, frozenset(imports)))
        return found


def _key(text: str, by_hand: bool) -> str:
    return cache.key_of(text, "by hand" if by_hand else "", versions(), *host())


def in_haste(text: str) -> bool:
    """Whether a module written by hand is to be compiled twice: it is long, the cache hasn't got it, and somebody waits."""
    return _soon is not None and text.count("\n") > _LONG and not cache.has(_key(text, True))


def load_twice(
    text: str, first: str, exports: tuple[str, ...], imports: dict[str, int], well: tuple[str, ...], put: Callable[[list[int]], None]
) -> list[int]:
    """Addresses of what `first` exports, compiled in haste. Soon `put` gets those of the functions `well` of `text`, which is what `load` would
    have given: written by hand, both compute the same bits, since nothing lets LLVM change an order of sums."""
    assert _soon is not None
    with LOCK:
        key = _key(text, True)
        found = _linked(compile_object(first, True, well=False), exports, imports)
        for loads in _noted:
            loads.append(Loaded(key, ("entry",), frozenset(imports)))

    def load_well() -> None:
        with AT_WORK:  # not LOCK: others may compile meanwhile
            data = compile_object(text, True)
            cache.write(key, data)
            with LOCK:
                put(_linked(data, well, imports))

    _soon(load_well)
    return found


_LONG = 500  # lines of IR, for which good code takes some 20 ms


def load_object(key: str, exports: tuple[str, ...], imports: dict[str, int]) -> list[int] | None:
    """The same of an object file that is in the cache; None if it isn't."""
    data = cache.read(key)
    return None if data is None else _linked(data, exports, imports)


def _linked(data: bytes, exports: tuple[str, ...], imports: dict[str, int]) -> list[int]:
    global _count
    library = binding().JITLibraryBuilder().add_object_img(data)
    for name in exports:
        library.export_symbol(name)
    for name, address in imports.items():
        library.import_symbol(name, address)
    _count += 1
    try:
        tracker = library.add_current_process().link(_linker(), f"kernel{_count}")
    except RuntimeError as error:
        raise CompileError(f"a kernel can't be linked: {error}") from error
    _immortal(tracker)
    return [tracker[name] for name in exports]
