"""The microbatches of a step with all their facts, and the time that planning took."""

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.groups import GroupedCosts, expand, sample_costs
from balancer.plan import Plan
from balancer.planner import EpochPlanner
from loaders.microbatch import Microbatch
from loaders.start_message import log_start
from loaders.step_facts import step_microbatches
from loaders.substitutes import Substitutes

__all__ = ["StepMaker"]


class StepMaker:
    """Makes the microbatches of a step from its number, in any thread.

    Attributes:
        substitutes: Names samples that may be read in place of others, where wanted.
        seconds: Seconds spent since the start, those of steps that were never handed out too.
        steps: Steps made since the start.
    """

    def __init__(self) -> None:
        self.substitutes: Substitutes | None = None
        self.seconds = 0.0
        self.steps = 0

    def make(
        self, planner: EpochPlanner, epoch: int, step: int, *, dp_ranks: Sequence[int]
    ) -> list[Microbatch]:
        """Microbatches of the ranks, those of one index after the other."""
        started = time.perf_counter()
        plan = planner.plan(epoch, step)
        placed, moved, costs = plan, moved_steps(planner, plan), planner.costs
        if isinstance(costs, GroupedCosts):
            placed = expand(plan, costs)
            moved = None if moved is None else np.repeat(moved, costs.sizes[plan.sample_ids])
        microbatches = step_microbatches(
            placed,
            sample_costs(costs),
            dp_ranks=dp_ranks,
            substitutes=self.substitutes,
            moved_steps=moved,
        )
        made = list(microbatches)
        if not self.steps and 0 in dp_ranks:
            log_start(planner, plan)
        self.steps += 1
        self.seconds += time.perf_counter() - started
        return made


def moved_steps(planner: EpochPlanner, plan: Plan) -> NDArray[np.int64] | None:
    """Steps that each sample of a planned step moved within its window; `None` where none may."""
    if planner.window_steps == 1:
        return None
    window = planner.steps(plan.epoch).window_of(plan.first_step)
    members = [planner.step_ids(plan.epoch, step)[0] for step in window]
    ids = np.concatenate(members)
    strict = np.repeat(np.array(window), [len(each) for each in members])
    by_id = np.argsort(ids, kind="stable")
    return plan.first_step - strict[by_id[np.searchsorted(ids[by_id], plan.sample_ids)]]
