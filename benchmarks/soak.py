"""Training for many minutes with samples that fail and workers that are killed."""

import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from balancer.plan import Flag
from balancer.samples import SampleTable
from benchmarks.measure import Record
from loaders.collate import PackedCollator
from loaders.loader import BalancedDataLoader
from loaders.sample_errors import OnSampleError

__all__ = ["Run", "measure_soak"]

_TIMEOUT_S = 10.0
_MOST_UNCLEAR = 20  # then something fails whatever is killed, and the run would never end


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
    - `kills`; the `clear_errors` that they led to, which say that a worker is gone, and
      `unclear_errors` of any other kind, which must be 0; `recovered`: errors after which a new
      loader handed out microbatches; `outlived`: kills that led to no error.
    - `longest_error_seconds` from a kill to its error, at most 10.
    - `replaced`: broken samples that were reported; `microbatches` handed out.
    - `rss_growth_mib`: memory of the training process in the last two thirds of the run, median of
      their last quarter less that of their first; `rss_mib`: the latter.

    A bar on standard error shows the time, kills, errors, losses and memory.

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
    run.train(seconds=60 * minutes)
    late = run.rss_mib[len(run.rss_mib) // 3 :]
    quarters = [float(np.median(quarter)) for quarter in np.array_split(np.array(late), 4)]
    values = {
        "lost": (run.lost, "samples"),
        "delivered_twice": (run.delivered_twice, "samples"),
        "kills": (run.kills, "workers"),
        "clear_errors": (run.clear_errors, "errors"),
        "unclear_errors": (run.unclear_errors, "errors"),
        "recovered": (run.recovered, "errors"),
        "outlived": (run.outlived, "workers"),
        "longest_error_seconds": (run.longest_error_s, "s"),
        "replaced": (run.replaced, "samples"),
        "microbatches": (run.microbatches, "microbatches"),
        "rss_mib": (quarters[0], "MiB"),
        "rss_growth_mib": (quarters[-1] - quarters[0], "MiB"),
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
        self._broken_off = False
        self.epochs = self.microbatches = self.replaced = self.kills = self.outlived = 0
        self.clear_errors = self.unclear_errors = self.recovered = 0
        self.lost = self.delivered_twice = 0
        self.longest_error_s = 0.0
        self.rss_mib: list[float] = []

    def train(self, *, seconds: float) -> None:
        """Epochs until the time has come; the last one begun is ended."""
        began = time.monotonic()
        self._next_kill = began + self._random.exponential(self._between_s)
        with tqdm(total=round(seconds), desc="soak", unit="s") as self._bar:
            self._began = began
            while time.monotonic() < began + seconds:
                self._epoch(("replace", "filler")[self.epochs % 2])
                self.epochs += 1

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
            except Exception as error:
                self._failed(error)
        self._account(steps, loader.batch_sampler.planner.dropped(self.epochs))

    def _failed(self, error: Exception) -> None:
        """Count an error: a clear one says that a worker is gone."""
        self._broken_off = True
        if (
            self._killed_at is not None
            and isinstance(error, RuntimeError)
            and ("worker" in str(error))
        ):
            self.clear_errors += 1
            waited_s = time.monotonic() - self._killed_at
            self.longest_error_s = max(self.longest_error_s, waited_s)
        else:
            self.unclear_errors += 1
            traceback.print_exception(error, file=sys.stderr)
            if self.unclear_errors == _MOST_UNCLEAR:
                raise error
        self._killed_at = None

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
                self.recovered += self._broken_off
                self._broken_off = False
                self._kill_now_and_then()
            yield loader.state_dict(), delivered, broken
            self._show()

    def _kill_now_and_then(self) -> None:
        """Kill a worker once it is time, one at a time: what an error is due to is certain."""
        now = time.monotonic()
        if self._killed_at is not None:
            if (
                now - self._killed_at > 2 * _TIMEOUT_S
            ):  # it did no harm for so long: it will do none
                self.outlived += 1
                self._killed_at = None
            return
        workers = multiprocessing.active_children()
        if now > self._next_kill and workers:
            self._next_kill = now + self._random.exponential(self._between_s)
            victim = workers[int(self._random.integers(len(workers)))]
            self.kills += 1
            self._killed_at = now
            os.kill(victim.pid or 0, signal.SIGKILL)

    def _show(self) -> None:
        """Note the memory, and show how far the run is."""
        self.rss_mib.append(_rss_mib())
        self._bar.set_postfix(
            epochs=self.epochs, kills=self.kills, errors=self.clear_errors + self.unclear_errors,
            lost=self.lost, twice=self.delivered_twice, rss_mib=round(self.rss_mib[-1]),
            refresh=False,
        )  # fmt: skip
        shown_s = min(round(time.monotonic() - self._began), self._bar.total)
        self._bar.update(shown_s - self._bar.n)

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
