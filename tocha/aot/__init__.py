"""AOTAutograd: functions of tensors, their writes and gradients, as functional graphs of primitives.

`trace` is the backend that records, `joint` runs a function on it, `partition` cuts forward from backward, `run` says what a graph
means, `runtime` makes it a function of tensors again.
"""
