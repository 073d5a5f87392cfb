"""Discrete-event simulation of a loader whose workers an Autoscaler sets."""

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from loaders.stages.autoscale import Autoscaler, Snapshot, StageLoad
from loaders.stages.run import Run
from loaders.stages.stage import Stage

SAMPLES = 4  # of a microbatch


@dataclass
class Outcome:
    """What the consumer saw, a microbatch an entry, and the workers it began with."""

    began: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    workers: list[tuple[int, ...]] = field(default_factory=list)

    def stall(self, first: int, last: int) -> float:
        """Share of the time from one microbatch to another that the consumer waited."""
        return sum(self.waited[first + 1 : last]) / (self.began[last - 1] - self.began[first])

    def direction_changes(self, first: int, last: int) -> int:
        """Most turns from growing to shrinking or back of any stage, the first move counted."""
        most = 0
        for stage in zip(*self.workers[first:last], strict=True):
            moves = [b > a for a, b in pairwise(stage) if a != b]
            turns = sum(a != b for a, b in pairwise(moves))
            most = max(most, turns + bool(moves))
        return most


def simulate(
    scaler: Autoscaler,
    stages: list[Stage],
    *,
    microbatches: int,
    sample_seconds: Callable[[int, int], float],
    consumer_seconds: Callable[[int], float],
    startup_seconds: float = 0.0,
    every: int = 4,
) -> Outcome:
    """Run to the end. Seconds of a call are given by stage and microbatch."""
    workers = [stage.workers for stage in stages]
    run = Run(stages, workers=workers, look_ahead=8, max_bytes=1 << 60)
    busy = [0] * len(stages)
    usable = list(workers)  # workers that have started
    counts, seconds = [0] * len(stages), [0.0] * len(stages)
    events: list[tuple[float, int, str, Any]] = []
    now, planned, inserted, delivered, waited = 0.0, 0, 0, 0, 0.0
    free_since: float | None = 0.0
    outcome = Outcome()

    def later(delay: float, kind: str, what: Any) -> None:
        nonlocal inserted
        inserted += 1
        heappush(events, (now + delay, inserted, kind, what))

    def scale() -> None:
        loads = tuple(
            StageLoad(name=s.name, workers=workers[i], count=counts[i], busy_seconds=seconds[i])
            for i, s in enumerate(stages)
        )
        wanted = scaler.observe(
            Snapshot(
                now=now, delivered=delivered, waited=waited, samples_per_delivery=SAMPLES,
                remaining=microbatches - delivered, stages=loads,
            )
        )  # fmt: skip
        for i, stage in enumerate(stages):
            more = wanted[stage.name] - workers[i]
            workers[i] = wanted[stage.name]
            usable[i] = min(usable[i], workers[i])
            for _ in range(more):
                later(startup_seconds, "started", i)

    while True:
        while run.wants_microbatch and planned < microbatches:
            ids = range(planned * SAMPLES, (planned + 1) * SAMPLES)
            run.admit(ids, [1.0] * SAMPLES)
            planned += 1
        run.planned = planned == microbatches
        if free_since is not None and run.deliver() is not None:
            delivered += 1
            waited += now - free_since
            outcome.began.append(now)
            outcome.waited.append(now - free_since)
            outcome.workers.append(tuple(workers))
            free_since = None
            if delivered % every == 0:
                scale()
            later(consumer_seconds(delivered), "consumed", None)
            continue
        for i in range(len(stages)):
            while busy[i] < usable[i] and not isinstance(job := run.begin(i), str):
                busy[i] += 1
                took = sample_seconds(i, job.sample_ids[0] // SAMPLES)
                later(took, "returned", (i, job, took))
        if not events:
            assert run.finished
            return outcome
        now, _, kind, what = heappop(events)
        if kind == "consumed":
            free_since = now
        elif kind == "started":
            usable[what] = min(usable[what] + 1, workers[what])
        else:
            i, job, took = what
            busy[i] -= 1
            counts[i] += 1
            seconds[i] += took
            run.end(job, None, 1)
