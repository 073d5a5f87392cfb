"""`balancer probe`: sizes of the media below a folder, from their headers.

```text
balancer probe images/ --out sizes.parquet --on-error skip
```
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np

from balancer.errors import ArgumentError
from balancer.probing import MediaFiles, OnError, probe

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the command to those of the program."""
    parser = subparsers.add_parser(
        "probe", help="sizes of images, videos and sounds, from their headers"
    )
    parser.add_argument("paths", nargs="+", metavar="DIR", help="a folder, or files")
    parser.add_argument(
        "--out", type=Path, metavar="SIZES.parquet", help="write a table, one row a file"
    )
    parser.add_argument(
        "--on-error",
        choices=get_args(OnError),
        default="raise",
        help="what becomes of missing, corrupt and truncated files",
    )
    parser.add_argument("--num-workers", type=int, default=8, help="files read at once (8)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit code: 0, or 1 where files were at fault.

    Raises:
        ArgumentError: Nothing to read, or the output cannot be written.
        SampleError: Files are at fault and the policy is `raise`.
    """
    out = arguments.out
    if out is not None and not out.parent.is_dir():
        raise ArgumentError(f"--out is {out}; its folder does not exist: create it first")
    given = arguments.paths
    files = probe(
        given[0] if len(given) == 1 else given,
        num_workers=arguments.num_workers,
        on_error=arguments.on_error,
        progress=sys.stderr.isatty(),
    )
    if out is not None:
        from pyarrow import parquet

        parquet.write_table(files.to_arrow(), out)
    summary = _summary(files) | {"out": None if out is None else str(out)}
    text = json.dumps(summary, indent=2) if arguments.json else "\n".join(_lines(files, summary))
    sys.stdout.write(f"{text}\n")
    return 1 if files.faults else 0


def _summary(files: MediaFiles) -> dict[str, Any]:
    names, counts = np.unique(files.formats, return_counts=True)
    return {
        "files": files.counts(),
        "formats": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "bytes": int(files.encoded_bytes.sum()),
        "megapixels": float((files.heights * files.widths)[files.kinds == "image"].sum() / 1e6),
        "video_frames": int(files.frames.sum()),
        "audio_seconds": float(files.seconds[files.kinds == "audio"].sum()),
        "faults": [{"path": path, "fault": fault} for _, path, fault in files.faults],
    }


def _lines(files: MediaFiles, summary: dict[str, Any]) -> Iterator[str]:
    counts = summary["files"]
    yield ", ".join(f"{number} {what}" for what, number in counts.items())
    for name, count in summary["formats"].items():
        yield f"{count:>10}  {name}"
    yield (
        f"{summary['bytes'] / 1e6:.1f} MB, {summary['megapixels']:.1f} megapixels of images, "
        f"{summary['video_frames']} video frames, {summary['audio_seconds']:.1f} s of audio"
    )
    yield from files.fault_lines()
    if summary["out"]:
        yield f"wrote {summary['out']}"
