"""Autoscaler: how many workers each stage should have, from what was made and what was taken."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from balancer.checks import check_count, check_number
from balancer.errors import ArgumentError
from loaders.stages.allotment import HostLimits, StageLimits, allot, rate
from loaders.stages.stage import usable_cores

__all__ = ["Autoscaler", "Snapshot", "StageLoad"]

_INFINITE = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoad:
    """What a stage has done so far.

    Attributes:
        name: Name of the stage.
        workers: Workers now.
        count: Calls that returned.
        busy_seconds: Seconds of all of them.
    """

    name: str
    workers: int
    count: int
    busy_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What a pipeline has done so far, seen from its consumer.

    Attributes:
        now: Seconds on any clock that never goes back.
        delivered: Microbatches that the consumer has taken.
        waited: Seconds that it waited for them.
        samples_per_delivery: Samples of a microbatch, on average.
        bytes_in_flight: Host bytes of results in the stages.
        remaining: Microbatches still to come; `None` where not known.
        stages: The stages, in their order.
    """

    now: float
    delivered: int
    waited: float
    samples_per_delivery: float
    bytes_in_flight: int = 0
    remaining: int | None = None
    stages: tuple[StageLoad, ...]


class Autoscaler:
    """Decides how many workers each stage should have; knows no clock, thread or pipeline.

    A stage that needs s worker-seconds for a microbatch makes workers / s microbatches a second.
    The consumer would take one each time it has worked on the last one: its median time between
    two microbatches less what it waited, so that one evaluation or checkpoint changes nothing. How
    busy workers look plays no part: a stage blocked by the next one is as idle as one with
    nothing to do.

    Workers are added where the consumer waits for more than `dead_band` of its time, the stages
    fall short of it by more than that, and the waiting saved until the `horizon`, or the end of
    the plan, exceeds the start-up of the new workers. Then all stages get what the consumer's rate
    takes, and `headroom`. Workers are taken away where a quarter more than that would still be
    fewer, throughout three windows of observations in a row, for a worker too many costs little and
    one too few stops training; and where moving them to the slowest stage makes it a quarter
    faster. After a change, nothing is decided during the start-up and `cool_down`, and then not
    before a whole window of new observations, so what was seen before the change never causes the
    next one.

    Args:
        stages: Limits of each stage, in their order.
        cores: Threads that all workers together may keep busy; the cores of this process if not
            given.
        max_bytes: Host bytes of results in flight and workers together, which no worker is added
            beyond; `None` for any.
        window: Observations that a decision is made from.
        dead_band: Share of the consumer's time that it may wait before workers are added.
        headroom: Share of workers beyond what the consumer's rate takes.
        cool_down: Seconds without a decision after a change.
        horizon: Seconds within which the start-up of a worker must have paid.

    Attributes:
        changes: Time and workers of each change, in order.

    Raises:
        ArgumentError: An argument is outside what is allowed.

    Example:
        >>> scaler = Autoscaler([StageLimits(name="decode")], cores=8, window=2, cool_down=0)
        >>> for step in range(4):  # the consumer works 1 s and waits 3 s for 4 s of decoding
        ...     load = StageLoad(name="decode", workers=1, count=step, busy_seconds=4.0 * step)
        ...     workers = scaler.observe(Snapshot(now=4.0 * step, delivered=step, waited=3.0 * step,
        ...                                       samples_per_delivery=1, stages=(load,)))
        ...     print(workers)
        {'decode': 1}
        {'decode': 1}
        {'decode': 5}
        {'decode': 1}
    """

    def __init__(
        self,
        stages: Sequence[StageLimits],
        *,
        cores: int | None = None,
        max_bytes: int | None = None,
        window: int = 8,
        dead_band: float = 0.03,
        headroom: float = 0.1,
        cool_down: float = 5.0,
        horizon: float = 300.0,
    ) -> None:
        if not stages:
            raise ArgumentError("stages is empty; give the limits of at least one stage")
        check_count("cores", 1 if cores is None else cores)
        check_count("max_bytes", 1 if max_bytes is None else max_bytes)
        check_count("window", window)
        check_number("dead_band", dead_band, most=1.0)
        check_number("headroom", headroom, most=1.0)
        check_number("cool_down", cool_down, most=_INFINITE)
        check_number("horizon", horizon, most=_INFINITE)
        self._stages = tuple(stages)
        self._cores = usable_cores() if cores is None else cores
        self._max_bytes = max_bytes
        self._dead_band = dead_band
        self._headroom = headroom
        self._cool_down = cool_down
        self._horizon = horizon
        self._seen: deque[Snapshot] = deque(maxlen=window + 1)
        self._fewer: deque[tuple[int, ...]] = deque(maxlen=_PATIENCE * window)
        self._rests_until = -_INFINITE
        self.changes: list[tuple[float, dict[str, int]]] = []

    def observe(self, snapshot: Snapshot) -> dict[str, int]:
        """Workers that each stage should have now, by name; as they are where all is well.

        A snapshot in which the consumer has taken nothing since the one before is passed over: a
        consumer that has stopped says nothing about the rate it takes.

        Raises:
            ArgumentError: The snapshot's stages are not those of the limits.
        """
        names = tuple(stage.name for stage in self._stages)
        if tuple(load.name for load in snapshot.stages) != names:
            raise ArgumentError(
                f"snapshot has the stages {[load.name for load in snapshot.stages]}; allowed: "
                f"those of the limits, {list(names)}"
            )
        now = tuple(load.workers for load in snapshot.stages)
        if self._seen and snapshot.delivered == self._seen[-1].delivered:
            return dict(zip(names, now, strict=True))
        if snapshot.now >= self._rests_until:
            self._seen.append(snapshot)
        wanted = now
        if len(self._seen) == self._seen.maxlen:
            wanted = self._decide(now)
        if wanted != now:
            self._rest(snapshot.now, now, wanted)
            self.changes.append((snapshot.now, dict(zip(names, wanted, strict=True))))
        return dict(zip(names, wanted, strict=True))

    def _rest(self, time: float, now: Sequence[int], wanted: Sequence[int]) -> None:
        """Look at nothing until the new workers are at work."""
        startups = [
            limits.startup_seconds
            for limits, have, want in zip(self._stages, now, wanted, strict=True)
            if want > have
        ]
        self._seen.clear()
        self._fewer.clear()
        self._rests_until = time + max(startups, default=0.0) + self._cool_down

    def _decide(self, now: tuple[int, ...]) -> tuple[int, ...]:
        """Workers for what the window shows."""
        seconds = self._seconds_per_delivery()
        if seconds is None:
            return now
        interval = self._consumer_interval()
        taken = 1.0 / interval if interval > 0 else _INFINITE
        host = self._host()
        wanted = allot(taken * (1 + self._headroom), seconds, self._stages, host)
        if self._waited_share() > self._dead_band and rate(now, seconds) < taken:
            self._fewer.clear()
            return self._grown(now, wanted, seconds, interval, host)
        return self._patiently(now, self._shrunk(now, taken, seconds, host))

    def _patiently(self, now: tuple[int, ...], fewer: tuple[int, ...]) -> tuple[int, ...]:
        """The most of what was enough for each stage, once that has been said often enough."""
        if fewer == now:
            self._fewer.clear()
            return now
        self._fewer.append(fewer)
        if len(self._fewer) < (self._fewer.maxlen or 0):
            return now
        return tuple(map(max, zip(*self._fewer, strict=True)))

    def _grown(
        self,
        now: tuple[int, ...],
        wanted: tuple[int, ...],
        seconds: Sequence[float],
        interval: float,
        host: HostLimits,
    ) -> tuple[int, ...]:
        """More workers, if they save more than they cost."""
        kept = tuple(max(have, want) for have, want in zip(now, wanted, strict=True))
        new = kept if host.allow(self._stages, kept) else wanted
        moves = any(want < have for have, want in zip(now, new, strict=True))
        before = max(interval, 1.0 / rate(now, seconds))
        after = max(interval, 1.0 / rate(new, seconds))
        if before < after * (1.0 + (_SURPLUS if moves else self._dead_band)):
            return now
        startup = sum(
            limits.startup_seconds * max(0, want - have)
            for limits, have, want in zip(self._stages, now, new, strict=True)
        )
        remaining = self._seen[-1].remaining
        ahead = self._horizon / before
        saved = (before - after) * (ahead if remaining is None else min(ahead, remaining))
        return new if saved > startup else now

    def _shrunk(
        self, now: tuple[int, ...], taken: float, seconds: Sequence[float], host: HostLimits
    ) -> tuple[int, ...]:
        """Fewer workers where there are clearly too many, for the rate that can be had."""
        limits = [min(have, stage.most) for have, stage in zip(now, self._stages, strict=True)]
        reached = min(taken, rate(limits, seconds)) * (1 + self._headroom)
        ample = allot(reached * (1 + _SURPLUS), seconds, self._stages, host)
        enough = allot(reached, seconds, self._stages, host)
        return tuple(
            want if most < have else have
            for have, most, want in zip(now, ample, enough, strict=True)
        )

    def _seconds_per_delivery(self) -> list[float] | None:
        """Worker-seconds of each stage for a microbatch; `None` if one has returned nothing."""
        first, last = self._seen[0], self._seen[-1]
        seconds = []
        for limits, old, new in zip(self._stages, first.stages, last.stages, strict=True):
            if new.count == 0:
                return None
            calls, busy = new.count - old.count, new.busy_seconds - old.busy_seconds
            each = busy / calls if calls else new.busy_seconds / new.count
            seconds.append(each * (last.samples_per_delivery if limits.grain == "sample" else 1.0))
        return seconds

    def _consumer_interval(self) -> float:
        """Median seconds that the consumer works on a microbatch."""
        return median(
            max(0.0, (new.now - old.now) - (new.waited - old.waited))
            / (new.delivered - old.delivered)
            for old, new in pairwise(self._seen)
        )

    def _waited_share(self) -> float:
        """Share of the window that the consumer waited."""
        first, last = self._seen[0], self._seen[-1]
        passed = last.now - first.now
        return (last.waited - first.waited) / passed if passed > 0 else 0.0

    def _host(self) -> HostLimits:
        """What workers may take, beside the most bytes in flight that the window saw."""
        if self._max_bytes is None:
            return HostLimits(cores=self._cores)
        in_flight = max(snapshot.bytes_in_flight for snapshot in self._seen)
        return HostLimits(cores=self._cores, worker_bytes=max(0, self._max_bytes - in_flight))


_PATIENCE = 2  # windows of further observations before workers are taken away
_SURPLUS = 0.25  # what taking a worker away from a stage must be worth
