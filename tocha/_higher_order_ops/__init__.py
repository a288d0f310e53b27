"""torch._higher_order_ops: operators that take functions (torch docs: torch.cond, torch.while_loop; scan, associative_scan and map).

They are Python here: eager calls run the functions. Under torch.compile a `cond` or `while_loop` on tensors becomes one node whose
operands are graphs (`tocha._dynamo.subgraphs`), loops over a known length are unrolled.
"""

from __future__ import annotations

from tocha._higher_order_ops.associative_scan import associative_scan
from tocha._higher_order_ops.cond import cond
from tocha._higher_order_ops.map import map
from tocha._higher_order_ops.scan import scan
from tocha._higher_order_ops.while_loop import while_loop

__all__ = ["associative_scan", "cond", "map", "scan", "while_loop"]
