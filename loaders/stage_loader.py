"""StageLoader: a batch sampler's microbatches through a StagePipeline."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from balancer.groups import sample_costs
from balancer.priced import PricedSamples
from loaders.microbatch import MicrobatchFacts, SampleList
from loaders.sample_errors import OnSampleError
from loaders.sampler import BalancedBatchSampler
from loaders.seeding import sample_seed, seed_globals, seed_thread
from loaders.stages.allotment import StageLimits
from loaders.stages.autoscale import Autoscaler
from loaders.stages.autoscaled import autoscaled
from loaders.stages.jobs import MicrobatchJob, SampleJob
from loaders.stages.pipeline import StagePipeline
from loaders.stages.run import Order
from loaders.stages.stage import Kind, Stage, StartMethod
from loaders.substitution import substituted

__all__ = ["ReadSample", "StageLoader", "prep_seconds"]


class ReadSample:
    """First stage where the user gives a dataset alone: reads, decodes and transforms a sample.

    In a worker process the global generators are seeded by (seed, epoch, sample) before; threads
    share them, so there `loaders.seeding.sample_generator` alone is.
    """

    wants_epoch = True

    def __init__(self, dataset: Any, *, seed: int | None) -> None:
        self._dataset = dataset
        self._seed = seed
        self._training_pid = os.getpid()

    def __call__(self, key: tuple[int, int]) -> Any:
        """The sample of an id, in an epoch."""
        sample_id, epoch = key
        if self._seed is not None:
            in_process = os.getpid() != self._training_pid
            seed = sample_seed(self._seed, epoch, sample_id)
            (seed_globals if in_process else seed_thread)(seed)
        return self._dataset[sample_id]


class Collate:
    """Stage that makes a microbatch of its samples by the user's function."""

    wants_facts = True

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self._collate_fn = collate_fn
        self._wants_facts = getattr(collate_fn, "wants_facts", False)

    def __call__(self, samples: SampleList) -> Any:
        """The microbatch."""
        return self._collate_fn(samples if self._wants_facts else list(samples))


class StageLoader:
    """Iterates `(facts, microbatch)` pairs of an epoch, as the torch loader in its place does.

    Args:
        dataset: What is read where `stages` is not given.
        batch_sampler: Has the plan.
        collate_fn: Last stage, unless `stages` has one for microbatches.
        stages: Stages of the user; one that reads `dataset` by `num_workers` workers if not given.
        kind: Kind of these workers.
        num_workers: Their number.
        look_ahead: As in `StagePipeline`, and likewise `max_bytes`, `order`, `start_method` and
            `trace`.
        autoscale: Whether numbers of workers follow what training takes.
        seed: Seed of what samples draw; `None` for none.
        on_sample_error: What happens where a sample cannot be read.
        timeout: Seconds that one call may take; 0 for any.
        persistent_workers: Whether workers live on between epochs.

    Attributes:
        pipeline: The stages of the last epoch, at work or closed; `None` before the first.
    """

    def __init__(
        self,
        dataset: Any,
        batch_sampler: BalancedBatchSampler,
        collate_fn: Callable[[list[Any]], Any],
        *,
        stages: Sequence[Stage] | None,
        kind: Kind,
        num_workers: int,
        look_ahead: int,
        max_bytes: int,
        order: Order,
        start_method: StartMethod,
        trace: int,
        autoscale: bool,
        seed: int | None,
        on_sample_error: OnSampleError,
        timeout: float,
        persistent_workers: bool,
    ) -> None:
        self.batch_sampler = batch_sampler
        self.persistent_workers = persistent_workers
        self.pipeline: StagePipeline | None = None
        self._stages = _row(dataset, collate_fn, stages, kind, num_workers, seed, timeout or None)
        limits = [StageLimits.of(stage) for stage in self._stages]
        self._scaler = Autoscaler(limits, max_bytes=max_bytes) if autoscale else None
        self._policy = _Policy(on_sample_error)
        self._options: dict[str, Any] = {
            "seconds": prep_seconds(sample_costs(batch_sampler.planner.costs)),
            "look_ahead": look_ahead,
            "max_bytes": max_bytes,
            "order": order,
            "start_method": start_method,
            "trace": trace,
            "settle": self._policy.settle,
            "on_error": None if on_sample_error == "raise" else self._policy.next_substitute,
        }

    def __iter__(self) -> Iterator[tuple[MicrobatchFacts, Any]]:
        """Microbatches of the sampler's next epoch; what is broken off leaves nothing at work."""
        if self.pipeline is None or self.pipeline.closed:
            self.pipeline = StagePipeline(self._stages, **self._options)
        microbatches = self.batch_sampler.microbatches(counted=False)
        if self._scaler is None:
            epoch = self.pipeline(microbatches)
        else:
            epoch = autoscaled(self.pipeline, microbatches, self._scaler)
        try:
            yield from cast(Iterator[tuple[MicrobatchFacts, Any]], epoch)  # all have facts
        finally:
            epoch.close()  # type: ignore[attr-defined]
            if not self.persistent_workers:
                self.close()

    def close(self) -> None:
        """End the workers; another epoch starts new ones."""
        if self.pipeline is not None:
            self.pipeline.close()


class _Policy:
    """What stands in for a sample that cannot be read, by the substitutes that the plan named."""

    def __init__(self, on_sample_error: OnSampleError) -> None:
        self._filler = on_sample_error == "filler"

    def next_substitute(self, job: SampleJob, error: BaseException) -> int | None:
        """The next substitute of the sample's place."""
        facts = job.microbatch.facts
        rows = facts.substitutes if facts is not None else ()
        row = rows[job.place] if rows else ()
        return row[job.replacements].sample_id if job.replacements < len(row) else None

    def settle(self, job: MicrobatchJob) -> MicrobatchFacts | None:
        """The facts with what was read in place of what the plan has."""
        facts = planned = job.facts
        if facts is None or planned is None:
            return None
        for sample in job.samples:
            if sample.replacements:
                substitute = planned.substitutes[sample.place][sample.replacements - 1]
                facts = substituted(
                    facts, sample.place, substitute, error=sample.error, filler=self._filler
                )
        return facts


def prep_seconds(costs: PricedSamples) -> Callable[[Sequence[int]], list[float]]:
    """Predicted seconds of a microbatch's samples: their `prep`, else in proportion to patches.

    Without `prep` only ratios are known: decoding and resizing follow the pixels, so a sample
    counts as much as 64 patches of its media and one more.
    """

    def predicted(sample_ids: Sequence[int]) -> list[float]:
        rows = costs.select(list(sample_ids))
        seconds: list[float] = (
            1.0 + rows.patches / 64 if rows.prep is None else rows.prep
        ).tolist()
        return seconds

    return predicted


def _row(
    dataset: Any,
    collate_fn: Callable[[list[Any]], Any],
    stages: Sequence[Stage] | None,
    kind: Kind,
    num_workers: int,
    seed: int | None,
    timeout: float | None,
) -> list[Stage]:
    """The user's stages, or one that reads the dataset, and the collate function after them."""
    row = list(stages or ())
    if not row:
        read = ReadSample(dataset, seed=seed)
        row = [Stage(name="read", work=read, workers=num_workers, kind=kind, timeout=timeout)]
    if all(stage.grain == "sample" for stage in row):
        row.append(Stage(name="collate", work=Collate(collate_fn), grain="microbatch"))
    return row
