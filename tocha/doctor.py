"""`tocha doctor`: what is installed, what hardware is seen, and whether a training step is right on it."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import tocha as torch
from tocha import Tensor, nn
from tocha.version import __version__

REQUIRED = ("numpy", "scipy", "ml_dtypes", "llvmlite")
OPTIONAL = ("cupy-cuda13x", "cupy-cuda12x", "triton", "scikit-learn")
SETTINGS = (
    "TOCHA_EAGER",
    "TOCHA_COMPILE",
    "TOCHA_NATIVE_MIN",
    "TOCHA_CACHE_DIR",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "CUDA_VISIBLE_DEVICES",
)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _blas() -> str:
    """Name and version of the library behind NumPy's matrix products."""
    import numpy as np

    build = np.show_config(mode="dicts")
    blas = (build or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()


def _native() -> Iterator[tuple[str, str]]:
    """What kernels for the CPU are compiled for, whether one gives the right result, and what the cache holds."""
    from tocha.inductor import cache, jit, service

    try:
        triple, cpu, _ = jit.host()
        ok = service.self_test()
        yield "native kernels", f"{cpu} ({triple.split('-')[0]})" if ok else f"{cpu}: WRONG RESULT, set TOCHA_EAGER=numpy"
    except Exception as error:  # any failure is a finding: NumPy serves
        yield "native kernels", f"none, NumPy serves: {type(error).__name__}: {error}"
    count, size = cache.usage()
    yield "cpu kernel cache", f"{cache.directory()} ({count} kernels, {size / 2**20:.1f} MB)"


def _cupy_cache() -> Path:
    """Where CuPy keeps compiled kernels."""
    return Path(os.environ.get("CUPY_CACHE_DIR", Path.home() / ".cupy" / "kernel_cache"))


def _megabytes(folder: Path) -> float:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 2**20


def devices() -> list[str]:
    """Every device a backend was found for."""
    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return ["cpu", *(f"cuda:{index}" for index in range(cuda))]


def report() -> Iterator[tuple[str, str]]:
    """Lines of the report, as name and value."""
    yield "tocha", f"{__version__} in {Path(__file__).parent}"
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in REQUIRED:
        yield package, _version(package) or "MISSING"
    for package in OPTIONAL:
        yield package, _version(package) or "not installed (optional)"
    yield "blas", _blas()
    yield "threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    for name in SETTINGS:
        if name in os.environ:
            yield name, os.environ[name]
    yield from _native()
    found = devices()
    yield "devices", ", ".join(found)
    for name in found[1:]:
        yield name, torch.cuda.get_device_name(torch.device(name))
    if len(found) > 1:
        cache = _cupy_cache()
        size = f"{_megabytes(cache):.1f} MB" if cache.is_dir() else "empty"
        yield "kernel cache", f"{cache} ({size})"


def _loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(x), y)


def self_test(device: str) -> None:
    """Train on `device`; RuntimeError when a gradient is wrong or the loss does not fall."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(device, torch.float64)
    x = torch.linspace(-1, 1, 64, dtype=torch.float64).reshape(16, 4).to(device)
    y = (x * x).sum(dim=1, keepdim=True)

    before = _loss(model, x, y)
    before.backward()
    first = next(model.parameters())
    assert first.grad is not None
    exact, step = first.grad[0, 0].item(), 1e-6
    sides = []
    for sign in (1, -1):
        with torch.no_grad():
            first[0, 0] += sign * step
            sides.append(_loss(model, x, y).item())
            first[0, 0] -= sign * step
    measured = (sides[0] - sides[1]) / (2 * step)
    if abs(exact - measured) > 1e-6 * max(1.0, abs(measured)):
        raise RuntimeError(f"the gradient is {exact}, finite differences give {measured}")

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        _loss(model, x, y).backward()
        optimizer.step()
    after = _loss(model, x, y).item()
    if not after < before.item():
        raise RuntimeError(f"the loss went from {before.item()} to {after} in 20 steps")


def main() -> int:
    """Print the report and run the self-test on every device; exit status 1 when something is wrong."""
    failed = False
    for name, value in report():
        failed |= value == "MISSING"
        print(f"{name:<20} {value}")
    print()
    for device in devices():
        try:
            self_test(device)
        except Exception as error:  # any failure is a finding, and the other devices are still of interest
            failed = True
            print(f"self-test {device:<10} FAILED: {type(error).__name__}: {error}")
        else:
            print(f"self-test {device:<10} ok: gradients right, 20 steps of AdamW lower the loss")
    if failed:
        print("\nsomething is wrong; see the lines above", file=sys.stderr)
    return int(failed)
