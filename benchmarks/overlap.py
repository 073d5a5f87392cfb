"""How much of the preparation a loader hides behind training, beside other loaders."""

import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from balancer.errors import ArgumentError
from benchmarks.measure import Record
from benchmarks.overlap_loaders import LOADERS, WORKERS
from benchmarks.overlap_memory import measure_memory
from benchmarks.overlap_passes import Round, rounds_of
from benchmarks.overlap_records import records_of
from benchmarks.overlap_scaling import measure_scaling
from benchmarks.overlap_work import Images, mixes
from loaders.worker_kind import measured_kind

__all__ = ["measure_overlap"]

_MOST_ROUNDS = 2  # times `repeats`


def measure_overlap(
    *,
    name: str,
    parts: Sequence[str],
    folder: str,
    loaders: Sequence[str],
    paces: Sequence[float],
    num_microbatches: Mapping[str, int],
    microbatch: int,
    side: int,
    repeats: int,
    precision: float,
    minutes: float,
    memory_steps: int,
    phase: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Time of a pass over its bound, waits, memory of a stopped consumer, and scaling of workers.

    Part `loaders`: real images are read, decoded and resized by two workers; training is a pause as
    long as `pace` times the time that two busy workers take for a microbatch on average. All
    loaders hand out the same microbatches (`as_completed` shuffles their samples), in another order
    each round; the loaders of a round follow one another, and values are medians over the rounds.
    The bound is the longer of all the preparation, measured with two workers always busy in the
    same round, and all the training.

    - `throughput` in samples a second; `throughput_vs_<rival>` ours over theirs in the same round,
      `throughput_vs_best` over that rival's which is the fastest; `total_time_over_bound`;
      `total_time_vs_torch` and `..._vs_torch_prefetch8`, which has the bytes in flight of ours.
    - `data_wait_p50`, `_p95`, `_p99` and `longest_gap` in seconds, the first wait included;
      `longest_gap_vs_torch` and `..._prefetch8`. What the longest wait has to be in the plan's
      order, whatever the loader, is `longest_gap` of `bound`.
    - `auto_takes_threads`: 1 where `workers="auto"` would.

    Part `memory`: see `benchmarks.overlap_memory`; part `scaling`: `benchmarks.overlap_scaling`.
    Ctrl-C and SIGTERM end the measurement, and what was measured until then is returned.

    Args:
        name: Name of the experiment in the records.
        parts: Those to measure.
        folder: Demo images with their `samples.jsonl`.
        loaders: Names in `benchmarks.overlap_loaders.LOADERS`.
        paces: Training over preparation of a microbatch.
        num_microbatches: Microbatches of a pass, by mix.
        microbatch: Samples of each.
        side: Pixels of a side after resizing.
        repeats: Rounds of each mix and pace; up to twice as many where they disagree.
        precision: How far rounds may spread, in throughput over the best rival's.
        minutes: Time for the part `loaders`; once its share is used, a mix begins no more rounds.
        memory_steps: Steps of the part `memory`.
        phase: Microbatches of each of the three phases of the part `scaling`.
        seed: Seed of the mixes.
        quick: Fewer microbatches, rounds, steps and paces.

    Raises:
        ArgumentError: The folder is not there, or a loader or part is unknown.
    """
    _check(parts, ("memory", "scaling", "loaders"), "parts")
    _check(loaders, LOADERS, "loaders")
    if "loaders" in parts and not (Path(folder) / "samples.jsonl").exists():
        raise ArgumentError(f"folder is {folder!r}, which has no samples.jsonl; give demo images")
    if quick:
        num_microbatches = {mix: count // 10 for mix, count in num_microbatches.items()}
        repeats, paces, memory_steps, phase = 1, paces[1:2], memory_steps // 5, phase // 4
    torch.set_num_threads(1)
    records: list[Record] = []
    with _until_interrupted():
        if "memory" in parts:
            records += measure_memory(name=name, steps=memory_steps, seed=seed)
        if "scaling" in parts:
            records += measure_scaling(name=name, phase=phase)
        if "loaders" in parts:
            paths, made = mixes(
                Path(folder),
                num_microbatches=num_microbatches,
                microbatch=microbatch,
                num_orders=1 if quick else _MOST_ROUNDS * repeats,
                seed=seed,
            )
            began = time.monotonic()
            for number, mix in enumerate(made, 1):
                dataset = Images(paths, mix, side)
                records += _auto(name, dataset, mix.name)
                rounds: list[Round] = []
                try:
                    rounds.extend(
                        rounds_of(
                            dataset,
                            mix,
                            loaders=loaders,
                            paces=paces,
                            repeats=repeats,
                            precision=precision,
                            until=began + 60 * minutes * number / len(made),
                        )
                    )
                finally:
                    records += records_of(name, mix.name, rounds)
    return records


def _check(given: Sequence[str], allowed: Any, argument: str) -> None:
    unknown = sorted(set(given) - set(allowed))
    if unknown:
        raise ArgumentError(f"{argument} has {unknown[0]!r}; allowed: {', '.join(allowed)}")


def _auto(name: str, dataset: Images, mix: str) -> list[Record]:
    """Which kind of worker the loader would take for these samples by itself."""
    kind = measured_kind(dataset.__getitem__, range(min(8 * WORKERS, len(dataset))), WORKERS)
    return [
        Record(
            experiment=name,
            data=mix,
            planner="auto",
            topology=f"workers{WORKERS}",
            barrier="none",
            metric="auto_takes_threads",
            value=float(kind == "thread"),
            unit="ratio",
            n=1,
        )
    ]


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Go on behind the block after SIGINT or SIGTERM.

    Workers of other loaders get the signal too, and their loaders raise something else then.
    """
    came = False

    def interrupt(*_: object) -> None:
        nonlocal came
        came = True
        raise KeyboardInterrupt

    in_main_thread = threading.current_thread() is threading.main_thread()
    signals = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
    before = {number: signal.signal(number, interrupt) for number in signals}
    try:
        yield
    except BaseException:
        if not came:
            raise
        print("interrupted; what was measured until here is kept", file=sys.stderr)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
