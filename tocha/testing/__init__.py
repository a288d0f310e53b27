"""torch.testing: assert_close and make_tensor."""

from tocha.testing._close import assert_close
from tocha.testing._make import make_tensor

__all__ = ["assert_close", "make_tensor"]
