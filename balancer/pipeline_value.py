"""What an assignment takes on pipelines, in the integers of a StepProblem."""

import numpy as np
from numpy.typing import NDArray

from balancer.kernels.pipeline import rank_peaks, rank_times
from balancer.kernels.pipeline_place import cell_loads
from balancer.pipeline_schedule import PipelineSchedule, pipeline_schedule
from balancer.problem import StepProblem
from balancer.sorting import stable_order
from balancer.stage_roles import language_stages
from balancer.topology import Topology

__all__ = [
    "amount_sides",
    "deferral_schedule",
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
    loads = cell_loads(
        by_rank, problem.costs, problem.constants, topology.dp_size * num_slots, num_slots,
        problem.kernel_ranks(1),
    )  # fmt: skip
    times = rank_times(
        loads, topology.dp_size, schedule.lane, schedule.after, schedule.duration, schedule.pp_size
    )
    return int(times.max())


def amount_sides(problem: StepProblem, topology: Topology) -> NDArray[np.int64]:
    """Where each amount counts where language work may be passed on, as kernels know it.

    Tokens with the language work (1), patches and images with the encoder work (0), samples with
    both (2).
    """
    named = [int(name == "tokens") for name in topology.limits.given if name != "samples"]
    return np.array(named + [2] * (problem.caps.size - len(named)), np.int64)


def deferral_schedule(
    schedule: PipelineSchedule, topology: Topology
) -> tuple[NDArray[np.int64] | int, ...]:
    """The schedule as `balancer.kernels.pipeline_deferral` takes it."""
    return (
        schedule.lane, schedule.after, schedule.passed_after, schedule.duration,
        schedule.num_stages, schedule.pp_size, language_stages(topology.stages).start,
    )  # fmt: skip


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
