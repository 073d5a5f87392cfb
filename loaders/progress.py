"""Progress: how far an epoch was handed out, and where the next iteration begins."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

from loaders.microbatch import MicrobatchFacts

__all__ = ["Position", "Progress"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """A place in the sequence of microbatches: all before it were handed out.

    Attributes:
        epoch: Epoch.
        step: Step within the epoch.
        microbatch: Microbatches of the step that are behind, of every rank.
        rank: Ranks that have the next microbatch of the step already; 0 in a rank view.
        microbatches: Microbatches of a rank in the steps of the epoch that are behind.
    """

    epoch: int = 0
    step: int = 0
    microbatch: int = 0
    rank: int = 0
    microbatches: int = 0

    @property
    def begin_of_step(self) -> "Position":
        """Where its step begins."""
        if not self.microbatch and not self.rank:
            return self
        return Position(epoch=self.epoch, step=self.step, microbatches=self.microbatches)

    def after(self, facts: MicrobatchFacts, *, last_rank: int, end: int) -> "Position":
        """Where one stands when the microbatch with these facts was handed out too.

        After the last of an epoch that is the begin of the next. `last_rank` is the last whose
        microbatches are handed out here, `end` the number of steps of the epoch.
        """
        if facts.dp_rank != last_rank:
            return replace(self, microbatch=facts.index, rank=facts.dp_rank + 1)
        if not facts.is_last:
            return replace(self, microbatch=facts.index + 1, rank=0)
        if facts.step + 1 == end:
            return Position(epoch=facts.epoch + 1)
        behind = self.microbatches + facts.num_microbatches
        return Position(epoch=facts.epoch, step=facts.step + 1, microbatches=behind)


class Progress:
    """What was handed out last, by whoever hands out: a sampler alone, or the loader around it.

    Attributes:
        position: What a state saves.
        completed: The begin of the first step that the training loop has not come back from.
        start: Where the next iteration begins.
        began: Where the last one began.
        waiting: Whether that is a place that was loaded or sought, and not begun yet.
        loaded: The state that was loaded, until something is handed out.
        running_epoch: Epoch being handed out, if any.
        run: Number of the iteration begun last; those begun before count for nothing.
    """

    def __init__(self) -> None:
        self.run = 0
        self.began = Position()
        self.go_to(Position())
        self.waiting = False

    def go_to(self, position: Position, loaded: dict[str, Any] | None = None) -> None:
        """Begin there next; iterations that still run count for nothing."""
        self.run += 1
        self.start = self.position = position
        self.completed = position.begin_of_step
        self.waiting = True
        self.loaded = loaded
        self.running_epoch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Begin there next; a place in it that was loaded or sought is kept, another given up."""
        if self.waiting and self.start.epoch == epoch:
            return
        if self.waiting and self.start != Position(epoch=self.start.epoch):
            warnings.warn(
                f"set_epoch({epoch}) gives up the place that was loaded: epoch {self.start.epoch}, "
                f"step {self.start.step}; call set_epoch({self.start.epoch}) to go on from there",
                stacklevel=4,
            )
        run = self.run
        self.go_to(Position(epoch=epoch))
        self.run, self.waiting = run, False

    def begin(self) -> Position:
        """Begin an iteration: where it starts. The one after it begins the next epoch."""
        self.run += 1
        self.began, self.start = self.start, Position(epoch=self.start.epoch + 1)
        self.waiting = False
        return self.began

    def hand_out(
        self, run: int, place: Position, facts: MicrobatchFacts, *, last_rank: int, end: int
    ) -> Position:
        """Count a microbatch that iteration `run` hands out at `place`; where it stands then."""
        after = place.after(facts, last_rank=last_rank, end=end)
        if run == self.run:
            self.position, self.completed = after, place.begin_of_step
            self.loaded = None
            self.running_epoch = facts.epoch
        return after

    def come_back(self, run: int) -> None:
        """The training loop asks for more: the step it has whole is completed."""
        if run == self.run and self.position.begin_of_step is self.position:
            self.completed = self.position

    def end(self, run: int) -> None:
        """Iteration `run` is over, at its end or before."""
        if run == self.run:
            self.running_epoch = None
