"""Microbatches of a step with their facts: all that its plan knows before a sample is read."""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.modalities import missing_modules
from balancer.pipeline import cell_times
from balancer.plan import Flag, Plan
from balancer.priced import PricedSamples
from loaders.microbatch import Microbatch, MicrobatchFacts, Substitute
from loaders.substitutes import Substitutes
from loaders.uniform import step_shapes

__all__ = ["step_microbatches"]


def step_microbatches(
    plan: Plan,
    costs: PricedSamples,
    *,
    dp_ranks: Iterable[int],
    substitutes: Substitutes | None = None,
    moved_steps: NDArray[np.int64] | None = None,
) -> Iterator[Microbatch]:
    """Microbatches of a plan of one step, those of all `dp_ranks` for one index after another.

    Args:
        plan: Plan of one step.
        costs: Costs of all samples.
        dp_ranks: Ranks whose microbatches are wanted, in this order.
        substitutes: Names samples that may be read in place of others; not needed where none is.
        moved_steps: Steps that each of the plan's samples moved within its window, if any may.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values([3.0, 1.0, 1.0], tokens=[3, 1, 0])
        >>> plan = Plan.from_cells([[[[0], [1, 2]]]])
        >>> [batch] = step_microbatches(plan, costs, dp_ranks=[1])
        >>> facts = batch.facts
        >>> facts.step_target_tokens, facts.step_samples, facts.step_target_samples
        (4, 3, 2)
        >>> facts.rank_target_tokens, facts.rank_samples, facts.step_shape
        (1, 2, (1, 3))
        >>> facts.imbalance, facts.tokens
        (1.2, 1)
    """
    dp_size, num_microbatches = plan.topology.dp_size, plan.num_microbatches(0)
    rows = costs.select(plan.sample_ids)
    real = plan.flags != int(Flag.FILLER)
    targets = np.where(real, rows.target_tokens, 0)
    rank_of_sample = plan.cell_of_sample() % dp_size
    rank_targets = _sums(targets, rank_of_sample, dp_size)
    rank_samples = _sums(real, rank_of_sample, dp_size)
    of_step: dict[str, Any] = {
        "epoch": plan.epoch,
        "step": plan.first_step,
        "num_microbatches": num_microbatches,
        "dp_size": dp_size,
        "step_target_tokens": int(targets.sum()),
        "step_samples": int(real.sum()),
        "step_target_samples": int((targets > 0).sum()),
        "step_shape": step_shapes(plan, costs)[0],
    }
    missing = missing_modules(plan, costs)
    synced, dummies = plan.topology.modality_sync is not None, plan.topology.limits.dummies
    ranks = tuple(dp_ranks)
    imbalances = _imbalances(plan, costs)
    amounts = plan.amounts(costs)
    tokens = np.add.reduceat(rows.tokens, plan.offsets[:-1])
    limits = plan.topology.limits.given
    stand_ins = iter(_substitutes(plan, ranks, substitutes))
    for index in range(num_microbatches):
        for dp_rank in ranks:
            cell = index * dp_size + dp_rank
            place = slice(plan.offsets[cell], plan.offsets[cell + 1])
            ids = plan.sample_ids[place].tolist()
            lacking = tuple(costs.modules[k] for k in np.flatnonzero(missing[cell]))
            facts = MicrobatchFacts(
                **of_step,
                index=index,
                dp_rank=dp_rank,
                sample_ids=tuple(ids),
                flags=tuple(plan.flags[place].tolist()),
                target_tokens=tuple(targets[place].tolist()),
                rank_target_tokens=int(rank_targets[dp_rank]),
                rank_samples=int(rank_samples[dp_rank]),
                missing_modules=lacking,
                needs_dummy={name: dummies.get(name, {}) for name in lacking if synced},
                passed_on_ids=_passed_on(plan, cell),
                arriving_ids=_passed_on(plan, cell - dp_size) if index else (),
                imbalance=imbalances[index],
                tokens=int(tokens[cell]),
                allocated_tokens=int(amounts["tokens"][cell]),
                fill={name: int(amounts[name][cell]) / limit for name, limit in limits.items()},
                moved_steps=() if moved_steps is None else tuple(moved_steps[place].tolist()),
                substitutes=next(stand_ins, ()),
            )
            yield Microbatch(ids, facts)


def _imbalances(plan: Plan, costs: PricedSamples) -> list[float | None]:
    """Max over mean of the ranks' cost, at each index."""
    loads = cell_times(plan, costs).sum(axis=1).reshape(-1, plan.topology.dp_size)
    means, most = loads.mean(axis=1).tolist(), loads.max(axis=1).tolist()
    return [high / mean if mean > 0 else None for high, mean in zip(most, means, strict=True)]


def _substitutes(
    plan: Plan, ranks: tuple[int, ...], substitutes: Substitutes | None
) -> list[tuple[tuple[Substitute, ...], ...]]:
    """Substitutes of the samples of each microbatch, all sought at once."""
    if substitutes is None:
        return []
    cells = np.arange(len(plan.offsets) - 1).reshape(-1, plan.topology.dp_size)[:, list(ranks)]
    ids = [plan.sample_ids[plan.offsets[c] : plan.offsets[c + 1]] for c in cells.ravel()]
    found = substitutes.of(np.concatenate(ids))
    ends = np.cumsum([0, *map(len, ids)]).tolist()
    return [found[a:b] for a, b in pairwise(ends)]


def _passed_on(plan: Plan, cell: int) -> tuple[int, ...]:
    """Samples of a microbatch whose language work runs in the next."""
    if not plan.deferred.size:
        return ()
    place = slice(plan.offsets[cell], plan.offsets[cell + 1])
    return tuple(plan.sample_ids[place][plan.deferred[place]].tolist())


def _sums(values: NDArray[np.generic], groups: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Sum of the values of each group; sums below 2**53 are exact."""
    return np.bincount(groups, weights=values, minlength=count).astype(np.int64)
