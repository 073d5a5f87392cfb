"""Scale: one of 1,024 ranks begins an epoch of 100 million samples, and seeks in it."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from balancer.samples import SampleTable
from balancer.sizing.tables import save_table
from benchmarks.measure import Record

__all__ = ["measure_scale", "write_sizes"]

_BLOCK = 2**20


def measure_scale(
    *,
    name: str,
    sizes: Sequence[int],
    model: str,
    dp_size: int,
    dp_rank: int,
    num_microbatches: int,
    samples_per_rank: int,
    max_tokens: int,
    most_for_peers: int,
    folder: str | None,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Times and memory of one rank on tables mapped from disk, each in a process of its own.

    `first_pass_seconds` is the pass that prices every sample once, ever; what follows is measured
    in a new process that finds its result. `open_seconds` maps the table and makes the planner;
    `epoch_start_seconds` is `set_epoch` to the first microbatch, kernels compiled;
    `epoch_start_mib` the most memory that opening and this take beyond the mapped file;
    `seek_seconds_*` the plan of the first, middle and last step of another epoch.
    `distributed_sampler` is torch's, from `set_epoch` to its first index.

    Args:
        name: Name of the experiment in the records.
        sizes: Numbers of samples.
        model: Model preset that prices them.
        dp_size: Ranks.
        dp_rank: The rank that is measured.
        num_microbatches: Microbatches of a step.
        samples_per_rank: Samples of a step over ranks.
        max_tokens: Tokens of a microbatch.
        most_for_peers: Largest number of samples for torch's sampler, which lists them all.
        folder: Where the tables are written and removed again; a temporary folder when not given.
        seed: Seed of the sizes and of the order.
        quick: The smallest size only.
    """
    records = []
    for num_samples in sizes[:1] if quick else sizes:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = Path(place) / "sizes.arrow"
            write_sizes(path, num_samples, seed)
            setting = {
                "path": str(path), "cache": place, "model": model, "dp_size": dp_size,
                "dp_rank": dp_rank, "num_microbatches": num_microbatches,
                "global_batch_size": samples_per_rank * dp_size, "max_tokens": max_tokens,
                "seed": seed, "num_samples": num_samples,
            }  # fmt: skip
            values = {("balanced", metric): value for metric, value in (
                _in_process("first_pass", setting) | _in_process("rank", setting)).items()
            }  # fmt: skip
        if num_samples <= most_for_peers:
            peer = _in_process("distributed_sampler", setting)
            values |= {("distributed_sampler", metric): value for metric, value in peer.items()}
        records += [
            Record(
                experiment=name, data=f"n{num_samples}", planner=planner,
                topology=f"dp{dp_size}_m{num_microbatches}", barrier="microbatch", metric=metric,
                value=value, unit="MiB" if metric.endswith("_mib") else
                "s" if "_seconds" in metric else "ratio", n=1,
            )
            for (planner, metric), value in values.items()
        ]  # fmt: skip
    return records


def write_sizes(path: Path, num_samples: int, seed: int) -> None:
    """Write a table of text (lognormal, median 180 tokens), 3 of 5 samples with one image.

    Columns are drawn block by block into files and copied from there, so that memory stays small.
    """
    work = Path(tempfile.mkdtemp(dir=path.parent))
    rng = np.random.default_rng(seed)

    def column(name: str, size: int) -> np.ndarray:
        file = work / f"{name}.npy"
        return np.lib.format.open_memmap(file, mode="w+", dtype=np.int64, shape=(size,))  # type: ignore[no-untyped-call, no-any-return]

    num_images = -(-num_samples // 5) * 3
    text, offsets = column("text", num_samples), column("offsets", num_samples + 1)
    heights, widths = column("heights", num_images), column("widths", num_images)
    for first in range(0, num_samples, _BLOCK):
        rows = np.arange(first, min(first + _BLOCK, num_samples))
        text[rows] = np.clip(rng.lognormal(np.log(180), 1.0, len(rows)), 1, 8000).astype(np.int64)
        offsets[rows + 1] = (rows + 1) // 5 * 3 + np.minimum((rows + 1) % 5, 3)
    for first in range(0, num_images, _BLOCK):
        part = slice(first, min(first + _BLOCK, num_images))
        heights[part] = rng.integers(224, 1345, part.stop - first)
        widths[part] = rng.integers(224, 1345, part.stop - first)
    used = int(offsets[-1])
    none, nothing = column("none", num_samples + 1), np.zeros(0, np.int64)
    table = SampleTable(
        text_tokens=text, target_tokens=text, encoded_bytes=none[1:], image_offsets=offsets,
        image_heights=heights[:used], image_widths=widths[:used], video_offsets=none,
        video_frames=nothing, video_fps=np.zeros(0), video_heights=nothing, video_widths=nothing,
        audio_offsets=none, audio_seconds=np.zeros(0),
    )  # fmt: skip
    save_table(table, path)
    shutil.rmtree(work)


def _in_process(task: str, setting: dict[str, object]) -> dict[str, float]:
    """What a task of `benchmarks.scale_rank` measures, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.scale_rank", task, json.dumps(setting)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    values: dict[str, float] = json.loads(done.stdout)
    return values
