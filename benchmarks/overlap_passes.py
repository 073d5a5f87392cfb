"""Timed passes of all loaders over one mix, round by round."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from benchmarks.overlap_bounds import least_longest_gap
from benchmarks.overlap_loaders import LOADERS, OURS, WORKERS, Pass, parallel_seconds_of
from benchmarks.overlap_work import Images, Mix

__all__ = ["Round", "Timed", "rounds_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One pass: seconds in all, and the wait for each microbatch."""

    total: float
    waits: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A pass of each loader over the same order of the same samples, one after another.

    Attributes:
        pace: Training over preparation of a microbatch.
        samples: Samples of a pass.
        bound: Seconds of the preparation by workers that are always busy, measured in this round,
            or of all the training, whichever is longer.
        gap_bound: `least_longest_gap` of the samples in their order.
        passes: By loader.
    """

    pace: float
    samples: int
    bound: float
    gap_bound: float
    passes: dict[str, Timed]


def rounds_of(
    dataset: Images,
    mix: Mix,
    *,
    loaders: Sequence[str],
    paces: Sequence[float],
    repeats: int,
    precision: float,
    until: float,
) -> Iterator[Round]:
    """Rounds at each pace, until they agree, are as many as there are orders, or time is up.

    The workers of all loaders are started, and have done a pass, before the first round. The
    loaders begin in turn.

    Args:
        dataset: The mix's samples.
        mix: The mix; each round has the next of its orders.
        loaders: Names in `LOADERS`.
        paces: Training over preparation of a microbatch.
        repeats: Rounds at each pace before agreement counts.
        precision: Rounds agree where the throughput of ours over the best rival's spreads by no
            more than this.
        until: Time after which only a first round begins.
    """
    seconds = _seconds_alone(dataset, mix)
    with ExitStack() as stack:
        passes = _started(stack, dataset, mix, seconds, loaders)
        done: dict[float, list[Round]] = {pace: [] for pace in paces}
        for number, order in enumerate(mix.orders):
            work = parallel_seconds_of(dataset, sorted(seconds, key=lambda i: -seconds[i]))
            for pace in paces:
                if number and time.monotonic() > until:
                    return
                if number >= repeats and _spread(done[pace]) <= precision:
                    continue
                turn = [*loaders[number % len(loaders) :], *loaders[: number % len(loaders)]]
                pause = pace * work / len(order)
                scale = work * WORKERS / sum(seconds.values())
                timed = {name: _timed(passes[name], order, pause) for name in turn}
                done[pace].append(
                    Round(
                        pace=pace,
                        samples=len(dataset),
                        bound=max(work, pause * len(order)),
                        gap_bound=least_longest_gap(
                            [[seconds[i] * scale for i in ids] for ids in order],
                            workers=WORKERS,
                            consumer_seconds=pause,
                        ),
                        passes=timed,
                    )
                )
                _tell(mix.name, done[pace])
                yield done[pace][-1]


def _seconds_alone(dataset: Images, mix: Mix) -> dict[int, float]:
    """Seconds of each sample, by one measurement for each image and number of rounds."""
    measured: dict[tuple[int, int], float] = {}
    seconds = {}
    for sample_id in range(len(dataset)):
        key = (int(mix.image[sample_id]), int(mix.rounds[sample_id]))
        if key not in measured:
            began = time.thread_time()
            dataset[sample_id]
            measured[key] = time.thread_time() - began
        seconds[sample_id] = measured[key]
    return seconds


def _started(
    stack: ExitStack, dataset: Images, mix: Mix, seconds: dict[int, float], loaders: Sequence[str]
) -> dict[str, Pass]:
    """Loaders at work; those that fork go first, while this process has no other threads."""
    passes = {}
    predicted = [seconds[sample_id] for sample_id in range(len(dataset))]
    for name in sorted(loaders, key=lambda name: not name.startswith("torch_") and name != "torch"):
        passes[name] = stack.enter_context(LOADERS[name](dataset, predicted))
        sum(1 for _ in passes[name](mix.orders[0]))
    return passes


def _timed(one_pass: Pass, microbatches: list[list[int]], pause: float) -> Timed:
    waits = []
    began = asked = time.perf_counter()
    for _ in one_pass(microbatches):
        waits.append(time.perf_counter() - asked)
        time.sleep(pause)
        asked = time.perf_counter()
    return Timed(total=time.perf_counter() - began, waits=tuple(waits))


def _over_best_rival(one: Round) -> float:
    """Throughput of ours over that of the fastest other loader."""
    ours = [each.total for name, each in one.passes.items() if name in OURS]
    rivals = [each.total for name, each in one.passes.items() if name not in OURS]
    return min(rivals, default=1.0) / min(ours, default=1.0)


def _spread(rounds: Sequence[Round]) -> float:
    ratios = [_over_best_rival(one) for one in rounds]
    return max(ratios) - min(ratios)


def _tell(name: str, rounds: Sequence[Round]) -> None:
    last = rounds[-1]
    totals = ", ".join(f"{name} {last.passes[name].total:.2f}" for name in last.passes)
    print(
        f"{name} at pace {last.pace:g}, round {len(rounds)}: bound {last.bound:.2f} s; {totals}",
        file=sys.stderr,
    )
