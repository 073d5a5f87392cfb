"""Samples, or groups, that no microbatch can hold: refused, left out, or run alone."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from balancer.errors import CapacityError
from balancer.groups import members_of
from balancer.priced import PricedSamples
from balancer.problem import over_all_limits
from balancer.topology import Topology

__all__ = ["Oversize", "oversize_ids"]

Oversize = Literal["error", "drop", "alone"]


def oversize_ids(
    costs: PricedSamples,
    topology: Topology,
    oversize: Oversize,
    *,
    sample_ids: NDArray[np.int64] | None,
) -> NDArray[np.int64]:
    """Ids, ascending, of the samples (all, or those given) that exceed a limit by themselves.

    Groups where rows are groups (`balancer.groups`); the error then names their samples.

    Raises:
        CapacityError: There are some and `oversize` is `"error"`.
    """
    over = over_all_limits(costs, topology, sample_ids)
    ids = np.unique(np.concatenate([np.zeros(0, np.int64), *over.values()]))
    if ids.size and oversize == "error":
        name, at_fault = next(iter(over.items()))
        named = _named(members_of(costs, at_fault[:1]))
        if name == "all at once":
            raise CapacityError(
                f"{named} keeps all limits of none of the rank_limits; raise those of "
                'one rank for it, or pass oversize="drop" or "alone"',
                sample_ids=members_of(costs, ids).tolist(),
            )
        limits, sizes = topology.limits, getattr(costs.select(at_fault[:1]), name)
        size, taken = sizes[0], limits.taken(name, sizes)[0]
        rounded = f" (rounded up to {taken})" if taken != size else ""
        room = limits.room[name]
        most = f" (room for {room})" if room != limits.given[name] else ""
        more = f" (and {ids.size - 1} more are over a limit)" if ids.size > 1 else ""
        raise CapacityError(
            f"{named} has {size} {name}{rounded}, more than max_{name}="
            f"{limits.given[name]}{most}{more}; raise max_{name} to "
            f"{limits.enough(name, np.array([costs.largest(name)]))}, or pass "
            'oversize="drop" or "alone"',
            sample_ids=members_of(costs, ids).tolist(),
        )
    return ids


def _named(sample_ids: NDArray[np.int64]) -> str:
    """What an error calls the samples that a row stands for."""
    if len(sample_ids) == 1:
        return f"sample {sample_ids[0]}"
    return f"the group of samples {', '.join(map(str, sample_ids))}"
