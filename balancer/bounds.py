"""Lower bounds of a step's time, and the certificate that sets a plan beside them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.load_bounds import capacity_bound, partition_bound
from balancer.pipeline_bounds import pipeline_bound
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["Certificate", "capacity_bound", "partition_bound", "step_bound"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Step time of a plan beside a lower bound that no plan of the same samples can beat.

    Attributes:
        step_time: Time of the planned step, in the unit of the costs.
        given_time: Time of the same samples in the order they were given, whatever the limits.
        lower_bound: Time below which no plan of these samples on this topology can come.
        binds: What the bound comes from: `"mean load"`, `"largest sample"`, `"largest samples
            together"` (some rank must take several of the dearest), or `"limits"` (a limit keeps
            ranks from filling a microbatch while another rank runs a dear sample). Under the
            pipeline barrier `"stage work"` (mean load of a stage), `"largest sample"`, `"largest
            samples together"`, `"pipeline fill"` (stages wait while the pipeline fills and drains,
            whatever the sizes of the microbatches), or `"limits"` (they wait longer than that, for
            limits keep microbatches from their best sizes).
        planner: The candidate that was best, for example `"slots"` or `"given order"`.

    Example:
        >>> Certificate(step_time=10.2, given_time=14.0, lower_bound=10.0, binds="mean load",
        ...             planner="slots").gap
        0.02
    """

    step_time: float
    given_time: float
    lower_bound: float
    binds: str
    planner: str

    @property
    def gap(self) -> float:
        """Step time over its lower bound, minus one, rounded to 12 digits; 0 for a free step."""
        return round(self.step_time / self.lower_bound - 1.0, 12) if self.lower_bound else 0.0


def step_bound(
    problem: StepProblem, topology: Topology, *, num_slots: int | None = None
) -> tuple[int, str]:
    """Quantised time that no plan of the problem's samples can beat, and what binds.

    Under either barrier a step takes at least the summed costs of any one rank. Under the
    microbatch barrier it takes at least the sum over modules that run in turn of each module's own
    bound: `partition_bound`, or `capacity_bound` of any limit. What binds is named for the module
    with the largest part. Under the pipeline barrier it is `pipeline_bound`, for plans of
    `num_slots` microbatches, or as many as the topology allows.
    """
    if topology.barrier == "pipeline":
        return pipeline_bound(problem, topology, num_slots=num_slots)
    slow, room = _of_ranks(problem, topology.dp_size)
    least_slow = None if slow is None else slow.min(axis=1)
    by_total = problem.by_module if problem.num_modules == 1 else None
    best = partition_bound(problem.totals, topology.dp_size, least_slow, by_total)
    if topology.barrier == "step":
        return best
    parts = []
    amounts = problem.amounts.reshape(problem.num_items, -1)
    for k in range(problem.num_modules):
        column = problem.costs[k :: problem.num_modules]
        speeds = None if slow is None else slow[:, k]
        order = problem.by_module[k * problem.num_items : (k + 1) * problem.num_items]
        part = partition_bound(column, topology.dp_size, speeds, order)
        for a, cap in enumerate(problem.caps):
            limited = capacity_bound(
                column, amounts[:, a], int(cap), topology.dp_size, speeds, room[a]
            )
            if limited > part[0]:
                part = (limited, "limits")
        parts.append(part)
    in_turn = sum(part for part, _ in parts)
    return (in_turn, max(parts)[1]) if in_turn > best[0] else best


def _of_ranks(
    problem: StepProblem, dp_size: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """Slowness of each rank in each cost column, if ranks differ; each cap summed over ranks."""
    slow = None if problem.ranks is None else problem.ranks.slow(problem.num_modules)
    return slow, problem.rooms(dp_size)
