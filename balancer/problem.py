"""StepProblem: one step's samples as the integer arrays that the kernels work on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.effort import Effort, SearchBudget, search_budget
from balancer.kernels.quantise import largest_total, quantise, share_keys, shares_of
from balancer.pipeline_stages import stage_shares
from balancer.priced import PricedSamples
from balancer.ranks import UnequalRanks, slowness, unequal_ranks
from balancer.sorting import stable_order
from balancer.topology import Limits, Topology

__all__ = ["StepProblem", "build_problem", "over_all_limits", "over_limits"]

_COST_BITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProblem:
    """Costs and amounts of `num_items` samples, quantised so that sums are exact.

    Costs are multiples of `2.0**exponent`; the dearest sample has about 2**40 of them. Integer
    sums do not depend on their order, so neither do plans.

    Attributes:
        num_items: Samples of the step. Items are numbered dearest first: by largest share of a
            module, then by sum of shares, descending, then by sample id.
        ids: Sample id of each item, int64.
        position: Place of each item in the step's given order, int64.
        num_modules: Cost columns that count apart: modules that run in turn; under the pipeline
            barrier the forward at each stage, then the backward at each; else one.
        costs: Cost of item i in column k at `[i * num_modules + k]`, int64.
        totals: Sum over modules of each item, int64.
        by_module: Items by their cost in each column, descending, one column after the other;
            int64, empty under the pipeline barrier.
        shares: Cost of item i in real module k as a share of the module, int64, all on one scale.
        num_share_modules: Modules with any cost, columns of `shares`.
        order: All items, dearest first: 0, 1, 2, ...
        peaks: Largest share of each item, to the leading bits that items are sorted by, float64.
        scales: What turns a cost of each column into the unit of `peaks`, float64.
        amounts: Amount a of item i at `[i * len(caps) + a]`, int64.
        caps: Most a microbatch may hold of each amount, int64.
        padded: Whether amount 0 is tokens allocated as samples times the longest.
        exponent: Power of two of the cost unit.
        constants: Under the pipeline barrier, what any microbatch costs in each column on top of
            its items, int64.
        ranks: How the ranks differ; `None` where they do not. Where they do, step times count
            cost times slowness.
        budget: Work that searches for a plan of the step may take.
        time_unit: Time of a unit of step times, in units of cost; 1 where ranks do not differ.
    """

    num_items: int
    ids: NDArray[np.int64]
    position: NDArray[np.int64]
    num_modules: int
    costs: NDArray[np.int64]
    totals: NDArray[np.int64]
    by_module: NDArray[np.int64]
    shares: NDArray[np.int64]
    num_share_modules: int
    order: NDArray[np.int64]
    peaks: NDArray[np.float64]
    scales: NDArray[np.float64]
    amounts: NDArray[np.int64]
    caps: NDArray[np.int64]
    padded: bool
    exponent: int
    constants: NDArray[np.int64]
    budget: SearchBudget
    ranks: UnequalRanks | None = None
    time_unit: float = 1.0

    def to_cost(self, value: int) -> float:
        """A quantised step time in the unit of the costs."""
        return math.ldexp(float(value), self.exponent) * self.time_unit

    def rank_caps(self, dp_size: int, column: int) -> NDArray[np.int64]:
        """Most that a microbatch of each rank may hold of one amount, int64 `(dp_size,)`."""
        caps = np.full(dp_size, self.caps[column])
        return caps if self.ranks is None else caps - self.ranks.reserve[:, column]

    def rooms(self, dp_size: int) -> NDArray[np.int64]:
        """Each cap, summed over the ranks."""
        rooms = self.caps * dp_size
        return rooms if self.ranks is None else rooms - self.ranks.reserve.sum(axis=0)

    def kernel_ranks(self, num_columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """`ranks` of `balancer.kernels.ranks` for costs or shares of so many columns."""
        return None if self.ranks is None else self.ranks.kernel(num_columns)


def build_problem(
    costs: PricedSamples,
    given: NDArray[np.int64],
    alone: NDArray[np.bool_],
    topology: Topology,
    effort: Effort = "fast",
    by_id: NDArray[np.int64] | None = None,
) -> StepProblem:
    """Quantise the samples `given`; `alone` marks those that get their own microbatch.

    `by_id` is the order of their ids, where the caller has it. O(num_items).
    """
    position = stable_order(given) if by_id is None else by_id
    num_modules = len(costs.modules)
    rows_of_step = costs.select(given[position])
    values = rows_of_step.values.ravel()
    sizes = {name: getattr(rows_of_step, name)
             for name in topology.limits.room if name != "samples"}  # fmt: skip
    del rows_of_step  # memory touched for the first time is what large steps wait for
    largest, num_terms = largest_total(values, num_modules), len(given)
    if topology.barrier == "pipeline":
        largest = max(largest, topology.microbatch_cost * topology.num_stages)
        num_terms += max(len(given), topology.num_microbatches)
    slow, time_unit = slowness(topology.rank_speeds, topology.dp_size, costs.modules)
    exponent = _exponent(largest, num_terms, int(slow.max()))
    quantised = quantise(values, 2.0**-exponent)
    sums = np.array([quantised[k::num_modules].sum() for k in range(num_modules)])
    scales = 2.0**_COST_BITS / np.maximum(sums, 1)
    del values
    bits = min(20, (62 - len(given).bit_length()) // 2)
    shift = _COST_BITS + 2 - bits
    keys = share_keys(quantised, num_modules, scales, shift, bits)
    dearest_first = stable_order(keys)
    position, keys = position[dearest_first], keys[dearest_first]
    used = np.flatnonzero(sums) if sums.any() else np.arange(1)
    rows = _rows(quantised, num_modules, dearest_first, used)
    del quantised
    totals = rows[:, 0].copy()
    for column in rows.T[1:]:  # far faster than a sum along short rows
        totals += column
    if topology.barrier == "pipeline":
        columns = _stage_costs(rows, stage_shares(topology, costs.modules)[:, used], topology)
    elif topology.barrier == "microbatch" and topology.modules == "in_turn":
        columns = rows
    else:
        columns = totals[:, None]
    in_turn = columns is rows
    amounts, caps = _amounts(sizes, dearest_first, alone[position], topology)
    ranks = unequal_ranks(slow[:, used], topology.limits, topology.rank_limits, len(caps))
    return StepProblem(
        num_items=len(given),
        ids=given[position],
        position=position,
        num_modules=columns.shape[1],
        costs=columns.ravel(),
        totals=totals,
        by_module=_by_column(columns[:, : 0 if topology.barrier == "pipeline" else None]),
        shares=shares_of(rows.ravel(), len(used), scales[used]),
        num_share_modules=len(used),
        order=np.arange(len(given)),
        peaks=(2.0**bits - 1) - (keys >> np.int64(bits)),
        scales=(scales[used] if in_turn else scales[used].max(keepdims=True)) * 2.0**-shift,
        amounts=amounts,
        caps=caps,
        padded=topology.limits.layout == "padded" and topology.limits.max_tokens is not None,
        exponent=exponent,
        constants=_stage_constants(topology, exponent),
        budget=search_budget(effort, len(given)),
        ranks=ranks,
        time_unit=time_unit,
    )


def over_all_limits(
    costs: PricedSamples, topology: Topology, sample_ids: NDArray[np.int64] | None
) -> dict[str, NDArray[np.int64]]:
    """`over_limits` of the loosest limits; then `"all at once"`, of which no rank keeps its own."""
    over = over_limits(costs, topology.limits, sample_ids)
    kinds = list(dict.fromkeys(topology.rank_limits))
    if len(kinds) > 1:
        of_kind = [over_limits(costs, limits, sample_ids).values() for limits in kinds]
        none = np.zeros(0, np.int64)
        nowhere = np.unique(np.concatenate([none, *of_kind[0]]))
        for ids in of_kind[1:]:
            nowhere = np.intersect1d(nowhere, np.concatenate([none, *ids]))
        nowhere = np.setdiff1d(nowhere, np.concatenate([none, *over.values()]))
        over |= {"all at once": nowhere} if nowhere.size else {}
    return over


def over_limits(
    costs: PricedSamples, limits: Limits, sample_ids: NDArray[np.int64] | None
) -> dict[str, NDArray[np.int64]]:
    """Ids of the samples that exceed a limit by themselves, for each limit they exceed.

    Looks at all samples that the model can take when `sample_ids` is `None`.
    """
    most = {name: cap for name, cap in limits.room.items() if name != "samples"}
    if "tokens" in most:  # beyond the room once rounded up: beyond the last multiple within it
        most["tokens"] = most["tokens"] // limits.pad_sample_to * limits.pad_sample_to
    if sample_ids is None:
        over = {name: np.setdiff1d(costs.over(name, cap), costs.illegal)
                for name, cap in most.items()}  # fmt: skip
    else:
        rows = costs.select(sample_ids) if most else None
        over = {name: sample_ids[getattr(rows, name) > cap] for name, cap in most.items()}
    return {name: ids for name, ids in over.items() if ids.size}


def _stage_costs(
    rows: NDArray[np.int64], shares: NDArray[np.float64], topology: Topology
) -> NDArray[np.int64]:
    """Cost of each row in the forward of each stage, then in the backward of each, rounded.

    Added up module by module: a matrix product may round differently from machine to machine.
    """
    columns = np.zeros((len(rows), 2 * topology.num_stages))
    for part, factor in enumerate((topology.forward_share, 1.0 - topology.forward_share)):
        for stage in range(topology.num_stages):
            for k, share in enumerate(shares[stage]):
                columns[:, part * topology.num_stages + stage] += rows[:, k] * (share * factor)
    return np.rint(columns).astype(np.int64)


def _stage_constants(topology: Topology, exponent: int) -> NDArray[np.int64]:
    """Quantised constant of a microbatch in the columns of `_stage_costs`; empty otherwise."""
    if topology.barrier != "pipeline":
        return np.zeros(0, np.int64)
    unit = topology.microbatch_cost * 2.0**-exponent
    parts = (topology.forward_share * unit, (1.0 - topology.forward_share) * unit)
    return np.repeat(np.rint(parts).astype(np.int64), topology.num_stages)


def _exponent(largest: float, num_items: int, slowest: int) -> int:
    """Power of two that leaves the dearest of `num_items` about 40 bits, and their sum below 62.

    That sum is taken on a rank where a unit of cost takes `slowest`.
    """
    bits = min(_COST_BITS, 61 - num_items.bit_length() - (slowest - 1).bit_length())
    return max(-1000, math.frexp(largest)[1] - bits)  # 2.0**1000 is still a finite factor


def _rows(
    flat: NDArray[np.int64],
    num_modules: int,
    order: NDArray[np.int64],
    modules: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Rows of a flattened table in the given order, cut to some of its columns."""
    rows = np.take(flat.reshape(-1, num_modules), order, axis=0)
    return rows if len(modules) == num_modules else np.ascontiguousarray(rows[:, modules])


def _by_column(columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows by each column, descending, one column after the other."""
    orders = [stable_order(column, descending=True) for column in columns.T]
    return orders[0] if len(orders) == 1 else np.concatenate([np.zeros(0, np.int64), *orders])


def _amounts(
    sizes: Mapping[str, NDArray[np.int64]],
    order: NDArray[np.int64],
    alone: NDArray[np.bool_],
    topology: Topology,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flattened amounts of samples in the given order, and their caps.

    `alone` is in that order too; an item to be left alone takes up every sample place.

    Where limits differ between ranks it may be alone on any: it takes up nothing else.
    """
    limits, anywhere = topology.limits, alone if topology.rank_limits else np.zeros_like(alone)
    columns, caps = [], []
    for name, limit in limits.room.items():
        if name != "samples":
            taken = np.minimum(limits.taken(name, sizes[name][order]), limit)
            columns.append(np.where(anywhere, 0, taken) if anywhere.any() else taken)
            caps.append(limit)
    places = limits.max_samples
    if places is not None and anywhere.any():
        columns.append(np.where(anywhere, 0, 1))
        caps.append(places)
        places = None
    if places is not None or alone.any():
        places = len(order) + 1 if places is None else places
        columns.append(np.where(alone, places, 1))
        caps.append(places)
    if not columns:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.stack(columns, axis=1).astype(np.int64).ravel(), np.array(caps, np.int64)
