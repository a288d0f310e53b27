"""Counting of code lines, and that the tree keeps its budgets."""

from tools import line_budget


def test_code_lines_leave_comments_and_docstrings_out():
    source = '''"""Module text
over two lines."""

# a comment
x = 1  # counted once

def f(
    a,
):
    """Text."""
    return """not a
docstring"""
'''
    assert line_budget.code_lines(source) == 6


def test_empty_file_has_no_code():
    assert line_budget.code_lines("") == 0


def test_the_tree_is_within_budget(capsys):
    assert line_budget.main([]) == 0, capsys.readouterr().out
