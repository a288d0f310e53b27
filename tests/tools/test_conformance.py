"""Results that fall under the recorded thresholds fail, and --record keeps what was reached."""

import json

import pytest

from tools import conformance

RUNNER = """
import json, sys
path = sys.argv[sys.argv.index("--json") + 1]
with open(path, "w") as f:
    json.dump({{"summary": {{"by_importance": {{"1": [{passed}, 8]}}}}}}, f)
"""


@pytest.fixture
def shared(tmp_path, monkeypatch):
    """A folder with a runner where 6 of 8 operators pass, case 001 that passes and case 002 that fails."""
    folder = tmp_path / "shared"
    (folder / "conformance").mkdir(parents=True)
    (folder / "conformance" / "run.py").write_text(RUNNER.format(passed=6))
    (folder / "cases").mkdir()
    (folder / "cases" / "001_right.py").write_text("import os\nassert os.environ['FRAMEWORK'] == 'tocha'\n")
    (folder / "cases" / "002_wrong.py").write_text("raise ValueError('wrong number')\n")
    monkeypatch.setenv("TOCHA_SHARED", str(folder))
    return folder


@pytest.fixture
def thresholds(tmp_path, monkeypatch):
    path = tmp_path / "thresholds.toml"
    monkeypatch.setattr(conformance, "THRESHOLDS", path)

    def write(share, passing):
        path.write_text(f'[conformance]\nhalf = "A"\nimportance_1 = {share}\n[cases]\npassing = {json.dumps(passing)}\n')
        return path

    return write


@pytest.mark.parametrize(
    ("share", "passing", "status"),
    [(0.75, ["001"], 0), (0.76, ["001"], 1), (0.5, ["001", "002"], 1), (0.0, [], 0)],
)
def test_falling_under_a_threshold_fails(shared, thresholds, share, passing, status):
    thresholds(share, passing)
    assert conformance.main([]) == status


def test_record_keeps_what_was_reached(shared, thresholds):
    path = thresholds(0.1, [])
    assert conformance.main(["--record"]) == 0
    assert "importance_1 = 0.75\n" in path.read_text()
    assert 'passing = ["001"]' in path.read_text()
    (shared / "conformance" / "run.py").write_text(RUNNER.format(passed=5))
    assert conformance.main([]) == 1


def test_kernels_have_a_threshold_of_their_own(shared, thresholds):
    path = thresholds(0.9, ["002"])
    path.write_text(path.read_text().replace("[cases]", "native_importance_1 = 0.1\n[cases]"))
    checked = "import os\nassert (os.environ['TOCHA_NATIVE_MIN'], os.environ['TOCHA_COMPILE']) == ('1', 'strict')\n"
    (shared / "conformance" / "run.py").write_text(checked + RUNNER.format(passed=6))
    assert conformance.main(["--native", "--record"]) == 0
    assert 'importance_1 = 0.9\nnative_importance_1 = 0.75\n[cases]\npassing = ["002"]' in path.read_text()
    assert conformance.main(["--native"]) == 0
    (shared / "conformance" / "run.py").write_text(checked + RUNNER.format(passed=5))
    assert conformance.main(["--native"]) == 1


def test_a_runner_without_a_report_is_a_failure(shared, thresholds):
    thresholds(0.0, [])
    (shared / "conformance" / "run.py").write_text("raise SystemExit(2)\n")
    with pytest.raises(SystemExit, match="no report"):
        conformance.main([])


def test_nothing_to_check(thresholds, monkeypatch, tmp_path, capsys):
    thresholds(0.9, ["001"])
    monkeypatch.setenv("TOCHA_SHARED", str(tmp_path / "absent"))
    assert conformance.main([]) == 0
    assert "nothing checked" in capsys.readouterr().out


def test_checking_no_operator_is_a_failure(shared, thresholds):
    thresholds(0.0, [])
    runner = RUNNER.format(passed=0).replace(", 8]", ", 0]")
    (shared / "conformance" / "run.py").write_text(runner)
    with pytest.raises(SystemExit, match="no operator was checked"):
        conformance.main([])
