"""torch.ao.quantization: the marks where a quantised model would change representation; in a float model they do nothing."""

from __future__ import annotations

from typing import Any

from tocha.nn import Module

__all__ = ["DeQuantStub", "QuantStub"]


class QuantStub(Module):
    """Passes its input on; conversion to a quantised model would put a quantiser here."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()
        if qconfig:
            self.qconfig = qconfig

    def forward(self, x: Any) -> Any:
        """x."""
        return x


class DeQuantStub(QuantStub):
    """Passes its input on; conversion to a quantised model would put a dequantiser here."""
