"""The `tocha` command. Each subcommand loads what it needs when it runs."""

from __future__ import annotations

import argparse
import io
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

from tocha.version import __version__


def _demo(args: argparse.Namespace) -> int:
    from tocha.demo import digits

    settings = digits.Settings(args.device, args.epochs, args.seed, args.target, args.checkpoint)
    if args.predict:
        if not args.checkpoint.exists():
            raise SystemExit(f"tocha demo: no checkpoint {args.checkpoint}; run `tocha demo` first")
        digits.predict(settings)
        return 0
    _check_demo(args)
    return digits.main(settings)


def _check_demo(args: argparse.Namespace) -> None:
    """Stop before the training if its device, its seed or the place to save to is of no use."""
    import tocha

    try:
        on_meta = tocha.zeros(1, device=args.device).is_meta
        tocha.Generator().manual_seed(args.seed)
    except (RuntimeError, ValueError) as error:
        raise SystemExit(f"tocha demo: {error}") from None
    if on_meta:
        raise SystemExit("tocha demo: the meta device has no values to train with")
    folder = args.checkpoint.parent
    if args.checkpoint.is_dir() or not os.access(folder, os.W_OK):
        raise SystemExit(f"tocha demo: can't save to {args.checkpoint}: it must be a file in a folder you may write to")


def _doctor(args: argparse.Namespace) -> int:
    if args.compile:
        from tocha._dynamo import verify

        return verify.main()
    from tocha import doctor

    return doctor.main()


def _compile_report(args: argparse.Namespace) -> int:
    from tocha._dynamo import page

    if not Path(args.script).is_file():
        raise SystemExit(f"tocha compile-report: no script {args.script}")
    if len(args.args) >= 2 and args.args[-2] in ("-o", "--output"):
        *args.args, _, args.output = args.args
    return page.main(args.script, args.args, args.output)


def _version(args: argparse.Namespace) -> int:
    print(__version__)
    return 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return int(text)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(prog="tocha", description="The PyTorch 2 stack in pure Python.")
    parser.add_argument("--version", action="version", version=f"tocha {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        )
        sub.set_defaults(run=run)
        return sub

    demo = command("demo", _demo, "train a small CNN on handwritten digits, save it, reload it and predict")
    demo.add_argument("--device", default="cpu", help="where to train: cpu, cuda, cuda:1")
    demo.add_argument("--epochs", type=_positive, default=12, help="passes over the training images")
    demo.add_argument("--seed", type=int, default=0, help="the same seed gives the same numbers")
    demo.add_argument("--target", type=_share, default=0.97, help="fail when the test accuracy is lower")
    demo.add_argument("--checkpoint", type=Path, default=Path("digits.pt"), help="file to save to/load")
    demo.add_argument("--predict", action="store_true", help="only load the checkpoint and predict")

    doctor = command("doctor", _doctor, "show versions and devices, and check a training step on each device")
    doctor.add_argument(
        "--compile", action="store_true", help="check torch.compile instead: numbers against eager, times cold and warm"
    )
    report = command("compile-report", _compile_report, "run a script and write what torch.compile did as an HTML page")
    report.add_argument("-o", "--output", default="compile-report.html", help="the page to write")
    report.add_argument("script", help="the Python script")
    report.add_argument("args", nargs=argparse.REMAINDER, help="its arguments; -o may also come last")
    command("version", _version, "print the version")
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the command line; the exit status."""
    if sys.stdout is None:  # started with it closed (>&-)
        sys.stdout = io.StringIO()
    args = build_parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = args.run
    try:
        status = run(args)
        sys.stdout.flush()  # here, where a reader that has gone is dealt with, and not at exit
        return status
    except KeyboardInterrupt:
        print()
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; nothing may be flushed into it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
