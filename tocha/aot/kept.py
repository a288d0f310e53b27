"""Compiled functions on disk: what another process compiled from the same captured graph isn't traced, cut or scheduled again.

entry ::= (Traced without its graph, inputs that backward reads, what it takes to run again, code)      as tocha.aot.data has it
code ::= what makes the compiler's callable (its `described`)

A backward, compiled when it is first needed, is an entry of its own, by the forward's. Keys hold all that a trace depends on: the graph's text and
what its names mean, the inputs' layout and place on the tape, modes that operators ask for, settings, this package's sources, versions, the CPU.
What JSON can't say isn't kept (tocha.aot.data), nor is a graph with graphs, parameters or a library's operators within it. Entries name
functions of this package and objects in the cache, and hold the text of Python functions: the folder is trusted like code (tocha.inductor.cache).
What is damaged, or needs an object that is gone, counts for nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tocha import dtypes, threads
from tocha.aot import journal
from tocha.aot.data import described, maker
from tocha.aot.joint import Traced
from tocha.autograd.mode import is_grad_enabled, state
from tocha.backends import cpu
from tocha.device import get_default_device
from tocha.dispatch.autocast import current
from tocha.dispatch.override import INTERPRETERS, stacks
from tocha.fx import GraphModule
from tocha.inductor import cache, jit, memo
from tocha.tensor import Tensor


def words(module: Any, *about: Any) -> str | None:
    """What a captured graph, and what its compilation is `about`, mean in any process; None if that can't be said, or isn't to be."""
    if journal.listeners or os.environ.get("TOCHA_COMPILE") == "strict":  # who listens wants to see all of it made
        return None
    whole = isinstance(module, GraphModule) and "forward" not in vars(module) and "torch.ops." not in module.code
    if not whole or any(n.op in ("get_attr", "call_module") for n in module.graph.nodes):
        return None
    names = {k: v for k, v in type(module).forward.__globals__.items() if k not in ("__builtins__", "forward")}
    try:
        return module.code + json.dumps([described(names), described(about)])
    except LookupError:
        return None


def key(captured: str | None, inputs: Sequence[Tensor]) -> str | None:
    """The name of the entry of a captured graph for inputs like these; None if there is to be none."""
    odd = INTERPRETERS or stacks.function_modes or stacks.functions_disabled or stacks.subclass_functions_disabled or state.anomaly
    if captured is None or odd or not memo.sources() or any(t._a.__class__ is not np.ndarray for t in inputs):
        return None
    memory: dict[int, int] = {}
    given = [
        (t._a.shape, t._a.strides, t._a.dtype.str, t._a.dtype.name, bool(t.requires_grad), bool(t.is_leaf), memory.setdefault(cpu.memory_id(t._a), i))
        for i, t in enumerate(inputs)
    ]  # fmt: skip
    cast, aside = current(), ("TOCHA_CACHE_DIR", "TOCHA_LOGS")
    variables = sorted((k, v) for k, v in os.environ.items() if k.startswith("TOCHA_") and k not in aside)
    modes = bool(state.grad), is_grad_enabled(), state.inference, state.lenient, cast.enabled, cast.dtypes, cast.cache_enabled
    defaults = dtypes.get_default_dtype(), get_default_device(), threads.get_num_threads(), variables
    return cache.key_of("graph", captured, f"{given} {modes} {defaults}", memo.sources(), jit.versions(), *jit.host())


def keep(key: str | None, *parts: Any) -> str | None:
    """Write an entry: what `recall` gives of a compiled function, or a backward's callable. The name for a forward's backward."""
    if key is None:
        return None
    try:
        entry = json.dumps(described(parts))
    except LookupError:
        return None
    cache.write(key, entry.encode())
    return _of_backward(key, entry)


def _of_backward(key: str, entry: str) -> str:
    """A backward's name: it is for this graph, of which an equal forward says too little, and for what this forward saves."""
    return cache.key_of("backward", key, entry)


def recall(key: str | None) -> tuple[Traced, list[int], Any, Any, Any] | None:
    """A compiled function's parts, as `keep` was given them, and its backward; None if not all of them are there."""
    stored = None if key is None else cache.read(key)
    if key is None or stored is None:
        return None
    try:
        make, backward = maker(), None
        traced, saved_inputs, again, forward = make(json.loads(stored))
        if traced.wanted:
            (backward,) = make(json.loads(cache.read(_of_backward(key, stored.decode())) or b""))
        return (traced, saved_inputs, again, forward, backward) if callable(forward) else None
    except Exception:  # whatever an entry is that isn't ours, it counts for nothing
        return None
