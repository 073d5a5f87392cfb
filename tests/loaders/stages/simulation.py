"""Discrete-event simulation of a loader: the schedule of the engine under a clock of its own."""

from collections.abc import Sequence
from heapq import heappop, heappush

from loaders.stages.run import Run
from loaders.stages.stage import Stage

MICROBATCHES = list[list[float]]  # seconds of each sample of each microbatch


def simulate_stages(
    microbatches: MICROBATCHES,
    *,
    workers: int,
    consumer_seconds: float,
    look_ahead: int,
    least_slack: bool = True,
    max_bytes: int = 1 << 60,
) -> tuple[float, list[float]]:
    """Seconds until the consumer is done, and its waits, with the state machine of the engine.

    Without `least_slack` the samples are dispatched in the plan's order.
    """
    stage = Stage(name="prepare", work=lambda sample: sample, workers=workers, threads=0)
    run = Run([stage], workers=[workers], look_ahead=look_ahead, max_bytes=max_bytes)
    now, idle, planned, sample_id = 0.0, workers, 0, 0
    seconds_of: list[float] = []
    events: list[tuple[float, int, object]] = []  # (time, order of insertion, job or None)
    waits: list[float] = []
    free_at: float | None = 0.0  # when the consumer became free; None while it works
    inserted = 0
    while True:
        while run.wants_microbatch and planned < len(microbatches):
            seconds = microbatches[planned]
            ids = range(sample_id, sample_id + len(seconds))
            run.admit(ids, seconds if least_slack else [0.0] * len(seconds))
            seconds_of += seconds
            sample_id += len(seconds)
            planned += 1
        run.planned = planned == len(microbatches)
        if free_at is not None and run.deliver() is not None:
            waits.append(now - free_at)
            free_at = None
            inserted += 1
            heappush(events, (now + consumer_seconds, inserted, None))
            continue
        while idle and not isinstance(job := run.begin(0), str):
            idle -= 1
            inserted += 1
            heappush(events, (now + seconds_of[job.sample_ids[0]], inserted, job))
        if not events:
            assert run.finished
            return now, waits
        now, _, job = heappop(events)
        if job is None:
            free_at = now
        else:
            idle += 1
            run.end(job, None, 1)


def simulate_torch(
    microbatches: MICROBATCHES, *, workers: int, consumer_seconds: float, prefetch: int
) -> tuple[float, list[float]]:
    """The same for torch's DataLoader: a microbatch to a worker, in turn, delivered in order.

    A worker is given its next microbatch when the consumer takes one, `prefetch * workers` of them
    being out at a time.
    """
    free = [0.0] * workers
    taken: list[float] = []
    waits: list[float] = []
    consumer_free = 0.0
    for number, seconds in enumerate(microbatches):
        out = prefetch * workers
        given = taken[number - out] if number >= out else 0.0
        worker = number % workers
        free[worker] = max(free[worker], given) + sum(seconds)
        taken.append(max(consumer_free, free[worker]))
        waits.append(taken[-1] - consumer_free)
        consumer_free = taken[-1] + consumer_seconds
    return consumer_free, waits


def bound(microbatches: MICROBATCHES, *, workers: int, consumer_seconds: float) -> float:
    """No loader is faster: all workers busy, or the consumer never waiting."""
    work = sum(map(sum, microbatches)) / workers
    return max(work, consumer_seconds * len(microbatches))


def skewed(seed: Sequence[float], per_microbatch: int) -> MICROBATCHES:
    """Microbatches of samples whose seconds are given one after another."""
    return [list(seed[i : i + per_microbatch]) for i in range(0, len(seed), per_microbatch)]
