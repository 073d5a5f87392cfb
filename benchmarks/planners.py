"""Planner choices: ours, and each baseline, behind one call."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.effort import Effort
from balancer.plan import Plan
from balancer.step_planner import plan_from_assignment, plan_step
from balancer.topology import Topology

__all__ = ["Balanced", "Baseline", "PlannerChoice"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balanced:
    """The planner of this package.

    Attributes:
        name: Name in records and tables.
        effort: As in `balancer.planner.plan_step`.
    """

    name: str = "balanced"
    effort: Effort = "default"

    def __call__(self, costs: Costs, topology: Topology, ids: NDArray[np.int64]) -> Plan:
        """Plan of one step with the samples `ids`, rows of `costs`."""
        return plan_step(costs, topology, sample_ids=ids, effort=self.effort)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A planner of `benchmarks.baselines`.

    Attributes:
        name: Name in records and tables.
        assign: Costs of a step's samples and the topology to the cell of each sample.
    """

    name: str
    assign: Callable[[Costs, Topology], NDArray[np.int64]]

    def __call__(self, costs: Costs, topology: Topology, ids: NDArray[np.int64]) -> Plan:
        """Plan of one step with the samples `ids`, rows of `costs`."""
        cells = self.assign(costs.select(ids), topology)
        return plan_from_assignment(
            costs, ids, cells, topology, num_slots=topology.num_microbatches
        )


PlannerChoice = Balanced | Baseline
