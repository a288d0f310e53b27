"""Imports every module that registers operators, in one place and in a fixed order."""

from __future__ import annotations

from tocha.ops import convert, creation, reduce, shape  # noqa: F401
from tocha.ops.operators import attach
from tocha.prims import elementary  # noqa: F401

attach()
