"""The benchmark's table, and that each case runs on tocha."""

import pytest

import tocha
from bench import eager as bench
from bench.cases import CASES


@pytest.mark.parametrize("name", CASES)
def test_case_runs_twice(name):
    step = CASES[name].make(tocha, "cpu")
    assert step().isfinite().all()
    step()


@pytest.mark.parametrize(("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.56e-6, "4.56 µs"), (None, "–")])
def test_duration(seconds, text):
    assert bench.duration(seconds) == text


def test_table_shows_failures_and_ratios():
    report = {
        "date": "2026-01-02",
        "versions": {"tocha": "0.1.0"},
        "device": "cpu",
        "threads": 2,
        "command": "./run bench",
        "rows": [
            {"case": "a", "tocha": 1e-3, "torch": 2e-3, "ratio": 0.5, "limit": 1.0},
            {"case": "b", "tocha": 1e-3},
            {"case": "c", "error": "tocha: no"},
        ],
    }
    assert bench.table(report).splitlines()[-3:] == [
        "| a | 1 ms | 2 ms | 0.50 | ≤ 1.0 |",
        "| b | 1 ms | – | – | – |",
        "| c | failed: tocha: no | | | |",
    ]


@pytest.mark.slow
def test_runs_without_torch(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["bench", "tiny_add", "--rounds", "2", "--seconds", "0.01"])
    assert bench.main() == 0
    assert "| tiny_add | " in capsys.readouterr().out
