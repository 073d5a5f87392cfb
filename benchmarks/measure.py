"""Timing, and the records that every benchmark writes."""

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

__all__ = ["Record", "hardware", "median_seconds", "read_records", "versions", "write_records"]

_PACKAGES = ("numpy", "numba", "pyarrow")


def _commit() -> str:
    """Commit the code is at, with `+` where tracked files differ from it."""
    root = Path(__file__).resolve().parents[1]
    run = ["git", "-C", str(root)]
    try:
        head = subprocess.run(
            [*run, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        status = subprocess.run(
            [*run, "status", "--porcelain", "--untracked-files=no", "--", "balancer", "benchmarks"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if status.stdout.strip() else "")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide the numbers."""
    return {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One number: what was measured, on what, by which code.

    Attributes:
        experiment: Name of the experiment.
        data: Name of the trace, or `"all"` for a mean over traces.
        planner: Name of the planner choice.
        topology: For example `"dp8_m4"`.
        barrier: Where ranks wait.
        metric: What the value is.
        value: The number.
        unit: Its unit; `"ratio"` for none.
        n: How many observations the value is taken over.
        commit: Commit of the code, `+` where it was changed since.
        versions: Versions of Python and packages.
    """

    experiment: str
    data: str
    planner: str
    topology: str
    barrier: str
    metric: str
    value: float
    unit: str
    n: int
    commit: str = field(default_factory=_commit)
    versions: dict[str, str] = field(default_factory=versions)


def median_seconds(function: Callable[[], object], *, repeats: int, warm_up: int = 2) -> float:
    """Median wall time of a call after `warm_up` calls that are not counted."""
    for _ in range(warm_up):
        function()
    times = np.empty(repeats)
    for index in range(repeats):
        started = time.perf_counter()
        function()
        times[index] = time.perf_counter() - started
    return float(np.median(times))


def hardware() -> str:
    """Processor and number of usable cores."""
    cores = len(os.sched_getaffinity(0))
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":", 1)[1].strip() if names else model
    return f"{model}, {cores} cores"


def write_records(path: Path, records: Sequence[Record], *, keep: bool = False) -> list[Record]:
    """Write records as a JSON list, and return what the file now holds.

    Args:
        path: File to write; its folder is made.
        records: The records.
        keep: Keep what the file has, other than earlier values of the same numbers.
    """
    before = read_records(path) if keep and path.is_file() else []
    new = {_key(record) for record in records}
    held = [record for record in before if _key(record) not in new] + list(records)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(record) for record in held], indent=1) + "\n")
    return held


def read_records(path: Path) -> list[Record]:
    """Records of a file written by `write_records`."""
    return [Record(**entry) for entry in json.loads(path.read_text())]


def _key(record: Record) -> tuple[str, ...]:
    return (
        record.experiment,
        record.data,
        record.planner,
        record.topology,
        record.barrier,
        record.metric,
    )
