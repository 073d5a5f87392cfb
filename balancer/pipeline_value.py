"""What an assignment takes on pipelines, in the integers of a StepProblem."""

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.pipeline import rank_peaks, rank_times
from balancer.kernels.pipeline_place import cell_loads
from balancer.pipeline_schedule import pipeline_schedule
from balancer.problem import StepProblem
from balancer.sorting import stable_order
from balancer.topology import Topology

__all__ = [
    "in_flight_cap",
    "peak_in_flight",
    "pipeline_value",
    "rank_major",
    "rank_members",
    "slot_major",
]

_ROOM = 8
"""Items by which a rank may outgrow the largest that there was before the search."""


def rank_major(cells: NDArray[np.int64], dp_size: int, num_slots: int) -> NDArray[np.int64]:
    """Cells `rank * num_slots + slot` from cells `slot * dp_size + rank`."""
    slot, rank = np.divmod(cells, dp_size)
    by_rank: NDArray[np.int64] = rank * num_slots + slot
    return by_rank


def slot_major(cells: NDArray[np.int64], dp_size: int, num_slots: int) -> NDArray[np.int64]:
    """Cells `slot * dp_size + rank` from cells `rank * num_slots + slot`."""
    rank, slot = np.divmod(cells, num_slots)
    by_slot: NDArray[np.int64] = slot * dp_size + rank
    return by_slot


def rank_members(
    cells: NDArray[np.int64], num_ranks: int, num_slots: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Items of each rank in equal parts of one list, how many they are, each item's place in its.

    For `balancer.kernels.pipeline_search`, from cells `rank * num_slots + slot`. Parts have room
    for some more items than the largest rank has.
    """
    ranks = cells // num_slots
    size = np.bincount(ranks, minlength=num_ranks)
    room = int(size.max()) + _ROOM
    order = stable_order(ranks)
    within = np.arange(len(cells)) - np.repeat(np.cumsum(size) - size, size)
    member, place = np.zeros(num_ranks * room, np.int64), np.empty(len(cells), np.int64)
    member[ranks[order] * room + within] = order
    place[order] = within
    return member, size, place


def pipeline_value(
    problem: StepProblem, topology: Topology, cells: NDArray[np.int64], num_slots: int
) -> int:
    """Quantised time of the slowest rank; `cells` are `slot * dp_size + rank`."""
    schedule = pipeline_schedule(topology, num_slots)
    by_rank = rank_major(cells, topology.dp_size, num_slots)
    loads = cell_loads(by_rank, problem.costs, problem.constants, topology.dp_size * num_slots)
    times = rank_times(
        loads, topology.dp_size, schedule.lane, schedule.after, schedule.duration, schedule.pp_size
    )
    return int(times.max())


def in_flight_cap(topology: Topology) -> int:
    """`max_in_flight` times the stages of a pipeline rank, as kernels count it; 0 for no cap."""
    return (topology.max_in_flight or 0) * topology.virtual_stages


def peak_in_flight(
    tokens: NDArray[np.int64], topology: Topology, num_slots: int
) -> NDArray[np.int64]:
    """Most tokens in flight on each rank, times the stages of a pipeline rank.

    `tokens` are those of each microbatch, int64 `(dp_size, num_slots)`, in order.
    """
    schedule = pipeline_schedule(topology, num_slots)
    peaks: NDArray[np.int64] = rank_peaks(
        np.ascontiguousarray(tokens).ravel(), topology.dp_size, schedule.lane, schedule.duration,
        schedule.num_stages, schedule.pp_size,
    )  # fmt: skip
    return peaks
