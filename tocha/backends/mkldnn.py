"""torch.backends.mkldnn: whether oneDNN is used. It is not."""

from __future__ import annotations

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """False: oneDNN isn't used."""
    return False
