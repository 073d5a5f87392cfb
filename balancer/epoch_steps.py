"""EpochSteps: which samples each step of one epoch holds, before windows share them out."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from balancer.epoch_order import EpochOrder
from balancer.epoch_rest import EpochRest, InterruptedWindow
from balancer.plan import Flag

__all__ = ["EpochSteps", "Tail"]

Tail = Literal["drop", "pad", "filler"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSteps:
    """Consecutive steps of `global_batch_size` samples each, from where the rest begins.

    Attributes:
        order: Order of the samples.
        rest: Where the steps begin; the first sample of the epoch unless it was interrupted.
        head: Ids that an interrupted window still holds, in the order of its steps.
        global_batch_size: Samples of a step.
        tail: Policy for the last, incomplete step.
        window_steps: Steps that share out their samples.
    """

    order: EpochOrder
    rest: EpochRest
    head: NDArray[np.int64]
    global_batch_size: int
    tail: Tail
    window_steps: int

    @property
    def num_samples(self) -> int:
        """Samples that are left."""
        return len(self.head) + self.order.num_samples - self._first_position

    @property
    def first(self) -> int:
        """Number of the first step."""
        return self.rest.first_step

    @property
    def end_of_complete(self) -> int:
        """Number after that of the last complete step."""
        return self.first + self.num_samples // self.global_batch_size

    @property
    def end(self) -> int:
        """Number after that of the last step, which is the number of steps of the epoch."""
        incomplete = self.tail != "drop" and self.num_samples % self.global_batch_size > 0
        return self.end_of_complete + incomplete

    @property
    def cut(self) -> NDArray[np.int64]:
        """Ids that no step holds, in the order of the epoch."""
        held = min(self.begin(self.end), self.num_samples)
        return self.ids_at(np.arange(held, self.num_samples))

    def begin(self, step: int) -> int:
        """Position, in what is left of the epoch, at which a step begins."""
        return (step - self.first) * self.global_batch_size

    def members(self, step: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Ids of a step in the order of the epoch, and the `Flag` of each."""
        begin, end = self.begin(step), self.begin(step + 1)
        if self.tail == "filler":
            end = min(end, self.num_samples)
        positions = np.arange(begin, end)
        repeated = positions >= self.num_samples
        flags = np.where(repeated, np.int8(Flag.REPEAT), np.int8(Flag.REAL))
        return self.ids_at(positions), flags

    def window_of(self, step: int) -> range:
        """Steps that share out their samples with this one, itself among them.

        Windows begin after the rest of an interrupted one, whose steps keep their samples.
        """
        first = self.first + -(-len(self.head) // self.global_batch_size)
        if not first <= step < self.end_of_complete:
            return range(step, step + 1)
        begin = step - (step - first) % self.window_steps
        return range(begin, min(begin + self.window_steps, self.end_of_complete))

    def in_head(self, step: int) -> bool:
        """Whether a step begins with samples of an interrupted window."""
        return self.begin(step) < len(self.head)

    def rest_after(self, step: int, settings: dict[str, Any]) -> EpochRest:
        """The rest when all steps before `step` are delivered; `settings` made its windows."""
        delivered = self.begin(step)
        if self.rest.window is not None and delivered < len(self.head):
            window = replace(self.rest.window, delivered=self.rest.window.delivered + delivered)
            return replace(self.rest, first_step=step, window=window)
        steps = self.window_of(step) if step < self.end else range(step, step + 1)
        if steps.start == step:
            return EpochRest(epoch=self.rest.epoch, first_step=step, place=self._place(step))
        interrupted = InterruptedWindow(
            settings=settings,
            first_step=steps.start,
            place=self._place(steps.start),
            delivered=(step - steps.start) * self.global_batch_size,
        )
        return EpochRest(
            epoch=self.rest.epoch,
            first_step=step,
            place=self._place(steps.stop),
            window=interrupted,
        )

    @property
    def _first_position(self) -> int:
        return self.order.position_of(self.rest.place, self.rest.epoch)

    def _place(self, step: int) -> int:
        """Place of the first sample of a step that begins after the head."""
        position = self.begin(step) - len(self.head)
        return self.order.place_of(position + self._first_position, self.rest.epoch)

    def ids_at(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids at positions of what is left; beyond its end from the start of the epoch again."""
        in_order = positions - len(self.head) + self._first_position
        beyond = positions - self.num_samples
        in_order = np.where(beyond >= 0, beyond, in_order) % self.order.num_samples
        ids = self.order.ids_at(in_order, self.rest.epoch)
        in_head = positions < len(self.head)
        ids[in_head] = self.head[positions[in_head]]
        return ids
