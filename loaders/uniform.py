"""One shape for all microbatches of a step, as pipelines need it, and what that costs."""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from balancer.plan import Plan
from balancer.priced import PricedSamples

__all__ = ["padding_fraction", "step_shapes"]


def step_shapes(plan: Plan, costs: PricedSamples) -> list[tuple[int, int]]:
    """Rows and tokens a row, for each step of a plan, that hold any of the step's microbatches.

    `(1, tokens)` in the packed layout, `(samples, tokens)` in the padded one, rounded up as the
    plan's limits say.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([3.0, 1.0, 1.0], tokens=[3, 1, 1])
        >>> step_shapes(Plan.from_cells([[[[0], [1, 2]]]]), costs)
        [(1, 3)]
    """
    rows, tokens = _shapes(plan, costs)
    cells = plan.step_slots * plan.topology.dp_size
    return [(int(rows[a:b].max()), int(tokens[a:b].max())) for a, b in pairwise(cells)]


def padding_fraction(plan: Plan, costs: PricedSamples, *, uniform_shape: bool = False) -> float:
    """Share of the tensors' tokens that are padding, over all steps and ranks of a plan.

    Args:
        plan: Plan of any number of steps.
        costs: Costs of all samples.
        uniform_shape: Whether all microbatches of a step have one shape, that of `step_shapes`.

    Example:
        Microbatches of 3 and 2 tokens; in one shape a sixth of both is padding.

        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([3.0, 1.0, 1.0], tokens=[3, 1, 1])
        >>> plan = Plan.from_cells([[[[0], [1, 2]]]])
        >>> padding_fraction(plan, costs)
        0.0
        >>> round(padding_fraction(plan, costs, uniform_shape=True), 3)
        0.167
    """
    if uniform_shape:
        microbatches = np.diff(plan.step_slots) * plan.topology.dp_size
        areas = [rows * tokens for rows, tokens in step_shapes(plan, costs)]
        allocated = sum(area * int(count) for area, count in zip(areas, microbatches, strict=True))
    else:
        rows, tokens = _shapes(plan, costs)
        allocated = int((rows * tokens).sum())
    return 1 - int(costs.select(plan.sample_ids).tokens.sum()) / max(allocated, 1)


def _shapes(plan: Plan, costs: PricedSamples) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of every microbatch, and tokens a row, padding included."""
    limits = plan.topology.limits
    lengths = _rounded(costs.select(plan.sample_ids).tokens, limits.pad_sample_to)
    starts = plan.offsets[:-1]
    if limits.layout == "padded":
        return np.diff(plan.offsets), np.asarray(np.maximum.reduceat(lengths, starts))
    tokens = _rounded(np.add.reduceat(lengths, starts), limits.pad_microbatch_to)
    return np.ones_like(tokens), tokens


def _rounded(values: NDArray[np.int64], multiple: int) -> NDArray[np.int64]:
    return -(-values // multiple) * multiple
