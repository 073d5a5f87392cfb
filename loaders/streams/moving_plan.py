"""plan_moving: the steps of a window whose samples may go to any rank, and who moves them."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.plan import Flag, Plan
from balancer.planner import plan_window
from balancer.step_planner import plan_step
from loaders.streams.plan import WindowPlan
from loaders.streams.rules import StreamRules

__all__ = ["keep_in_place", "plan_moving"]


def plan_moving(
    costs: Costs,
    owner: NDArray[np.int64],
    rules: StreamRules,
    *,
    is_last: bool,
    epoch: int = 0,
    first_step: int = 0,
) -> WindowPlan:
    """Plan of a window over the samples of all ranks; most stay where they were read.

    As many complete steps as there are samples for, in order of rows, planned together by
    `balancer.windows.plan_window`. In the last window the tail policy makes a step of the rest.

    Args:
        costs: Costs of the window's samples, oldest first, ranks in turn.
        owner: Rank that read each row.
        rules: What else the plan depends on.
        is_last: Whether no rank has more samples than these.
        epoch: Written to the plans.
        first_step: Number of the window's first step.

    Returns:
        Plans; `left` are the rows of an incomplete step: dropped if it is the last window, else to
        be kept for the next.

    Raises:
        CapacityError: A step does not fit `max_microbatches`.

    Example:
        >>> from balancer.topology import Topology
        >>> costs = Costs.from_values([8, 1, 5, 1, 1, 1])
        >>> rules = StreamRules(topology=Topology(dp_size=2), global_batch_size=4, window_steps=1,
        ...                     oversize="error", tail="filler")
        >>> window = plan_moving(costs, np.array([0, 1, 0, 1, 0, 1]), rules, is_last=True)
        >>> [plan.sample_ids.tolist() for plan in window.steps]
        [[0, 1, 2, 3], [4, 5]]
        >>> [plan.offsets.tolist() for plan in window.steps]
        [[0, 1, 4], [0, 1, 2]]
    """
    topology, size = rules.topology, rules.global_batch_size
    num_steps = len(costs) // size
    steps: list[Plan] = []
    if num_steps:
        steps += plan_window(
            costs,
            topology,
            sample_ids=np.arange(num_steps * size),
            num_steps=num_steps,
            oversize=rules.oversize,
            effort=rules.effort,
            epoch=epoch,
            first_step=first_step,
        )
    rest = np.arange(num_steps * size, len(costs))
    if is_last and len(rest) and rules.tail != "drop":
        flags = np.full(len(rest), Flag.REAL, np.int8)
        if rules.tail == "pad":
            missing = size - len(rest)
            rest = np.append(rest, np.resize(np.arange(len(costs)), missing))
            flags = np.append(flags, np.full(missing, Flag.REPEAT, np.int8))
        last = plan_step(
            costs,
            topology,
            sample_ids=rest,
            flags=flags,
            oversize=rules.oversize,
            effort=rules.effort,
            fill=rules.tail == "filler",
            epoch=epoch,
            step=first_step + num_steps,
        )
        steps, rest = [*steps, last], rest[:0]
    weight = 1 + costs.tokens + costs.patches
    return WindowPlan(steps=tuple(keep_in_place(plan, owner, weight) for plan in steps), left=rest)


def keep_in_place(plan: Plan, owner: NDArray[np.int64], weight: NDArray[np.int64]) -> Plan:
    """The plan of a step with its ranks renamed so that little moves; its step time is the same.

    Ranks are alike, so what one of them was to do another can. Under the microbatch barrier that
    holds for each microbatch index by itself, under the step barrier for whole ranks. Heaviest
    first, each part goes to the free rank that read most of it. O(dp_size^2 log dp_size) each.

    Args:
        plan: Plan of one step.
        owner: Rank that read each row.
        weight: What moving each row takes: tokens and patches stand for its bytes.

    Example:
        >>> plan = Plan.from_cells([[[[0, 1], [2]]]])
        >>> keep_in_place(plan, np.array([1, 1, 0]), np.array([1, 1, 1])).sample_ids
        array([2, 0, 1])
    """
    dp_size, num_slots = plan.topology.dp_size, plan.num_microbatches(0)
    cell = plan.cell_of_sample()
    slot, rank = cell // dp_size, cell % dp_size
    group = slot if plan.topology.barrier == "microbatch" else np.zeros_like(slot)
    rank_for = np.tile(np.arange(dp_size), (num_slots, 1))
    for each in np.unique(group):
        part = group == each
        kept = np.zeros((dp_size, dp_size), np.int64)
        np.add.at(kept, (rank[part], owner[plan.sample_ids[part]]), weight[plan.sample_ids[part]])
        rank_for[np.unique(slot[part])] = _matched(kept)
    new_cell = np.arange(num_slots * dp_size).reshape(num_slots, dp_size)
    new_cell = new_cell - np.arange(dp_size) + rank_for
    order = np.argsort(new_cell.ravel()[cell], kind="stable")
    counts = np.zeros(num_slots * dp_size, np.int64)
    counts[new_cell.ravel()] = np.diff(plan.offsets)
    return replace(
        plan,
        sample_ids=plan.sample_ids[order],
        flags=plan.flags[order],
        offsets=np.concatenate([[0], np.cumsum(counts)]),
    )


def _matched(kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each planned rank the rank that runs it: greedy, largest entry first."""
    size = len(kept)
    chosen = np.full(size, -1, np.int64)
    taken = np.zeros(size, np.bool_)
    for entry in np.argsort(-kept.ravel(), kind="stable").tolist():
        planned, actual = divmod(entry, size)
        if chosen[planned] < 0 and not taken[actual]:
            chosen[planned] = actual
            taken[actual] = True
    return chosen
