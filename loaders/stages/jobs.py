"""What the workers work on: samples, and the microbatches they belong to."""

from collections.abc import Sequence
from typing import Any

from loaders.microbatch import MicrobatchFacts, SampleList
from loaders.stages.stage import Stage

__all__ = ["Job", "MicrobatchJob", "SampleJob", "argument_of"]


class MicrobatchJob:
    """A microbatch on its way.

    Attributes:
        number: Place in the plan's order, from 0.
        facts: What the plan knows of it; `None` for a plain list of ids.
        samples: Its samples, in the plan's order.
        unfinished: Samples that have not left the last sample-grained stage.
        stage: Index of the stage it waits for or is in, from the first microbatch-grained one on.
        value: What the last stage made of it.
        held: Bytes of `value`, or of its samples while some are unfinished.
        urgency: Sort key of waiting microbatches: the plan's order.
        ready: Whether it only waits for the consumer.
    """

    __slots__ = (
        "facts",
        "held",
        "number",
        "ready",
        "samples",
        "stage",
        "unfinished",
        "urgency",
        "value",
    )

    def __init__(
        self,
        number: int,
        facts: MicrobatchFacts | None,
        sample_ids: Sequence[int],
        latest_begins: Sequence[float],
        dear: Sequence[bool],
        first_stage: int,
    ) -> None:
        self.number = number
        self.urgency = (float(number), number, 0)
        self.facts = facts
        self.samples = [
            SampleJob(self, place, *of_sample)
            for place, of_sample in enumerate(zip(sample_ids, latest_begins, dear, strict=True))
        ]
        self.unfinished = len(self.samples)
        self.stage = first_stage
        self.value: Any = None
        self.held = 0
        self.ready = False

    def release(self) -> None:
        """Let go of all results.

        A microbatch and its samples refer to each other: results would stay until the interpreter
        next looks for such cycles, which may be hundreds of microbatches later.
        """
        self.value = None
        for sample in self.samples:
            sample.value = None

    @property
    def sample_ids(self) -> tuple[int, ...]:
        """Ids of its samples, replacements in place of the replaced."""
        return tuple(sample.sample_id for sample in self.samples)

    @property
    def step(self) -> int | None:
        """Step it belongs to, where known."""
        return None if self.facts is None else self.facts.step


class SampleJob:
    """A sample on its way through the sample-grained stages.

    Attributes:
        microbatch: The microbatch that needs it.
        place: Its place in that microbatch.
        sample_id: What is read.
        urgency: Sort key of waiting samples, smallest first: the latest begin that `LeastSlack`
            gave, then the plan's order.
        is_dear: Whether it is expected to take far longer than samples do on average.
        stage: Index of the stage it waits for or is in; the number of stages once finished.
        value: What the last stage made of it.
        held: Bytes of `value`.
        replacements: How often another sample took its place.
        error: Why the first one failed; `""` where none did.
    """

    __slots__ = (
        "error",
        "held",
        "is_dear",
        "microbatch",
        "place",
        "replacements",
        "sample_id",
        "stage",
        "urgency",
        "value",
    )

    def __init__(
        self,
        microbatch: MicrobatchJob,
        place: int,
        sample_id: int,
        latest_begin: float,
        is_dear: bool,
    ) -> None:
        self.microbatch = microbatch
        self.place = place
        self.sample_id = int(sample_id)
        self.urgency = (latest_begin, microbatch.number, place)
        self.is_dear = is_dear
        self.stage = 0
        self.value: Any = None
        self.held = 0
        self.replacements = 0
        self.error = ""

    @property
    def sample_ids(self) -> tuple[int, ...]:
        """Its id, as microbatches give theirs."""
        return (self.sample_id,)

    @property
    def step(self) -> int | None:
        """Step it belongs to, where known."""
        return self.microbatch.step


Job = SampleJob | MicrobatchJob


def argument_of(stage: Stage, job: Job) -> Any:
    """What the stage's function is called with.

    The first stage gets the sample's id, with the epoch where its function has a true attribute
    `wants_epoch`; lists of samples keep their facts where it has `wants_facts`.
    """
    if isinstance(job, SampleJob) and job.stage == 0:
        facts = job.microbatch.facts
        wants_epoch = getattr(stage.work, "wants_epoch", False)
        return (job.sample_id, facts.epoch if facts else 0) if wants_epoch else job.sample_id
    if isinstance(job.value, SampleList) and not getattr(stage.work, "wants_facts", False):
        return list(job.value)
    return job.value
