"""From a call to a kernel: primitives and `bind`, promotion, the operator registry, in-place and out= forms, overrides."""
