"""StepProblem: one step's samples as the integer arrays that the kernels work on."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.cost import Costs
from balancer.sorting import stable_order
from balancer.topology import Limits, Topology

__all__ = ["StepProblem", "build_problem", "over_limits"]

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
        num_modules: Cost columns that count apart: modules that run in turn, else one.
        costs: Cost of item i in column k at `[i * num_modules + k]`, int64.
        totals: Sum over modules of each item, int64.
        shares: Cost of item i in real module k as a share of the module, int64, all on one scale.
        num_share_modules: Modules with any cost, columns of `shares`.
        order: All items, dearest first: 0, 1, 2, ...
        amounts: Amount a of item i at `[i * len(caps) + a]`, int64.
        caps: Most a microbatch may hold of each amount, int64.
        padded: Whether amount 0 is tokens allocated as samples times the longest.
        exponent: Power of two of the cost unit.
    """

    num_items: int
    ids: NDArray[np.int64]
    position: NDArray[np.int64]
    num_modules: int
    costs: NDArray[np.int64]
    totals: NDArray[np.int64]
    shares: NDArray[np.int64]
    num_share_modules: int
    order: NDArray[np.int64]
    amounts: NDArray[np.int64]
    caps: NDArray[np.int64]
    padded: bool
    exponent: int

    @property
    def by_module(self) -> NDArray[np.int64]:
        """Items by their cost in each column, descending, one column after the other."""
        columns = self.costs.reshape(self.num_items, self.num_modules).T
        return np.concatenate([stable_order(column.max() - column) for column in columns])

    def to_cost(self, value: int) -> float:
        """A quantised value in the unit of the costs."""
        return math.ldexp(float(value), self.exponent)


def build_problem(
    costs: Costs, given: NDArray[np.int64], alone: NDArray[np.bool_], topology: Topology
) -> StepProblem:
    """Quantise the samples `given`; `alone` marks those that get their own microbatch.

    O(num_items * log(num_items)).
    """
    position = stable_order(given)
    columns, exponent = _quantise(costs.values[given[position]])
    used = columns[columns.any(axis=1)] if columns.any() else columns[:1]
    scale = 2.0**_COST_BITS / np.maximum(used.sum(axis=1, keepdims=True), 1)
    shares = np.floor(used * scale).astype(np.int64)
    dearest_first = _descending(shares.max(axis=0), shares.sum(axis=0))
    position, used = position[dearest_first], used[:, dearest_first]
    ids, totals = given[position], used.sum(axis=0)
    in_turn = topology.barrier == "microbatch" and topology.modules == "in_turn"
    apart = used if in_turn else totals[None, :]
    amounts, caps = _amounts(costs, ids, alone[position], topology.limits)
    return StepProblem(
        num_items=len(ids),
        ids=ids,
        position=position,
        num_modules=len(apart),
        costs=apart.T.ravel(),
        totals=totals,
        shares=shares[:, dearest_first].T.ravel(),
        num_share_modules=len(used),
        order=np.arange(len(ids)),
        amounts=amounts,
        caps=caps,
        padded=topology.limits.layout == "padded" and topology.limits.max_tokens is not None,
        exponent=exponent,
    )


def over_limits(
    costs: Costs, limits: Limits, sample_ids: NDArray[np.int64] | None
) -> dict[str, NDArray[np.int64]]:
    """Ids of the samples that exceed a limit by themselves, for each limit they exceed.

    Looks at all samples when `sample_ids` is `None`.
    """
    over: dict[str, NDArray[np.int64]] = {}
    for name, limit in limits.given.items():
        if name != "samples":
            amounts = getattr(costs, name)
            ids = (
                np.flatnonzero(amounts > limit)
                if sample_ids is None
                else sample_ids[amounts[sample_ids] > limit]
            )
            if ids.size:
                over[name] = ids
    return over


def _quantise(values: NDArray[np.float64]) -> tuple[NDArray[np.int64], int]:
    """Costs as whole multiples of a power of two, rounded half up, and the power.

    Takes `(num_items, num_modules)` and returns `(num_modules, num_items)`.
    """
    columns = np.ascontiguousarray(values.T)
    largest = float(columns.sum(axis=0).max(initial=0.0))
    if largest == 0.0:
        return np.zeros(columns.shape, np.int64), 0
    bits = min(_COST_BITS, 61 - len(values).bit_length())
    exponent = max(-1000, math.frexp(largest)[1] - bits)  # 2.0**1000 is still a finite factor
    return np.floor(columns * 2.0**-exponent + 0.5).astype(np.int64), exponent


def _descending(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Item order by `first`, then `second`, both descending, then index.

    Only the leading bits count: items closer than 2**-19 of a module are taken as equal.
    """
    bits = min(20, (62 - len(first).bit_length()) // 2)
    shift, top = _COST_BITS + 2 - bits, np.int64(2**bits - 1)
    return stable_order(((top - (first >> shift)) << np.int64(bits)) | (top - (second >> shift)))


def _amounts(
    costs: Costs, ids: NDArray[np.int64], alone: NDArray[np.bool_], limits: Limits
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Flattened amounts and their caps; an item to be left alone takes up every sample place."""
    columns, caps = [], []
    for name, limit in limits.given.items():
        if name != "samples":
            columns.append(np.minimum(getattr(costs, name)[ids], limit))
            caps.append(limit)
    if limits.max_samples is not None or alone.any():
        places = limits.max_samples if limits.max_samples is not None else len(ids) + 1
        columns.append(np.where(alone, places, 1))
        caps.append(places)
    if not columns:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.stack(columns, axis=1).astype(np.int64).ravel(), np.array(caps, np.int64)
