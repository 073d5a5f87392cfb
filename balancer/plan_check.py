"""What makes a plan right, as checks of its arrays: conservation, limits, no empty microbatch."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from balancer.errors import PlanError
from balancer.limits import Limits, padded_to
from balancer.priced import PricedSamples

__all__ = ["cell_amounts", "check_conservation", "check_limits", "check_offsets"]


def check_offsets(offsets: NDArray[np.int64], num_placed: int, num_cells: int) -> None:
    """Raise PlanError unless there are `num_cells` microbatches and none is empty."""
    if len(offsets) != num_cells + 1 or offsets[-1] != num_placed:
        raise PlanError(
            f"the plan has {len(offsets) - 1} microbatches of {offsets[-1]} samples, its steps "
            f"need {num_cells} of {num_placed}: some rank would run another number than the others"
        )
    empty = np.flatnonzero(np.diff(offsets) <= 0)
    if empty.size:
        raise PlanError(f"microbatch {empty[0]} of the plan is empty")


def check_conservation(
    real_ids: NDArray[np.int64],
    dropped: NDArray[np.int64],
    expected_ids: NDArray[np.int64] | None,
) -> None:
    """Raise PlanError unless every expected id is delivered once or dropped, and no other is."""
    ids, counts = np.unique(np.concatenate([real_ids, dropped]), return_counts=True)
    if (counts > 1).any():
        raise PlanError(f"sample {ids[counts > 1][0]} is delivered twice, or delivered and dropped")
    if expected_ids is not None:
        expected = np.unique(expected_ids)
        lost, foreign = np.setdiff1d(expected, ids), np.setdiff1d(ids, expected)
        if lost.size:
            raise PlanError(f"sample {lost[0]} is neither delivered nor reported as dropped")
        if foreign.size:
            raise PlanError(f"sample {foreign[0]} is in the plan but was not to be planned")


def check_limits(
    amounts: dict[str, NDArray[np.int64]], lone: NDArray[np.bool_], rank_limits: tuple[Limits, ...]
) -> None:
    """Raise PlanError where a microbatch exceeds a limit of its rank, unless `lone` says it may.

    Microbatches stand rank after rank, again and again; `rank_limits` may be of one for all.
    """
    for name in rank_limits[0].given:
        most = np.resize([each.given[name] for each in rank_limits], len(lone))
        over = np.flatnonzero((amounts[name] > most) & ~lone)
        if over.size:
            limit = most[over[0]]
            raise PlanError(
                f"microbatch {over[0]} of the plan holds {amounts[name][over[0]]} {name}, more "
                f"than max_{name}={limit}"
            )


def cell_amounts(
    sample_ids: NDArray[np.int64],
    offsets: NDArray[np.int64],
    limits: Limits,
    costs: PricedSamples,
    added: Mapping[str, NDArray[np.int64]] = MappingProxyType({}),
) -> dict[str, NDArray[np.int64]]:
    """What each microbatch holds of every amount a limit can be set on; see `Plan.amounts`.

    `added` is what it holds of some amounts beside its samples.
    """
    rows = costs.select(sample_ids)
    columns = {
        "tokens": limits.taken("tokens", rows.tokens),
        "patches": rows.patches,
        "images": rows.images,
        "samples": np.ones(sample_ids.shape, np.int64),
    }
    if not len(sample_ids):
        return {name: np.zeros(0, np.int64) for name in columns}
    starts = offsets[:-1]
    amounts = {name: np.add.reduceat(column, starts) for name, column in columns.items()}
    if limits.layout == "padded":
        amounts["tokens"] = np.diff(offsets) * np.maximum.reduceat(columns["tokens"], starts)
    for name, more in added.items():
        amounts[name] = amounts[name] + more
    amounts["tokens"] = padded_to(amounts["tokens"], limits.pad_microbatch_to)
    return amounts
