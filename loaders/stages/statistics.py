"""What the stages did and where time went: counted while running, read at any time."""

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["Call", "Durations", "Meter", "StageStatistics", "StepWait"]

_SMALLEST = 1e-6  # seconds; shorter calls count as this long in quantiles
_GROWTH = 1.05  # width of a bin of the histogram


@dataclass(frozen=True, slots=True, kw_only=True)
class StageStatistics:
    """What one stage did so far.

    Attributes:
        name: Name of the stage.
        workers: Workers now.
        begun: Calls begun: items consumed from the queue in front of it.
        count: Calls that returned: items produced.
        mean: Seconds of a call, on average; 0 before the first.
        p90: Nine of ten calls took no longer, within 5 %.
        p99: Likewise 99 of 100.
        longest: Seconds of the longest call.
        busy_seconds: Seconds of all calls.
        blocked_seconds: Seconds that its workers together waited because what they make would have
            found no place: the next queue, the look-ahead or the bytes were used up.
        starved_seconds: Seconds that its workers together waited for something to work on.
        waiting: Items in front of it now.
        waiting_bytes: Their bytes.
        most_waiting: Most items that waited in front of it.
        restarts: Worker processes started in place of ones that died or hung.
    """

    name: str
    workers: int
    begun: int
    count: int
    mean: float
    p90: float
    p99: float
    longest: float
    busy_seconds: float
    blocked_seconds: float
    starved_seconds: float
    waiting: int
    waiting_bytes: int
    most_waiting: int
    restarts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWait:
    """What the consumer waited for in one step.

    Attributes:
        step: Step, or the microbatch's number where steps are not known.
        seconds: Seconds waited, by what was awaited: `"planning"` or the name of a stage.
    """

    step: int
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def data_wait(self) -> float:
        """Seconds in all."""
        return sum(self.seconds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a stage, or one wait of the consumer, for a timeline.

    Attributes:
        stage: Name of the stage; `"consumer"` for a wait.
        worker: Number of the worker in the stage.
        begin: Seconds on the engine's clock.
        end: Seconds on the engine's clock.
        sample_ids: What it worked on.
        step: Step, where known.
    """

    stage: str
    worker: int
    begin: float
    end: float
    sample_ids: tuple[int, ...]
    step: int | None


class Durations:
    """Histogram of durations in constant memory, bins 5 % wide.

    Example:
        >>> durations = Durations()
        >>> for seconds in (0.1,) * 98 + (1.0,) * 2:
        ...     durations.add(seconds)
        >>> durations.count, 0.1 <= durations.quantile(0.9) <= 0.105, durations.longest
        (100, True, 1.0)
    """

    def __init__(self) -> None:
        self._bins: Counter[int] = Counter()
        self.count = 0
        self.total = 0.0
        self.longest = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.count += 1
        self.total += seconds
        self.longest = max(self.longest, seconds)
        self._bins[math.ceil(math.log(max(seconds, _SMALLEST), _GROWTH))] += 1

    def quantile(self, share: float) -> float:
        """Seconds that this share of the durations does not exceed, within 5 %; 0 of none."""
        wanted = share * self.count
        for place in sorted(self._bins):
            wanted -= self._bins[place]
            if wanted <= 1e-9:
                return min(float(_GROWTH**place), self.longest)
        return 0.0


class Meter:
    """Counters of one stage; the engine writes them under its lock."""

    __slots__ = ("begun", "blocked", "durations", "most_waiting", "restarts", "starved")

    def __init__(self) -> None:
        self.durations = Durations()
        self.begun = 0
        self.blocked = 0.0
        self.starved = 0.0
        self.most_waiting = 0
        self.restarts = 0

    def idle(self, why: str, seconds: float) -> None:
        """A worker waited."""
        if why == "blocked":
            self.blocked += seconds
        else:
            self.starved += seconds

    def read(self, name: str, *, workers: int, waiting: int, waiting_bytes: int) -> StageStatistics:
        """The counters as they stand."""
        durations = self.durations
        return StageStatistics(
            name=name,
            workers=workers,
            begun=self.begun,
            count=durations.count,
            mean=durations.total / max(durations.count, 1),
            p90=durations.quantile(0.9),
            p99=durations.quantile(0.99),
            longest=durations.longest,
            busy_seconds=durations.total,
            blocked_seconds=self.blocked,
            starved_seconds=self.starved,
            waiting=waiting,
            waiting_bytes=waiting_bytes,
            most_waiting=self.most_waiting,
            restarts=self.restarts,
        )


class Waits:
    """What the consumer waited for, step by step, of the last `keep` steps and in all.

    Example:
        >>> waits = Waits(keep=2)
        >>> waits.add(0, "decode", 0.5); waits.add(0, "collate", 0.25); waits.add(1, "decode", 1.0)
        >>> waits.steps[0].data_wait, waits.total
        (0.75, {'decode': 1.5, 'collate': 0.25})
    """

    def __init__(self, keep: int = 1000) -> None:
        self.steps: deque[StepWait] = deque(maxlen=keep)
        self.total: dict[str, float] = {}

    def add(self, step: int, awaited: str, seconds: float) -> None:
        """The consumer waited so long for this, in this step."""
        if not self.steps or self.steps[-1].step != step:
            self.steps.append(StepWait(step=step))
        by_cause = self.steps[-1].seconds
        by_cause[awaited] = by_cause.get(awaited, 0.0) + seconds
        self.total[awaited] = self.total.get(awaited, 0.0) + seconds


def summary(stages: Sequence[StageStatistics]) -> str:
    """The statistics as a table of text, one stage a line."""
    lines = [
        f"{'stage':<12}{'workers':>8}{'count':>8}{'mean s':>10}{'p90 s':>10}{'p99 s':>10}"
        f"{'busy s':>10}{'blocked s':>11}{'starved s':>11}{'waiting':>9}"
    ]
    lines += [
        f"{s.name:<12}{s.workers:>8}{s.count:>8}{s.mean:>10.4f}{s.p90:>10.4f}{s.p99:>10.4f}"
        f"{s.busy_seconds:>10.2f}{s.blocked_seconds:>11.2f}{s.starved_seconds:>11.2f}{s.waiting:>9}"
        for s in stages
    ]
    return "\n".join(lines)
