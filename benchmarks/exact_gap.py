"""Planned step time over the best of all plans, on instances small enough to try every plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.errors import CapacityError
from balancer.limits import Limits
from balancer.pipeline import step_times
from balancer.topology import Topology
from benchmarks.exact_times import all_times
from benchmarks.measure import Record
from benchmarks.planners import PlannerChoice

__all__ = ["assignments", "draw_instance", "measure_exact_gap", "optimum"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gaps:
    """Gaps of one planner on the instances of one topology; `nan` where it found no plan."""

    planned: NDArray[np.float64]
    bounds: NDArray[np.float64]


def draw_instance(
    seed: int, topology: Topology, num_samples: int, *, limited: bool
) -> tuple[Costs, Topology]:
    """Samples of two modules, some without vision, and the topology, with a token limit if asked.

    The limit is a tenth above the least that any plan needs, so that there is always a plan.
    """
    rng = np.random.default_rng(seed)
    works = np.ceil(100 * rng.lognormal(sigma=0.8, size=(num_samples, 2)))
    works[rng.random(num_samples) < 0.25, 0] = 0
    costs = Costs.from_values(
        works, modules=("vision", "language"), tokens=works[:, 1].astype(np.int64)
    )
    if not limited:
        return costs, topology
    most = _held(costs, assignments(num_samples, topology)).max(axis=1)
    limits = Limits(max_tokens=int(most.min() * 1.1))
    return costs, replace(topology, limits=limits, max_microbatches=topology.num_microbatches)


def optimum(costs: Costs, topology: Topology) -> float:
    """Least step time of all plans that leave no microbatch empty and keep the token limit."""
    cells = assignments(len(costs), topology)
    if topology.limits.max_tokens is not None:
        cells = cells[_held(costs, cells).max(axis=1) <= topology.limits.max_tokens]
    return float(all_times(cells, costs, topology).min())


@lru_cache(maxsize=8)
def _products(num_samples: int, num_cells: int) -> NDArray[np.int8]:
    rows = np.array(list(product(range(num_cells), repeat=num_samples)), np.int8)
    used = np.zeros((len(rows), num_cells), bool)
    np.put_along_axis(used, rows.astype(np.int64), True, axis=1)
    return rows[used.all(axis=1)]


def assignments(num_samples: int, topology: Topology) -> NDArray[np.int8]:
    """Every assignment of samples to cells `slot * dp_size + rank` that leaves none empty."""
    return _products(num_samples, topology.dp_size * topology.num_microbatches)


def _held(costs: Costs, cells: NDArray[np.int8]) -> NDArray[np.int64]:
    """Tokens of each cell in each assignment."""
    num_cells = int(cells.max()) + 1
    return np.stack([(cells == cell) @ costs.tokens for cell in range(num_cells)], axis=1)


def measure_exact_gap(
    *,
    name: str,
    planners: Mapping[str, PlannerChoice],
    topologies: Mapping[str, Topology],
    num_samples: Sequence[int],
    num_instances: int,
    quick_instances: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Gap of each planner to the optimum: median, 95th percentile, worst, share of optimal plans.

    Every assignment and order is tried for the optimum, by an evaluation of its own, on random
    instances whose sizes take turns. Baselines, which know no limits, take part without limits.

    Args:
        name: Name of the experiment in the records.
        planners: Planner choices by name.
        topologies: Topologies by name.
        num_samples: Samples of an instance.
        num_instances: Instances of each topology, with and without a token limit.
        quick_instances: The same in the quick form.
        seed: Seed of the first instance.
        quick: Few instances, to see that it runs.
    """
    count = quick_instances if quick else num_instances
    records: list[Record] = []
    for topology in topologies.values():
        for limited in (False, True):
            drawn = [
                draw_instance(
                    seed + k, topology, num_samples[k % len(num_samples)], limited=limited
                )
                for k in range(count)
            ]
            best = np.array([optimum(*instance) for instance in drawn])
            for key, planner in planners.items():
                if limited and key != "balanced":
                    continue
                gaps = _gaps(planner, drawn, best)
                data = "random_limited" if limited else "random"
                records += _records(name, data, planner.name, topology, gaps)
    return records


def _gaps(
    planner: PlannerChoice, drawn: Sequence[tuple[Costs, Topology]], best: NDArray[np.float64]
) -> _Gaps:
    planned, bounds = np.full(len(drawn), np.nan), np.full(len(drawn), np.nan)
    for k, (costs, topology) in enumerate(drawn):
        try:
            plan = planner(costs, topology, np.arange(len(costs)))
        except CapacityError:
            continue
        planned[k] = step_times(plan, costs)[0] / best[k] - 1.0
        bounds[k] = best[k] / plan.certificates[0].lower_bound - 1.0
    return _Gaps(planned=planned, bounds=bounds)


def _records(name: str, data: str, planner: str, topology: Topology, gaps: _Gaps) -> list[Record]:
    found = gaps.planned[~np.isnan(gaps.planned)]
    values = {
        "gap_to_optimum_median": np.median(found),
        "gap_to_optimum_p95": np.quantile(found, 0.95),
        "gap_to_optimum_worst": found.max(),
        "optimal_plans": (found < 1e-9).mean(),
        "optimum_over_bound_worst": np.nanmax(gaps.bounds),
        "no_plan_found": np.isnan(gaps.planned).mean(),
    }
    speeds = "_speeds" if topology.rank_speeds else ""
    return [
        Record(
            experiment=name, data=data, planner=planner, topology=f"{topology}{speeds}",
            barrier=topology.barrier, metric=metric, value=float(value), unit="ratio",
            n=len(gaps.planned),
        )
        for metric, value in values.items()
    ]  # fmt: skip
