"""Timelines of what stages did: a trace file for Perfetto or Chrome, and a figure."""

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from balancer.errors import ArgumentError
from balancer.plots import require_matplotlib
from loaders.stages.statistics import Call

__all__ = ["plot_timeline", "write_trace"]

_CONSUMER = "consumer"
_WAIT_COLOUR = "#c1573b"
_STAGE_COLOURS = ("#2f6f8f", "#8fb339", "#b08ea2", "#d9a441", "#5c6bc0", "#4d9078", "#8d6e63")
_PROCESS = 1  # Perfetto takes process 0 and thread 0 for the idle ones of the kernel
_MOST_NAMED_LANES = 60

Lane = tuple[str, int]  # (stage, number of the worker)


def write_trace(calls: Sequence[Call], path: str | PathLike[str]) -> Path:
    """Write calls in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.

    One track a worker, the consumer's first; an event is named after its stage, which is what both
    programs colour by, or `"wait"` on the consumer's track. Its arguments are the sample ids and,
    where known, the step. Times are microseconds since the first call began.

    Args:
        calls: `StagePipeline.calls` of a pipeline made with `trace=` > 0.
        path: Where to write the JSON.

    Returns:
        The path.

    Raises:
        ArgumentError: There are no calls.

    Source: Trace Event Format (Chromium project, 2016), complete ("X") and metadata ("M") events.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> call = Call(stage="read", worker=0, begin=2.0, end=2.5, sample_ids=(7,), step=None)
        >>> with TemporaryDirectory() as folder:
        ...     trace = json.loads(write_trace([call], f"{folder}/trace.json").read_text())
        >>> [(event["ts"], event["dur"]) for event in trace["traceEvents"] if event["ph"] == "X"]
        [(0.0, 500000.0)]
    """
    _check(calls)
    threads = {lane: number for number, lane in enumerate(_lanes(calls), start=1)}
    origin = min(call.begin for call in calls)
    in_time = sorted(calls, key=lambda call: (call.begin, call.end))
    events = [_event(call, threads[call.stage, call.worker], origin) for call in in_time]
    trace = {"traceEvents": [*_names(threads), *events], "displayTimeUnit": "ms"}
    target = Path(path)
    target.write_text(json.dumps(trace), encoding="utf-8")
    return target


def plot_timeline(calls: Sequence[Call], path: str | PathLike[str]) -> Path:
    """Draw calls over time as a PNG: a lane a worker, a colour a stage.

    Where the consumer waited the whole height is shaded, so what ran meanwhile is seen at once.
    A figure of more than a few thousand calls shows density rather than single calls; use
    `write_trace` to look closer.

    Args:
        calls: `StagePipeline.calls` of a pipeline made with `trace=` > 0.
        path: Where to write the PNG.

    Returns:
        The path.

    Raises:
        ArgumentError: There are no calls, or `path` does not end in `.png`.
        BalancerError: matplotlib is not installed.
    """
    target = Path(path)
    if target.suffix.lower() != ".png":
        raise ArgumentError(f"path is {str(path)!r}; allowed: a file name ending in .png")
    _check(calls)
    require_matplotlib()
    from matplotlib.figure import Figure

    lanes = _lanes(calls)
    height = 1.4 + 0.28 * min(len(lanes), _MOST_NAMED_LANES)
    figure = Figure(figsize=(11, height), dpi=150, layout="constrained")
    _draw(figure.subplots(), calls, lanes)
    figure.legend(loc="outside upper right", ncols=8, fontsize=8, frameon=False)
    figure.savefig(target)
    return target


def _check(calls: Sequence[Call]) -> None:
    if not len(calls):
        raise ArgumentError(
            "calls is empty; allowed: at least one call. Make the pipeline or loader with "
            "trace=10000 and take a microbatch from it first"
        )


def _lanes(calls: Sequence[Call]) -> list[Lane]:
    """Consumer first, then stages by their first call, their workers by number."""
    first: dict[str, float] = {}
    for call in calls:
        first[call.stage] = min(call.begin, first.get(call.stage, call.begin))
    lanes = {(call.stage, call.worker) for call in calls}
    return sorted(lanes, key=lambda lane: (lane[0] != _CONSUMER, first[lane[0]], lane))


def _label(lane: Lane) -> str:
    stage, worker = lane
    return stage if stage == _CONSUMER else f"{stage} {worker}"


def _event(call: Call, thread: int, origin: float) -> dict[str, Any]:
    # Both ends are rounded to nanoseconds, not the duration, so that calls of a worker still abut.
    begin, end = (round((seconds - origin) * 1e9) for seconds in (call.begin, call.end))
    details: dict[str, Any] = {"sample_ids": list(call.sample_ids)}
    if call.step is not None:
        details["step"] = call.step
    waiting = call.stage == _CONSUMER
    return {
        "name": "wait" if waiting else call.stage,
        "cat": "wait" if waiting else "stage",
        "ph": "X",
        "ts": begin / 1000,
        "dur": (end - begin) / 1000,
        "pid": _PROCESS,
        "tid": thread,
        "args": details,
    }


def _names(threads: dict[Lane, int]) -> list[dict[str, Any]]:
    """Metadata events: names of the tracks, and their order from top to bottom."""
    whole = {"ph": "M", "pid": _PROCESS}
    events: list[dict[str, Any]] = [{**whole, "name": "process_name", "args": {"name": "stages"}}]
    for lane, thread in threads.items():
        of_thread = {**whole, "tid": thread}
        events.append({**of_thread, "name": "thread_name", "args": {"name": _label(lane)}})
        events.append({**of_thread, "name": "thread_sort_index", "args": {"sort_index": thread}})
    return events


def _draw(panel: Any, calls: Sequence[Call], lanes: list[Lane]) -> None:
    rows = {lane: row for row, lane in enumerate(lanes)}
    stages = list(dict.fromkeys(stage for stage, _ in lanes if stage != _CONSUMER))
    colours = {stage: _STAGE_COLOURS[i % len(_STAGE_COLOURS)] for i, stage in enumerate(stages)}
    origin = min(call.begin for call in calls)
    bars: dict[Lane, list[tuple[float, float]]] = {lane: [] for lane in lanes}
    for call in calls:
        bars[call.stage, call.worker].append((call.begin - origin, call.end - call.begin))
    labelled = {stage: stage for stage in stages}  # one entry of the legend a stage
    for lane, spans in bars.items():
        panel.broken_barh(
            spans,
            (rows[lane] - 0.4, 0.8),
            facecolors=colours.get(lane[0], _WAIT_COLOUR),
            label=labelled.pop(lane[0], None),
        )
    waits = [span for lane, spans in bars.items() if lane[0] == _CONSUMER for span in spans]
    panel.broken_barh(
        waits,
        (-0.5, len(lanes)),
        facecolors=_WAIT_COLOUR,
        alpha=0.15,
        linewidth=0,
        zorder=0,
        label="consumer waits",
    )
    panel.set_ylim(len(lanes) - 0.5, -0.5)
    panel.set_xlim(0, max(call.end for call in calls) - origin)
    panel.set_xlabel("time (s)")
    if len(lanes) <= _MOST_NAMED_LANES:
        panel.set_yticks(range(len(lanes)), [_label(lane) for lane in lanes], fontsize=8)
