"""Builtins, threads and the background compiler."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocha as torch
from tests.inductor.test_pointwise import run
from tocha.backends import native, native_lists
from tocha.inductor import entry, jit, service
from tocha.inductor.loop_ir import Buffer, Call, Index, Kernel, Load, Loop, Param, Size, Store

ROOT = Path(__file__).parents[2]


def _scaled() -> Any:
    """out[i] = x[i] * factor."""
    i = Index("i")
    store = Store("out", i, Load("x", i, "f64") * Param("factor", "f64"))
    body = (Loop("i", Size("lo"), Size("hi"), (store,), "vector"),)
    return entry.build(Kernel("scaled", (Buffer("out", "f64"), Buffer("x", "f64")), (Param("factor", "f64"),), (), body), 1024)


def test_a_builtin_checks_its_arguments() -> None:
    scaled = _scaled()
    x, out = np.arange(10.0), np.zeros(10)
    assert scaled(out, x, 2.0, 10) is None
    np.testing.assert_array_equal(out, x * 2)
    for wrong in ((out, x, 2.0), (out, [1.0], 2.0, 10), (out, x, "2", 10), (out, x, 2.0, None), (out, x, 2.0, x)):
        with pytest.raises(TypeError):
            scaled(*wrong)


def test_references_are_balanced() -> None:
    scaled = _scaled()
    x, out, n = np.arange(10.0), np.zeros(10), 10**6 // 10**5
    before = sys.getrefcount(x), sys.getrefcount(None)
    for _ in range(1000):
        scaled(out, x, 2.0, n)
    assert sys.getrefcount(x) == before[0]
    assert abs(sys.getrefcount(None) - before[1]) < 100


def test_a_missing_function_is_an_error_that_names_it() -> None:
    i = Index("i")
    body = (Loop("i", Size("lo"), Size("hi"), (Store("out", i, Call("no_such_function", (Load("out", i, "f64"),), "f64")),)),)
    with pytest.raises(jit.CompileError, match="no_such_function"):
        entry.build(Kernel("k", (Buffer("out", "f64"),), (), (), body), 1)


def test_many_threads_at_once() -> None:
    scaled = _scaled()
    x = np.arange(200_000.0)
    wrong: list[int] = []

    def work(number: int) -> None:
        out = np.empty_like(x)
        for _ in range(50):
            out[:] = 0
            scaled(out, x, float(number), x.size)
            if not np.array_equal(out, x * number):
                wrong.append(number)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for w in workers:
            w.start()
        for w in workers:
            w.join(60)
    finally:
        torch.set_num_threads(before)
    assert not wrong


def test_threads_change_while_kernels_run() -> None:
    x = np.random.default_rng(0).standard_normal(300_000).astype(np.float32)
    first = run("gelu", [x])
    before = torch.get_num_threads()
    try:
        for threads in (1, 4, 2, 8, 1, 3):
            torch.set_num_threads(threads)
            for _ in range(5):
                np.testing.assert_array_equal(run("gelu", [x]), first)
    finally:
        torch.set_num_threads(before)


def _python(program: str, **settings: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    got = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, env=environment, timeout=60
    )
    assert got.returncode == 0, got.stderr
    return got.stdout


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_children_of_fork_compute_and_compile() -> None:
    program = """
        import os, warnings
        warnings.simplefilter("ignore")
        import tocha as torch
        torch.set_num_threads(4)
        x = torch.linspace(-3, 3, 400_000)
        y = torch.nn.functional.silu(x)
        pids = []
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                ok = torch.equal(torch.nn.functional.silu(x), y) and torch.equal(torch.exp(x), (x + child * 0).exp())
                os._exit(0 if ok else 1)
            pids.append(pid)
        print([os.waitpid(p, 0)[1] for p in pids], torch.equal(torch.nn.functional.silu(x), y))
    """
    assert _python(program, TOCHA_COMPILE="strict") == "[0, 0, 0] True\n"
    assert _python(program, TOCHA_COMPILE="background") == "[0, 0, 0] True\n"


def test_the_first_call_is_not_delayed_and_the_process_ends_cleanly() -> None:
    program = """
        import tocha as torch, time
        from tocha.backends import native, native_lists
        x = torch.linspace(-3, 3, 100_000)
        first = torch.nn.functional.mish(x)
        for _ in range(500):
            if any(v.builtin for variants in native._kernels.values() for v in variants):
                break
            time.sleep(0.02)
        print((torch.nn.functional.mish(x) - first).abs().max().item() < 1e-6)
        torch.nn.functional.gelu(x)  # still being compiled at exit
    """
    assert _python(program, TOCHA_COMPILE="background") == "True\n"


def test_repeating_a_call_repeats_its_bits() -> None:
    program = """
        import tocha as torch
        x = torch.linspace(-3, 3, 100_000)
        small = x[:100].clone()
        first = torch.nn.functional.softplus(small)
        print(torch.equal(torch.nn.functional.softplus(x), torch.nn.functional.softplus(x)))
        print(torch.equal(torch.nn.functional.softplus(small), first))
    """
    assert _python(program) == "True\nTrue\n"


def test_threads_wait_for_a_kernel_that_another_compiles() -> None:
    program = """
        import threading, tocha as torch
        x = torch.linspace(-3, 3, 100_000)
        found = []
        def work():
            found.append(torch.nn.functional.mish(x))
        workers = [threading.Thread(target=work) for _ in range(4)]
        [w.start() for w in workers]
        [w.join() for w in workers]
        print(len(found), all(torch.equal(f, found[0]) for f in found))
    """
    assert _python(program) == "4 True\n"


def test_the_tier_can_be_switched_off() -> None:
    program = """
        import tocha as torch, sys
        torch.nn.functional.gelu(torch.ones(500_000)).sum()
        print("llvmlite" in sys.modules)
    """
    assert _python(program, TOCHA_EAGER="numpy") == "False\n"


def test_requests_are_served_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCHA_COMPILE", "background")
    got: list[Any] = []
    service.request(lambda: 5, got.append)
    service.request(lambda: 1 / 0, got.append)
    for _ in range(200):
        if len(got) == 2:
            break
        time.sleep(0.01)
    assert got == [5, service.FAILED]
    assert "ZeroDivisionError" in service.failures[-1]


def test_modules_are_loaded_only_when_large_arrays_come() -> None:
    assert (
        _python("import tocha, sys; tocha.ones(5).exp(); print('llvmlite' in sys.modules, 'tocha.inductor' in sys.modules)")
        == "False False\n"
    )
    assert native.inductor() is not None


def test_an_interrupted_compilation_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a kernel's first call: pointwise kernels, others, and lists of tensors."""
    from tocha.inductor import jit

    calls = {
        "matrix products": lambda: torch.ones(97, 98, dtype=torch.float64) @ torch.ones(98, 99, dtype=torch.float64),
        "pointwise": lambda: torch.addcmul(torch.ones(3000), torch.ones(3000), torch.full((3000,), 2.0), value=3.25),
        "lists": lambda: torch._foreach_addcdiv([torch.ones(2000)] * 3, [torch.ones(2000)] * 3, [torch.full((2000,), 2.0)] * 3, 0.375),
    }

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        raise KeyboardInterrupt

    for name, call in calls.items():
        for module in (native, native_lists):
            for table in ("_built", "_kernels", "_calls", "_remembered"):
                if hasattr(module, table):
                    monkeypatch.setattr(module, table, {})
        with monkeypatch.context() as patch:
            patch.setattr(jit, "load", interrupted)
            patch.setattr(jit, "load_object", interrupted)
            patch.setattr(jit, "load_twice", interrupted)
            with pytest.raises(KeyboardInterrupt):
                call()
        built, want = service.compiled, call()
        assert service.compiled > built, name
        torch.testing.assert_close(call(), want, rtol=0, atol=0)
