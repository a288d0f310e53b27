"""torch.torch_version: a version as a string that compares as a version."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

_PARTS = re.compile(r"v?(?P<release>\d+(?:\.\d+)*)(?:[-_.]?(?P<pre>a|b|rc|alpha|beta|dev)[-_.]?(?P<number>\d*))?", re.IGNORECASE)
_ORDER = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1}


def _key(version: Any) -> tuple[tuple[int, ...], int, int]:
    """What versions sort by: release numbers without trailing zeros, stage, number of the stage."""
    if isinstance(version, str):
        text = version
    elif isinstance(version, Iterable):
        text = ".".join(map(str, version))
    else:
        raise TypeError(f"can't compare a version with {version!r}")
    found = _PARTS.match(text)
    if found is None:
        raise ValueError(f"Invalid version: {text!r}")
    release = [int(n) for n in found["release"].split(".")]
    while release and release[-1] == 0:
        release.pop()
    return tuple(release), _ORDER.get((found["pre"] or "").lower(), 0), int(found["number"] or 0)


class TorchVersion(str):
    """A version string; `<`, `>=`, … compare it as a version with strings and tuples (`version >= (2, 1)`)."""

    __slots__ = ()

    def _compare(self, other: Any) -> int:
        mine, theirs = _key(self), _key(other)
        return (mine > theirs) - (mine < theirs)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other) < 0

    def __le__(self, other: Any) -> bool:
        return self._compare(other) <= 0

    def __gt__(self, other: Any) -> bool:
        return self._compare(other) > 0

    def __ge__(self, other: Any) -> bool:
        return self._compare(other) >= 0

    def __eq__(self, other: object) -> bool:
        try:
            return self._compare(other) == 0
        except (TypeError, ValueError):
            return str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__
