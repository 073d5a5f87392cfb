"""EpochIteration: how a loader hands out its epochs, and the state of it."""

import copy
import time
from collections.abc import Callable, Generator
from typing import Any

from torch.utils.data import DataLoader

from loaders.failures import FailureList
from loaders.handing_out import HandsOut
from loaders.microbatch import MicrobatchFacts
from loaders.sampler import BalancedBatchSampler, EpochHandle
from loaders.stage_loader import StageLoader
from loaders.stages.pipeline import StagePipeline
from loaders.state import save_state
from loaders.statistics import EpochStatistics
from loaders.torch_loader import stop_workers
from loaders.worker_loss import from_workers

__all__ = ["EpochIteration"]


class EpochIteration(HandsOut):
    """Epochs, steps and microbatches of a batch sampler through a torch DataLoader.

    Attributes:
        batch_sampler: Has the plan, and counts what is handed out here.
        persistent_workers: Whether worker processes live on between epochs.
        facts: `MicrobatchFacts` of the microbatch handed out last; `None` before the first.
        failures: Samples of this rank that could not be read and what was read instead, the first
            10,000; `failures.total` counts all.
        step_log: Called with the numbers of each step; `None` for nothing.
    """

    batch_sampler: BalancedBatchSampler
    persistent_workers: bool
    facts: MicrobatchFacts | None
    failures: FailureList
    step_log: Callable[[dict[str, float]], None] | None
    _statistics: EpochStatistics
    _loader: "DataLoader[Any] | StageLoader"

    @property
    def sampler(self) -> EpochHandle:
        """Where frameworks look for `set_epoch`."""
        return self.batch_sampler.sampler

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a last step are left out."""
        return self.batch_sampler.drop_last

    @property
    def epoch(self) -> int:
        """Epoch being handed out, or between epochs the one that the next iteration hands out."""
        return self.batch_sampler.epoch

    @property
    def steps_per_epoch(self) -> int:
        """Optimizer steps of a whole epoch, the same on every rank; of `epoch` where filled."""
        planner = self.batch_sampler.planner
        filled = planner.global_batch_size is None
        return planner.steps(self.epoch).end if filled else planner.num_steps

    @property
    def samples_per_epoch(self) -> int:
        """Samples of a whole epoch over all ranks, repeats and fillers not counted."""
        return self.batch_sampler.planner.samples_per_epoch

    @property
    def microbatches_per_step(self) -> int | None:
        """Microbatches of every rank in each step; `None` where limits may force more in some."""
        return self.batch_sampler.planner.microbatches_per_step

    @property
    def pipeline(self) -> StagePipeline | None:
        """Stages of this or the last epoch, for statistics; `None` where torch's workers read."""
        return getattr(self._loader, "pipeline", None)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration hand out `epoch`; without a call, epochs follow one another.

        A place in that epoch that was loaded or sought is kept.

        Raises:
            ArgumentError: `epoch` is not a whole number >= 0.
        """
        self.batch_sampler.set_epoch(epoch)

    def seek(self, step: int, *, epoch: int | None = None) -> None:
        """Let the next iteration begin at `step` of `epoch`; what lies between is never read.

        Args:
            step: Step within the epoch.
            epoch: The epoch that a state would save when not given: that of a broken iteration.

        Raises:
            ArgumentError: The epoch has no such step.
        """
        self.batch_sampler.seek(step, epoch=epoch)

    def state_dict(self, *, completed_steps_only: bool = False) -> dict[str, Any]:
        """State of what was handed out, whatever was prefetched; plain values, under 4 KiB.

        After an early `break` it is where the loop broke off, though another iteration of this
        object begins the next epoch. After the last microbatch it is the begin of the next epoch.
        Until something is handed out, the state that was loaded.

        Args:
            completed_steps_only: Count a step only once the loop has come back for more after its
                last microbatch. For saving when a step failed, as when a rank was lost: its samples
                are handed out again. After an `optimizer.step()` in the loop leave it false.
        """
        progress = self.batch_sampler.progress
        if progress.loaded is None:
            place = progress.completed if completed_steps_only else progress.position
            return save_state(self.batch_sampler.planner, place)
        state = copy.deepcopy(progress.loaded)
        if completed_steps_only:
            state["position"] |= {"microbatch": 0, "rank": 0}
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin where the state was saved; nothing is read or planned.

        The samplers of all ranks load the state of any rank. What happens where the configuration
        has changed since, `on_topology_change` says.

        Raises:
            StateError: It does not belong here; every difference is listed.
        """
        self.batch_sampler.load_state_dict(state)

    def stats(self) -> dict[str, float]:
        """Numbers about what was handed out in the epoch that runs or ran last.

        A plain dict, described at `loaders.statistics.EpochStatistics.numbers`: fill, padding,
        imbalance, samples and target tokens, how long training waited for data, seconds of
        planning, what was dropped, repeated, filled or replaced, and how far samples moved.
        """
        return self._statistics.numbers(self.batch_sampler.planner)

    def __len__(self) -> int:
        """Exact number of microbatches of this rank in `epoch`, those handed out before too."""
        return len(self.batch_sampler)

    def _handed_out(self) -> Generator[tuple[MicrobatchFacts, Any], None, None]:
        """Microbatches with their facts; when closed, nothing of it is left running."""
        progress, statistics = self.batch_sampler.progress, self._statistics
        statistics.begin()
        asked = time.perf_counter()
        iterator = iter(self._loader)
        run = None
        try:
            for facts, microbatch in from_workers(iterator):
                got = time.perf_counter()
                if run is None:
                    run, place = progress.run, progress.began
                    end = self.batch_sampler.planner.steps(facts.epoch).end
                self.facts = facts
                self.failures.add(facts.failures)
                place = progress.hand_out(run, place, facts, last_rank=facts.dp_rank, end=end)
                statistics.add(facts, got - asked)
                if facts.is_last and self.step_log is not None:
                    planner = self.batch_sampler.planner
                    self.step_log(statistics.of_step(facts, planner))
                yield facts, microbatch
                del microbatch
                asked = time.perf_counter()
                statistics.add_busy(asked - got)
                progress.come_back(run)
        finally:
            if run is not None:
                progress.end(run)
            close = getattr(iterator, "close", None)  # of stages: their run ends in any case
            if close is not None:
                close()
            if not self.persistent_workers:
                stop_workers(iterator)
