"""Partitions beside the Karmarkar-Karp that frameworks use: largest load over bound, and time."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.partition import Counts, partition
from balancer.partition_bounds import last_end_bound
from balancer.partition_items import build_items
from benchmarks.karmarkar_karp import karmarkar_karp
from benchmarks.measure import Record

__all__ = ["costs_of", "measure_partition"]

_PEER = "verl_karmarkar_karp"
_LONGEST = 16384


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A partition, its largest load over the bound, and the least seconds it took."""

    over_bound: float
    seconds: float
    repeats: int


def costs_of(data: str, num_samples: int, seed: int) -> NDArray[np.int64]:
    """Costs of one named distribution.

    `bimodal`: tokens of text (lognormal, median 180) and, for 60 %, of 1 to 6 images of 64 to 1280
    tokens; `workload`: 24576 s + s^2 of the same lengths s, as verl prices a 7B model; `zipf`: 8
    times Zipf(1.5); `lognormal`: squares of lognormal lengths, median 600. All lengths are at most
    16384.
    """
    rng = np.random.default_rng(seed)
    if data == "zipf":
        lengths = 8.0 * rng.zipf(1.5, num_samples)
    elif data == "lognormal":
        lengths = rng.lognormal(np.log(600.0), 1.0, num_samples)
    elif data in ("bimodal", "workload"):
        lengths = rng.lognormal(np.log(180.0), 1.0, num_samples)
        images = np.where(
            rng.random(num_samples) < 0.6, np.minimum(rng.geometric(0.5, num_samples), 6), 0
        )
        sizes = rng.integers(64, 1281, (num_samples, 6))
        lengths += (sizes * (np.arange(6) < images[:, None])).sum(axis=1)
    else:
        raise ValueError(f"data is {data!r}; allowed: bimodal, workload, zipf, lognormal")
    whole = np.clip(np.round(lengths), 1, _LONGEST).astype(np.int64)
    if data == "workload":
        return 24576 * whole + whole**2
    return whole**2 if data == "lognormal" else whole


def measure_partition(
    *,
    name: str,
    distributions: Sequence[str],
    sizes: Sequence[Sequence[int]],
    speeds: Sequence[float],
    most_for_peer: int,
    repeats: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Largest load over its bound and time of ours and of the peer, on the same costs.

    Each is timed as called, ours with checks and bound, the least of `repeats` calls (the peer: 3,
    one where it takes seconds), warm and compiled. The bound is ours for both. Parts of unequal
    `speeds` are set beside the larger of the mean and of the largest sample on the fastest.

    Args:
        name: Name of the experiment in the records.
        distributions: Names that `costs_of` knows.
        sizes: Pairs of samples and parts.
        speeds: Speeds of the parts that are not alike.
        most_for_peer: Largest samples x parts that the peer is given: it takes as long.
        repeats: Timed calls of ours.
        seed: Seed of the costs.
        quick: Small sizes and few repeats, to see that it runs.
    """
    records = []
    for data in distributions:
        for num_samples, num_parts in sizes:
            if quick and num_samples * num_parts > 2**15:
                continue
            costs = costs_of(data, num_samples, seed)
            rules: tuple[Counts, ...] = ("free", "equal")
            for counts in rules if num_samples % num_parts == 0 else ("free",):
                with_peer = num_samples * num_parts <= most_for_peer
                runs = _compare(costs, num_parts, counts, 5 if quick else repeats, with_peer)
                topology = f"n{num_samples}_k{num_parts}"
                records += _records(partial(Record, experiment=name, data=data,
                                            topology=topology, barrier=counts), runs)  # fmt: skip
        records += _unequal(name, data, speeds, seed)
    return records


def _compare(
    costs: NDArray[np.int64], num_parts: int, counts: Counts, repeats: int, with_peer: bool
) -> dict[str, _Run]:
    """Ours at two efforts and, if wanted, the peer's."""
    items = build_items(costs, num_parts, counts, None, None, {}, {})
    bound = last_end_bound(items.problem)[0] * 2.0**items.exponent

    def judged(call: Callable[[], Any], loads: Callable[[Any], float], times: int) -> _Run:
        result, seconds, done = _least_seconds(call, times)
        return _Run(over_bound=loads(result) / bound, seconds=seconds, repeats=done)

    def ours(effort: Any) -> _Run:
        call = partial(partition, costs, num_parts, counts=counts, effort=effort)
        call()
        return judged(
            call, lambda found: np.bincount(found.parts, costs, minlength=num_parts).max(), repeats
        )

    runs = {"balanced": ours("default"), "balanced_fast": ours("fast")}
    if with_peer:
        listed = costs.tolist()
        runs[_PEER] = judged(
            lambda: karmarkar_karp(listed, num_parts, equal_size=counts == "equal"),
            lambda found: max(int(costs[part].sum()) for part in found),
            3,
        )
    return runs


def _least_seconds(call: Callable[[], Any], times: int) -> tuple[Any, float, int]:
    """Result, least wall time and number of calls; a single call where it takes a second."""
    least, done = np.inf, 0
    for _ in range(times):
        started = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - started
        least, done = min(least, seconds), done + 1
        if seconds > 1.0:
            break
    return result, least, done


def _records(record: Callable[..., Record], runs: dict[str, _Run]) -> list[Record]:
    peer = runs.get(_PEER)
    records = []
    for planner, run in runs.items():
        values = {"makespan_over_bound": (run.over_bound, "ratio"), "seconds": (run.seconds, "s")}
        if peer is not None and planner != _PEER:
            values["seconds_vs_verl"] = (peer.seconds / run.seconds, "ratio")
            values["above_verl"] = (run.over_bound - peer.over_bound, "ratio")
        records += [
            record(planner=planner, metric=metric, value=float(value), unit=unit, n=run.repeats)
            for metric, (value, unit) in values.items()
        ]
    return records


def _unequal(name: str, data: str, speeds: Sequence[float], seed: int) -> list[Record]:
    """Worst of 20 draws of 64 samples on parts of unequal speed, over two bounds."""
    worst = {"makespan_over_bound_worst": 0.0, "makespan_over_simple_bound_worst": 0.0}
    for draw in range(20):
        costs = costs_of(data, 64, seed + draw)
        found = partition(costs, len(speeds), speeds=speeds)
        simple = max(costs.sum() / sum(speeds), costs.max() / max(speeds))
        for metric, bound in zip(worst, (found.lower_bound, simple), strict=True):
            worst[metric] = max(worst[metric], found.makespan / bound)
    return [
        Record(
            experiment=name, data=data, planner="balanced", topology=f"n64_k{len(speeds)}",
            barrier=f"speeds {list(speeds)}", metric=metric, value=float(value), unit="ratio", n=20,
        )
        for metric, value in worst.items()
    ]  # fmt: skip
