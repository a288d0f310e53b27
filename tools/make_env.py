"""Makes the virtual environment that `run` uses: make_env.py FOLDER STAMP.

Only the standard library; runs on the machine's own Python. The stamp is written last, so an interrupted
install is done again, and a lock lets a second `run` wait for the first.
"""

import fcntl
import subprocess
import sys
import venv
from pathlib import Path

EXTRAS = "dev,demo"


def install(folder: Path, stamp: str, lock: int) -> int:
    """Install the project and its extras into `folder`; returns pip's exit status."""
    done = folder / "installed"
    previous = done.read_text(encoding="utf-8").strip() if done.exists() else ""
    if previous == stamp:
        return 0
    done.unlink(missing_ok=True)
    same_place = previous.rpartition(" ")[2] == stamp.rpartition(" ")[2]
    print(f"Installing into {folder} for Python {sys.version.split()[0]} ...", file=sys.stderr, flush=True)
    if not (previous and same_place):
        venv.create(folder, clear=True, with_pip=True)
    log = folder / "install.log"
    command = [
        str(folder / "bin" / "python"),
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "--no-input",
        "-e",
        f".[{EXTRAS}]",
    ]
    with log.open("w", encoding="utf-8") as output:
        # The child holds the lock too: a pip that outlives us still keeps others out.
        status = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, pass_fds=(lock,)).returncode
    if status:
        tail = log.read_text(encoding="utf-8").splitlines()[-15:]
        print("\n".join(tail), f"\nInstalling failed; the whole output is in {log}", file=sys.stderr)
        return status
    partial = folder / "installed.partial"
    partial.write_text(stamp + "\n", encoding="utf-8")
    partial.replace(done)
    return 0


def main(argv: list[str]) -> int:
    folder, stamp = Path(argv[0]), argv[1]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{folder}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return install(folder, stamp, lock.fileno())
        except KeyboardInterrupt:
            print("\nInstalling was interrupted; the next ./run starts it again.", file=sys.stderr)
            return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
