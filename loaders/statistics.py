"""What a loader handed out, how even it was, and how long training waited for it, as numbers."""

from typing import Any

from balancer.groups import members_of
from balancer.plan import Flag
from balancer.planner import EpochPlanner
from loaders.microbatch import MicrobatchFacts
from loaders.planned_steps import StepMaker
from loaders.series import Series

__all__ = ["EpochStatistics", "HandedOut"]

_REPEAT, _FILLER = int(Flag.REPEAT), int(Flag.FILLER)


class HandedOut:
    """Sums over the microbatches of this rank that were handed out.

    Args:
        uniform_shape: Whether the collator gives all microbatches of a step one shape.
    """

    def __init__(self, *, uniform_shape: bool) -> None:
        self.uniform_shape = uniform_shape
        self.steps = self.microbatches = self.samples = self.target_tokens = 0
        self.step_samples = self.step_target_tokens = 0
        self.repeats = self.fillers = self.replaced = 0
        self.tokens = self.allocated_tokens = 0
        self.moved = self.moved_steps = self.most_moved_steps = 0
        self.fill: dict[str, float] = {}
        self.imbalances, self.waits = Series(), Series()
        self.busy_s = 0.0

    def add(self, facts: MicrobatchFacts, waited_s: float) -> None:
        """Count a microbatch for which training waited so long."""
        fillers = facts.flags.count(_FILLER)
        self.microbatches += 1
        self.samples += len(facts.flags) - fillers
        self.fillers += fillers
        self.repeats += facts.flags.count(_REPEAT)
        self.replaced += len(facts.failures)
        self.target_tokens += sum(facts.target_tokens)
        self.waits.add(waited_s)
        if facts.imbalance is not None:
            self.imbalances.add(facts.imbalance)
        if self.uniform_shape and facts.step_shape is not None:
            self.allocated_tokens += facts.step_shape[0] * facts.step_shape[1]
        else:
            self.allocated_tokens += facts.allocated_tokens or 0
        self.tokens += facts.tokens or 0
        for name, share in facts.fill.items():
            self.fill[name] = self.fill.get(name, 0.0) + share
        if facts.moved_steps:
            distances = [abs(steps) for steps in facts.moved_steps]
            self.moved += len(distances)
            self.moved_steps += sum(distances)
            self.most_moved_steps = max(self.most_moved_steps, *distances)
        if facts.is_last:
            self.steps += 1
            self.step_samples += facts.step_samples
            self.step_target_tokens += facts.step_target_tokens

    def numbers(self) -> dict[str, float]:
        """The sums and what follows from them; described at `EpochStatistics.numbers`."""
        imbalances, waits = self.imbalances, self.waits
        steps, microbatches = max(self.steps, 1), max(self.microbatches, 1)
        return {
            "steps": self.steps,
            "microbatches": self.microbatches,
            "samples": self.samples,
            "target_tokens": self.target_tokens,
            "effective_batch_size": self.step_samples / steps,
            "target_tokens_per_step": self.step_target_tokens / steps,
            **{f"fill_{name}": share / microbatches for name, share in self.fill.items()},
            "padding_fraction": 1 - self.tokens / max(self.allocated_tokens, self.tokens, 1)
            if self.tokens else 0.0,
            "imbalance_mean": imbalances.total / imbalances.count if imbalances.count else 1.0,
            "imbalance_p95": imbalances.quantile(0.95) if imbalances.count else 1.0,
            "imbalance_max": imbalances.largest if imbalances.count else 1.0,
            "data_wait_seconds_mean": waits.total / microbatches,
            "data_wait_seconds_p50": waits.quantile(0.5),
            "data_wait_seconds_p95": waits.quantile(0.95),
            "data_wait_seconds_longest": waits.largest,
            "data_wait_fraction": waits.total / max(waits.total + self.busy_s, 1e-12),
            "repeats": self.repeats,
            "fillers": self.fillers,
            "replaced": self.replaced,
            "moved_steps_mean": self.moved_steps / max(self.moved, 1),
            "moved_steps_max": self.most_moved_steps,
        }  # fmt: skip


class EpochStatistics:
    """Statistics of the epoch that a loader hands out, or handed out last.

    Args:
        collate_fn: Collator of the microbatches.
        maker: Plans them.
    """

    def __init__(self, collate_fn: Any, maker: StepMaker) -> None:
        self._uniform_shape = bool(getattr(collate_fn, "uniform_shape", False))
        self._maker = maker
        self.begin()

    def begin(self) -> None:
        """Forget all; an epoch, or the rest of one, begins."""
        self.epoch: int | None = None
        self.of_epoch, self._of_step = self._nothing(), self._nothing()
        self._before = (self._maker.seconds, self._maker.steps)

    def add(self, facts: MicrobatchFacts, waited_s: float) -> None:
        """Count a microbatch that is handed out."""
        if facts.index == 0:
            self._of_step = self._nothing()
        self.epoch = facts.epoch
        self.of_epoch.add(facts, waited_s)
        self._of_step.add(facts, waited_s)

    def add_busy(self, seconds: float) -> None:
        """Count the time between a microbatch handed out and the next one asked for."""
        self.of_epoch.busy_s += seconds
        self._of_step.busy_s += seconds

    def numbers(self, planner: EpochPlanner) -> dict[str, float]:
        """All numbers, of what was handed out in the epoch.

        - `epoch`; `steps` that were whole, `microbatches`, `samples` (fillers not counted) and
          `target_tokens` of this rank.
        - `effective_batch_size`: samples of a step over all ranks, fillers not counted;
          `target_tokens_per_step`: likewise. Means over the whole steps.
        - `fill_tokens` and so on for each limit that is set: what a microbatch holds over the
          limit, mean.
        - `padding_fraction`: share of the tokens of the tensors that are padding.
        - `imbalance_mean`, `imbalance_p95`, `imbalance_max`: over the microbatches, of max over
          mean of the ranks' cost in it.
        - `data_wait_seconds_mean`, `_p50`, `_p95`, `_longest`: how long training waited for a
          microbatch, the start of workers within the first; `data_wait_fraction`: of all time.
          `_p50` and `_p95` are those of the last 65,536 microbatches.
        - `planning_seconds`: in planning steps, mostly beside training, those that were read ahead
          too; `planning_seconds_per_step`.
        - `dropped`: samples that the whole epoch does not deliver to any rank; `repeats` and
          `fillers` of this rank; `replaced`: those of them read where a sample could not be.
        - `moved_steps_mean`, `moved_steps_max`: how far samples moved within their windows.
        """
        epoch = 0 if self.epoch is None else self.epoch
        seconds = self._maker.seconds - self._before[0]
        steps = self._maker.steps - self._before[1]
        return {
            "epoch": epoch,
            **self.of_epoch.numbers(),
            "planning_seconds": seconds,
            "planning_seconds_per_step": seconds / max(steps, 1),
            "dropped": len(members_of(planner.costs, planner.dropped(epoch))),
        }

    def of_step(self, facts: MicrobatchFacts, planner: EpochPlanner) -> dict[str, float]:
        """The numbers of the step that ended with these facts."""
        return {
            "epoch": facts.epoch,
            "step": facts.step,
            "global_step": facts.epoch * planner.num_steps + facts.step,
            "dp_rank": facts.dp_rank,
            **self._of_step.numbers(),
        }

    def _nothing(self) -> HandedOut:
        return HandedOut(uniform_shape=self._uniform_shape)
