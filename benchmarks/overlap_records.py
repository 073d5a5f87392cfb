"""Records of the overlap experiment's rounds."""

from collections.abc import Sequence

import numpy as np

from benchmarks.measure import Record
from benchmarks.overlap_loaders import OURS, WORKERS
from benchmarks.overlap_passes import Round

__all__ = ["records_of"]


def records_of(name: str, mix: str, rounds: Sequence[Round]) -> list[Record]:
    """Medians over the rounds, pace by pace and loader by loader."""
    records = []
    for pace in dict.fromkeys(one.pace for one in rounds):
        own = [one for one in rounds if one.pace == pace]
        values = {loader: _values(loader, own) for loader in own[0].passes}
        values["bound"] = {"longest_gap": [one.gap_bound for one in own]}
        records += [
            Record(
                experiment=name,
                data=f"{mix}_pace{pace:g}",
                planner=loader,
                topology=f"workers{WORKERS}",
                barrier="none",
                metric=metric,
                value=float(np.median(each)),
                unit=_unit(metric),
                n=len(each),
            )
            for loader in values
            for metric, each in values[loader].items()
        ]
    return records


def _values(loader: str, rounds: Sequence[Round]) -> dict[str, list[float]]:
    """Values of a loader by metric, one a round."""
    ours = [one.passes[loader] for one in rounds]
    values = {
        "total_time_over_bound": [
            each.total / one.bound for each, one in zip(ours, rounds, strict=True)
        ],
        "throughput": [one.samples / each.total for each, one in zip(ours, rounds, strict=True)],
        "longest_gap": [max(each.waits) for each in ours],
    }
    for share in (50, 95, 99):
        values[f"data_wait_p{share}"] = [float(np.percentile(each.waits, share)) for each in ours]
    for peer in ("torch", "torch_prefetch8"):
        if peer in rounds[0].passes and loader != peer:
            theirs = [one.passes[peer] for one in rounds]
            pairs = list(zip(ours, theirs, strict=True))
            values[f"total_time_vs_{peer}"] = [a.total / b.total for a, b in pairs]
            values[f"longest_gap_vs_{peer}"] = [max(a.waits) / max(b.waits) for a, b in pairs]
    return values | (_beside_rivals(loader, rounds) if loader in OURS else {})


def _beside_rivals(loader: str, rounds: Sequence[Round]) -> dict[str, list[float]]:
    """Throughput over that of each rival, and of the best one, in the same rounds."""
    values = {
        f"throughput_vs_{rival}": [
            one.passes[rival].total / one.passes[loader].total for one in rounds
        ]
        for rival in rounds[0].passes
        if rival not in OURS
    }
    if values:
        values["throughput_vs_best"] = min(values.values(), key=np.median)
    return values


def _unit(metric: str) -> str:
    if metric == "throughput":
        return "samples/s"
    return "s" if metric.startswith("data_wait") or metric == "longest_gap" else "ratio"
