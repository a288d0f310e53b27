"""torch.testing: assert_close, assert_allclose and make_tensor."""

from tocha.testing._close import assert_allclose, assert_close
from tocha.testing._make import make_tensor

__all__ = ["assert_allclose", "assert_close", "make_tensor"]
