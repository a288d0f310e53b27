"""torch.autograd.anomaly_mode: anomaly detection under torch's module path."""

from tocha.autograd.anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
