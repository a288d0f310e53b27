"""The grid's runner: rows, the comparison of outputs, the summary."""

import json

import numpy as np
import pytest

import tocha
from bench import eager, grid_run
from bench.grid import GRID, Row
from bench.serve import Server

ROW = Row("group/row", "group", lambda torch: lambda: torch.ones(2), 1.0)


@pytest.mark.parametrize(
    "name", ["sgemm/1x768x3072", "convolution/3x3 64x64 56 batch 1 gradient of weight", "optimizer/AdamW 50 parameters"]
)
def test_row_runs(name):
    assert GRID[name].make(tocha)().isfinite().all()


def _saved(folder, *arrays):
    folder.mkdir()
    for number, a in enumerate(arrays):
        np.save(folder / f"{number}.npy", np.asarray(a))
    return folder


def test_difference_is_elementwise(tmp_path):
    expected = _saved(tmp_path / "b", np.float32([1, 2, np.nan, np.inf]))
    same = _saved(tmp_path / "a", np.float32([1.00001, 2, np.nan, np.inf]))
    swapped = _saved(tmp_path / "c", np.float32([2, 1, np.nan, np.inf]))
    longer = _saved(tmp_path / "d", np.float32([1, 2, np.nan, np.inf, 0]))
    assert grid_run.difference(ROW, same, expected, 1) is None
    assert "at 2 of 4 places, first (0,)" in grid_run.difference(ROW, swapped, expected, 1)
    assert "(5,), expected" in grid_run.difference(ROW, longer, expected, 1)


def test_a_failing_row_is_an_answer():
    server = Server("tocha", tocha.get_num_threads())
    assert server.answer("make\tno such row\t/nowhere\n") == {"error": "KeyError: 'no such row'"}


def _result(name, ratio, limit=1.0, **more):
    return {"row": name, "group": name.split("/")[0], "limit": limit, "cpu ratio": ratio, "wall ratio": 2 * ratio, **more}


def test_summary_has_geometric_means():
    results = [_result("a/x", 0.25), _result("a/y", 4.0), {"row": "b/z", "group": "b", "limit": 1.0, "error": "no"}]
    assert grid_run.summary(results, 1).splitlines()[2:] == ["| a | 2 | 1.00 | 1 | y 4.00 |", "| b | 1 | – | 1 failed | |"]
    assert "| a | 2 | 2.00 | 1 | y 8.00 |" in grid_run.summary(results, 2)


def test_merged_keeps_other_rows_and_thread_counts(tmp_path):
    path = tmp_path / "grid.json"
    names = list(GRID)[:2]
    old = [{"row": name, "cpu ratio": 9.0} for name in names]
    path.write_text(json.dumps({"1 thread": {"rows": old}, "2 threads": {"rows": old}}))
    report = {"date": "2026-01-02", "threads": 1, "rows": [{"row": names[1], "cpu ratio": 1.0}]}
    found = grid_run.merged(path, report)
    assert [r["cpu ratio"] for r in found["1 thread"]["rows"]] == [9.0, 1.0]
    assert found["2 threads"] == {"rows": old}


@pytest.mark.slow
def test_runs_without_torch(monkeypatch, capsys):
    monkeypatch.setattr(
        "sys.argv", ["bench", "--grid", "--only", "pointwise/relu 1M forward", "--rounds", "1", "--seconds", "0.001"]
    )
    assert eager.main() == 0
    assert "pointwise/relu 1M forward" in capsys.readouterr().err
