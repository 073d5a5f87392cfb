"""Effort: how much work planning a step may take, counted and never timed.

Every rank must compute the same plan, so work is counted in exchanges and a second stands for a
fixed number of them.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError

__all__ = ["Effort", "SearchBudget", "annealing_chances", "checked_effort", "search_budget"]

Effort = Literal["fast", "default"] | float
"""`"fast"`, `"default"`, or what a number of seconds on one core stands for."""

_PROPOSALS_A_SECOND = 9_000_000
"""Annealing proposals that a second of effort stands for, whatever the machine."""

_OPERATIONS_A_SECOND = 60_000_000
"""Forwards and backwards of pipelines that a second stands for."""

_EXCHANGES = 20_000_000
_FEWEST_SECONDS = 0.5
"""Moves and swaps that each local search and levelling of half a second or more may look at. Those
end by themselves, soon; less effort has as much less."""

_FAST_EXCHANGES = 500_000
"""Up to 2,048 samples (ten milliseconds); fewer for larger steps, by the cube: greedy placement
leaves them less to gain, and an exchange between two of their microbatches has more pairs to look
at."""

_DEFAULT_EXCHANGES = 750_000
_DEFAULT_PROPOSALS = 200_000
"""Likewise, within fifty milliseconds together with placement and bound."""

_LEVELLING = 3_000_000
"""Exchanges that a levelling may look at by default: ten milliseconds, seldom all of them."""

_PROPOSALS_OF_PAIR = 16
"""No more proposals by default than so many for each sample squared: a step of a few samples has
few exchanges, and settles at once."""

_PROPOSALS_OF_ITEM = 100
_LONGEST_FIRST_ROUND = 300_000
"""Proposals of the first round under an effort in seconds: a hundred for each sample."""

_PIPELINE_OPERATIONS = 3_000_000
"""Forwards and backwards simulated under `"fast"` and `"default"`: tens of milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchBudget:
    """Counted work for one step.

    Attributes:
        exchanges: Moves and swaps that each local search may look at.
        levelling: Moves and swaps that each levelling may look at; 0 for no levelling.
        proposals: Proposals of the annealing that follows, over all its rounds; 0: none.
        first_round: Proposals of its first round.
        operations: Forwards and backwards that the search on pipelines may simulate.
        good_enough: Step time over its bound at which the search stops.
    """

    exchanges: int
    levelling: int
    proposals: int
    first_round: int
    operations: int
    good_enough: float


def checked_effort(effort: object) -> Effort:
    """The effort in its plain form.

    Raises:
        ArgumentError: It is neither `"fast"`, `"default"` nor a finite number of seconds above 0.
    """
    if isinstance(effort, str) and effort in ("fast", "default"):
        return effort  # type: ignore[return-value]
    number = isinstance(effort, int | float) and not isinstance(effort, bool)
    if not number or not math.isfinite(effort) or effort <= 0:  # type: ignore[operator, arg-type]
        raise ArgumentError(
            f'effort is {effort!r}; allowed: "fast", "default", or a number of seconds above 0'
        )
    return float(effort)  # type: ignore[arg-type]


def search_budget(effort: Effort, num_items: int) -> SearchBudget:
    """Work that an effort stands for, for a step of `num_items` samples.

    Example:
        >>> search_budget("fast", 256).proposals, search_budget(2.0, 256).proposals
        (0, 18000000)
    """
    if not isinstance(effort, str):
        exchanges = math.ceil(_EXCHANGES * min(1.0, effort / _FEWEST_SECONDS))
        proposals = math.ceil(_PROPOSALS_A_SECOND * effort)
        return SearchBudget(
            exchanges=exchanges,
            levelling=exchanges,
            proposals=proposals,
            first_round=min(_PROPOSALS_OF_ITEM * num_items, _LONGEST_FIRST_ROUND, proposals),
            operations=math.ceil(_OPERATIONS_A_SECOND * effort),
            good_enough=1.0,
        )
    larger = max(num_items, 2048)
    default = effort == "default"
    exchanges = _DEFAULT_EXCHANGES if default else _FAST_EXCHANGES
    proposals = min(_DEFAULT_PROPOSALS * 2048**3 // larger**3, _PROPOSALS_OF_PAIR * num_items**2)
    return SearchBudget(
        exchanges=exchanges * 2048**3 // larger**3,
        levelling=_LEVELLING if default else 0,
        proposals=proposals if default else 0,
        first_round=proposals if default else 0,
        operations=_PIPELINE_OPERATIONS,
        good_enough=1.0003 if default else 1.001,
    )


@lru_cache(maxsize=1)
def annealing_chances() -> NDArray[np.int64]:
    """Quantiles of the exponential distribution times 1,024, in 1,024 equal steps, int64.

    None is near a half before rounding, so they are the same with any logarithm.
    """
    middles = [(index + 0.5) / 1024 for index in range(1024)]
    chances = np.array([round(-math.log(middle) * 1024) for middle in middles], np.int64)
    chances.flags.writeable = False
    return chances
