"""torch._higher_order_ops: operators that take functions (torch docs: torch.cond, torch.while_loop; scan, associative_scan and map).

They are Python here: eager calls run the functions, and torch.compile captures them, loops over a known length unrolled. A predicate
that is a tensor is decided when the program runs; the graph breaks there, and each branch is captured by itself.
"""

from __future__ import annotations

from tocha._higher_order_ops.associative_scan import associative_scan
from tocha._higher_order_ops.cond import cond
from tocha._higher_order_ops.map import map
from tocha._higher_order_ops.scan import scan
from tocha._higher_order_ops.while_loop import while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
