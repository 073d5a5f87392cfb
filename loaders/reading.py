"""Reads the samples of a microbatch, in the process that asks for them."""

from collections.abc import Callable, Sequence
from typing import Any, get_args

from torch.utils.data import Dataset

from balancer.checks import check_choice
from balancer.errors import BalancerError
from loaders.microbatch import MicrobatchFacts, SampleList
from loaders.sample_errors import OnSampleError, read_error, shown
from loaders.seeding import collate_seed, globals_kept, sample_seed, seed_globals
from loaders.substitution import substituted

__all__ = ["CollateWithFacts", "CollatedMicrobatches", "MicrobatchDataset"]


class MicrobatchDataset(Dataset[Any]):
    """Map-style dataset whose batches keep the facts of the microbatch that asked for them.

    `BalancedDataLoader` wraps its dataset by itself. Use this where a framework builds the
    DataLoader: `DataLoader(MicrobatchDataset(dataset), batch_sampler=BalancedBatchSampler(...),
    collate_fn=PackedCollator())` hands the collator a `SampleList`.

    With a `seed` the global generators of `random`, NumPy and torch (CPU) are seeded by (seed,
    epoch, sample) before each sample is read, so that what it draws depends on no worker, rank or
    resumed run; where the dataset has `__getitems__`, by the first sample of the microbatch. The
    process that trains gets its generators back as they were. A dataset that keeps a generator of
    its own must seed it itself.

    A sample that cannot be read is replaced, where the policy says so and the plan has named
    substitutes, with the next of them that can be read: flagged `REPEAT`, or `FILLER` and so
    without a loss. The step's numbers of target tokens and samples stay those of the plan, so its
    loss is divided by what was planned; `num_target_tokens` and `target_tokens` are of what was
    read.

    Attributes:
        dataset: The dataset wrapped.
        seed: Seed of what samples draw; `None` leaves the generators alone.
        on_sample_error: `"raise"`, `"replace"` or `"filler"`.

    Raises:
        ArgumentError: `on_sample_error` is none of these.
        SampleReadError: While read: a sample failed and none could stand in for it.

    Example:
        >>> from loaders.microbatch import Microbatch, MicrobatchFacts
        >>> facts = MicrobatchFacts(
        ...     epoch=0, step=0, index=0, num_microbatches=1, dp_rank=0, dp_size=1,
        ...     sample_ids=(2, 0), flags=(0, 0), target_tokens=(1, 1), step_target_tokens=2,
        ...     step_samples=2, step_target_samples=2)
        >>> samples = MicrobatchDataset(["a", "b", "c"]).__getitems__(Microbatch([2, 0], facts))
        >>> samples, samples.facts.step_samples
        (['c', 'a'], 2)
    """

    def __init__(
        self, dataset: Any, *, seed: int | None = None, on_sample_error: OnSampleError = "raise"
    ) -> None:
        check_choice("on_sample_error", on_sample_error, get_args(OnSampleError))
        self.dataset: Any = dataset
        self.seed = seed
        self.on_sample_error = on_sample_error

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def __getitems__(self, indices: Sequence[int]) -> SampleList:
        """Samples in the order asked for; the dataset's own `__getitems__` reads them, if any."""
        with globals_kept(wanted=self.seed is not None):
            return self.read(indices)

    def read(self, indices: Sequence[int]) -> SampleList:
        """The same, but what it seeds stays as it is."""
        ids, facts = list(indices), getattr(indices, "facts", None)
        read_many = getattr(self.dataset, "__getitems__", None)
        if not callable(read_many):
            return self._read_one_by_one(ids, facts)
        try:
            self._seed(facts, ids[0])
            return SampleList(read_many(list(ids)), facts)
        except Exception as error:
            if self.on_sample_error == "raise" or facts is None or not facts.substitutes:
                raise read_error("reading failed at one of", ids, facts, error) from error
        return self._read_one_by_one(ids, facts)

    def _read_one_by_one(self, ids: list[int], facts: MicrobatchFacts | None) -> SampleList:
        samples = []
        for place in range(len(ids)):
            sample, facts = self._read_at(place, ids[place], facts)
            samples.append(sample)
        return SampleList(samples, facts)

    def _read_at(
        self, place: int, sample_id: int, facts: MicrobatchFacts | None
    ) -> tuple[Any, MicrobatchFacts | None]:
        """The sample of a place, or another in its place, and the facts with it."""
        try:
            self._seed(facts, sample_id)
            return self.dataset[sample_id], facts
        except Exception as error:
            if self.on_sample_error == "raise" or facts is None:
                raise read_error("reading failed at", [sample_id], facts, error) from error
            return self._read_substitute(place, facts, error)

    def _read_substitute(
        self, place: int, facts: MicrobatchFacts, error: Exception
    ) -> tuple[Any, MicrobatchFacts]:
        """The first substitute of a place that can be read, and the facts with it."""
        tried = [facts.sample_ids[place]]
        for substitute in facts.substitutes[place] if facts.substitutes else ():
            try:
                self._seed(facts, substitute.sample_id)
                sample = self.dataset[substitute.sample_id]
            except Exception:
                tried.append(substitute.sample_id)
                continue
            filler = self.on_sample_error == "filler"
            return sample, substituted(facts, place, substitute, error=shown(error), filler=filler)
        raise read_error(
            "reading failed in a row, with all that could stand in for the first, at",
            tried,
            facts,
            error,
        ) from error

    def _seed(self, facts: MicrobatchFacts | None, sample_id: int) -> None:
        if self.seed is not None:
            seed_globals(sample_seed(self.seed, facts.epoch if facts else 0, sample_id))


class CollateWithFacts:
    """Collates where samples are read and returns the facts too, so that order is never guessed.

    With a `seed` the global generators are seeded before, by the microbatch's first sample, and
    left as they are then.

    Raises:
        SampleReadError: `collate_fn` failed; names the samples.
    """

    def __init__(self, collate_fn: Callable[[list[Any]], Any], *, seed: int | None = None) -> None:
        self.collate_fn = collate_fn
        self.seed = seed

    def __call__(self, samples: list[Any]) -> tuple[MicrobatchFacts | None, Any]:
        """The facts, and what `collate_fn` returned."""
        facts: MicrobatchFacts | None = getattr(samples, "facts", None)
        wanted = samples if getattr(self.collate_fn, "wants_facts", False) else list(samples)
        try:
            if self.seed is not None and facts is not None:
                seed_globals(collate_seed(self.seed, facts.epoch, facts.sample_ids[0]))
            return facts, self.collate_fn(wanted)
        except BalancerError:
            raise
        except Exception as error:
            ids = facts.sample_ids if facts else ()
            raise read_error("collate_fn failed at", ids, facts, error) from error


class CollatedMicrobatches(Dataset[Any]):
    """Reads a microbatch and collates it in one go, so that generators are kept once for both.

    Args:
        samples: Reads the samples.
        collate: Collates them.
    """

    def __init__(self, samples: MicrobatchDataset, collate: CollateWithFacts) -> None:
        self._samples = samples
        self._collate = collate

    def __getitems__(self, indices: Sequence[int]) -> tuple[MicrobatchFacts | None, Any]:
        """The facts of the microbatch, and the microbatch."""
        with globals_kept(wanted=self._samples.seed is not None):
            return self._collate(self._samples.read(indices))
