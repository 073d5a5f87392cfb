"""Which share of each module runs at each stage of a model that is split into a pipeline."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError
from balancer.topology import Topology, check_count

__all__ = ["encoder_first", "stage_shares"]


def encoder_first(
    num_stages: int, *, encoders: Sequence[str] = ("vision",), language: str = "language"
) -> tuple[dict[str, float], ...]:
    """Stages with the encoders on the first and the language model split over the others.

    Args:
        num_stages: All stages, at least 2.
        encoders: Modules of the first stage.
        language: The module that is split.

    Raises:
        ArgumentError: `num_stages` is no whole number of at least 2.

    Example:
        >>> encoder_first(3)
        ({'vision': 1.0}, {'language': 1.0}, {'language': 1.0})
    """
    check_count("num_stages", num_stages, least=2)
    first = dict.fromkeys(encoders, 1.0)
    return (first, *({language: 1.0} for _ in range(num_stages - 1)))


def stage_shares(topology: Topology, modules: Sequence[str]) -> NDArray[np.float64]:
    """Share of each module at each stage, float64 `(num_stages, num_modules)`; columns sum to 1.

    Raises:
        ArgumentError: `topology.stages` leave a module out or name one that there is not.

    Example:
        >>> stages = encoder_first(3)
        >>> topology = Topology(dp_size=1, barrier="pipeline", pp_size=3, stages=stages)
        >>> stage_shares(topology, ("vision", "language")).tolist()
        [[1.0, 0.0], [0.0, 0.5], [0.0, 0.5]]
    """
    num_stages = topology.num_stages
    if not topology.stages:
        return np.full((num_stages, len(modules)), 1.0 / num_stages)
    named = {name for stage in topology.stages for name in stage}
    if named != set(modules):
        wrong = "leave out" if set(modules) - named else "name"
        which = sorted(set(modules) - named) or sorted(named - set(modules))
        raise ArgumentError(
            f"stages {wrong} {', '.join(map(repr, which))}; the costs have the modules "
            f"{', '.join(map(repr, modules))}: give each a weight at some stage"
        )
    weights = np.array([[stage.get(name, 0.0) for name in modules] for stage in topology.stages])
    shares: NDArray[np.float64] = weights / weights.sum(axis=0)
    return shares
