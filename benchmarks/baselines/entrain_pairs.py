"""Entrain's pairing of microbatches: which one hands language work to which, and their order."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence

__all__ = ["bottleneck_pairs", "pair_costs", "pair_order"]

_Pair = tuple[int, int]


def pair_costs(batches: Sequence[Sequence[int]]) -> dict[_Pair, int]:
    """Larger load of each pair (overloaded, underloaded) after its best transfer.

    The dearer half of the microbatches is overloaded. It hands over the subset of its samples
    whose work is nearest to half the difference (the smaller of two as near).

    Args:
        batches: Language work of the samples of each microbatch, in whole units.
    """
    loads = [sum(batch) for batch in batches]
    falling = sorted(range(len(loads)), key=lambda index: -loads[index])
    half = -(-len(loads) // 2)
    costs: dict[_Pair, int] = {}
    for over in falling[:half]:
        most = loads[over] - min(loads[under] for under in falling)
        sums = _subset_sums(batches[over], most)
        for under in falling[half:]:
            moved = _nearest_half(sums, loads[over] - loads[under])
            costs[over, under] = max(loads[over] - moved, loads[under] + moved)
    return costs


def bottleneck_pairs(batches: Sequence[Sequence[int]]) -> tuple[int, list[_Pair]]:
    """Least bottleneck, and the pairs that reach it: those that hand work over, then the others.

    The least T for which all microbatches above T have a partner of their own at cost T or less;
    bisection over the costs, bipartite matching for each. The others pair in order of index.
    """
    loads = [sum(batch) for batch in batches]
    costs = pair_costs(batches)
    candidates = sorted({*costs.values(), *loads})
    low, high = 0, len(candidates) - 1
    while low < high:
        middle = (low + high) // 2
        if _matched(loads, costs, candidates[middle]) is None:
            low = middle + 1
        else:
            high = middle
    matched = _matched(loads, costs, candidates[low]) or {}
    free = [under for under in sorted({pair[1] for pair in costs}) if under not in matched.values()]
    idle = [over for over in sorted({pair[0] for pair in costs}) if over not in matched]
    return candidates[low], sorted(matched.items()) + list(zip(idle, free, strict=False))


def pair_order(batches: Sequence[Sequence[int]]) -> list[int]:
    """Microbatches pair after pair, the overloaded first; one without a partner is the last."""
    _, pairs = bottleneck_pairs(batches)
    order = [index for pair in pairs for index in pair]
    return order + [index for index in range(len(batches)) if index not in order]


def _subset_sums(works: Sequence[int], most: int) -> list[int]:
    sums = {0}
    for work in works:
        sums |= {total + work for total in sums if total + work <= most}
    return sorted(sums)


def _nearest_half(sums: list[int], difference: int) -> int:
    """The sum nearest to half the difference."""
    place = bisect_left(sums, difference / 2)
    return min(sums[max(0, place - 1) : place + 1], key=lambda total: abs(2 * total - difference))


def _matched(
    loads: Sequence[int], costs: Mapping[_Pair, int], bottleneck: int
) -> dict[int, int] | None:
    """Partner of each microbatch above the bottleneck, or None where one gets none."""
    partner_of: dict[int, int] = {}

    def place(over: int, seen: set[int]) -> bool:
        for (first, under), cost in costs.items():
            if first == over and cost <= bottleneck and under not in seen:
                seen.add(under)
                if under not in partner_of or place(partner_of[under], seen):
                    partner_of[under] = over
                    return True
        return False

    critical = [index for index, load in enumerate(loads) if load > bottleneck]
    if not all(place(over, set()) for over in critical):
        return None
    return {over: under for under, over in partner_of.items()}
