"""torch.utils.data._utils.pin_memory."""

from tocha.data.pin_memory import pin_memory as pin_memory
