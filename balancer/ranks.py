"""How data-parallel ranks differ: their speeds, as whole numbers, and their limits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.limits import Limits

__all__ = [
    "Speeds",
    "UnequalRanks",
    "checked_speeds",
    "merged_limits",
    "slowness",
    "unequal_ranks",
]

Speeds = tuple[float, ...] | Mapping[str, tuple[float, ...]]

_BITS = 20
"""Bits of the largest slowness: a speed is used to one part in 2**21 of the slowest's."""

_MOST_APART = 1024
"""Most by which the fastest may outrun the slowest; every bit of it is one less for the costs."""


def checked_speeds(
    speeds: object, dp_size: int
) -> tuple[float, ...] | dict[str, tuple[float, ...]]:
    """Speeds as a tuple of floats, one a rank, or a dict of such tuples by module; empty for none.

    Raises:
        ArgumentError: A speed is no finite number above 0, their number is not `dp_size`, or the
            fastest is more than 1,024 times as fast as the slowest.
    """
    if isinstance(speeds, Mapping):
        named = {
            name: _rank_speeds(f"[{name!r}]", speeds[name], dp_size) for name in sorted(speeds)
        }
        _check_apart([speed for row in named.values() for speed in row])
        return named
    if speeds is None or (isinstance(speeds, tuple | list) and not speeds):
        return ()
    row = _rank_speeds("", speeds, dp_size)
    _check_apart(row)
    return row


def _rank_speeds(which: str, speeds: object, dp_size: int) -> tuple[float, ...]:
    name = f"rank_speeds{which}"
    if isinstance(speeds, str) or not hasattr(speeds, "__iter__"):
        raise ArgumentError(f"{name} is {speeds!r}; allowed: one number above 0 for each rank")
    row = tuple(speeds)
    if len(row) != dp_size:
        raise ArgumentError(
            f"{name} has {len(row)} speeds for dp_size={dp_size} ranks; give one for each"
        )
    for rank, speed in enumerate(row):
        number = isinstance(speed, int | float | np.number) and not isinstance(speed, bool)
        if not number or not math.isfinite(speed) or speed <= 0:
            raise ArgumentError(
                f"{name} is {speed!r} for rank {rank}; allowed: finite numbers above 0 (leave out "
                "a rank that does not run, by a smaller dp_size)"
            )
    return tuple(float(speed) for speed in row)


def _check_apart(speeds: list[float] | tuple[float, ...]) -> None:
    if speeds and max(speeds) > _MOST_APART * min(speeds):
        raise ArgumentError(
            f"rank_speeds reach from {min(speeds):g} to {max(speeds):g}; the fastest may be at "
            f"most {_MOST_APART} times as fast as the slowest"
        )


def merged_limits(
    limits: Limits, rank_limits: object, dp_size: int
) -> tuple[Limits, tuple[Limits, ...]]:
    """The loosest limits of any rank, and those of each: its own and `limits`, the lower of both.

    Raises:
        ArgumentError: There is not one `Limits` a rank, or they differ in what is limited or in
            anything but how much; or under the padded layout in `max_tokens`.
    """
    if rank_limits is None or rank_limits in ((), []):
        return limits, ()
    given = tuple(rank_limits) if isinstance(rank_limits, tuple | list) else ()
    if len(given) != dp_size or not all(isinstance(each, Limits) for each in given):
        raise ArgumentError(
            f"rank_limits is {rank_limits!r}; allowed: one Limits object for each of dp_size="
            f"{dp_size} ranks"
        )
    common = [limits] if limits != Limits() else []
    for each in (*given, *common):
        if set(each.given) != set(given[0].given) and each is not limits:
            raise ArgumentError(
                f"rank_limits limit {sorted(given[0].given)} on rank 0 and {sorted(each.given)} "
                "on another; limit the same amounts on all ranks"
            )
        for name in ("layout", "pad_sample_to", "pad_microbatch_to"):
            if getattr(each, name) != getattr(given[0], name):
                raise ArgumentError(
                    f"rank_limits (with limits) have {name}={getattr(given[0], name)!r} and "
                    f"{getattr(each, name)!r}; give the same for all ranks"
                )
    merged = tuple(_lower(each, limits) for each in given)
    loosest: dict[str, Any] = {
        f"max_{name}": max(each.given[name] for each in merged) for name in merged[0].given
    }
    if merged[0].layout == "padded" and len({each.max_tokens for each in merged}) > 1:
        raise ArgumentError(
            'rank_limits differ in max_tokens under layout="padded"; give all ranks the same '
            'max_tokens, or pass layout="packed"'
        )
    return replace(merged[0], **loosest), merged


def _lower(own: Limits, common: Limits) -> Limits:
    both: dict[str, Any] = {
        f"max_{name}": min(own.given.get(name, limit), limit)
        for name, limit in common.given.items()
    }
    return replace(own, **both)


def slowness(
    speeds: Speeds, dp_size: int, modules: tuple[str, ...]
) -> tuple[NDArray[np.int64], float]:
    """What a unit of cost takes on each rank in each module, int64 `(dp_size, num_modules)`.

    And the unit of these numbers: cost times slowness times unit is a time. The slowest rank has
    at most 2**20. Without speeds all is 1.

    Raises:
        ArgumentError: Speeds leave a module out or name one that there is not.

    Example:
        >>> slowness((1.0, 1.0, 0.5, 0.25), 4, ("language",))[0].tolist()
        [[1], [1], [2], [4]]
    """
    if not speeds:
        return np.ones((dp_size, len(modules)), np.int64), 1.0
    if isinstance(speeds, Mapping):
        if set(speeds) != set(modules):
            raise ArgumentError(
                f"rank_speeds names the modules {', '.join(map(repr, sorted(speeds)))}; the costs "
                f"have {', '.join(map(repr, modules))}: give the speeds of each"
            )
        rows = np.array([speeds[name] for name in modules]).T
    else:
        rows = np.repeat(np.array(speeds)[:, None], len(modules), axis=1)
    slowest = float(rows.min())
    whole = np.rint(2.0**_BITS * slowest / rows).astype(np.int64)
    common = int(np.gcd.reduce(whole, axis=None))
    return whole // common, common * 2.0**-_BITS / slowest


@dataclass(frozen=True, slots=True, kw_only=True)
class UnequalRanks:
    """How the ranks of a step differ, in the whole numbers that kernels work on.

    Attributes:
        slowness: What a unit of cost takes, int64 `(dp_size, num_modules)`, modules without any
            cost left out.
        reserve: How far a rank's caps lie below the loosest, int64 `(dp_size, num_caps)`.
    """

    slowness: NDArray[np.int64]
    reserve: NDArray[np.int64]

    def slow(self, num_columns: int) -> NDArray[np.int64]:
        """Slowness in each of `num_columns` cost columns, `(dp_size, num_columns)`.

        Columns that are no modules take the rank's mean, which is exact unless modules differ.
        """
        if num_columns == self.slowness.shape[1]:
            return self.slowness
        mean = np.rint(self.slowness.mean(axis=1)).astype(np.int64)
        return np.repeat(mean[:, None], num_columns, axis=1)

    def kernel(self, num_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`ranks` of `balancer.kernels.ranks`."""
        return self.slow(num_columns).ravel(), self.reserve.ravel()


def unequal_ranks(
    slow: NDArray[np.int64], limits: Limits, rank_limits: tuple[Limits, ...], num_caps: int
) -> UnequalRanks | None:
    """How ranks differ, or `None` where they do not.

    Args:
        slow: Of `slowness`.
        limits: The loosest limits of any rank.
        rank_limits: Limits of each rank, or none.
        num_caps: Caps of the step: of the amounts that are limited, samples last, and any more
            that are the same for all ranks.
    """
    names = [name for name in limits.room if name != "samples"]
    names += ["samples"] if limits.max_samples is not None else []
    reserve = np.zeros((len(slow), num_caps), np.int64)
    for rank, own in enumerate(rank_limits):
        reserve[rank, : len(names)] = [limits.room[name] - own.room[name] for name in names]
    if (slow == 1).all() and not reserve.any():
        return None
    return UnequalRanks(slowness=slow, reserve=reserve)
