"""Records as Markdown tables."""

from collections.abc import Sequence

from benchmarks.measure import Record, hardware
from benchmarks.pricing_tables import pricing_tables

__all__ = ["markdown", "tables"]

_OVER, _WORST = "step_time_over_bound", "step_time_over_bound_worst"


def tables(records: Sequence[Record]) -> str:
    """Markdown tables of all records, one heading an experiment."""
    lines = []
    for experiment in dict.fromkeys(record.experiment for record in records):
        own = [record for record in records if record.experiment == experiment]
        lines += [f"# {experiment}", ""]
        if any(record.metric == _OVER for record in own):
            lines += _step_time_tables(own)
        elif experiment == "pricing":
            lines += pricing_tables(own)
        else:
            lines += _flat_table(own)
    return "\n".join(lines)


def markdown(records: Sequence[Record], command: str) -> str:
    """Tables of all records with the command, the code, the versions and the hardware."""
    return "\n".join([tables(records), *_provenance(records, command)]) + "\n"


def _step_time_tables(records: Sequence[Record]) -> list[str]:
    """One table a topology and barrier: traces down, planners across."""
    lines = [
        "Simulated step time over its lower bound: geometric mean over the steps (worst step).",
        "No placement of the same samples can come below 1; all planners place the same samples.",
        "",
    ]
    places = list(dict.fromkeys((record.topology, record.barrier) for record in records))
    for topology, barrier in places:
        here = [r for r in records if (r.topology, r.barrier) == (topology, barrier)]
        values = {(r.data, r.planner, r.metric): r for r in here}
        planners = list(dict.fromkeys(r.planner for r in here))
        traces = list(dict.fromkeys(r.data for r in here))
        where = "all topologies" if topology == "all" else topology
        lines += [
            f"## {where}, barrier `{barrier}`",
            "",
            "| trace | steps | " + " | ".join(planners) + " |",
            "|---|--:|" + "--:|" * len(planners),
        ]
        for trace in traces:
            cells = [_over_and_worst(values, trace, planner) for planner in planners]
            mean = trace == "all"
            steps = "" if mean else str(values[trace, planners[0], _OVER].n)
            label = "geometric mean" if mean else trace
            lines.append(f"| {label} | {steps} | " + " | ".join(cells) + " |")
        lines.append("")
    return lines


def _over_and_worst(values: dict[tuple[str, str, str], Record], trace: str, planner: str) -> str:
    if (trace, planner, _OVER) not in values:
        return ""
    text = f"{values[trace, planner, _OVER].value:.3f}"
    worst = values.get((trace, planner, _WORST))
    return f"{text} ({worst.value:.3f})" if worst else text


def _flat_table(records: Sequence[Record]) -> list[str]:
    lines = [
        "| data | planner | topology | barrier | metric | value | unit | n |",
        "|---|---|---|---|---|--:|---|--:|",
    ]
    lines += [
        f"| {r.data} | {r.planner} | {r.topology} | {r.barrier} | {r.metric} | {r.value:.4g} | "
        f"{r.unit} | {r.n} |"
        for r in records
    ]
    return [*lines, ""]


def _provenance(records: Sequence[Record], command: str) -> list[str]:
    commits = ", ".join(sorted({record.commit for record in records}))
    versions = records[-1].versions if records else {}
    return [
        f"Command: `{command}`  ",
        f"Commit: {commits} (a `+` means changed since)  ",
        f"Versions: {', '.join(f'{name} {number}' for name, number in versions.items())}  ",
        f"Hardware: {hardware()}",
    ]
