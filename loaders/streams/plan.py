"""plan_in_place: the steps of a window where every rank keeps the samples that it read."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.errors import CapacityError
from balancer.plan import Flag, Plan
from balancer.step_planner import plan_from_assignment
from loaders.streams.rules import StreamRules
from loaders.streams.share import share_out

__all__ = ["WindowPlan", "plan_in_place"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPlan:
    """Steps of a window.

    Attributes:
        steps: One plan a step; ids are rows of the window's costs.
        left: Rows that no step holds, ascending.
    """

    steps: tuple[Plan, ...]
    left: NDArray[np.int64]


def plan_in_place(
    costs: Costs,
    owner: NDArray[np.int64],
    spare: Sequence[int | None],
    rules: StreamRules,
    *,
    epoch: int = 0,
    first_step: int = 0,
) -> WindowPlan:
    """Plan of a window without moving a sample from rank to rank.

    Within a rank samples change steps, where that makes the dearest ranks of the steps cheaper
    together: dearest first, each to the cheapest step that has room. Within a step each rank's
    samples are shared out evenly on its microbatches, and these run dearest first on every rank.
    Where ranks wait after each module (`Topology.modules`), costs of modules count by themselves in
    both. All ranks take as many microbatches as the one that needs most under the limits.

    Args:
        costs: Costs of the window's samples of all ranks, a rank's in the order it read them.
        owner: Rank of each row; -1 for rows that are only spare.
        spare: For each rank a row that stands in where it has no sample left, if there is one.
        rules: What else the plan depends on.
        epoch: Written to the plans.
        first_step: Number of the window's first step.

    Returns:
        Under `tail="drop"` as many steps as the rank with the fewest samples can fill, otherwise
        as many as the one with the most needs; the others then get flagged repeats or fillers.

    Raises:
        CapacityError: A step does not fit `max_microbatches`.

    Example:
        >>> from balancer.topology import Topology
        >>> costs = Costs.from_values([5, 1, 1, 5, 2, 2, 2, 2])
        >>> rules = StreamRules(topology=Topology(dp_size=2), global_batch_size=4, window_steps=2,
        ...                     oversize="error", tail="drop")
        >>> window = plan_in_place(costs, np.array([0, 0, 0, 0, 1, 1, 1, 1]), [None] * 2, rules)
        >>> [plan.sample_ids.tolist() for plan in window.steps]
        [[0, 1, 4, 5], [2, 3, 6, 7]]
    """
    size = rules.rank_samples
    rows = [np.flatnonzero(owner == rank) for rank in range(rules.topology.dp_size)]
    counts = [len(own) for own in rows]
    num_steps = min(counts) // size if rules.tail == "drop" else -(-max(counts) // size)
    kept = [own[: num_steps * size] for own in rows]
    left = np.concatenate([own[num_steps * size :] for own in rows])
    members = _cheapest_membership(_columns(costs, rules), kept, num_steps, size)
    steps = []
    for step in range(num_steps):
        ids, flags = [], []
        for rank, own in enumerate(kept):
            real = own[members[rank] == step]
            ids.append(real)
            flags.append(np.full(len(real), Flag.REAL, np.int8))
            missing = size - len(real)
            pool = own if len(own) else np.array([spare[rank]], np.int64)
            if rules.tail == "pad" and missing:
                ids[rank] = np.append(real, np.resize(pool, missing))
                flags[rank] = np.append(flags[rank], np.full(missing, Flag.REPEAT, np.int8))
            elif not len(real):
                ids[rank] = pool[np.argmin(costs.total[pool])][None]
                flags[rank] = np.array([Flag.FILLER], np.int8)
        steps.append(_step_plan(costs, ids, flags, rules, epoch=epoch, step=first_step + step))
    return WindowPlan(steps=tuple(steps), left=np.sort(left))


def _columns(costs: Costs, rules: StreamRules) -> NDArray[np.float64]:
    """Costs that ranks wait for one after another, a column each: modules, or their sum."""
    return costs.values if _in_turn(costs, rules) else costs.total[:, None]


def _in_turn(costs: Costs, rules: StreamRules) -> bool:
    topology = rules.topology
    in_turn = topology.barrier == "microbatch" and topology.modules == "in_turn"
    return in_turn and int(costs.values.any(axis=0).sum()) > 1


def _cheapest_membership(
    columns: NDArray[np.float64], kept: Sequence[NDArray[np.int64]], num_steps: int, size: int
) -> list[NDArray[np.int64]]:
    """Step of each row of each rank: as given, or spread where that is cheaper."""
    given = [np.arange(len(own)) // size for own in kept]
    if num_steps < 2:
        return given
    spread = [_spread(columns[own], size) for own in kept]

    def time(members: list[NDArray[np.int64]]) -> float:
        loads = np.zeros((len(kept), num_steps, columns.shape[1]))
        for rank, own in enumerate(kept):
            np.add.at(loads[rank], members[rank], columns[own])
        return float(loads.max(axis=0).sum())

    return spread if time(spread) < time(given) else given


def _spread(columns: NDArray[np.float64], size: int) -> NDArray[np.int64]:
    """Each sample, dearest first, to the cheapest of the steps that still have room."""
    num_steps = -(-len(columns) // size)
    room = [min(size, len(columns) - step * size) for step in range(num_steps)]
    shares = columns / np.maximum(columns.sum(axis=0), np.finfo(np.float64).tiny)
    load = np.zeros((num_steps, columns.shape[1]))
    members = np.zeros(len(columns), np.int64)
    for place in np.argsort(-shares.max(axis=1, initial=0), kind="stable"):
        after = load + shares[place]
        cheapest = np.lexsort((after.sum(axis=1), after.max(axis=1)))
        step = next(s for s in cheapest.tolist() if room[s])
        members[place] = step
        room[step] -= 1
        load[step] = after[step]
    return members


def _step_plan(
    costs: Costs,
    ids: Sequence[NDArray[np.int64]],
    flags: Sequence[NDArray[np.int8]],
    rules: StreamRules,
    *,
    epoch: int,
    step: int,
) -> Plan:
    """Plan of a step whose samples stay on their ranks."""
    topology = rules.topology
    most = topology.max_microbatches or max(topology.num_microbatches, *map(len, ids))
    for num_slots in range(topology.num_microbatches, most + 1):
        try:
            best = _shared_out(costs, ids, flags, rules, num_slots, epoch, step)
        except CapacityError as error:
            if num_slots == most:
                raise CapacityError(
                    f"step {step} does not fit max_microbatches={most} on every rank ({error}); "
                    "raise it, raise the limits, or lower global_batch_size",
                    sample_ids=error.sample_ids,
                ) from error
            continue
        break
    if num_slots > 1 and _in_turn(costs, rules):
        with suppress(CapacityError):
            other = _shared_out(costs, ids, flags, rules, num_slots, epoch, step, by_module=True)
            if other.certificates[0].step_time < best.certificates[0].step_time:
                return other
    return best


def _shared_out(
    costs: Costs,
    ids: Sequence[NDArray[np.int64]],
    flags: Sequence[NDArray[np.int8]],
    rules: StreamRules,
    num_slots: int,
    epoch: int,
    step: int,
    *,
    by_module: bool = False,
) -> Plan:
    """Plan of a step with so many microbatches, each rank's samples shared out on its own."""
    dp_size = rules.topology.dp_size
    parts = [
        share_out(costs, ids[rank], flags[rank], rules, num_slots, by_module=by_module)
        for rank in range(dp_size)
    ]
    cells = [part.slots * dp_size + rank for rank, part in enumerate(parts)]
    plan = plan_from_assignment(
        costs,
        np.concatenate([part.ids for part in parts]),
        np.concatenate(cells),
        rules.topology,
        num_slots=num_slots,
        flags=np.concatenate([part.flags for part in parts]),
        epoch=epoch,
        step=step,
    )
    return replace(plan, alone=np.unique(np.concatenate([part.alone for part in parts])))
