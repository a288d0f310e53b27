"""What is said of compilation: events, log, explain(), the page, doctor --compile; and the names around torch.compile."""

import re
from typing import Any

import pytest

import tocha as torch
from tocha import cli, compiler
from tocha._dynamo import config, page, report
from tocha._dynamo.testing import CompileCounter

SCRIPT = """
import sys
import tocha as torch

@torch.compile
def work(x):
    y = x.sin() + 1
    print("half", sys.argv[1])
    return y.softmax(-1) * 2

x = torch.randn(8, 16, requires_grad=True)
work(x).sum().backward()
work(torch.randn(4, 16))
"""


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    report.chosen.clear()
    report.listen()
    compiler.set_stance("default")


def _broken(x):
    y = x.sin() + 1
    if y.sum() > 0:
        return y * 2
    return y


def test_the_log_says_what_where_and_what_to_do(capsys):
    torch._logging.set_logs(graph_breaks=True, guards=True, output_code=True, schedule=True, aot_graphs=True, recompiles=True)
    f = torch.compile(_broken)
    f(torch.ones(3))
    f(torch.ones(3, 2))
    text = capsys.readouterr().err
    assert re.search(
        r"\[breaks\] _broken: a branch on a tensor's value \(.*test_report.py:\d+ in _broken\); remedy: torch.where", text
    )
    assert "[guards]" in text and "x: is a Tensor of shape [3]" in text and "[recompiles] _broken" in text
    assert "def forward(inputs):" in text and "sin = prims_sin(x0" in text and "float32[3]" in text
    torch._logging.set_logs()
    torch.compile(_broken)(torch.ones(3))
    assert not capsys.readouterr().err


def test_the_environment_asks_for_the_log(capsys, monkeypatch):
    monkeypatch.setenv("TOCHA_LOGS", "breaks")
    torch.compile(_broken, backend="eager")(torch.ones(3))
    monkeypatch.delenv("TOCHA_LOGS")
    torch._dynamo.reset()
    assert capsys.readouterr().err.count("[breaks]") == 1
    torch.compile(_broken, backend="eager")(torch.ones(3))
    assert not capsys.readouterr().err


def test_explain_names_remedies():
    text = str(torch._dynamo.explain(_broken)(torch.ones(3)))
    assert "Graph Break Count: 1" in text and "remedy: torch.where" in text


def test_the_page(tmp_path, capsys):
    script = tmp_path / "work.py"
    script.write_text(SCRIPT)
    out = tmp_path / "report.html"
    assert cli.main(["compile-report", str(script), "<way>", "-o", str(out)]) == 0
    assert capsys.readouterr().out == "half <way>\nhalf <way>\n"
    text = out.read_text()
    for part in ("work.py:8 in work", "move it (print, open, input", "x: is a Tensor of shape [8, 16]", "Recompiles", "prims_sin",
                 "store(&quot;", "kernel", "trace to primitives", "backward to native code", "512 B"):  # fmt: skip
        assert part in text, part
    assert (
        "http" not in text
        and text.count("<details") == text.count("</details>")
        and text.count("<table") == text.count("</table>")
    )


def test_the_page_of_a_script_that_fails(tmp_path, capsys):
    script = tmp_path / "bad.py"
    script.write_text("raise SystemExit(3)")
    assert page.main(str(script), [], str(tmp_path / "r.html")) == 3
    assert "Nothing was compiled" in (tmp_path / "r.html").read_text()
    with pytest.raises(SystemExit, match="no script"):
        cli.main(["compile-report", str(tmp_path / "none.py")])


def test_doctor_compile(capsys):
    assert cli.main(["doctor", "--compile"]) == 0
    out = capsys.readouterr().out
    assert out.count("forward and backward equal eager's") == 3 and "OK: torch.compile works here" in out


def test_stances():
    counter = CompileCounter()
    f = torch.compile(lambda x: x + 1, backend=counter)
    with torch.compiler.set_stance("force_eager"):
        f(torch.ones(2))
    assert counter.frame_count == 0
    f(torch.ones(2))
    torch.compiler.set_stance("eager_on_recompile")
    f(torch.ones(3, 3))
    torch.compiler.set_stance("fail_on_recompile")
    f(torch.ones(2))
    with pytest.raises(RuntimeError, match=r"captured anew.*shape"):
        f(torch.ones(3, 3))
    torch.compiler.set_stance("default")

    @torch.compiler.set_stance("force_eager")
    def plain():
        return f(torch.ones(3, 3))

    plain()
    torch._dynamo.run(f)(torch.ones(3, 3))
    assert counter.frame_count == 1
    with config.patch(error_on_recompile=True), pytest.raises(RuntimeError, match="configuration forbids"):
        f(torch.ones(3, 3))
    f(torch.ones(3, 3))
    assert counter.frame_count == 2
    with pytest.raises(RuntimeError, match=r"invalid torch\.compile stance"):
        torch.compiler.set_stance("other")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"mode": "other"}, "Unrecognized mode=other, should be one of: default, "),
        ({"options": {"other": 1}}, "Unexpected optimization option other, known options are"),
        ({"options": {"max_autotune": 3}}, "Unexpected type of attr max_autotune, got int should be bool"),
        ({"mode": "default", "options": {"max_autotune": True}}, "Either mode or options"),
    ],
)
def test_settings_of_compile(settings, text):
    with pytest.raises(RuntimeError, match=text):
        torch.compile(lambda x: x, **settings)


def test_settings_modules(caplog):
    from tocha._inductor import config as inductor

    assert torch._inductor.list_mode_options("reduce-overhead") == {"triton.cudagraphs": True}
    assert {"max_autotune", "cpp.threads"} <= set(torch._inductor.list_options())
    with inductor.patch({"triton.cudagraphs": True}):
        assert inductor.triton.cudagraphs
    inductor.cpp.simdlen = 256
    inductor.cpp.simdlen = 128
    inductor.cpp.simdlen = None
    assert sum("cpp.simdlen" in r.getMessage() for r in caplog.records) == 1
    for module in (inductor, config):
        with pytest.raises(AttributeError, match="other does not exist"):
            module.other = 1
    saved = config.get_config_copy()
    with config.patch(recompile_limit=3, optimize_ddp=False):
        assert config.limit() == 3 and not config.optimize_ddp
    assert config.get_config_copy() == saved


def test_compile_of_a_graph():
    gm = torch.fx.symbolic_trace(lambda x: {"a": x.sin(), "b": (x, 1)})
    out = torch._inductor.compile(gm, [torch.ones(3)])(torch.full((3,), 2.0))
    assert torch.allclose(out["a"], torch.full((3,), 2.0).sin()) and out["b"][0].tolist() == [2, 2, 2] and out["b"][1] == 1


def test_caches_as_bytes(tmp_path, monkeypatch):
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path / "a"))
    torch.compile(lambda x: x.sin() * 2.625)(torch.ones(77))
    packed, info = torch.compiler.save_cache_artifacts()
    monkeypatch.setenv("TOCHA_CACHE_DIR", str(tmp_path / "b"))
    assert torch.compiler.load_cache_artifacts(packed).inductor_artifacts == info.inductor_artifacts
    assert sorted(f.name for f in (tmp_path / "b").rglob("*.o")) == sorted(k + ".o" for k in info.inductor_artifacts)
    assert torch.compiler.load_cache_artifacts(packed[:-1]) is None and torch.compiler.load_cache_artifacts(b"") is None


def _wrong(gm: Any, inputs: Any, **options: Any) -> Any:
    class Wrong(torch.fx.Interpreter):
        def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
            return super().call_method(target, args, kwargs) + (target == "sigmoid") * 0.1

    return lambda *inputs: Wrong(gm).run(*inputs)


def test_check_names_the_first_operator_that_differs() -> None:
    compiled = torch.compile(lambda x: x.sin().sigmoid() * 2, backend=_wrong, check=True)
    with pytest.raises(torch._dynamo.exc.CheckFailed, match=r"target=sigmoid\].* differs from eager mode's \(at .*test_report.py"):
        compiled(torch.ones(3))


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_check_leaves_results_writes_and_random_numbers_as_they_are(backend: str) -> None:
    def f(x: Any, w: Any) -> Any:
        return torch.nn.functional.dropout(x.add_(1) * w).sum() + torch.rand(())

    outs = []
    for call in (f, torch.compile(f, backend=backend, check=True)):
        torch.manual_seed(3)
        x, w = torch.zeros(4), torch.ones(4, requires_grad=True)
        results = [call(x, w) for _ in range(5)]
        results[-1].backward()
        outs.append([*(r.item() for r in results), x.tolist(), w.grad.tolist()])
    assert outs[0] == outs[1]
