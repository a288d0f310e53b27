"""What kernels were made for, beside the kernels in the cache: so that a second process finds one without writing its code first.

note ::= {"object": key of the object file, "exports", "imports": names of its symbols, "name": the builtin's, "data": what its maker adds}

A note's own key holds what its maker says the code depends on, this package's sources, versions, and the CPU. What is not understood, or
points to an object that is gone, counts for nothing. Objects go by what they were compiled from, so an origin (a note without its data) never
means other code: entries of whole graphs (tocha.aot.kept) name their kernels by it.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from tocha.inductor import cache, entry, jit

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
#: Where builtins and addresses come from, and the other way round, by the object's key.
origins: dict[Any, dict[str, Any]] = {}
_by_object: dict[str, Any] = {}


@functools.cache
def sources() -> str:
    """A digest of this package's files as they are (times and sizes); "" if they can't be listed: then nothing is noted."""
    digest, folders = hashlib.sha256(f"{_ROOT} {sys.version} {np.__version__}".encode()), [_ROOT]
    try:
        while folders:
            with os.scandir(folders.pop()) as entries:
                for e in sorted(entries, key=lambda e: e.name):
                    if e.is_dir(follow_symlinks=False):
                        folders += [e.path] * (e.name != "__pycache__")
                    elif e.name.endswith(".py"):
                        found = e.stat()
                        digest.update(f"{e.path} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_size}\n".encode())
    except OSError:
        return ""
    return digest.hexdigest()


def builtin(what: str | None, make: Callable[[], tuple[Any, Any]], good: Callable[[Any], bool]) -> tuple[Any, Any]:
    """`make()`, a builtin and data for JSON, or what it gave another process for the same `what` (None: nobody can say), if that is `good`."""
    found = _recall(what)
    if found is not None and isinstance(found[0], types.BuiltinFunctionType) and good(found[1]):
        return found
    loads: list[jit.Loaded] = []
    with jit.noting(loads):
        made, data = make()
    if isinstance(made, types.BuiltinFunctionType):
        _keep(what, loads, made, made.__name__, data)
    return made, data


def address(what: str | None, make: Callable[[], int]) -> int:
    """The same for the address of a function, the only one of its module."""
    found = _recall(what)
    if found is not None and found[0].__class__ is int:
        return int(found[0])
    loads: list[jit.Loaded] = []
    with jit.noting(loads):
        made = make()
    _keep(what, loads, made, "", None)
    return made


def restored(origin: dict[str, Any]) -> Any:
    """The builtin or address of an origin; KeyError if its object is gone."""
    known = entry.known_symbols()
    with jit.LOCK:
        found = _by_object.get(origin["object"])
        if found is None:
            imports = {n: known[n] if n in known else jit.libm_address(n) for n in origin["imports"]}
            (at,) = jit.load_object(origin["object"], tuple(origin["exports"]), imports) or [0]
            if not at:
                raise KeyError(origin["object"])
            found = _from(origin, entry.at_address(origin["name"], at) if origin["name"] else at)
        return found


def _from(note: dict[str, Any], made: Any) -> Any:
    origins[made] = {k: note[k] for k in ("object", "exports", "imports", "name")}
    return _by_object.setdefault(note["object"], made)


def _key(what: str) -> str:
    return cache.key_of("note", what, sources(), jit.versions(), *jit.host())


def _recall(what: str | None) -> tuple[Any, Any] | None:
    """What was made for `what`, and the data beside it."""
    entry.known_symbols()  # what it links is no part of what is noted
    stored = cache.read(_key(what)) if what is not None and sources() else None
    try:
        note = json.loads(stored or b"")
        return restored(note), note["data"]
    except (ValueError, LookupError, TypeError, AttributeError, jit.CompileError):
        return None


def _keep(what: str | None, loads: list[jit.Loaded], made: Any, name: str, data: Any) -> None:
    if what is None or len(loads) != 1 or len(loads[0].exports) != 1 or not sources():
        return
    (load,) = loads
    note = {"object": load.key, "exports": load.exports, "imports": sorted(load.imports), "name": name, "data": data}
    _from(note, made)
    cache.write(_key(what), json.dumps(note).encode())
