"""Checks the fused CUDA kernels (tocha.inductor.launch_cuda) against the CPU's kernels, and times them against CuPy and torch.

    python tools/triton_check.py --json bench/results/h200_triton.json

Every part is a process of its own. The kernels run where `import torch` fails; torch is imported by the part that times it alone, if it is
there. Needs a CUDA device, CuPy, Triton and llvmlite. Exit status 0 if all kernels agreed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
ELEMENTS = 1 << 26
ROWS = (16384, 4096)
KINDS = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool")
Report = dict[str, Any]


def _without_torch() -> None:
    sys.modules["torch"] = None  # type: ignore[assignment]
    os.environ["TOCHA_COMPILE"] = "strict"
    os.environ["TOCHA_NATIVE_MIN"] = "1"


# ---- are they right?


def _distance(got: Any, want: Any) -> float:
    """Largest difference in units of the last place; infinite where NaN, infinities or signs of zero differ."""
    import ml_dtypes
    import numpy as np

    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else float("inf")
    integer = {2: np.int16, 4: np.int32, 8: np.int64}[got.dtype.itemsize]
    same = (got.view(integer) == want.view(integer)) | ((got != got) & (want != want))
    if same.all():
        return 0.0
    a, b = got[~same].astype(np.float64), want[~same].astype(np.float64)
    if not (np.isfinite(a).all() and np.isfinite(b).all()) or ((a == 0) & (b == 0)).any():
        return float("inf")
    info = ml_dtypes.finfo(got.dtype)
    spacing = float(info.eps) * np.maximum(np.abs(b), float(info.smallest_normal)) / 2
    if (
        got.dtype.itemsize == 8
    ):  # the C library's functions and CUDA's differ in the last bits, which count for more where terms cancel
        spacing = np.maximum(spacing, float(info.eps) * 16)
    return float((np.abs(a - b) / spacing).max())


def _operands(kind: str, arguments: int, domain: tuple[float, float], layout: str) -> list[Any]:
    import ml_dtypes
    import numpy as np

    dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
    rng = np.random.default_rng(0)
    found = []
    for number in range(arguments):
        shape = (37, 131) if layout != "broadcast" or number == 0 else (131,) if number == 1 else (37, 1)
        if dtype.kind in "biu" and dtype.name != "bfloat16":
            a = rng.integers(0, 2 if kind == "bool" else 50, shape).astype(dtype)
        else:
            a = rng.uniform(*domain, shape)
            a.flat[: 4 * (number + 1) : number + 1] = (0.0, -0.0, np.inf, np.nan)
            a.flat[20:24] = (-np.inf, 1e-30, 1e30, 3e6)
            with np.errstate(all="ignore"):
                a = a.astype(np.float32).astype(dtype)
        found.append(np.ascontiguousarray(a.T) if layout == "strided" else a)
    return found


def _seen(a: Any, layout: str) -> Any:
    """The array as an operand: transposed and cut where the layout is strided."""
    return a.T[::2, 1:] if layout == "strided" else a


def _some(errors: dict[str, str]) -> Report:
    """The first few in full, the others by name."""
    return {name: text if number < 4 else text.splitlines()[-1][:100] for number, (name, text) in enumerate(errors.items())}


def check_pointwise(kind: str) -> Report:
    """Every rule on one type: how many give the CPU kernel's bits, and the distances of others in ulp."""
    _without_torch()
    import cupy
    import numpy as np

    from tests.inductor.test_pointwise import PARAMS
    from tocha.backends import _cuda_kernels, cuda, native
    from tocha.inductor import service
    from tocha.prims.pointwise import ALL

    equal, close, wrong, refused, errors, left, failed = 0, {}, {}, 0, {}, [], 0
    started = time.perf_counter()
    for name, rule in sorted(ALL.items()):
        params = PARAMS.get(name, {})
        if set(params) != set(rule.parameters):
            continue
        for layout in ("flat", "broadcast", "strided"):
            arrays = _operands(kind, len(rule.arguments), rule.domain, layout)
            seen = [_seen(a, layout) for a in arrays]
            target = np.dtype(bool) if rule.output == "bool" else arrays[0].dtype
            compute = np.dtype(np.float32) if kind in ("float16", "bfloat16") else arrays[0].dtype
            try:
                want = native.pointwise(rule, seen, compute, target, params, rule.broadcast, "rule")
            except Exception:  # a rule that isn't for this type
                break
            if want is None:
                refused += layout == "flat"
                break
            try:
                given = [_seen(cuda.from_host(a), layout) for a in arrays]
                failed = len(service.failures)
                got = _cuda_kernels.pointwise(rule, given, compute, target, params, rule.broadcast)
                if got is None and len(service.failures) == failed:
                    left.append(f"{name} {layout}")
                    continue
                if got is None:
                    errors[f"{name} {layout}"] = "no kernel: " + service.failures[-1][:600]
                    continue
                apart = _distance(cuda.to_host(got), want)
            except Exception as error:
                errors[f"{name} {layout}"] = f"{error.__class__.__name__}: {error}"[:600]
                continue
            if apart == 0:
                equal += 1
            elif apart <= (8 if kind == "float64" else 4):
                close[f"{name} {layout}"] = round(apart, 2)
            else:
                wrong[f"{name} {layout}"] = apart
    cupy.cuda.runtime.deviceSynchronize()
    return {
        "equal bits": equal, "close": close, "differ": wrong, "no kernel on the CPU": refused, "left to CuPy": left, "errors": _some(errors),
        "seconds": round(time.perf_counter() - started, 1),
    }  # fmt: skip


def check_rows() -> Report:
    """softmax, its kin and layer normalisation on rows of several lengths."""
    _without_torch()
    import ml_dtypes
    import numpy as np

    from tocha.backends import _cuda_kernels, _native_prims, cuda

    report: Report = {}
    errors: dict[str, str] = {}
    for kind in KINDS[:4]:
        dtype = np.dtype(getattr(ml_dtypes, kind, None) or kind)
        worst: dict[str, float] = {}
        for rows, n in ((5, 1), (301, 3), (64, 300), (7, 4096), (3, 16384), (3, 20001)):
            rng = np.random.default_rng(n)
            x, g = (rng.standard_normal((rows, n)).astype(np.float32).astype(dtype) for _ in range(2))
            w, b = (rng.standard_normal(n).astype(np.float32).astype(dtype) for _ in range(2))
            odd = x.copy()
            odd[0, 0], odd[1, :], odd[2, 0] = np.inf, -np.inf, np.nan
            y = np.asarray(_native_prims.RUNS["softmax"]([x], {"dim": -1}))
            params = {"shape": (rows, n), "axes": (1,), "affine": (n,), "eps": 1e-5}
            cases: dict[str, tuple[list[Any], dict[str, Any]]] = {
                "softmax": ([x], {"dim": -1}), "softmax of NaN": ([odd], {"dim": -1}), "log_softmax": ([x], {"dim": 1}),
                "softmax_backward": ([g, y], {"dim": -1}), "log_softmax_backward": ([g, y], {"dim": -1}),
                "standardize": ([x, w, b], params), "standardize plain": ([x, None, None], params),
            }  # fmt: skip
            for case, (arrays, given) in cases.items():
                name = case.split()[0]
                try:
                    want = _native_prims.RUNS[name](arrays, given)
                    got = _cuda_kernels.prim(name, given, *[None if a is None else cuda.from_host(a) for a in arrays])
                    pairs = list(zip(got, want, strict=True)) if isinstance(want, tuple) else [(got, want)]
                    # Sums in another order move results that cancel: compared with the scale of the row's results.
                    for part, (p, q) in enumerate(pairs):
                        p, q = cuda.to_host(p).astype(np.float64), q.astype(np.float64)
                        if not np.array_equal(np.isnan(p), np.isnan(q)):
                            worst[case] = float("inf")
                        eps = float(ml_dtypes.finfo(pairs[part][1].dtype).eps)
                        scale = eps * max(1e-300, np.abs(q[np.isfinite(q)]).max(initial=0))
                        apart = float(np.abs(np.where((p == q) | np.isnan(q), 0, p - q)).max(initial=0)) / scale
                        worst[case] = max(worst.get(case, 0.0), round(apart, 2))
                except Exception:
                    errors[f"{kind} {case} {n}"] = traceback.format_exc()[-900:]
        report[kind] = worst
    report["errors"] = _some(errors)
    return report


# ---- are they fast?


def _chain(o: Any, x: Any, w: Any, b: Any) -> Any:
    """gelu(x w + b) x."""
    from tocha.dispatch.prim import REGISTRY

    return o.mul(REGISTRY["gelu"].impl(o, o.add(o.mul(x, w), b)), x)


def _events(
    event: Callable[[], Any],
    elapsed: Callable[[Any, Any], float],
    run: Callable[[], Any],
    wait: Callable[[], Any],
    times: int = 20,
) -> float:
    """Milliseconds of a call on the device, the median of several."""
    for _ in range(3):
        run()
    wait()
    found = []
    for _ in range(times):
        start, stop = event(), event()
        start.record()
        run()
        stop.record()
        wait()
        found.append(elapsed(start, stop))
    return sorted(found)[len(found) // 2]


def _host(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Microseconds a call keeps the host busy, the best of several rounds."""
    best = float("inf")
    for _ in range(5):
        wait()
        start = time.perf_counter()
        for _ in range(200):
            run()
        best = min(best, (time.perf_counter() - start) / 200 * 1e6)
    return best


def _rates(milliseconds: dict[str, float]) -> Report:
    """Times as rates: every case reads its input and writes its output once at best."""
    return {name: {"ms": round(t, 4), "GB/s": round(2 * 4 * ELEMENTS / t / 1e6)} for name, t in milliseconds.items()}


def time_kernels() -> Report:
    """Our kernels, and the same through CuPy, in a process that can't import torch."""
    _without_torch()
    import cupy

    from tocha.backends import _cuda_kernels, cuda
    from tocha.dispatch.prim import REGISTRY
    from tocha.prims.pointwise import Pointwise, broadcast_shapes

    try:
        importlib.import_module("torch")
        raise AssertionError("torch can be imported here")
    except ImportError:
        pass

    class Rule:
        name, impl = "chain", staticmethod(_chain)

    gelu: Any = REGISTRY["gelu"]
    assert isinstance(gelu, Pointwise)
    single = cupy.dtype("float32")
    params = {"shape": ROWS, "axes": (1,), "affine": ROWS[1:], "eps": 1e-5}

    def cases(rows: tuple[int, int]) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
        x = cupy.random.default_rng(0).standard_normal(rows, dtype=cupy.float32)
        w, b = x[0].copy(), x[1].copy()
        moments = {**params, "shape": rows, "affine": rows[1:]}

        def fused(rule: Any, arrays: list[Any]) -> Any:
            return _cuda_kernels.pointwise(rule, arrays, single, single, {}, lambda shapes: broadcast_shapes("chain", *shapes))

        return {
            "copy": (lambda: x.copy(), lambda: x.copy()),
            "gelu": (lambda: fused(gelu, [x]), lambda: gelu.impl(cuda, x)),
            "gelu chain": (lambda: fused(Rule, [x, w, b]), lambda: _chain(cuda, x, w, b)),
            "softmax": (lambda: _cuda_kernels.prim("softmax", {"dim": -1}, x), lambda: REGISTRY["softmax"].impl(cuda, x, dim=-1)),
            "layer_norm": (
                lambda: _cuda_kernels.prim("standardize", moments, x, w, b),
                lambda: REGISTRY["standardize"].impl(cuda, x, w, b, **moments),
            ),
            "add": (lambda: fused(REGISTRY["add"], [x, x]), lambda: cupy.add(x, x)),
        }

    wait = cupy.cuda.runtime.deviceSynchronize

    def measured(run: Callable[[], Any]) -> float:
        return _events(cupy.cuda.Event, cupy.cuda.get_elapsed_time, run, wait)

    report: Report = {}
    large, small = cases(ROWS), cases((8, 256))
    for number, who in enumerate(("fused", "cupy")):
        for pair in (large, small):
            for name, both in pair.items():
                assert both[number]() is not None, name
        report[who] = _rates({name: measured(both[number]) for name, both in large.items()})
        report[f"{who}, host µs of a small call"] = {name: round(_host(both[number], wait), 2) for name, both in small.items()}
    return report


def time_torch() -> Report:
    """torch, eager and compiled."""
    torch = importlib.import_module("torch")  # real torch, the one measured against
    F = torch.nn.functional

    def chain(x: Any, w: Any, b: Any) -> Any:
        return F.gelu(x * w + b) * x

    def cases(rows: tuple[int, int], wrap: Callable[..., Any]) -> dict[str, Callable[[], Any]]:
        x = torch.randn(rows, device="cuda")
        w, b = x[0].clone(), x[1].clone()
        gelu, fused, softmax = wrap(F.gelu), wrap(chain), wrap(lambda x: torch.softmax(x, -1))
        layer_norm = wrap(lambda x, w, b: F.layer_norm(x, rows[1:], w, b))
        return {
            "copy": lambda: x.clone(), "gelu": lambda: gelu(x), "gelu chain": lambda: fused(x, w, b), "softmax": lambda: softmax(x),
            "layer_norm": lambda: layer_norm(x, w, b), "add": lambda: x + x,
        }  # fmt: skip

    def measured(run: Callable[[], Any]) -> float:
        return _events(lambda: torch.cuda.Event(enable_timing=True), lambda a, b: a.elapsed_time(b), run, torch.cuda.synchronize)

    report: Report = {"version": torch.__version__}
    with torch.no_grad():
        report["eager"] = _rates({name: measured(run) for name, run in cases(ROWS, lambda f: f).items()})
        report["eager, host µs of a small call"] = {
            n: round(_host(r, torch.cuda.synchronize), 2) for n, r in cases((8, 256), lambda f: f).items()
        }
        print(json.dumps(report), flush=True)
        report["compiled"] = _rates({name: measured(run) for name, run in cases(ROWS, torch.compile).items()})
    return report


PARTS: dict[str, Callable[..., Report]] = {
    "pointwise": check_pointwise,
    "rows": check_rows,
    "kernels": time_kernels,
    "torch": time_torch,
}


def _start(part: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, __file__, "--part", part], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen[str], limit: float) -> Report:
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        err = f"over {limit:.0f} s\n{err}"
    lines = [line for line in out.splitlines() if line.startswith("{")]
    found: Report = json.loads(lines[-1]) if lines else {}
    if process.returncode:
        found["failed"] = err[-1500:]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the report there")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="", help="parts not to run, with commas: pointwise, rows, kernels, torch")
    options = parser.parse_args()
    if options.part:
        name, *arguments = options.part.split(":")
        print(json.dumps(PARTS[name](*arguments)), flush=True)
        return 0
    skip = options.skip.split(",")
    report: Report = {"command": "python tools/triton_check.py", "machine": _machine()}
    if "pointwise" not in skip:  # side by side: compiling takes the time
        running = {kind: _start(f"pointwise:{kind}") for kind in KINDS} | ({"rows": _start("rows")} if "rows" not in skip else {})
        report["right"] = {name: _result(process, 240) for name, process in running.items()}
    for part in ("kernels", "torch"):  # one after the other: the device is to be free
        if part not in skip:
            report[part] = _result(_start(part), 150)
    text = json.dumps(report, indent=1, ensure_ascii=False)
    print(text)
    if options.json:
        Path(options.json).write_text(text + "\n")
    bad = [k for k, r in report.get("right", {}).items() if r.get("errors") or r.get("differ") or "failed" in r]
    return 1 if bad else 0


def _machine() -> Report:
    from importlib.metadata import PackageNotFoundError, version

    found: Report = {"python": platform.python_version()}
    for name in ("numpy", "triton", "cupy-cuda13x", "cupy-cuda12x"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    got = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return {"device": got.stdout.strip(), **found}


if __name__ == "__main__":
    sys.exit(main())
