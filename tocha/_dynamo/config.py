"""torch._dynamo.config: settings of capture, read at each compilation."""

from __future__ import annotations

#: Variants of one function, or of one place where a graph broke, that are kept; further ones run eagerly.
recompile_limit = 8
cache_size_limit = 8
accumulated_recompile_limit = 256
#: Whether a backend's failure is a warning and the graph runs eagerly.
suppress_errors = False
verbose = False
fail_on_recompile_limit_hit = False
error_on_recompile = False
capture_scalar_outputs = False
capture_dynamic_output_shape_ops = False
dynamic_shapes = True
assume_static_by_default = True
automatic_dynamic_shapes = True
disable = False
#: Frames that inlined calls may nest, and instructions of a trace: beyond, the graph breaks.
inline_depth_limit = 60
trace_limit = 400_000


def limit() -> int:
    """The recompile limit; `cache_size_limit` is its older name."""
    return min(recompile_limit, cache_size_limit)
