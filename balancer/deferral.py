"""In-step deferral: language work of some samples runs one microbatch after their encoder work.

Where encoders and the language model have pipeline stages of their own, each could run the
microbatches it likes best, but a sample's size in one says little of its size in the other. So a
microbatch may pass the language work of some of its samples on to the next one of its rank, which
then passes none on: pairs, as in Entrain (Jang and Chowdhury 2026, arXiv:2605.27918). The encoder
outputs are held for one microbatch more. The price: the encoders' backward of that microbatch
waits for the gradient of the next one too, which stalls `"1f1b"`, whose encoders run ahead by the
least; `"eager_1f1b"` leaves room. A plan is deferred only where it is then faster by simulation.

That is rare, for once places and order are searched there is little left to gain: beside the best
of all placements it was faster for 3 of 854 random steps of two to seven samples, by at most 4 %,
each under `"eager_1f1b"` with the encoder split over two stages; with one encoder stage or
`"1f1b"` for none; and for steps of the real traces by at most 0.5 %.
"""

import numpy as np

from balancer.candidates import Candidate
from balancer.kernels.pipeline_deferral_search import search_deferral
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_value import (
    amount_sides,
    deferral_schedule,
    in_flight_cap,
    rank_major,
    rank_members,
    slot_major,
)
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["defer_language"]

_LEAST_MOVES = 500


def defer_language(
    problem: StepProblem, topology: Topology, start: Candidate, num_slots: int, goal: int
) -> Candidate:
    """`start`, or a faster candidate in which microbatches pass language work on.

    Local search from `start`, over deferral, places and order together, until the quantised time
    is `goal`; O(1) simulations a rank for each of a fixed budget of moves.
    """
    num_cells = topology.dp_size * num_slots
    if num_slots < 2 or not np.bincount(start.cells, minlength=num_cells).all():
        return start
    size = (topology.dp_size, num_slots)
    cells = rank_major(start.cells, *size)
    late = np.zeros(problem.num_items, np.int64)
    schedule = pipeline_schedule(topology, num_slots)
    per_move = len(schedule.lane) + problem.costs.size // topology.dp_size
    value = search_deferral(
        cells, late, rank_members(cells, *size), (problem.costs, problem.constants),
        (problem.amounts, problem.caps, problem.padded, amount_sides(problem, topology)), *size,
        deferral_schedule(schedule, topology), in_flight_cap(topology), goal,
        max(_LEAST_MOVES, problem.budget.operations // per_move),
    )  # fmt: skip
    if value >= start.value:
        return start
    deferred = late.astype(np.bool_)
    name = f"{start.name}, deferred" if deferred.any() else start.name
    return Candidate(name, slot_major(cells, *size), int(value), deferred)
