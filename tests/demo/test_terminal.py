"""Drawing of digits and the progress line."""

import io

import pytest

from tocha.demo import terminal

IMAGE = [[0.0, 1.0], [0.5, 0.25]]


class Screen(io.StringIO):
    """Standard output of a given kind."""

    def __init__(self, live, encoding="utf-8"):
        super().__init__()
        self._live, self._encoding = live, encoding

    encoding = property(lambda self: self._encoding)

    def isatty(self):
        return self._live


@pytest.fixture
def show(monkeypatch):
    """Set up standard output of a kind and return it."""

    def setup(live, encoding="utf-8", columns=80, no_color=""):
        screen = Screen(live, encoding)
        monkeypatch.setattr("sys.stdout", screen)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", no_color)
        return screen

    return setup


def test_plain_drawing(show):
    show(live=False)
    assert terminal.draw([IMAGE, IMAGE], ["a", "b"]).split("\n") == ["  ██    ██", "▒▒░░  ▒▒░░", " a     b"]


def test_ascii_where_the_encoding_needs_it(show):
    show(live=False, encoding="ascii")
    assert terminal.draw([IMAGE], ["a"]).split("\n") == ["  @@", "++..", " a"]


def test_colour_only_on_a_terminal_that_wants_it(show):
    show(live=True)
    assert "\x1b[48;5;255m  \x1b[0m" in terminal.draw([IMAGE], ["a"])
    show(live=True, no_color="1")
    assert "\x1b" not in terminal.draw([IMAGE], ["a"])
    show(live=False)
    assert "\x1b" not in terminal.draw([IMAGE], ["a"])


def test_rows_fit_the_terminal(show):
    show(live=False, columns=10)
    rows = terminal.draw([IMAGE] * 3, ["a", "b", "c"]).split("\n")
    assert max(map(len, rows)) <= 10
    assert [row.split() for row in rows if row[1:2].isalpha()] == [["a", "b"], ["c"]]


def test_values_outside_the_range_are_clamped(show):
    show(live=False)
    assert terminal.draw([[[-1.0, 7.0]]], ["x"]).split("\n")[0] == "  ██"


def test_progress_prints_a_line_an_epoch_where_no_terminal_is(show):
    screen = show(live=False)
    progress = terminal.Progress(epochs=2, steps=3)
    for epoch in (1, 2):
        progress.start(epoch)
        for step in (1, 2, 3):
            progress.update(step, images=10, loss=0.5, rate=0.01)
    lines = screen.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("epoch  1/2 ")
    assert "3/3  loss 0.5000  lr 0.01000" in lines[1]
    assert "\r" not in screen.getvalue()


def test_progress_redraws_on_a_terminal(show):
    screen = show(live=True)
    progress = terminal.Progress(epochs=1, steps=2)
    progress.start(1)
    progress.update(1, images=10, loss=0.5, rate=0.01)
    progress.update(2, images=10, loss=0.25, rate=0.01)
    first, second = screen.getvalue().split("\r")[1:]
    assert "1/2  loss 0.5000" in first
    assert second.endswith("images/s\n")
