"""torch.utils.data._utils."""

from . import collate, fetch, pin_memory, worker
