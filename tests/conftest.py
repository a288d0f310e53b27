"""What holds for all tests."""

from __future__ import annotations

import signal

# A shell that starts a job in the background has it ignore SIGINT, and so would the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
