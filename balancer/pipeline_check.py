"""What makes a plan right on pipelines: tokens in flight, and language work passed on in pairs."""

import numpy as np
from numpy.typing import NDArray

from balancer.errors import PlanError
from balancer.limits import Limits, padded_to
from balancer.pipeline_value import peak_in_flight
from balancer.topology import Topology

__all__ = ["check_deferred", "check_in_flight", "in_flight_peaks", "tokens_at"]


def tokens_at(
    cells: NDArray[np.int64], num_cells: int, tokens: NDArray[np.int64], limits: Limits
) -> NDArray[np.int64]:
    """Tokens that each microbatch allocates, from the microbatch and the tokens of each sample."""
    taken = limits.taken("tokens", tokens)
    held = np.zeros(num_cells, np.int64)
    if limits.layout == "padded":
        np.maximum.at(held, cells, taken)
        held *= np.bincount(cells, minlength=num_cells)
    else:
        np.add.at(held, cells, taken)
    return padded_to(held, limits.pad_microbatch_to)


def in_flight_peaks(
    tokens: NDArray[np.int64], step_slots: NDArray[np.int64], topology: Topology
) -> NDArray[np.float64]:
    """Most tokens that a pipeline rank holds at once, float64 `(num_steps, dp_size)`.

    `tokens` are those of each microbatch, in the order of a plan's `offsets`.
    """
    steps = np.split(tokens.reshape(-1, topology.dp_size), step_slots[1:-1])
    peaks = [peak_in_flight(slots.T, topology, len(slots)) for slots in steps]
    return np.array(peaks).reshape(-1, topology.dp_size) / topology.virtual_stages


def check_in_flight(
    tokens: NDArray[np.int64],
    lone: NDArray[np.bool_],
    step_slots: NDArray[np.int64],
    topology: Topology,
) -> None:
    """Raise PlanError where a pipeline rank would hold more than `max_in_flight` at once.

    Oversize samples alone, at `lone`, count as `max_tokens`.
    """
    most, limit = topology.max_in_flight, topology.limits.max_tokens
    if most is None or limit is None:
        return
    tokens = np.where(lone, np.minimum(tokens, limit), tokens)
    peaks = in_flight_peaks(tokens, step_slots, topology)
    over = np.argwhere(peaks > most)
    if over.size:
        step, rank = over[0]
        raise PlanError(
            f"a pipeline rank of data-parallel rank {rank} holds {peaks[step, rank]:g} tokens at "
            f"once in step {step} of the plan, more than max_in_flight={most}"
        )


def check_deferred(
    deferred: NDArray[np.bool_],
    cells: NDArray[np.int64],
    step_slots: NDArray[np.int64],
    topology: Topology,
) -> None:
    """Raise PlanError unless language work is passed on in pairs, to the next microbatch only.

    `cells` are where the encoder work of each sample runs. Does nothing for a plan without any.
    """
    if not deferred.size:
        return
    if not topology.deferral:
        raise PlanError("the plan defers language work, its topology does not (deferral=False)")
    if deferred.shape != cells.shape:
        raise PlanError(
            f"the plan has {len(cells)} samples and says of {len(deferred)} if deferred"
        )
    dp_size, num_slots = topology.dp_size, int(step_slots[-1])
    hands = np.zeros((num_slots, dp_size), np.bool_)
    hands.ravel()[cells[deferred]] = True
    last = np.flatnonzero(hands[step_slots[1:] - 1].any(axis=1))
    if last.size:
        raise PlanError(f"language work is passed on out of step {last[0]} of the plan")
    both = np.argwhere(hands[1:] & hands[:-1])
    if both.size:
        slot, rank = both[0] + (1, 0)
        raise PlanError(
            f"microbatch {slot * dp_size + rank} of the plan gets language work and passes some on"
        )
    language = np.bincount(cells + dp_size * deferred, minlength=num_slots * dp_size)
    if (language == 0).any():
        raise PlanError(f"microbatch {np.argmin(language)} of the plan has no language work left")
