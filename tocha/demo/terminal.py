"""What the demo shows: a progress line and digits drawn with characters; plain where no terminal is."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence

Image = Sequence[Sequence[float]]

_BAR_WIDTH = 24
_SHADES = " ░▒▓█"
_ASCII_SHADES = " .+#@"
_GAP = "  "


def is_live() -> bool:
    """Whether standard output is a terminal that can redraw a line."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def has_colour() -> bool:
    """Whether to colour: a terminal, and the user did not say NO_COLOR (no-color.org)."""
    return is_live() and not os.environ.get("NO_COLOR")


def _encodes(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


class Progress:
    """A line that is redrawn on a terminal, and printed once an epoch elsewhere."""

    def __init__(self, epochs: int, steps: int) -> None:
        self.epochs, self.steps = epochs, steps
        self._live = is_live()
        self._full, self._rest = ("━", "─") if _encodes("━─") else ("#", "-")
        self._shown = 0.0
        self._epoch = 0
        self._images = 0
        self._started = time.perf_counter()

    def start(self, epoch: int) -> None:
        """Begin epoch number `epoch`, counted from 1."""
        self._epoch, self._images, self._started = epoch, 0, time.perf_counter()

    def update(self, step: int, images: int, loss: float, rate: float) -> None:
        """Show step number `step` of this epoch: `images` more were seen, at this loss and learning rate."""
        self._images += images
        now = time.perf_counter()
        last = step == self.steps
        if not last and (not self._live or now - self._shown < 0.1):
            return
        self._shown = now
        filled = _BAR_WIDTH * step // self.steps
        bar = self._full * filled + self._rest * (_BAR_WIDTH - filled)
        speed = self._images / max(now - self._started, 1e-9)
        line = (
            f"epoch {self._epoch:>2}/{self.epochs} {bar} {step:>3}/{self.steps}"
            f"  loss {loss:.4f}  lr {rate:.5f}  {speed:6.0f} images/s"
        )
        print(f"\r{line}" if self._live else line, end="" if self._live and not last else "\n", flush=True)


def draw(images: Sequence[Image], captions: Sequence[str]) -> str:
    """Images of values in [0, 1], side by side in rows that fit the terminal, each over its caption."""
    cell = 2 * len(images[0][0])
    width = shutil.get_terminal_size((80, 24)).columns
    per_row = max(1, (width + len(_GAP)) // (cell + len(_GAP)))
    blocks = []
    for first in range(0, len(images), per_row):
        some = images[first : first + per_row]
        lines = [_GAP.join("".join(map(_pixel, image[row])) for image in some) for row in range(len(some[0]))]
        lines.append(_GAP.join(text.center(cell) for text in captions[first : first + per_row]).rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _pixel(value: float) -> str:
    """Two characters, about a square, as dark or light as `value`."""
    value = min(max(value, 0.0), 1.0)
    if has_colour():
        # The 24 greys of the 256-colour palette start at 232.
        return f"\x1b[48;5;{232 + round(value * 23)}m  \x1b[0m"
    shades = _SHADES if _encodes(_SHADES) else _ASCII_SHADES
    return shades[min(int(value * len(shades)), len(shades) - 1)] * 2
