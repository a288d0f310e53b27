"""The command line: what each command prints and the exit statuses."""

import re
import subprocess
import sys

import pytest

import tocha
from tocha import cli, doctor
from tocha.version import __version__


def test_version(capsys):
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"
    assert tocha.__version__ == __version__


def test_runs_as_a_module():
    command = [sys.executable, "-m", "tocha", "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == __version__


def test_help_lists_the_commands(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    out = capsys.readouterr().out
    for name in ("demo", "doctor", "version"):
        assert re.search(rf"^    {name} ", out, re.MULTILINE)


@pytest.mark.parametrize(
    "argv",
    [[], ["dance"], ["demo", "--epochs", "0"], ["demo", "--target", "97"], ["demo", "--seed", "x"]],
    ids=" ".join,
)
def test_wrong_arguments_are_a_usage_error(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert "usage: tocha" in capsys.readouterr().err


def test_predict_without_a_checkpoint_says_what_to_do(tmp_path):
    with pytest.raises(SystemExit, match=r"no checkpoint .*run `tocha demo` first"):
        cli.main(["demo", "--predict", "--checkpoint", str(tmp_path / "none.pt")])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--device", "tpu"], "device type"),
        (["--device", "meta"], "no values to train with"),
        (["--seed", str(-(2**70))], "outside"),
        (["--checkpoint", "no/such/folder/digits.pt"], "can't save to no/such/folder/digits.pt"),
        (["--checkpoint", "."], "can't save to ."),
    ],
    ids=lambda value: value[-1][:8] if isinstance(value, list) else "",
)
def test_the_demo_refuses_before_it_trains(argv, message):
    with pytest.raises(SystemExit, match=f"^tocha demo: .*{re.escape(message)}"):
        cli.main(["demo", *argv])


def test_words_for_numbers_are_refused_in_words(capsys):
    for option in ("--epochs", "--target"):
        with pytest.raises(SystemExit):
            cli.main(["demo", option, "x"])
        assert re.search(r"x is not (a positive number|between 0 and 1)", capsys.readouterr().err)


def test_closed_standard_output_is_no_error(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert cli.main(["version"]) == 0
    sys.stdout.close()


def test_interrupt_is_130(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "main", interrupted)
    assert cli.main(["doctor"]) == 130


def test_doctor_passes_here(capsys):
    assert cli.main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^numpy +\d+\.", out, re.MULTILINE)
    assert re.search(r"^devices +cpu", out, re.MULTILINE)
    assert re.search(r"^self-test cpu +ok", out, re.MULTILINE)


def test_doctor_fails_when_a_device_does(monkeypatch, capsys):
    def broken(device):
        if device == "cuda:0":
            raise RuntimeError("out of luck")

    monkeypatch.setattr(doctor, "self_test", broken)
    monkeypatch.setattr(doctor, "devices", lambda: ["cuda:0", "cpu"])
    monkeypatch.setattr(doctor, "report", lambda: iter([("numpy", "2.4")]))
    assert doctor.main() == 1
    out = capsys.readouterr().out
    assert "FAILED: RuntimeError: out of luck" in out
    assert re.search(r"^self-test cpu +ok", out, re.MULTILINE)


def test_doctor_fails_when_a_requirement_is_missing(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "REQUIRED", ("numpy", "no-such-package-of-tocha"))
    assert doctor.main() == 1
    assert re.search(r"^no-such-package-of-tocha +MISSING", capsys.readouterr().out, re.MULTILINE)


def test_self_test_sees_a_wrong_gradient(monkeypatch):
    right = doctor._loss
    monkeypatch.setattr(doctor, "_loss", lambda *args: _GradientTwice.apply(right(*args)))
    with pytest.raises(RuntimeError, match="finite differences"):
        doctor.self_test("cpu")


class _GradientTwice(tocha.autograd.Function):
    """The identity with a backward that is off by a factor of two."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


def test_a_reader_that_has_gone_is_no_traceback():
    command = f"{sys.executable} -m tocha doctor | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
