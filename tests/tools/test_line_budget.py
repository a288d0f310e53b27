"""Counting of code lines, and the report of what is over budget."""

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


def test_a_long_file_is_reported(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(line_budget, "ROOT", tmp_path)
    (tmp_path / "tocha").mkdir()
    (tmp_path / "tocha" / "tensor.py").write_text("x = 1\n" * 600)
    assert line_budget.main([]) == 0
    assert "core 600 of" in capsys.readouterr().out
    (tmp_path / "tocha" / "tensor.py").write_text("x = 1\n" * 601)
    assert line_budget.main([]) == 1
    assert "tocha/tensor.py: 601 lines" in capsys.readouterr().out


def test_the_front_of_the_kernels_is_no_part_of_the_core(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(line_budget, "ROOT", tmp_path)
    (tmp_path / "tocha" / "backends").mkdir(parents=True)
    for name, lines in (("cpu.py", 7), ("native.py", 20), ("_native_conv.py", 3)):
        (tmp_path / "tocha" / "backends" / name).write_text("x = 1\n" * lines)
    assert line_budget.main([]) == 0
    assert "core 7 of 13000, kernels 23 of" in capsys.readouterr().out
