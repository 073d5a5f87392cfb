"""Packing: bins over their bound, padding, and time beside sorting and beside other packers."""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from balancer.packing import Packing, pack
from benchmarks.measure import Record
from benchmarks.packing_data import Lengths, draw_lengths
from benchmarks.packing_peers import first_fit_arrays, knapsack, segment_tree_best_fit
from benchmarks.pattern_bound import pattern_bound

__all__ = ["measure_packing"]

_PEERS = {
    "segment_tree_best_fit": segment_tree_best_fit,
    "knapsack": knapsack,
    "first_fit_arrays": first_fit_arrays,
}

_LEAST_ROUND = 0.005  # seconds


def measure_packing(
    *,
    name: str,
    data: Sequence[str],
    tiles: str,
    sizes: Sequence[int],
    capacities: Sequence[int],
    efforts: Sequence[int],
    image_limits: dict[str, Sequence[int]],
    most_for_peers: int,
    most_for_efforts: int,
    largest_size: int,
    largest_capacities: Sequence[int],
    repeats: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Pack every data set of every size into every capacity.

    `planner` in the records is `balanced` for the default, `balanced_effort<n>` for other efforts
    (0 is best-fit decreasing alone) and the peer's name otherwise. Times are the least of
    `repeats` calls that alternate with what they are compared with.

    Args:
        name: Name of the experiment in the records.
        data: Names of `draw_lengths`; tiles are always packed at 4,096 as well.
        tiles: Parquet file of the tiles; left out, with a notice, where absent.
        sizes: Numbers of samples.
        capacities: Capacities in tokens.
        efforts: Efforts beside the default.
        image_limits: Limits of images by data, packed at 8,192 tokens (tiles: 4,096).
        most_for_peers: Largest size that the peers pack.
        most_for_efforts: Largest size for efforts above 1.
        largest_size: Number of samples packed at some capacities only, since that takes long.
        largest_capacities: Those capacities.
        repeats: Timed calls of each.
        seed: Seed of the draws.
        quick: Small sizes and one capacity, to see that it runs.
    """
    if not Path(tiles).is_file():
        print(f"data=internvl_tiles: there is no {tiles}, skipped", file=sys.stderr)
        data = [one for one in data if one != "internvl_tiles"]
    sizes, capacities = (sizes[:1], capacities[:1]) if quick else (sizes, capacities)
    records = []
    for one in data:
        tiled = one == "internvl_tiles"
        settings = [
            (size, capacity) for capacity in ([4096] if tiled else capacities) for size in sizes
        ]
        if not quick:
            largest = [4096] if tiled else largest_capacities
            settings += [(largest_size, capacity) for capacity in largest]
        for size, capacity in settings:
            lengths = draw_lengths(one, size, capacity, seed, tiles)
            peers = list(_PEERS) if size <= most_for_peers else []
            tried = [e for e in efforts if e <= 1 or size <= most_for_efforts]
            few = quick or size == largest_size
            records += _one(name, lengths, capacity, tried, peers, 2 if few else repeats)
        if one in image_limits:
            for limit in image_limits[one][: 2 if quick else None]:
                capacity = 4096 if tiled else 8192
                lengths = draw_lengths(one, sizes[0], capacity, seed, tiles)
                records += _two(name, lengths, capacity, limit, efforts)
    return records


def _one(
    name: str,
    lengths: Lengths,
    capacity: int,
    efforts: Sequence[int],
    peers: Sequence[str],
    repeats: int,
) -> list[Record]:
    """Records of one data set and capacity."""
    tokens = lengths.tokens
    where = f"capacity{capacity}_n{len(tokens)}"
    calls: dict[str, Callable[[], object]] = {
        "balanced": partial(pack, tokens, capacity),
        "argsort": partial(np.argsort, tokens, kind="stable"),
        "sort": partial(np.sort, tokens),
    }
    for effort in efforts:
        calls[f"balanced_effort{effort}"] = partial(pack, tokens, capacity, effort=effort)
    for peer in peers:
        calls[peer] = partial(_PEERS[peer], tokens, capacity)
    seconds, results = _least_seconds(calls, repeats)
    bound = pack(tokens, capacity, effort=0).lower_bound
    records = []
    for planner, result in results.items():
        if planner in ("argsort", "sort"):
            continue
        num_bins = result.num_bins if isinstance(result, Packing) else len(result)  # type: ignore[arg-type]
        values = {
            "bins_over_bound": (num_bins / bound, "ratio"),
            "padding_fraction": (1 - tokens.sum() / (num_bins * capacity), "ratio"),
            "packing_seconds": (seconds[planner], "s"),
        }
        if planner == "balanced":
            best_fit = results.get("balanced_effort0")
            if isinstance(best_fit, Packing):
                values["bins_over_best_fit"] = (num_bins / best_fit.num_bins, "ratio")
            values["packing_over_argsort"] = (seconds[planner] / seconds["argsort"], "ratio")
            values["packing_over_sort"] = (seconds[planner] / seconds["sort"], "ratio")
        if planner in ("balanced", "balanced_effort0"):
            for peer in peers:
                ratio = seconds[peer] / seconds[planner]
                values[f"seconds_vs_{peer}"] = (ratio, "ratio")
        records += [
            Record(
                experiment=name, data=lengths.name, planner=planner, topology=where,
                barrier="none", metric=metric, value=float(value), unit=unit, n=repeats,
            )
            for metric, (value, unit) in values.items()
        ]  # fmt: skip
    return records


def _two(
    name: str, lengths: Lengths, capacity: int, limit: int, efforts: Sequence[int]
) -> list[Record]:
    """Records of two capacities, tokens and images, at the default and at higher efforts."""
    tokens, images = lengths.tokens, lengths.images
    if images is None:
        return []
    bound = pattern_bound(tokens, images, capacity, limit)
    where = f"capacity{capacity}_images{limit}_n{len(lengths.tokens)}"
    records = []
    for effort in [1, *(effort for effort in efforts if effort > 1)]:
        call = partial(pack, tokens, capacity, amounts={"images": (images, limit)}, effort=effort)
        packing = call()
        started = time.perf_counter()
        call()
        values = {
            "bins_over_bound": (packing.num_bins / max(packing.lower_bound, bound), "ratio"),
            "packing_seconds": (time.perf_counter() - started, "s"),
        }
        planner = "balanced" if effort == 1 else f"balanced_effort{effort}"
        records += [
            Record(
                experiment=name, data=lengths.name, planner=planner, topology=where, barrier="none",
                metric=metric, value=value, unit=unit, n=1,
            )
            for metric, (value, unit) in values.items()
        ]  # fmt: skip
    return records


def _least_seconds(
    calls: dict[str, Callable[[], object]], repeats: int
) -> tuple[dict[str, float], dict[str, object]]:
    """Least time of each call over rounds that make every call, and what it returned.

    A round makes short calls again until 5 ms have passed, so that each finds the caches as its own
    calls leave them. A call of more than two seconds is made once.
    """
    results = {name: call() for name, call in calls.items()}
    seconds = dict.fromkeys(calls, np.inf)
    for _ in range(repeats):
        for name, call in calls.items():
            if seconds[name] < np.inf and seconds[name] > 2:
                continue
            began = started = time.perf_counter()
            while started - began < _LEAST_ROUND:
                call()
                ended = time.perf_counter()
                seconds[name] = min(seconds[name], ended - started)
                started = ended
    return seconds, results
