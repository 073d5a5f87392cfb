"""A balance report as text: a headline, a table of measures, one line for each exception."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from balancer.measures import Imbalance, Measures
from balancer.topology import WAITS

if TYPE_CHECKING:
    from balancer.report import BalanceReport

__all__ = ["report_text"]

_IDS_SHOWN = 8
_RANKS_SHOWN = 8


def report_text(report: "BalanceReport") -> str:
    """Plain text of a report: a headline, one line a measure, one line for each exception."""
    lines = [
        f"{report.samples} samples -> {report.steps} steps on {report.dp_size} ranks, "
        f"{report.microbatches} microbatches each; {WAITS[report.barrier]}",
        "",
        *_table(report),
        "",
    ]
    if report.speedup == report.speedup:
        lines.append(f"speed-up over the given order  {report.speedup:.3f}")
    fewest, mean, most = report.step_samples
    if fewest < most:
        lines.append(f"samples of a step              {fewest} to {most}, mean {mean:.1f}")
    if report.binds:
        lines.append(f"what binds (steps)             {_counts(report.binds)}")
        lines.append(f"best planner (steps)           {_counts(report.planners)}")
    lines.append(f"busy, idle of each rank        {_ranks(report.planned)}")
    largest = report.planned.largest
    lines.append(
        f"largest microbatch             {largest.tokens} tokens, {largest.patches} patches, "
        f"{largest.images} images, {largest.samples} samples (step {largest.step}, microbatch "
        f"{largest.index}, rank {largest.dp_rank})"
    )
    for what, ids in (
        ("dropped", report.dropped),
        ("repeated to fill a step", report.repeated),
        ("fillers without loss", report.fillers),
        ("alone, over a limit", report.alone),
    ):
        if ids:
            lines.append(f"{what:<30} {_ids(ids)}")
    for source, moved in report.displacement.items():
        of = f" of source {source}" if len(report.displacement) > 1 else ""
        lines.append(
            f"{'steps moved in their window':<30} {moved['mean']:.2f} mean, "
            f"{moved['p99']:.1f} p99, {moved['max']:.0f} max{of}"
        )
    return "\n".join(lines)


def _table(report: "BalanceReport") -> list[str]:
    """Rows of measures, the given order (where known) left of the plan."""
    columns = {"given order": report.given, "planned": report.planned}
    shown = {head: _cells(measures) for head, measures in columns.items() if measures}
    heads = list(shown)
    rows = [("max/mean over ranks: mean, p95, max", *("" for _ in heads))]
    rows += [(name, *(shown[head][name] for head in heads)) for name in shown["planned"]]
    first = max(len(row[0]) for row in rows)
    widths = [max(len(head), *(len(row[1 + i]) for row in rows)) for i, head in enumerate(heads)]

    def line(name: str, cells: Sequence[str]) -> str:
        padded = "   ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        return f"{name:<{first}}   {padded}".rstrip()

    return [line("", heads), *(line(row[0], row[1:]) for row in rows)]


def _cells(measures: Measures) -> dict[str, str]:
    """Shown measures by name."""
    cells = {
        "  each step": _three(measures.step_imbalance),
        "  each microbatch": _three(measures.microbatch_imbalance),
    }
    if len(measures.module_imbalance) > 1:
        for name, imbalance in measures.module_imbalance.items():
            cells[f"  {name} alone"] = _three(imbalance)
    cells["idle"] = f"{measures.idle_fraction:.1%}"
    if measures.time_over_bound == measures.time_over_bound:
        cells["step time over bound: mean, worst"] = (
            f"{measures.time_over_bound:.3f} {measures.worst_over_bound:.3f}"
        )
    if measures.padding_fraction:
        cells["padding"] = f"{measures.padding_fraction:.1%}"
    for name, (mean, most) in measures.fill.items():
        cells[f"of max_{name}: mean, max"] = f"{mean:.1%} {most:.1%}"
    return cells


def _three(imbalance: Imbalance) -> str:
    return f"{imbalance.mean:.3f} {imbalance.p95:.3f} {imbalance.max:.3f}"


def _ranks(measures: Measures) -> str:
    """Busy time and idle share of each rank; of many, of the least and the most busy."""
    busy = measures.rank_busy
    ranks = range(len(busy))
    if len(busy) > _RANKS_SHOWN:
        ranks_by_time = sorted(ranks, key=lambda rank: busy[rank])
        shown = [ranks_by_time[0], ranks_by_time[-1]]
    else:
        shown = list(ranks)
    cells = [f"{rank}: {busy[rank]:.4g} {measures.rank_idle[rank]:.1%}" for rank in shown]
    return (" ... " if len(busy) > _RANKS_SHOWN else ", ").join(cells)


def _counts(counts: dict[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{name} {count}" for name, count in ordered)


def _ids(ids: Sequence[int]) -> str:
    shown = ", ".join(str(sample_id) for sample_id in ids[:_IDS_SHOWN])
    more = f", ... {len(ids) - _IDS_SHOWN} more" if len(ids) > _IDS_SHOWN else ""
    return f"{len(ids)} samples: {shown}{more}"
