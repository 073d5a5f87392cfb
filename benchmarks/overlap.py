"""How much of the preparation a loader hides behind training, beside other loaders."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from balancer.errors import ArgumentError
from benchmarks.measure import Record
from benchmarks.overlap_loaders import LOADERS, WORKERS, Pass, parallel_seconds_of
from benchmarks.overlap_work import Images, Mix, mixes

__all__ = ["measure_overlap"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Timed:
    """One pass: seconds in all, and the wait for each microbatch."""

    total: float
    waits: tuple[float, ...]


def measure_overlap(
    *,
    name: str,
    folder: str,
    loaders: Sequence[str],
    paces: Sequence[float],
    num_microbatches: int,
    microbatch: int,
    side: int,
    repeats: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Time of a pass over its bound, and the waits for data, loader by loader.

    Real images are read, decoded and resized by two workers; training is a pause as long as `pace`
    times the time that two busy workers take for a microbatch on average. All loaders hand out the
    same number of microbatches of the same samples (`as_completed` shuffles them). Passes of all
    loaders alternate; the first pass of each, which starts its workers, is not counted, and values
    are medians over the others. The bound is the longer of all the preparation, measured with two
    workers always busy in the same round, and all the training.

    Metrics: `total_time_over_bound`; `total_time_vs_torch` and `longest_gap_vs_torch` (ours or
    theirs over torch's DataLoader with its default prefetch, in the same round), likewise
    `..._vs_torch_prefetch8`; `data_wait_p50`, `_p95`, `_p99` and `longest_gap` in seconds.

    Args:
        name: Name of the experiment in the records.
        folder: Demo images with their `samples.jsonl`.
        loaders: Names in `benchmarks.overlap_loaders.LOADERS`, the first of torch's included.
        paces: Training over preparation of a microbatch.
        num_microbatches: Microbatches of a pass.
        microbatch: Samples of each.
        side: Pixels of a side after resizing.
        repeats: Counted passes of each loader.
        seed: Seed of the mixes.
        quick: Fewer microbatches, passes and paces.

    Raises:
        ArgumentError: The folder is not there, or a loader is unknown.
    """
    if not (Path(folder) / "samples.jsonl").exists():
        raise ArgumentError(f"folder is {folder!r}, which has no samples.jsonl; give demo images")
    unknown = sorted(set(loaders) - set(LOADERS))
    if unknown:
        raise ArgumentError(f"loaders has {unknown[0]!r}; allowed: {', '.join(LOADERS)}")
    if quick:
        num_microbatches, repeats, paces = num_microbatches // 5, 1, paces[1:2]
    torch.set_num_threads(1)
    records = []
    paths, all_mixes = mixes(
        Path(folder), num_microbatches=num_microbatches, microbatch=microbatch, seed=seed
    )
    for mix in all_mixes:
        dataset = Images(paths, mix, side)
        seconds = _seconds_alone(dataset, mix)
        for pace in paces:
            rounds, bounds = _rounds(dataset, mix, seconds, loaders, pace, repeats)
            records += _records(name, mix, pace, rounds, bounds)
    return records


def _seconds_alone(dataset: Images, mix: Mix) -> list[float]:
    """Seconds of each sample, by one measurement for each image and number of rounds."""
    measured: dict[tuple[int, int], float] = {}
    seconds = []
    for sample_id in range(len(dataset)):
        key = (int(mix.image[sample_id]), int(mix.rounds[sample_id]))
        if key not in measured:
            began = time.perf_counter()
            dataset[sample_id]
            measured[key] = time.perf_counter() - began
        seconds.append(measured[key])
    return seconds


def _rounds(
    dataset: Images,
    mix: Mix,
    seconds: list[float],
    loaders: Sequence[str],
    pace: float,
    repeats: int,
) -> tuple[dict[str, list[_Timed]], list[float]]:
    """Passes of each loader, round by round, and the bound of each round."""
    dearest_first = sorted(range(len(seconds)), key=lambda i: -seconds[i])
    work = parallel_seconds_of(dataset, dearest_first)
    pause = pace * work / len(mix.microbatches)
    timed: dict[str, list[_Timed]] = {name: [] for name in loaders}
    bounds = []
    for number in range(repeats + 1):
        work = parallel_seconds_of(dataset, dearest_first)
        bounds.append(max(work, pause * len(mix.microbatches)))
        for name in [*loaders[number:], *loaders[:number]]:
            with LOADERS[name](dataset, mix.microbatches, seconds) as one_pass:
                sum(1 for _ in one_pass())  # starts the workers
                timed[name].append(_timed(one_pass, pause))
    return {name: passes[1:] for name, passes in timed.items()}, bounds[1:]


def _timed(one_pass: Pass, pause: float) -> _Timed:
    waits = []
    began = asked = time.perf_counter()
    iterator: Iterator[object] = one_pass()
    for _ in iterator:
        waits.append(time.perf_counter() - asked)
        time.sleep(pause)
        asked = time.perf_counter()
    return _Timed(total=time.perf_counter() - began, waits=tuple(waits))


def _records(
    name: str, mix: Mix, pace: float, rounds: dict[str, list[_Timed]], bounds: list[float]
) -> list[Record]:
    records = []
    for loader, passes in rounds.items():
        values = {
            "total_time_over_bound": [p.total / b for p, b in zip(passes, bounds, strict=True)],
            "longest_gap": [max(p.waits) for p in passes],
        }
        for share in (50, 95, 99):
            values[f"data_wait_p{share}"] = [float(np.percentile(p.waits, share)) for p in passes]
        for peer in ("torch", "torch_prefetch8"):
            theirs = rounds.get(peer, [])
            if theirs and loader != peer:
                pairs = list(zip(passes, theirs, strict=True))
                values[f"total_time_vs_{peer}"] = [a.total / b.total for a, b in pairs]
                values[f"longest_gap_vs_{peer}"] = [max(a.waits) / max(b.waits) for a, b in pairs]
        records += [
            Record(
                experiment=name,
                data=f"{mix.name}_pace{pace:g}",
                planner=loader,
                topology=f"workers{WORKERS}",
                barrier="none",
                metric=metric,
                value=float(np.median(each)),
                unit="s" if metric.startswith("data_wait") or metric == "longest_gap" else "ratio",
                n=len(each),
            )
            for metric, each in values.items()
        ]
    return records
