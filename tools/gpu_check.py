"""Checks tocha on a CUDA device against tocha on the CPU, trains the digits demo on it, and times small and large work.

    python tools/gpu_check.py --json report.json [--conformance ../shared/conformance] [--jobs 8] [--budget 440]

Every part runs in processes of its own and survives the failure of the others; what is over budget is reported as not run.
Needs CuPy and NumPy; torch is not used. `--digits FILE.npz` gives the images (`images`, `target`) where scikit-learn is
missing. Exit status 0 if everything that ran agreed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

import tocha as torch  # noqa: E402

Report = dict[str, Any]
# Relative and absolute differences allowed between the devices.
TOLERANCE = {
    "float32": (2e-4, 2e-5), "float64": (1e-8, 1e-9), "float16": (4e-3, 2e-3), "bfloat16": (2e-2, 1e-2), "complex64": (2e-4, 2e-5),
    "complex128": (1e-8, 1e-9),
}  # fmt: skip


# ---- comparing operators


def _tensors(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for v in value for t in _tensors(v)]
    return []


def _run(case: Any, inputs: list[Any], kind: str, device: str) -> tuple[list[Any], list[Any]]:
    """Outputs, and gradients of the inputs under fixed random weights, as NumPy arrays."""
    moved = [x.detach().clone().to(device) for x in inputs]
    wants = case.gradients and kind != "int64"
    for x in moved:
        if wants and x.is_floating_point():
            x.requires_grad_()
    outputs = _tensors(case.compute(*moved))
    gradients: list[Any] = []
    differentiable = [o for o in outputs if o.requires_grad]
    if differentiable:
        weights = [np.random.default_rng(i).uniform(0.5, 1.5, tuple(o.shape)) for i, o in enumerate(differentiable)]
        given = [
            torch.from_numpy(np.asarray(w)).to(device=device, dtype=o.dtype) for w, o in zip(weights, differentiable, strict=True)
        ]
        torch.autograd.backward(differentiable, given)
        gradients = [x.grad for x in moved]
    for o in outputs:
        if o.device.type != device:
            raise AssertionError(f"an output is on {o.device}, the inputs on {device}")
    return [_host(o) for o in outputs], [None if g is None else _host(g) for g in gradients]


def _host(tensor: Any) -> Any:
    plain = tensor.detach().cpu()
    return str(plain.dtype), (plain.to(torch.float32) if plain.dtype in (torch.bfloat16, torch.float16) else plain).numpy()


def _difference(here: Any, there: Any, kind: str) -> str | None:
    """Why two results don't agree, or None."""
    if here is None or there is None:
        return None if here is there else "one device has a gradient, the other none"
    (type_here, a), (type_there, b) = here, there
    if type_here != type_there or a.shape != b.shape:
        return f"{type_here} {a.shape} on the CPU, {type_there} {b.shape} on CUDA"
    if a.dtype.kind not in "fc":
        return None if np.array_equal(a, b) else f"{int((a != b).sum())} of {a.size} elements differ"
    loose = max(TOLERANCE.get(type_here.rpartition(".")[2], (0.0, 0.0)), TOLERANCE.get(kind, (0.0, 0.0)))
    with np.errstate(all="ignore"):
        close = np.isclose(b, a, *loose, equal_nan=True)
    if close.all():
        return None
    worst = int(np.argmax(np.where(close, 0, np.nan_to_num(np.abs(a - b), nan=np.inf))))
    return f"{int((~close).sum())} of {a.size} differ, e.g. {a.reshape(-1)[worst]} on the CPU and {b.reshape(-1)[worst]} on CUDA"


def check_case(case: Any, kind: str) -> Report:
    """status 'ok', 'differs', 'error', or 'refused' where the CPU itself doesn't take the type."""
    found: Report = {"case": case.name, "dtype": kind, "status": "ok"}
    try:
        inputs = case.inputs(kind)
        here = _run(case, inputs, kind, "cpu")
    except Exception as error:
        return {**found, "status": "refused", "why": f"{type(error).__name__}: {error}"[:200]}
    try:
        there = _run(case, inputs, kind, "cuda")
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return {**found, "status": "error", "why": f"{type(error).__name__}: {error} ({where})"[:400]}
    for what, mine, theirs in zip(("values", "gradients"), here, there, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            why = _difference(a, b, kind)
            if why is not None:
                return {**found, "status": "differs", "why": f"{what}: {why}"}
    return found


def part_operators(share: tuple[int, int], deadline: float) -> Report:
    """Every n-th case in each of its types."""
    from tools import gpu_cases

    todo = [(case, kind) for case in gpu_cases.cases() for kind in case.kinds][share[0] :: share[1]]
    results, skipped = [], 0
    for case, kind in todo:
        if time.time() > deadline:
            skipped += 1
        else:
            results.append(check_case(case, kind))
    return {"results": results, "not_run": skipped, "without_parameters": gpu_cases.unknown_parameters()}


# ---- behaviour of devices


def part_devices(share: tuple[int, int], deadline: float) -> Report:
    """Moving, mixing, interchange, streams and memory: each check by name, with the error it ended in."""
    results = []
    for name, check in DEVICE_CHECKS.items():
        try:
            check()
            results.append({"case": name, "dtype": "", "status": "ok"})
        except Exception as error:
            results.append({"case": name, "dtype": "", "status": "error", "why": f"{type(error).__name__}: {error}"[:400]})
    return {"results": results}


def _raises(kind: type[Exception], call: Callable[[], Any], words: str) -> None:
    try:
        call()
    except kind as error:
        assert words in str(error), f"the message is {error}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def _moves() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    for y in (x.cuda(), x.to("cuda"), x.to(torch.device("cuda", 0)), torch.tensor([[0.0, 1, 2], [3, 4, 5]], device="cuda")):
        assert y.is_cuda and y.device == torch.device("cuda", 0) and torch.equal(y.cpu(), x)
    assert x.cuda().cuda() is not x and x.cpu() is x
    kept = x.cuda()
    assert kept.to("cuda") is kept
    _raises(TypeError, kept.numpy, "can't convert cuda:0 device type tensor to numpy")
    assert kept.t().cpu().tolist() == x.t().tolist()


def _mixes() -> None:
    a = torch.ones(3, device="cuda")
    assert (a + torch.tensor(2.0)).tolist() == [3.0, 3.0, 3.0]
    assert torch.where(a > 0, a, torch.tensor(5.0)).device.type == "cuda"
    scale = torch.tensor(2.0, requires_grad=True)
    (a * scale).sum().backward()
    assert scale.grad is not None and scale.grad.device.type == "cpu" and scale.grad.item() == 3.0
    _raises(RuntimeError, lambda: a + torch.ones(3), "same device")
    assert a[torch.tensor([0, 2])].tolist() == [1.0, 1.0]
    a[torch.tensor([True, False, False])] = 7
    assert a.tolist() == [7.0, 1.0, 1.0]


def _bad_index() -> None:
    table = torch.zeros(3, 2, device="cuda")

    def read() -> Any:
        return table[torch.tensor([0, 9], device="cuda")].cpu()

    _raises(IndexError, read, "out of bounds")
    assert table.sum().item() == 0.0  # the device goes on


def _factories() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64, torch.float8_e5m2):
        assert torch.zeros(2, 2, dtype=dtype, device="cuda").dtype is dtype
        assert torch.full((2,), 1, dtype=dtype, device="cuda").cpu().to(torch.float32).tolist() == [1.0, 1.0] or dtype.is_complex
    with torch.device("cuda"):
        assert torch.arange(3).is_cuda and torch.eye(2).is_cuda and torch.linspace(0, 1, 3).is_cuda
    torch.manual_seed(3)
    here = torch.randn(5)
    torch.manual_seed(3)
    assert torch.equal(torch.empty(5, device="cuda").normal_().cpu(), here)


def _views() -> None:
    x = torch.zeros(4, 4, device="cuda")
    x.view(16)[3] = 1
    x.t()[0, 1] = 2
    assert x[0].tolist() == [0.0, 0.0, 0.0, 1.0] and x[1, 0].item() == 2.0
    assert x[1:].storage_offset() == 4 and x.untyped_storage().data_ptr() == x[1:].untyped_storage().data_ptr()
    assert torch.as_strided(x, (2, 2), (1, 4)).tolist() == [[0.0, 2.0], [0.0, 0.0]]
    leaf = torch.ones(4, device="cuda", requires_grad=True)
    other = torch.ones(2, 2, device="cuda", requires_grad=True)
    (leaf.view(2, 2) + other).sum().backward()
    assert leaf.grad is not None and other.grad is not None
    leaf.grad.zero_()
    assert other.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def _interchange() -> None:
    import cupy

    x = torch.arange(4.0, device="cuda")
    shared = cupy.from_dlpack(x)
    shared += 1
    assert x.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert torch.from_dlpack(cupy.arange(3)).tolist() == [0, 1, 2]
    assert cupy.asarray(x).data.ptr == x.data_ptr()
    assert torch.as_tensor(cupy.ones(2), device="cuda").tolist() == [1.0, 1.0]


def _saving() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pt"
        torch.save({"w": torch.arange(4.0, device="cuda")}, path)
        assert torch.load(path)["w"].is_cuda
        assert torch.load(path, map_location="cpu")["w"].tolist() == [0.0, 1.0, 2.0, 3.0]


def _streams() -> None:
    cuda = torch.cuda
    assert cuda.is_available() and cuda.device_count() >= 1 and cuda.current_device() == 0
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    side = cuda.Stream()
    with cuda.stream(side):
        start.record()
        y = torch.ones(256, 256, device="cuda") @ torch.ones(256, 256, device="cuda")
        end.record()
    side.synchronize()
    assert y[0, 0].item() == 256.0 and start.elapsed_time(end) > 0
    assert cuda.get_device_name() and cuda.get_device_capability() >= (7, 0) and cuda.is_bf16_supported()
    before = cuda.memory_allocated()
    held = torch.empty(1 << 20, device="cuda")
    assert cuda.memory_allocated() - before >= 4 << 20 and held.numel() and cuda.max_memory_allocated() >= cuda.memory_allocated()
    _raises(cuda.OutOfMemoryError, lambda: torch.empty(1 << 45, device="cuda"), "CUDA out of memory")
    cuda.synchronize()
    cuda.empty_cache()


def _mixed_precision() -> None:
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    x = torch.randn(16, 8, device="cuda")
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(x)
            assert out.dtype is torch.float16
            loss = out.float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


DEVICE_CHECKS: dict[str, Callable[[], None]] = {
    "moving": _moves, "mixing devices": _mixes, "bad index": _bad_index, "factories": _factories, "views": _views,
    "interchange": _interchange, "saving": _saving, "streams and memory": _streams, "mixed precision": _mixed_precision,
}  # fmt: skip


# ---- training


def _give_digits(path: str | None) -> str:
    """Make the demo read its images from a .npz; made-up ones where neither that nor scikit-learn is there."""
    from tocha.demo import digits

    try:
        import sklearn.datasets  # noqa: F401  (only asked whether it is there)

        if path is None:
            return "scikit-learn"
    except ImportError:
        pass
    if path is not None:
        stored = np.load(path)
        images, target, source = stored["images"], stored["target"], path
    else:
        rng = np.random.default_rng(0)
        target, source = rng.integers(0, 10, 1797), "made up"
        images = rng.uniform(0, 16, (10, 8, 8))[target] + rng.normal(0, 2, (1797, 8, 8))

    def load_data(seed: int) -> Any:
        x = torch.from_numpy(np.array(images)).to(torch.float32).unsqueeze(1) / 16
        y = torch.from_numpy(np.array(target)).to(torch.int64)
        order = torch.randperm(len(y), generator=torch.Generator().manual_seed(seed))
        test, train = order[: digits.TEST_IMAGES], order[digits.TEST_IMAGES :]
        return digits.TensorDataset(x[train], y[train]), digits.TensorDataset(x[test], y[test])

    digits.load_data = load_data
    return source


def part_training(share: tuple[int, int], deadline: float, digits_file: str | None = None) -> Report:
    """The demo on both devices: accuracy and seconds."""
    from tocha.demo import digits

    report: Report = {"data": _give_digits(digits_file)}
    for device, epochs in (("cuda", 6), ("cpu", 6)):
        try:
            with tempfile.TemporaryDirectory() as folder:
                started = time.perf_counter()
                settings = digits.Settings(device=device, epochs=epochs, checkpoint=Path(folder) / "digits.pt")
                accuracy = digits.train(settings)
                report[device] = {"accuracy": accuracy, "seconds": time.perf_counter() - started, "epochs": epochs}
        except Exception:
            report[device] = {"error": traceback.format_exc()[-1500:]}
    return report


# ---- timing


def _seconds(call: Callable[[], Any], budget: float = 0.4) -> float:
    """The shortest mean time of a call over a few runs, the device's work included."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    count, best = 1, float("inf")
    for _ in range(6):
        started = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        each = (time.perf_counter() - started) / count
        best = min(best, each)
        count = max(1, min(2000, int(budget / 6 / max(each, 1e-7))))
    return best


def _tiny() -> dict[str, Callable[[], Any]]:
    a, b = torch.ones(8, 8, device="cuda"), torch.ones(8, 8, device="cuda")
    w = torch.ones(8, 8, device="cuda", requires_grad=True)
    half = torch.ones(8, 8, device="cuda", dtype=torch.bfloat16)
    target = torch.zeros(8, dtype=torch.int64, device="cuda")
    return {
        "add": lambda: a + b, "add number": lambda: a + 2.0, "add with tape": lambda: a + w, "add bfloat16": lambda: half + half,
        "exp": a.exp, "gelu": lambda: torch.nn.functional.gelu(a), "matmul": lambda: a @ b, "sum": a.sum, "softmax": lambda: a.softmax(-1),
        "layer_norm": lambda: torch.nn.functional.layer_norm(a, (8,)), "view": lambda: a.view(64), "index": lambda: a[target],
        "cross_entropy": lambda: torch.nn.functional.cross_entropy(a, target), "add_ in place": lambda: a.add_(0.0), "item": lambda: a[0, 0].item(),
    }  # fmt: skip


def _training_steps() -> dict[str, Callable[[], Any]]:
    from tocha.demo.digits import DigitsNet

    def step(model: Any, x: Any, y: Any) -> Callable[[], Any]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def run() -> None:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        return run

    nn = torch.nn
    mlp = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 10)).cuda()
    labels = torch.randint(0, 10, (2048,), device="cuda")
    return {
        "digits, batch 32": step(DigitsNet().cuda(), torch.rand(32, 1, 8, 8, device="cuda"), labels[:32]),
        "digits, batch 1024": step(DigitsNet().cuda(), torch.rand(1024, 1, 8, 8, device="cuda"), labels[:1024]),
        "MLP 1024-4096-4096, batch 2048": step(mlp, torch.rand(2048, 1024, device="cuda"), labels),
    }


def part_timing(share: tuple[int, int], deadline: float) -> Report:
    """Microseconds of operators on 8x8 matrices, milliseconds of training steps, rates of large ones."""
    report: Report = {}
    for title, make, scale in (("tiny_us", _tiny, 1e6), ("step_ms", _training_steps, 1e3)):
        try:
            report[title] = {name: round(_seconds(call) * scale, 2) for name, call in make().items()}
        except Exception:
            report[title] = {"error": traceback.format_exc()[-800:]}
    try:
        rates = {}
        for kind in ("float32", "bfloat16"):
            a = torch.randn(8192, 8192, device="cuda").to(getattr(torch, kind))
            rates[f"matmul 8192 {kind}, TFLOP/s"] = round(2 * 8192**3 / _seconds(lambda a=a: a @ a) / 1e12, 1)
        x = torch.ones(1 << 28, device="cuda")
        rates["add of 1 GiB, GB/s"] = round(3 * 4 * (1 << 28) / _seconds(lambda: x + x) / 1e9)
        rates["sum of 1 GiB, GB/s"] = round(4 * (1 << 28) / _seconds(x.sum) / 1e9)
        report["large"] = rates
    except Exception:
        report["large"] = {"error": traceback.format_exc()[-800:]}
    return report


# ---- conformance vectors on CUDA


class _OnCuda:
    """tocha whose `from_numpy`, with which the runner makes all tensors, gives CUDA tensors."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def from_numpy(self, array: Any) -> Any:
        return torch.from_numpy(array).cuda()


def part_conformance(share: tuple[int, int], deadline: float, folder: str | None = None) -> Report:
    """The shared vectors with every tensor made on CUDA: families share[0], share[0] + share[1], …"""
    import importlib.util

    assert folder is not None
    spec = importlib.util.spec_from_file_location("conformance_run", Path(folder) / "run.py")
    assert spec is not None and spec.loader is not None
    runner: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    to_numpy = runner.Framework.np
    runner.Framework.np = lambda self, tensor: to_numpy(self, tensor.detach().cpu())
    torch.set_default_device("cuda")
    families = sorted(p.name.removesuffix(".json.gz") for p in Path(folder, "vectors_A").glob("*.json.gz"))
    families.sort(key=lambda f: -(Path(folder, "vectors_A") / f"{f}.npz").stat().st_size)
    report: Report = {"families": {}, "failing": {}}
    framework = runner.Framework("tocha")
    framework.m = _OnCuda()
    for family in families[share[0] :: share[1]]:
        vectors = runner.Vec(str(Path(folder, "vectors_A", family)))
        passed = total = 0
        for op in vectors.js["ops"]:
            if time.time() > deadline:
                break
            got = runner.run_op(framework, vectors, op, 20)
            with contextlib.suppress(IndexError):
                torch.cuda.synchronize()  # an index that was bad on purpose is reported to the next copy: not to the next operator
            total += 1
            passed += bool(got["ok"])
            if not got["ok"]:
                report["failing"][f"{family}: {runner.key(got)}"] = [str(f)[:200] for f in got["fails"][:2]]
        report["families"][family] = [passed, total, len(vectors.js["ops"])]
    return report


# ---- running the parts

PARTS: dict[str, Callable[..., Report]] = {
    "devices": part_devices, "operators": part_operators, "training": part_training, "timing": part_timing,
    "conformance": part_conformance,
}  # fmt: skip


def _start(part: str, share: tuple[int, int], deadline: float, out: Path, extra: Sequence[str]) -> tuple[Any, Path]:
    target = out / f"{part}-{share[0]}.json"
    command = [sys.executable, __file__, "--part", part, "--share", f"{share[0]}/{share[1]}", "--deadline", str(deadline)]
    return subprocess.Popen(
        [*command, "--json", str(target), *extra], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ), target


def _collect(started: list[tuple[Any, Path]], deadline: float) -> list[Report]:
    reports = []
    for process, target in started:
        try:
            process.wait(max(1.0, deadline + 15 - time.time()))
        except subprocess.TimeoutExpired:
            process.kill()
        if target.exists():
            reports.append(json.loads(target.read_text()))
        else:
            reports.append({"crashed": f"{target.stem} wrote nothing, exit status {process.poll()}"})
    return reports


def run_part(arguments: argparse.Namespace) -> int:
    index, _, count = arguments.share.partition("/")
    extra = {"training": {"digits_file": arguments.digits}, "conformance": {"folder": arguments.conformance}}
    try:
        report = PARTS[arguments.part]((int(index), int(count)), arguments.deadline, **extra.get(arguments.part, {}))
    except Exception:
        report = {"crashed": traceback.format_exc()[-2000:]}
    Path(arguments.json).write_text(json.dumps(report))
    return 0


def _machine() -> Report:
    try:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        return {"device": name, "cupy": cupy.__version__, "numpy": np.__version__, "python": sys.version.split()[0]}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def run_all(arguments: argparse.Namespace) -> int:
    began = time.time()
    deadline = began + arguments.budget
    report: Report = {"machine": _machine()}
    extra = [*(["--digits", arguments.digits] if arguments.digits else [])]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        # Timing runs alone. The first run of each kernel compiles it, which is what takes the others' time.
        for part in ("timing", "training"):
            report[part] = _collect([_start(part, (0, 1), deadline, out, extra)], deadline)[0]
            _write(arguments.json, report)
        middle = time.time() + (deadline - time.time()) * (0.55 if arguments.conformance else 1.0)
        started = [_start("devices", (0, 1), middle, out, extra)]
        started += [_start("operators", (i, arguments.jobs), middle, out, extra) for i in range(arguments.jobs)]
        report["devices"], *report["operators"] = _collect(started, middle)
        _write(arguments.json, report)
        if arguments.conformance:
            extra += ["--conformance", arguments.conformance]
            shares = [_start("conformance", (i, arguments.jobs), deadline, out, extra) for i in range(arguments.jobs)]
            report["conformance"] = _collect(shares, deadline)
    report["seconds"] = round(time.time() - began, 1)
    _write(arguments.json, report)
    return _print(report)


def _write(path: str | None, report: Report) -> None:
    if path:
        Path(path).write_text(json.dumps(report, indent=1))


def _print(report: Report) -> int:
    print(json.dumps(report["machine"]))
    results = [r for part in (report["devices"], *report["operators"]) for r in part.get("results", [])]
    crashed = [p["crashed"] for p in (report["devices"], *report["operators"]) if "crashed" in p]
    print(f"\n{'type':12}{'ok':>7}{'differ':>8}{'error':>7}{'refused on CPU too':>20}")
    for kind in sorted({r["dtype"] for r in results}):
        counts = [sum(r["dtype"] == kind and r["status"] == s for r in results) for s in ("ok", "differs", "error", "refused")]
        print(f"{kind or 'devices':12}{counts[0]:7}{counts[1]:8}{counts[2]:7}{counts[3]:20}")
    not_run = sum(p.get("not_run", 0) for p in report["operators"])
    print(
        f"not run for lack of time: {not_run}; records without known parameters: {report['operators'][0].get('without_parameters')}"
    )
    bad = [r for r in results if r["status"] in ("differs", "error")]
    for r in bad[:120]:
        print(f"  {r['status']:8}{r['case']} [{r['dtype']}]: {r['why']}")
    for text in crashed:
        print(f"  crashed: {text}")
    for part in ("training", "timing"):
        print(f"\n{part}: {json.dumps(report[part], indent=1)}")
    families: Report = {}
    for part in report.get("conformance", []):
        families.update(part.get("families", {}))
        for name, why in list(part.get("failing", {}).items())[:12]:
            print(f"  conformance {name}: {why[:1]}")
        if "crashed" in part:
            print(f"  conformance crashed: {part['crashed']}")
    for name, (passed, ran, total) in sorted(families.items()):
        print(f"  conformance {name:16} {passed}/{ran} pass ({total} in all)")
    print(f"\n{len(bad)} disagreements, {len(crashed)} crashes, {report['seconds']} s")
    return 1 if bad or crashed else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="write everything there")
    parser.add_argument("--conformance", help="folder of the shared conformance vectors")
    parser.add_argument("--digits", help="a .npz with images (n, 8, 8) and target (n)")
    parser.add_argument("--jobs", type=int, default=min(12, os.cpu_count() or 1), help="processes for operators")
    parser.add_argument("--budget", type=float, default=440.0, help="seconds for everything")
    parser.add_argument("--part", choices=sorted(PARTS), help=argparse.SUPPRESS)
    parser.add_argument("--share", default="0/1", help=argparse.SUPPRESS)
    parser.add_argument("--deadline", type=float, default=float("inf"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    return run_part(arguments) if arguments.part else run_all(arguments)


if __name__ == "__main__":
    sys.exit(main())
