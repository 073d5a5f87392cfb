"""Training for many minutes with samples that fail and workers that are killed."""

import gc
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from balancer.plan import Flag
from balancer.samples import SampleTable
from benchmarks.measure import Record
from loaders.collate import PackedCollator
from loaders.loader import BalancedDataLoader
from loaders.sample_errors import OnSampleError

__all__ = ["Run", "measure_soak"]

_TIMEOUT_S = 10.0


class Texts:
    """Texts of some length; one in a hundred cannot be read."""

    def __init__(self, lengths: np.ndarray[Any, Any]) -> None:
        self.lengths = lengths

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        if index % 100 == 13:
            raise OSError(f"sample {index} is broken")
        return {"input_ids": torch.full((int(self.lengths[index]),), index)}


def measure_soak(
    *,
    name: str,
    minutes: float,
    num_samples: int,
    num_workers: int,
    seconds_between_kills: float,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Epochs one after another for so many minutes, a worker being killed now and then.

    The policy for broken samples is `replace` and `filler` by turns. After each step the state is
    kept, as a trainer does; where a killed worker ends the loop with an error, a new loader goes on
    from that state. Records:

    - `lost`: samples of whole epochs that were neither delivered nor reported as replaced or
      dropped; `delivered_twice`: those delivered more than once. Both must be 0.
    - `kills`, and `errors` that they led to; `longest_error_seconds` from a kill to its error.
    - `replaced`: broken samples that were reported; `microbatches` handed out.
    - `rss_growth_mib`: memory of the training process, median of the last fifth of the run over
      that of the second.

    Args:
        name: Name of the experiment in the records.
        minutes: How long.
        num_samples: Samples of an epoch.
        num_workers: Workers.
        seconds_between_kills: Mean time between kills.
        seed: Seed of sizes, order and kills.
        quick: Half a minute, with more kills.
    """
    if quick:
        minutes, num_samples, seconds_between_kills = 0.5, num_samples // 4, 4.0
    run = Run(
        num_samples=num_samples, num_workers=num_workers, seed=seed,
        seconds_between_kills=seconds_between_kills,
    )  # fmt: skip
    run.train(until=time.monotonic() + 60 * minutes)
    fifths = np.array_split(np.array(run.rss_mib), 5)
    values = {
        "lost": (run.lost, "samples"),
        "delivered_twice": (run.delivered_twice, "samples"),
        "kills": (run.kills, "workers"),
        "errors": (run.errors, "errors"),
        "longest_error_seconds": (run.longest_error_s, "s"),
        "replaced": (run.replaced, "samples"),
        "microbatches": (run.microbatches, "microbatches"),
        "rss_growth_mib": (float(np.median(fifths[4]) - np.median(fifths[1])), "MiB"),
    }
    return [
        Record(
            experiment=name, data=f"broken_1_percent_n{num_samples}", planner="balanced",
            topology=f"dp1_m2_workers{num_workers}", barrier="microbatch", metric=metric,
            value=float(value), unit=unit, n=run.epochs,
        )
        for metric, (value, unit) in values.items()
    ]  # fmt: skip


class Run:
    """A training loop that keeps account of every sample."""

    def __init__(
        self, *, num_samples: int, num_workers: int, seconds_between_kills: float, seed: int
    ) -> None:
        self._random = np.random.default_rng(seed)
        lengths = np.ceil(self._random.lognormal(4.0, 1.0, num_samples)).astype(np.int64)
        self._dataset, self._sizes = Texts(lengths), SampleTable.from_lengths(lengths)
        self._num_workers, self._seed = num_workers, seed
        self._between_s = seconds_between_kills
        self._killed_at: float | None = None
        self.epochs = self.microbatches = self.replaced = self.kills = self.errors = 0
        self.lost = self.delivered_twice = 0
        self.longest_error_s = 0.0
        self.rss_mib: list[float] = []

    def train(self, until: float) -> None:
        """Epochs until the time has come; the last one begun is ended."""
        self._next_kill = time.monotonic() + self._random.exponential(self._between_s)
        while time.monotonic() < until:
            self._epoch(("replace", "filler")[self.epochs % 2])
            self.epochs += 1
            # Loaders that were replaced refer to themselves; memory that stays after this is lost.
            gc.collect()

    def _epoch(self, policy: OnSampleError) -> None:
        """One epoch, resumed as often as it takes."""
        # A killed worker's error is raised at any place of this process, so what a step delivered
        # and the state after it are kept in one move.
        steps: list[tuple[dict[str, Any] | None, list[int], list[int]]] = [(None, [], [])]
        while True:
            try:
                loader = self._loader(policy)
                state = steps[-1][0]
                if state is None:
                    loader.set_epoch(self.epochs)
                else:
                    loader.load_state_dict(state)
                if loader.epoch == self.epochs:  # else the error came after the last step
                    steps.extend(self._steps(loader))
                break
            except RuntimeError as error:
                if "worker" not in str(error):
                    raise
                self.errors += 1
                if self._killed_at is not None:
                    waited = time.monotonic() - self._killed_at
                    self.longest_error_s = max(self.longest_error_s, waited)
                    self._killed_at = None
        self._account(steps, loader.batch_sampler.planner.dropped(self.epochs))

    def _steps(
        self, loader: BalancedDataLoader
    ) -> Iterator[tuple[dict[str, Any], list[int], list[int]]]:
        """Of each step the state after it, the samples delivered, and those reported as broken."""
        for step in loader.steps():
            delivered: list[int] = []
            broken: list[int] = []
            for _ in step:
                facts = loader.facts
                assert facts is not None
                pairs = zip(facts.sample_ids, facts.flags, strict=True)
                delivered += [sample for sample, flag in pairs if flag == Flag.REAL]
                broken += [failure.sample_id for failure in facts.failures]
                self.microbatches += 1
                self._kill_now_and_then()
            yield loader.state_dict(), delivered, broken
            self._killed_at = None if self._outlived() else self._killed_at

    def _outlived(self) -> bool:
        """Whether a kill did no harm for so long that it will do none."""
        late = 2 * _TIMEOUT_S
        return self._killed_at is not None and time.monotonic() - self._killed_at > late

    def _kill_now_and_then(self) -> None:
        if self.microbatches % 10 == 0:
            self.rss_mib.append(_rss_mib())
        workers = multiprocessing.active_children()
        if time.monotonic() > self._next_kill and workers:
            pause = self._random.exponential(self._between_s)
            self._next_kill = time.monotonic() + pause
            victim = workers[int(self._random.integers(len(workers)))]
            self.kills += 1
            self._killed_at = time.monotonic()
            os.kill(victim.pid or 0, signal.SIGKILL)

    def _account(
        self, steps: list[tuple[dict[str, Any] | None, list[int], list[int]]], dropped: Any
    ) -> None:
        """Count what the epoch delivered, reported and lost."""
        times = np.zeros(len(self._dataset), np.int64)
        for _, delivered, broken in steps:
            np.add.at(times, np.array(delivered + broken, np.int64), 1)
            self.replaced += len(broken)
        times[dropped] += 1
        self.lost += int((times == 0).sum())
        self.delivered_twice += int((times > 1).sum())

    def _loader(self, policy: OnSampleError) -> BalancedDataLoader:
        return BalancedDataLoader(
            self._dataset, sizes=self._sizes, cost_model=lambda table: table.text_tokens,
            global_batch_size=32, num_microbatches=2, dp_rank=0, dp_size=1, seed=self._seed,
            collate_fn=PackedCollator(check_targets="off"), num_workers=self._num_workers,
            timeout=_TIMEOUT_S, on_sample_error=policy,
        )  # fmt: skip


def _rss_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
