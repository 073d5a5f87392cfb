"""Plans in which no rank skips a module (an encoder) that others run at the same time.

Under FSDP, ZeRO-3, tensor or expert parallelism ranks meet inside every module of a microbatch, so
microbatches that run at the same time must all have work in it, or none. Under the step barrier
ranks meet in the backward of the last microbatch alone, and there DDP waits for every module.
What there are not enough samples for is left to dummies (`balancer.modalities.missing_modules`).

- `"spread"`: each microbatch of each rank has a sample of each module; with too few samples of one,
  those of as many slots as they can fill, and no other slot has any.
- `"uniform"`: a slot has a module on all ranks or on none; in how many slots is a matter of time.

The samples are placed as ever, exchanged until every microbatch has what it needs, then refined by
exchanges that keep it so. Where a fault is left in a step of few samples, an exact search looks for
any assignment without one.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from balancer.bounds import step_bound
from balancer.candidates import (
    Candidate,
    best_placement,
    fewest_slots,
    fewest_that_fit,
    keeps_limits,
    quantised_time,
    refined,
)
from balancer.covers import Cover, kind_bits
from balancer.kernels.cover_exact import covering_cells
from balancer.problem import StepProblem
from balancer.topology import Topology

__all__ = ["solve_synced"]

_NEAR = 1.03
"""Step time over its bound at which no fewer slots are tried for a module."""

_MOST_SEARCHED = 64
"""Samples of a step that the exact search is tried for."""

_MAX_PLACES = 200_000
"""Places that it tries (some ten milliseconds)."""


def solve_synced(
    problem: StepProblem,
    topology: Topology,
    step: int,
    given: Candidate,
    working: NDArray[np.bool_],
) -> tuple[Candidate, int, int, str]:
    """As `balancer.candidates.solve`, for `modality_sync` of `"spread"` or `"uniform"`.

    `working` tells which modules each item has work in, `(num_items, num_modules)`. Of all plans
    that keep the limits, those whose ranks skip the fewest modules come first, then the fastest;
    the given order is taken where it is as good in the former and faster.
    """
    bound, binds = step_bound(problem, topology)
    first = max(topology.num_microbatches, fewest_slots(problem, topology.dp_size))
    some = working.any(axis=0) & ~working.all(axis=0)
    kinds, num_kinds = kind_bits(working[:, some]), int(some.sum())

    def best_of(problem: StepProblem, num_slots: int) -> Candidate | None:
        return _best_synced(problem, topology, num_slots, bound, given, kinds, num_kinds)

    best, num_slots = fewest_that_fit(problem, topology, step, first, 1, best_of)
    return best, num_slots, bound, binds


def _best_synced(
    problem: StepProblem,
    topology: Topology,
    num_slots: int,
    bound: int,
    given: Candidate,
    kinds: NDArray[np.int64],
    num_kinds: int,
) -> Candidate | None:
    """The best candidate over all covers tried; None where the limits cannot be kept."""

    def rank(candidate: Candidate) -> tuple[int, int, int]:
        faults = _faults(candidate.cells, kinds, num_kinds, topology, num_slots)
        return (*faults, candidate.value)

    candidates = list[Candidate]()
    for cover in _covers(kinds, num_kinds, topology, num_slots):
        found = best_placement(problem, topology, num_slots, bound, cover)
        candidates += [found] if found is not None else []
        if found is not None and not rank(found)[0] and found.value <= bound * _NEAR:
            break
    if not candidates:
        return None
    if rank(min(candidates, key=rank))[0] and problem.num_items <= _MOST_SEARCHED:
        candidates += _searched(problem, topology, num_slots, bound, kinds, num_kinds)
    if num_slots == topology.num_microbatches and keeps_limits(problem, topology, given.cells):
        candidates.append(given)
    return min(candidates, key=rank)


def _covers(
    kinds: NDArray[np.int64], num_kinds: int, topology: Topology, num_slots: int
) -> Iterator[Cover]:
    """Which slots have which modules: as many slots as samples can fill, then halves of that."""
    dp_size = topology.dp_size
    most = np.array([_bit(kinds, k).sum() // dp_size for k in range(num_kinds)], np.int64)
    most = np.clip(most, 1, num_slots)
    seen = set()
    while True:
        seen.add(tuple(most))
        needed = np.zeros((num_slots, dp_size), np.int64)
        barred = np.zeros((num_slots, dp_size), np.int64)
        for k in range(num_kinds):
            if topology.barrier == "step":
                needed[-1] |= 1 << k
            else:
                needed[: most[k]] |= 1 << k
                barred[most[k] :] |= 1 << k
        yield Cover(kinds=kinds, num_kinds=num_kinds, needed=needed.ravel(), barred=barred.ravel())
        most = np.maximum(most // 2, 1)
        fixed = topology.barrier == "step" or topology.modality_sync == "spread"
        if fixed or tuple(most) in seen:
            return


def _faults(
    cells: NDArray[np.int64],
    kinds: NDArray[np.int64],
    num_kinds: int,
    topology: Topology,
    num_slots: int,
) -> tuple[int, int]:
    """Modules that ranks skip while others run them; those that microbatches lack, if spread."""
    has = np.zeros((num_slots, topology.dp_size), np.int64)
    np.bitwise_or.at(has.reshape(-1), cells, kinds)
    skipped, lacked = 0, 0
    for k in range(num_kinds):
        users = _bit(has, k)
        lacked += users.size - int(users.sum())
        if topology.barrier == "step":
            skipped += topology.dp_size - int(users[-1].sum())
        else:
            skipped += int((users.any(axis=1, keepdims=True) & ~users).sum())
    spread = topology.modality_sync == "spread" and topology.barrier == "microbatch"
    return skipped, lacked if spread else 0


def _searched(
    problem: StepProblem,
    topology: Topology,
    num_slots: int,
    bound: int,
    kinds: NDArray[np.int64],
    num_kinds: int,
) -> list[Candidate]:
    """The assignment of an exact search, if any, refined as far as its own cover allows."""
    size = (topology.dp_size, num_slots)
    first_slot = num_slots - 1 if topology.barrier == "step" else 0
    amounts = problem.amounts.reshape(problem.num_items, problem.caps.size)
    tightest = (amounts / problem.caps).max(axis=1, initial=0.0)
    order = np.argsort(-tightest, kind="stable")
    everywhere = (1 << num_kinds) - 1
    tries = [everywhere] if topology.barrier == "step" else [everywhere, 0]
    if topology.modality_sync == "uniform":
        tries = tries[-1:]
    for in_all in tries:
        cells = covering_cells(
            order, kinds, num_kinds, in_all, first_slot, problem.amounts, problem.caps,
            problem.padded, *size, _MAX_PLACES, problem.kernel_ranks(1),
        )  # fmt: skip
        if len(cells) and cells.min() >= 0:
            cover = _cover_of(cells, kinds, num_kinds, first_slot, *size)
            refined(problem, topology, cells, num_slots, bound, cover)
            return [Candidate("exact", cells, quantised_time(problem, topology, cells, num_slots))]
    return []


def _cover_of(
    cells: NDArray[np.int64],
    kinds: NDArray[np.int64],
    num_kinds: int,
    first_slot: int,
    dp_size: int,
    num_slots: int,
) -> Cover:
    """The cover that an assignment keeps: what its slots have, and nothing else."""
    has = np.zeros(dp_size * num_slots, np.int64)
    np.bitwise_or.at(has, cells, kinds)
    has[: first_slot * dp_size] = 0
    barred = (1 << num_kinds) - 1 & ~has if first_slot == 0 else np.zeros_like(has)
    return Cover(kinds=kinds, num_kinds=num_kinds, needed=has, barred=barred)


def _bit(values: NDArray[np.int64], k: int) -> NDArray[np.bool_]:
    return (values >> np.int64(k) & 1).astype(np.bool_)
