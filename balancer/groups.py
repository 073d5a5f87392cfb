"""Groups of samples that must stay in one microbatch: priced, planned and limited as one item."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.checks import check_count
from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.limits import padded_to
from balancer.plan import Plan
from balancer.priced import PricedSamples
from balancer.topology import Topology

__all__ = ["GroupedCosts", "check_groups", "expand", "members_of", "sample_costs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedCosts(Costs):
    """Costs whose rows are groups of samples, such as preference pairs or GRPO groups.

    A planner over them plans groups: its ids are rows of this object, and `global_batch_size` and
    `max_samples` count groups. `expand` turns its plans into plans of samples. A row is the sum of
    its samples; the model cannot take a group if it cannot take one of its samples. Rows stand in
    the order of their first samples, samples of a group in ascending order.

    Attributes:
        samples: Costs of the samples.
        members: Sample ids, group after group, int64 `(num_samples,)`.
        offsets: Where each group begins in `members`, int64 `(num_groups + 1,)`.
        pad_sample_to: What tokens of each sample were rounded up to before they were summed.

    Example:
        >>> pairs = GroupedCosts.from_ids(Costs.from_values([4.0, 1, 2, 5]), ["a", "b", "b", "a"])
        >>> pairs.total, pairs.members_of([0])
        (array([9., 3.]), array([0, 3]))
    """

    samples: PricedSamples
    members: NDArray[np.int64]
    offsets: NDArray[np.int64]
    pad_sample_to: int = 1

    @classmethod
    def from_ids(
        cls, costs: PricedSamples, group_ids: ArrayLike, *, pad_sample_to: int = 1
    ) -> "GroupedCosts":
        """Costs of the groups that samples with the same group id make; O(n log n).

        The costs of all samples are read once, also those of a `TableCosts`.

        Args:
            costs: Costs of the samples.
            group_ids: Group of each sample: whole numbers or texts, in any order.
            pad_sample_to: That of the limits to plan with.

        Raises:
            ArgumentError: There is not one group id a sample.
        """
        check_count("pad_sample_to", pad_sample_to)
        rows, offsets = _groups(np.asarray(group_ids), len(costs))
        num_groups = len(offsets) - 1
        each = costs.select(np.arange(len(costs)))
        values = np.zeros((num_groups, len(each.modules)))
        for k in range(len(each.modules)):
            values[:, k] = _float_sums(each.values[:, k], rows, num_groups)
        return cls(
            modules=each.modules,
            values=values,
            tokens=_sums(padded_to(each.tokens, pad_sample_to), rows, num_groups),
            patches=_sums(each.patches, rows, num_groups),
            images=_sums(each.images, rows, num_groups),
            target_tokens=_sums(each.target_tokens, rows, num_groups),
            unit=each.unit,
            prep=None if each.prep is None else _float_sums(each.prep, rows, num_groups),
            illegal=np.unique(rows[costs.illegal]),
            samples=costs,
            members=np.argsort(rows, kind="stable"),
            offsets=offsets,
            pad_sample_to=pad_sample_to,
        )

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples of each group, int64 `(num_groups,)`."""
        return np.diff(self.offsets)

    def members_of(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Ids of the samples of some groups, group after group."""
        groups = np.asarray(rows, np.int64)
        sizes = self.sizes[groups]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        ids: NDArray[np.int64] = self.members[np.repeat(self.offsets[groups], sizes) + within]
        return ids

    def check_legal(self, sample_ids: NDArray[np.int64] | None = None) -> None:
        """Refuse groups (all, or those of the given rows) with a sample the model cannot take.

        Raises:
            SampleError: Naming the first samples, the reason and the cure.
        """
        self.samples.check_legal(None if sample_ids is None else self.members_of(sample_ids))

    @property
    def fingerprint(self) -> str:
        """Hash of the costs of all samples and of who is with whom."""
        digest = hashlib.sha256(f"groups {self.pad_sample_to} {self.samples.fingerprint}".encode())
        digest.update(self.members.data)
        digest.update(self.offsets.data)
        return digest.hexdigest()


def expand(plan: Plan, grouped: GroupedCosts) -> Plan:
    """The plan of samples that a plan of groups stands for: each group where it was, whole.

    `dropped` and `alone` name samples, and `max_samples` of its limits counts them. Its
    certificates are those of the groups. `Plan.check(grouped.samples, group_ids=...)` proves it.

    Raises:
        ArgumentError: As `check_groups`.

    Example:
        >>> from balancer.step_planner import plan_step
        >>> pairs = GroupedCosts.from_ids(Costs.from_values([4.0, 1, 2, 1]), [7, 8, 7, 8])
        >>> plan = expand(plan_step(pairs, Topology(dp_size=2)), pairs)
        >>> [ids.tolist() for ids in plan.for_rank(0)]
        [[0, 2]]
    """
    check_groups(grouped, plan.topology)
    sizes = grouped.sizes[plan.sample_ids]
    begins = np.concatenate([[0], np.cumsum(sizes)])
    return replace(
        plan,
        topology=_of_samples(plan.topology, int(grouped.sizes.max(initial=1))),
        sample_ids=grouped.members_of(plan.sample_ids),
        flags=np.repeat(plan.flags, sizes),
        offsets=begins[plan.offsets],
        dropped=np.sort(grouped.members_of(plan.dropped)),
        alone=np.sort(grouped.members_of(plan.alone)),
        deferred=np.repeat(plan.deferred, sizes) if plan.deferred.size else plan.deferred,
    )


def check_groups(costs: PricedSamples, topology: Topology) -> None:
    """Refuse limits that sums over groups cannot keep; does nothing where rows are samples.

    Raises:
        ArgumentError: Tokens are counted padded, are rounded in another way, or `max_samples` is
            set and groups have different sizes.
    """
    if not isinstance(costs, GroupedCosts):
        return
    limits = topology.limits
    if limits.layout == "padded" and limits.max_tokens is not None:
        raise ArgumentError(
            f'layout is "padded" with max_tokens={limits.max_tokens} and groups of samples; what a '
            'group takes then depends on the others beside it: use layout="packed", or limit '
            "max_samples instead of max_tokens"
        )
    if limits.max_tokens is not None and limits.pad_sample_to != costs.pad_sample_to:
        raise ArgumentError(
            f"pad_sample_to is {limits.pad_sample_to} in limits, {costs.pad_sample_to} in the "
            "GroupedCosts; tokens are rounded up before they are summed over a group: give "
            f"GroupedCosts pad_sample_to={limits.pad_sample_to}"
        )
    given = [each.max_samples for each in (limits, *topology.rank_limits)]
    if any(given) and len(np.unique(costs.sizes)) > 1:
        raise ArgumentError(
            f"max_samples is {max(filter(None, given))} and counts groups, which have "
            f"{costs.sizes.min()} to {costs.sizes.max()} samples; allowed with groups of one size "
            "only: limit max_tokens, max_patches or max_images instead"
        )


def members_of(costs: PricedSamples, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Ids of the samples that rows stand for: themselves, or the samples of groups."""
    return costs.members_of(rows) if isinstance(costs, GroupedCosts) else rows


def sample_costs(costs: PricedSamples) -> PricedSamples:
    """Costs whose rows are samples: those given, or the ones that groups were made of."""
    return costs.samples if isinstance(costs, GroupedCosts) else costs


def _groups(
    group_ids: NDArray[np.generic], num_samples: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row of each sample's group, rows in the order of first samples; and where rows begin."""
    if group_ids.shape != (num_samples,):
        raise ArgumentError(
            f"group_ids has shape {group_ids.shape}; allowed: one group id a sample, "
            f"({num_samples},)"
        )
    _, first, group, counts = np.unique(
        group_ids, return_index=True, return_inverse=True, return_counts=True
    )
    in_order = np.argsort(first)
    row_of_group = np.empty_like(in_order)
    row_of_group[in_order] = np.arange(len(in_order))
    return row_of_group[group], np.concatenate([[0], np.cumsum(counts[in_order])])


def _sums(values: NDArray[np.int64], rows: NDArray[np.int64], num_groups: int) -> NDArray[np.int64]:
    sums = np.zeros(num_groups, np.int64)
    np.add.at(sums, rows, values)
    return sums


def _float_sums(
    values: NDArray[np.float64], rows: NDArray[np.int64], num_groups: int
) -> NDArray[np.float64]:
    """Sums in the order of the ids, which `bincount` keeps on every host."""
    return np.asarray(np.bincount(rows, weights=values, minlength=num_groups), np.float64)


def _of_samples(topology: Topology, size: int) -> Topology:
    """The topology with `max_samples` in samples, for groups of `size`."""
    every = [
        replace(each, max_samples=each.max_samples and each.max_samples * size)
        for each in (topology.limits, *topology.rank_limits)
    ]
    return replace(topology, limits=every[0], rank_limits=tuple(every[1:]))
