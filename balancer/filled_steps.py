"""FilledSteps: steps that hold as many samples as fit their microbatches under the limits."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.epoch_rest import EpochRest
from balancer.epoch_steps import EpochSteps
from balancer.kernels.fill import fill_steps
from balancer.priced import PricedSamples
from balancer.topology import Topology

__all__ = ["FilledSteps", "StepFiller", "filled_bounds"]

_CHUNK = 1 << 16
"""Samples whose sizes are looked up at a time."""

_NO_LIMIT = 2**40
"""More samples than a microbatch ever has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledSteps(EpochSteps):
    """Consecutive steps of the epoch's order, each ending before the sample that has no room.

    Attributes:
        bounds: Position at which each step begins, and after the last the one where it ends; under
            `tail="pad"` that may lie beyond the last sample, by the repeats.
        num_complete: Steps that ended for want of room.
    """

    bounds: NDArray[np.int64]
    num_complete: int

    @property
    def end_of_complete(self) -> int:
        """Number after that of the last complete step."""
        return self.first + self.num_complete

    @property
    def end(self) -> int:
        """Number after that of the last step, which is the number of steps of the epoch."""
        return self.first + len(self.bounds) - 1

    def begin(self, step: int) -> int:
        """Position, in what is left of the epoch, at which a step begins."""
        return int(self.bounds[min(step - self.first, len(self.bounds) - 1)])

    def window_of(self, step: int) -> range:
        """The step itself: filled steps keep their samples."""
        return range(step, step + 1)


def filled_bounds(
    steps: EpochSteps,
    costs: PricedSamples,
    topology: Topology,
    *,
    alone: NDArray[np.int64],
) -> tuple[NDArray[np.int64], int]:
    """Bounds and number of complete steps of `FilledSteps`, in one pass over what is left.

    A step takes samples in order while `fill_cells` finds room in `dp_size * num_microbatches`
    microbatches. A plan that keeps the limits is then known for every step: the planner takes it
    if all its own placements fail. Room is lost where the last sample is too large for what is
    left anywhere, about half a sample in each microbatch. O(samples) time, O(steps) memory.

    Args:
        steps: What is left of the epoch.
        costs: Costs of the dataset.
        topology: Microbatches and limits.
        alone: Ids, ascending, that get a microbatch of their own.
    """
    limits, num_cells = topology.limits, topology.dp_size * topology.num_microbatches
    names = [name for name in limits.room if name != "samples"]
    most_samples = limits.max_samples or _NO_LIMIT
    caps = np.array([*(limits.room[name] for name in names), most_samples], np.int64)
    padded = limits.layout == "padded" and limits.max_tokens is not None
    used = np.zeros(num_cells * len(caps), np.int64)
    count, longest = np.zeros(num_cells, np.int64), np.zeros(num_cells, np.int64)
    found, begun, position = [np.zeros(1, np.int64)], 0, 0
    num_samples = steps.num_samples
    num_complete = 0
    repeats = steps.order.num_samples if steps.tail == "pad" else 0
    while position < num_samples + repeats:
        begin, stop = position, num_samples if position < num_samples else num_samples + repeats
        ids = steps.ids_at(np.arange(begin, min(begin + _CHUNK, stop)))
        rows = costs.select(ids)
        columns = [limits.taken(name, getattr(rows, name)) for name in names]
        columns.append(np.where(np.isin(ids, alone), most_samples, 1))
        amounts = np.minimum(np.stack(columns, axis=1), caps).astype(np.int64).ravel()
        ends = np.empty(len(ids), np.int64)
        num_ends, begun = fill_steps(
            amounts, caps, padded, num_cells, len(ids), begun, used, count, longest, ends
        )
        new = ends[:num_ends] + begin
        position += len(ids)
        if begin >= num_samples:
            if num_ends or position >= num_samples + repeats:
                found.append(new[:1] if num_ends else np.array([position]))
                return np.concatenate(found), num_complete
            continue
        found.append(new)
        num_complete += num_ends
    bounds = np.concatenate(found)
    if steps.tail != "drop" and bounds[-1] < num_samples:
        bounds = np.append(bounds, num_samples)
    return bounds, num_complete


class StepFiller:
    """Filled steps of any epoch; the bounds of the last one asked for are kept.

    Attributes:
        costs: Costs of the dataset.
        topology: Microbatches and limits.
        alone: Ids, ascending, that get a microbatch of their own.
    """

    def __init__(self, costs: PricedSamples, topology: Topology, alone: NDArray[np.int64]) -> None:
        self.costs, self.topology, self.alone = costs, topology, alone
        self._kept: tuple[EpochRest, int, NDArray[np.int64], int] | None = None

    def filled(self, steps: EpochSteps) -> FilledSteps:
        """What `steps` leave of an epoch, in steps that end for want of room."""
        kept = self._kept
        if kept is None or (kept[0], kept[1]) != (steps.rest, len(steps.head)):
            bounds = filled_bounds(steps, self.costs, self.topology, alone=self.alone)
            kept = self._kept = (steps.rest, len(steps.head), *bounds)
        return FilledSteps(
            order=steps.order,
            rest=steps.rest,
            head=steps.head,
            global_batch_size=0,
            tail=steps.tail,
            window_steps=1,
            bounds=kept[2],
            num_complete=kept[3],
        )
