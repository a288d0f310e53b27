"""The script that makes the environment: an install that is interrupted, and one that is there already."""

from pathlib import Path

import pytest

from tools import make_env


def test_an_interrupted_install_says_so_and_counts_as_not_done(tmp_path: Path, monkeypatch, capsys) -> None:
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(make_env.venv, "create", interrupted)
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "installed").write_text("older /elsewhere\n")
    assert make_env.main([str(folder), "stamp /here"]) == 130
    assert "interrupted" in capsys.readouterr().err
    assert not (folder / "installed").exists()


def test_an_environment_with_this_stamp_is_left_alone(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(make_env.venv, "create", lambda *args, **kwargs: pytest.fail("made again"))
    folder = tmp_path / "env"
    folder.mkdir()
    (folder / "installed").write_text("stamp /here\n")
    assert make_env.main([str(folder), "stamp /here"]) == 0
