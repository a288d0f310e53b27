"""Check that torch opens what tocha saves, and the reverse, in both file formats and in safetensors.

`python tools/check_torch_reads.py --torch PYTHON` takes the interpreter of an environment that has torch and
safetensors; the one that runs this needs tocha. Prints one line a file; exit status 1 if any differs.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile
from collections import OrderedDict
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
NAMES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
         "complex128", "complex64", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e4m3fnuz",
         "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]  # fmt: skip


def objects(torch: Any) -> dict[str, Any]:
    """Named objects made the same way by either library."""
    x = torch.arange(24.0).view(2, 3, 4)
    tagged = torch.nn.Parameter(torch.ones(2))
    tagged.tag = "t"
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU())
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(p.numel()).view(p.shape) / 4)
    return {
        "dtypes": {n: torch.tensor([1.0, 2.0, 4.0]).to(getattr(torch, n)) for n in NAMES},
        "views": [x, x[1], x.transpose(0, 2), x[:, 1:, ::2], x[0, 0, :1].expand(5), x[0, 0, 0], x[:0]],
        "parameters": [
            tagged,
            torch.nn.Parameter(torch.ones(1), requires_grad=False),
            torch.ones(1, requires_grad=True),
        ],
        "plain": [
            OrderedDict(a=1),
            {1, 2},
            b"\0\xff",
            1 - 2j,
            torch.Size([1, 2]),
            torch.device("cpu"),
            torch.bfloat16,
            None,
        ],
        "state": model.state_dict(),
        "model": model,
        "empty": torch.empty(0, 3),
        "meta": torch.empty(2, 3, device="meta"),
    }


def describe(value: Any) -> Any:
    """What must agree between the libraries, as plain Python data."""
    if hasattr(value, "state_dict"):
        return [type(value).__name__, describe(value.state_dict())]
    if hasattr(value, "stride"):
        facts = [str(value.dtype), str(value.device), list(value.shape), list(value.stride())]
        facts += [value.storage_offset(), value.requires_grad, "Parameter" in type(value).__name__]
        facts += sorted(value.__dict__.items())
        data = [] if value.device.type == "meta" else value.detach().tolist()
        return [*facts, data, 0 if value.device.type == "meta" else value.untyped_storage().nbytes()]
    if isinstance(value, dict):
        return [type(value).__name__, [[k, describe(v)] for k, v in value.items()]]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [describe(v) for v in value]]
    return repr(value)


def work(library: str, task: str, folder: pathlib.Path) -> None:
    """In one library: write every file, or read them and print what they hold."""
    if library == "tocha":
        sys.path.insert(0, str(ROOT))
        import tocha as torch
        from tocha.serialization import load_safetensors as load_st
        from tocha.serialization import save_safetensors as save_st
    else:
        import torch  # type: ignore[no-redef]  # noqa: TID251
        from safetensors.torch import load_file as load_st
        from safetensors.torch import save_file as save_st
    made = objects(torch)
    flat = {k: v for k, v in made["dtypes"].items() if k != "complex128"}
    for name, value in made.items():
        for new in (True, False):
            path = folder / f"{name}{'' if new else '_legacy'}.pt"
            if task == "write":
                torch.save(value, path, _use_new_zipfile_serialization=new)
            elif new or name != "dtypes":  # torch itself can't read its older format for uint16 to float8
                got = torch.load(path, weights_only=name != "model")
                same = describe(got) == describe(value)
                print(f"{library} reads {path.name}: {'same' if same else 'DIFFERENT'}")
    if task == "write":
        save_st(flat, folder / "flat.safetensors", {"k": "v"})
    else:
        same = describe(dict(sorted(load_st(folder / "flat.safetensors").items()))) == describe(dict(sorted(flat.items())))
        print(f"{library} reads flat.safetensors: {'same' if same else 'DIFFERENT'}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch", default=sys.executable, metavar="PYTHON", help="interpreter that has torch")
    parser.add_argument("--work", nargs=3, metavar=("LIBRARY", "TASK", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        library, task, folder = options.work
        work(library, task, pathlib.Path(folder))
        return 0
    failed = False
    python = {"tocha": sys.executable, "torch": options.torch}
    for writer, reader in (("tocha", "torch"), ("torch", "tocha")):
        with tempfile.TemporaryDirectory() as folder:
            for library, task in ((writer, "write"), (reader, "read")):
                command = [python[library], "-W", "ignore", __file__, "--work", library, task, folder]
                done = subprocess.run(command, capture_output=True, text=True)
                print(done.stdout, end="")
                failed |= done.returncode != 0 or "DIFFERENT" in done.stdout
                if done.returncode:
                    print(done.stderr)
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
