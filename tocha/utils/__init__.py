"""torch.utils: checkpoint, data, and small helpers."""
