"""Command `balancer calibrate`: measured times in a CSV file -> coefficients with their error.

```text
balancer calibrate times.csv --hardware "8x H100" --out qwen.json --plot fit.png
```
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from balancer.calibrate import calibrate
from balancer.calibration.amounts import AMOUNTS, CONSTANT, MODULE_AMOUNTS
from balancer.calibration.measurements import TOTAL, Measurements
from balancer.calibration.plot import plot_calibration
from balancer.calibration.result import Calibration
from balancer.errors import ArgumentError
from balancer.plots import require_matplotlib

__all__ = ["add_parser", "run"]

_COLUMNS = f"""\
columns of TIMES.csv, one row a microbatch:
  amounts: {", ".join(name for name in AMOUNTS if name != CONSTANT)}
  times:   {", ".join(f"{module}_seconds" for module in MODULE_AMOUNTS)};
           or seconds, of all modules together
  if known: wait_seconds (part of the time that was waiting), flops
Other columns are ignored."""


def add_parser(subparsers: Any) -> argparse.ArgumentParser:
    """Add the command to those of a parser; `subparsers` is what `add_subparsers` returned."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "calibrate",
        help="fit costs to measured times, and show their error",
        epilog=_COLUMNS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("times", type=Path, metavar="TIMES.csv")
    parser.add_argument("--out", type=Path, metavar="CALIBRATION.json", help="save the result")
    parser.add_argument(
        "--plot", type=Path, metavar="FIT.png", help="draw predicted against measured, with a CSV"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--hardware", default="not stated", help="what was measured on")
    parser.add_argument(
        "--amounts",
        action="append",
        default=[],
        metavar="MODULE=NAME,NAME",
        help=f"amounts the time of a module (or {TOTAL}) depends on (default: all of its own)",
    )
    parser.add_argument(
        "--held-out", type=float, default=0.25, help="share of the rows held out (0.25)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the rows held out")
    parser.add_argument(
        "--max-wait", type=float, default=0.05, help="largest share of a time that waited (0.05)"
    )
    parser.add_argument(
        "--peak-flops-per-s", type=float, help="FLOPs a second that the device cannot exceed"
    )
    parser.add_argument(
        "--keep-outliers", action="store_true", help="fit rows that are far from the others too"
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, print, and write what was asked for.

    Raises:
        BalancerError: An option or the measurements are not as they should be.
        OSError: A file cannot be read or written.
    """
    _check_outputs(arguments)
    measurements = Measurements.from_csv(arguments.times)
    calibration = calibrate(
        measurements,
        amounts=_amounts(arguments.amounts),
        held_out=arguments.held_out,
        seed=arguments.seed,
        filter_outliers=not arguments.keep_outliers,
        max_wait=arguments.max_wait,
        peak_flops_per_s=arguments.peak_flops_per_s,
        hardware=arguments.hardware,
    )
    written = _write(arguments, calibration, measurements)
    if arguments.json:
        record = {"calibration": calibration.to_dict(), "written": written}
        sys.stdout.write(json.dumps(record, indent=2) + "\n")
        return 0
    lines = [str(calibration), *_dropped(calibration)]
    lines += [f"wrote {path}" for path in written.values()]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _amounts(options: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`MODULE=NAME,NAME` options by module."""
    chosen = {}
    for option in options:
        module, equals, names = option.partition("=")
        if not (module and equals and names):
            raise ArgumentError(
                f"--amounts is {option!r}; allowed: MODULE=NAME,NAME, for example "
                "language=tokens,tokens_squared"
            )
        chosen[module] = tuple(name.strip() for name in names.split(","))
    return chosen


def _check_outputs(arguments: argparse.Namespace) -> None:
    for flag, path in (("--out", arguments.out), ("--plot", arguments.plot)):
        if path is not None and not path.parent.is_dir():
            raise ArgumentError(f"{flag} is {path}; its folder does not exist: create it first")
    if arguments.plot is not None:
        if arguments.plot.suffix.lower() != ".png":
            raise ArgumentError(f"--plot is {arguments.plot}; allowed: a file name ending in .png")
        require_matplotlib()


def _write(
    arguments: argparse.Namespace, calibration: Calibration, measurements: Measurements
) -> dict[str, str]:
    """Write what was asked for; paths by what they hold."""
    written = {}
    if arguments.out is not None:
        calibration.save(arguments.out)
        written["calibration"] = str(arguments.out)
    if arguments.plot is not None:
        numbers = plot_calibration(calibration, measurements, arguments.plot)
        written |= {"plot": str(arguments.plot), "points": str(numbers)}
    return written


def _dropped(calibration: Calibration) -> list[str]:
    """Rows that were left out, as text."""
    lines = []
    for fit in calibration.fits:
        reasons = [f"{count} {reason}" for reason, count in fit.dropped.items()]
        reasons += [f"{fit.num_outliers} far from the fit"] if fit.num_outliers else []
        if reasons:
            lines.append(f"{fit.target}: rows left out: {', '.join(reasons)}")
    return lines
