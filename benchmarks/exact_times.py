"""Step times of many assignments at once, written without the library's kernels."""

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.topology import Topology

__all__ = ["all_times"]

_FLOAT = NDArray[np.float64]


def all_times(cells: NDArray[np.int8], costs: Costs, topology: Topology) -> _FLOAT:
    """Time of each assignment (rows of cells `slot * dp_size + rank`), float64.

    Every order of the microbatches is among the assignments, so orders need no search.
    """
    slots, dp_size = topology.num_microbatches, topology.dp_size
    held = np.stack(
        [(cells == cell).astype(np.float64) @ costs.values for cell in range(slots * dp_size)],
        axis=1,
    ).reshape(len(cells), slots, dp_size, len(costs.modules))
    if topology.rank_speeds:
        held = held / np.asarray(topology.rank_speeds, np.float64)[:, None]
    if topology.barrier == "step":
        times = held.sum(axis=(1, 3)).max(axis=1)
        return np.asarray(times, np.float64)
    if topology.barrier == "microbatch":
        if topology.modules == "summed":
            held = held.sum(axis=3, keepdims=True)
        times = held.max(axis=2).sum(axis=(1, 2))
        return np.asarray(times, np.float64)
    ranks = [_pipeline(held[:, :, rank], topology) for rank in range(dp_size)]
    return np.asarray(np.max(ranks, axis=0), np.float64)


def _pipeline(held: _FLOAT, topology: Topology) -> _FLOAT:
    """Time of one pipeline under 1F1B with every module split evenly over the stages.

    `held` is `(assignments, slots, modules)`. Pipeline rank p runs P - p forwards, then a backward
    and a forward in turn, then the backwards left.
    """
    pp_size, slots = topology.pp_size, held.shape[1]
    work = held.sum(axis=2) / pp_size + topology.microbatch_cost
    times = {"F": work * topology.forward_share, "B": work * (1 - topology.forward_share)}
    left = [_lane(pp_size - p, slots) for p in range(pp_size)]
    ended: dict[tuple[str, int, int], _FLOAT] = {}
    clock = [np.zeros(len(held)) for _ in range(pp_size)]
    while any(left):
        for p, lane in enumerate(left):
            while lane:
                kind, j = lane[0]
                waited = ("F", p - 1, j) if kind == "F" else ("B", p + 1, j)
                if kind == "B" and p == pp_size - 1:
                    waited = ("F", p, j)
                first = kind == "F" and p == 0
                if not first and waited not in ended:
                    break
                start = clock[p] if first else np.maximum(clock[p], ended[waited])
                clock[p] = ended[kind, p, j] = start + times[kind][:, j]
                lane.pop(0)
    return np.asarray(np.max(clock, axis=0), np.float64)


def _lane(ahead: int, slots: int) -> list[tuple[str, int]]:
    """Operations of a pipeline rank that runs `ahead` forwards before its first backward."""
    lane = [("F", j) for j in range(min(ahead, slots))]
    for j in range(slots):
        lane.append(("B", j))
        if j + ahead < slots:
            lane.append(("F", j + ahead))
    return lane
