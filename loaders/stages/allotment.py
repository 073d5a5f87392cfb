"""allot: workers of stages that feed each other, for a rate that is wanted."""

from collections.abc import Sequence
from dataclasses import dataclass

from balancer.checks import check_count, check_number
from balancer.errors import ArgumentError
from loaders.stages.stage import Grain, Stage

__all__ = ["HostLimits", "StageLimits", "allot", "rate"]

_INFINITE = float("inf")
_STARTUP_SECONDS = {"thread": 0.0, "process": 3.0, "ray": 5.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLimits:
    """How many workers a stage may have, and what one of them takes.

    Attributes:
        name: Name of the stage.
        grain: Whether it works on samples or on microbatches.
        least: Fewest workers.
        most: Most workers.
        threads: CPU threads of this host that one worker keeps busy.
        startup_seconds: Seconds until a new worker does its first work.
        worker_bytes: Host memory of one worker.

    Raises:
        ArgumentError: A number is outside what is allowed.
    """

    name: str
    grain: Grain = "sample"
    least: int = 1
    most: int = 64
    threads: int = 1
    startup_seconds: float = 0.0
    worker_bytes: int = 0

    def __post_init__(self) -> None:
        check_count("least", self.least)
        check_count("most", self.most)
        check_count("threads", self.threads, least=0)
        check_count("worker_bytes", self.worker_bytes, least=0)
        check_number("startup_seconds", self.startup_seconds, most=_INFINITE)
        if self.most < self.least:
            raise ArgumentError(
                f"most of stage {self.name!r} is {self.most}; allowed: whole numbers >= least, "
                f"which is {self.least}"
            )

    @classmethod
    def of(cls, stage: Stage, *, most: int = 64, worker_bytes: int = 0) -> "StageLimits":
        """Limits of a declared stage; workers on other hosts keep no thread of this one busy."""
        return cls(
            name=stage.name,
            grain=stage.grain,
            most=most,
            threads=0 if stage.kind == "ray" else stage.threads,
            startup_seconds=_STARTUP_SECONDS[stage.kind],
            worker_bytes=worker_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HostLimits:
    """What all workers together may take of a host.

    Attributes:
        cores: Threads they may keep busy.
        worker_bytes: Host memory they may take; `None` for any.
    """

    cores: int
    worker_bytes: int | None = None

    def allow(self, stages: Sequence[StageLimits], workers: Sequence[int]) -> bool:
        """Whether so many workers of each stage fit."""
        pairs = list(zip(stages, workers, strict=True))
        busy = sum(count * stage.threads for stage, count in pairs)
        taken = sum(count * stage.worker_bytes for stage, count in pairs)
        return busy <= self.cores and (self.worker_bytes is None or taken <= self.worker_bytes)


def rate(workers: Sequence[int], seconds: Sequence[float]) -> float:
    """Microbatches a second that the stages make together: those of the slowest one.

    Args:
        workers: Workers of each stage.
        seconds: Worker-seconds that each stage spends on a microbatch.

    Example:
        >>> rate([1, 4], [0.1, 0.5])
        8.0
    """
    rates = (n / took if took > 0 else _INFINITE for n, took in zip(workers, seconds, strict=True))
    return min(rates, default=_INFINITE)


def allot(
    wanted: float, seconds: Sequence[float], stages: Sequence[StageLimits], host: HostLimits
) -> tuple[int, ...]:
    """Fewest workers of each stage for a wanted rate, or for the highest one within the limits.

    Every stage begins with its fewest workers; the slowest one gets another until it keeps up. If
    it may have no more, none of the others is given more either: it would wait for that one.
    Takes time in proportion to workers times stages.

    Args:
        wanted: Microbatches a second.
        seconds: Worker-seconds that each stage spends on a microbatch.
        stages: Limits of each stage.
        host: Limits of all together.

    Example:
        >>> stages = [StageLimits(name="read", threads=0, most=2), StageLimits(name="decode")]
        >>> allot(10.0, [0.1, 0.5], stages, HostLimits(cores=8))
        (1, 5)
        >>> allot(40.0, [0.1, 0.25], stages, HostLimits(cores=8))
        (2, 5)
    """
    workers = [stage.least for stage in stages]
    while rate(workers, seconds) < wanted:
        slowest = min(
            (place for place, took in enumerate(seconds) if took > 0),
            key=lambda place: (workers[place] / seconds[place], place),
        )
        workers[slowest] += 1
        if workers[slowest] > stages[slowest].most or not host.allow(stages, workers):
            workers[slowest] -= 1
            break
    return tuple(workers)
