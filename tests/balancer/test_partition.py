"""partition: its promises, its bound beside exact solutions, and what it refuses."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.errors import ArgumentError, BalancerError, CapacityError, SampleError
from balancer.partition import partition
from benchmarks.karmarkar_karp import karmarkar_karp
from benchmarks.partition import costs_of
from tests import naive_partition as naive

COSTS = st.lists(
    st.one_of(st.integers(0, 30), st.integers(0, 10**6), st.floats(0, 100)), max_size=40
)
SMALL = st.lists(st.integers(0, 60), min_size=1, max_size=7)
SPEEDS = st.sampled_from([0.25, 0.5, 1.0, 1.0, 3.0])


def exact(costs, num_parts, *, speeds=None, low=None, high=None, amounts=None, caps=None):
    """Least makespan by trying every partition of whole costs."""
    num_items = len(costs)
    return naive.best_makespan(
        naive.Rules(
            costs, [1.0 / s for s in speeds or [1.0] * num_parts],
            [[a] for a in amounts] if amounts else [[]] * num_items,
            [[c] for c in caps] if caps else [[]] * num_parts,
            int(num_items >= num_parts) if low is None else low,
            num_items if high is None else high,
        )
    )  # fmt: skip


@given(COSTS, st.integers(1, 12), st.sampled_from(["auto", "greedy", "karmarkar_karp"]))
def test_every_sample_is_in_one_part_and_loads_are_their_sums(costs, num_parts, method):
    """Loads and counts belong to the parts, none is empty without need, the bound holds."""
    found = partition(costs, num_parts, method=method)
    assert found.parts.shape == (len(costs),)
    assert not len(costs) or (found.parts.min() >= 0 and found.parts.max() < num_parts)
    loads = np.bincount(found.parts, costs, minlength=num_parts) if costs else np.zeros(num_parts)
    assert np.allclose(found.loads, loads, rtol=1e-9, atol=1e-6)
    assert found.counts.tolist() == [len(found.members(part)) for part in range(num_parts)]
    assert (found.counts > 0).sum() == min(num_parts, len(costs))
    assert found.makespan == found.loads.max(initial=0.0) >= found.lower_bound
    assert found.gap >= 0.0


@given(COSTS, st.integers(1, 12), st.integers(0, 3))
def test_counts_are_kept(costs, num_parts, left):
    """Equal counts are equal, counts within one differ by at most one, under unequal speeds too."""
    costs = costs[: len(costs) // num_parts * num_parts]
    speeds = [1.0 + part for part in range(num_parts)]
    assert len(set(partition(costs, num_parts, counts="equal").counts.tolist())) == 1
    for given_speeds in (None, speeds):
        counts = partition(
            [*costs, *[1] * left], num_parts, counts="within_one", speeds=given_speeds
        ).counts
        assert counts.max() - counts.min() <= 1


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 6)), max_size=40), st.integers(1, 6))
def test_groups_are_never_split_and_balance_as_single_items_do(samples, num_parts):
    """All samples of a group share a part; the makespan is that of one item a group."""
    costs, groups = [c for c, _ in samples], np.array([g for _, g in samples], np.int64)
    found = partition(costs, num_parts, groups=groups)
    for group in set(groups[groups >= 0].tolist()):
        assert len(set(found.parts[groups == group].tolist())) == 1
    firsts = {g: sum(c for c, h in samples if h == g) for g in groups.tolist() if g >= 0}
    merged, seen = [], set()
    for cost, group in samples:
        if group < 0:
            merged.append(cost)
        elif group not in seen:
            seen.add(group)
            merged.append(firsts[group])
    assert found.makespan == pytest.approx(partition(merged, num_parts).makespan, rel=1e-9)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 4)), max_size=40),
    st.integers(1, 6),
    st.integers(9, 60),
    st.sampled_from(["auto", "greedy", "karmarkar_karp"]),
)
def test_limits_are_never_exceeded(samples, num_parts, most, method):
    """A partition keeps every limit of every part, or an error says what would do, which works."""
    costs, tokens, images = (np.array(x, np.int64) for x in zip(*samples, strict=True)) if (
        samples
    ) else (np.zeros(0, np.int64),) * 3  # fmt: skip
    amounts = {"tokens": tokens, "images": images}
    limits = {"tokens": most, "images": [4 + 3 * part for part in range(num_parts)], "samples": 30}
    try:
        found = partition(costs, num_parts, method=method, limits=limits, amounts=amounts)
    except CapacityError:
        return
    for part in range(num_parts):
        members = found.members(part)
        assert tokens[members].sum() <= most
        assert images[members].sum() <= limits["images"][part]
        assert len(members) <= 30


@given(SMALL, st.integers(1, 3))
def test_greedy_is_within_grahams_bound_and_the_lower_bound_is_one(costs, num_parts):
    """Makespan <= (4/3 - 1/(3k)) OPT, and bound <= OPT, by trying every partition."""
    best = exact(costs, num_parts)
    for effort in ("fast", "default"):
        found = partition(costs, num_parts, method="greedy", effort=effort)
        limit = Fraction(4, 3) - Fraction(1, 3 * num_parts)
        assert Fraction(found.makespan) <= limit * Fraction(best)
        assert found.lower_bound <= best <= found.makespan


@settings(max_examples=100)
@given(SMALL, st.lists(SPEEDS, min_size=1, max_size=3), st.booleans(), st.data())
def test_the_bound_never_exceeds_the_optimum_under_speeds_counts_and_limits(
    costs, speeds, counted, data
):
    """lower_bound <= OPT <= makespan whatever the rules; where nothing is legal, an error."""
    num_parts = len(speeds)
    tokens = data.draw(st.lists(st.integers(0, 9), min_size=len(costs), max_size=len(costs)))
    caps = data.draw(st.lists(st.integers(9, 30), min_size=num_parts, max_size=num_parts))
    low, high = len(costs) // num_parts, -(-len(costs) // num_parts)
    best = exact(
        costs, num_parts, speeds=speeds, low=low if counted else None,
        high=high if counted else None, amounts=tokens, caps=caps,
    )  # fmt: skip
    try:
        found = partition(
            costs, num_parts, counts="within_one" if counted else "free", speeds=speeds,
            limits={"tokens": caps}, amounts={"tokens": tokens},
        )  # fmt: skip
    except CapacityError:
        return  # rarely a legal partition exists and is not found; never the other way round
    assert best is not None
    assert found.lower_bound <= best * (1 + 1e-12)
    assert best <= found.makespan * (1 + 1e-12)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 8), st.booleans())
def test_never_worse_than_karmarkar_karp(costs, num_parts, counted):
    """At most 1e-5 of the bound above published differencing, of which ours is as good alone."""
    if counted:
        costs = [*costs, *[0] * (-len(costs) % num_parts)]
    counts = "equal" if counted else "free"
    peer = karmarkar_karp(costs, num_parts, equal_size=counted)
    largest = max(sum(costs[i] for i in part) for part in peer)
    found = partition(costs, num_parts, counts=counts)
    assert found.makespan <= largest + 1e-5 * found.lower_bound
    greedy = partition(costs, num_parts, counts=counts, method="greedy")
    assert found.makespan <= greedy.makespan


@given(SMALL, st.lists(SPEEDS, min_size=2, max_size=3), st.integers(0, 2))
def test_a_faster_part_never_raises_the_bound(costs, speeds, part):
    """The lower bound falls or stays as a part gets faster, and so does the exact optimum."""
    faster = list(speeds)
    faster[part % len(speeds)] *= 2
    before, after = (partition(costs, len(speeds), speeds=s) for s in (speeds, faster))
    assert after.lower_bound <= before.makespan * (1 + 1e-12)
    assert exact(costs, len(speeds), speeds=faster) <= before.makespan * (1 + 1e-12)


def test_the_gap_to_the_optimum_is_nothing_in_the_median_and_small_at_worst():
    optimise = pytest.importorskip("scipy.optimize")
    gaps = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        num_parts, num_items = int(rng.integers(2, 5)), int(rng.integers(4, 13))
        costs = rng.integers(1, 100, num_items)
        speeds = np.ones(num_parts) if seed % 2 else rng.choice([0.25, 0.5, 1.0], num_parts)
        found = partition(costs, num_parts, speeds=speeds)
        best = solved(optimise, costs, speeds)
        assert found.lower_bound <= best * (1 + 1e-6)
        gaps.append(found.makespan / best - 1)
    assert min(gaps) > -1e-6
    assert np.median(gaps) < 1e-6
    assert max(gaps) < 0.02


def solved(optimise, costs, speeds):
    """Optimum by HiGHS: x[i, p] in {0, 1}, least T with sum_i cost_i x[i, p] <= T speed_p."""
    num_items, num_parts = len(costs), len(speeds)
    size = num_items * num_parts
    rows, low, high = [], [], []
    for item in range(num_items):
        row = np.zeros(size + 1)
        row[item * num_parts : (item + 1) * num_parts] = 1
        rows, low, high = [*rows, row], [*low, 1], [*high, 1]
    for part in range(num_parts):
        row = np.zeros(size + 1)
        row[part:size:num_parts] = costs
        row[size] = -speeds[part]
        one = np.zeros(size + 1)
        one[part:size:num_parts] = 1
        rows, low, high = [*rows, row, one], [*low, -np.inf, 1], [*high, 0, np.inf]
    result = optimise.milp(
        np.eye(size + 1)[size],
        constraints=optimise.LinearConstraint(np.array(rows), low, high),
        integrality=np.append(np.ones(size), 0),
        bounds=optimise.Bounds(0, np.append(np.ones(size), np.inf)),
        options={"mip_rel_gap": 0},
    )
    return float(result.x[size])


@pytest.mark.parametrize("data", ["bimodal", "workload"])
@pytest.mark.parametrize(("num_samples", "num_parts"), [(512, 8), (2048, 64), (4096, 256)])
def test_equal_counts_of_text_and_images_are_within_a_thousandth(data, num_samples, num_parts):
    found = partition(costs_of(data, num_samples, 1), num_parts, counts="equal")
    assert found.gap <= 0.001
    assert set(found.counts.tolist()) == {num_samples // num_parts}


@pytest.mark.parametrize("seed", range(5))
def test_unequal_speeds_are_used(seed):
    costs, speeds = costs_of("workload", 64, seed), [1, 1, 0.5, 0.25]
    simple = max(costs.sum() / sum(speeds), costs.max() / max(speeds))
    assert partition(costs, 4, speeds=speeds).makespan <= 1.05 * simple


@pytest.mark.parametrize("num_samples", [4, 5, 9])
def test_counts_that_do_not_divide_leave_no_part_empty(num_samples):
    found = partition(np.arange(num_samples), 4)
    assert len(found) == 4
    assert found.counts.min() >= 1
    assert found.counts.sum() == num_samples


def test_balance_never_breaks_a_cap_and_takes_one_more_part_until_all_fit():
    rng = np.random.default_rng(0)
    for _ in range(100):
        lengths = rng.integers(1, 1001, 24)
        num_parts = -(-int(lengths.sum()) // 1000)
        large = int((lengths > 500).sum())
        found = None
        while found is None:
            limits, amounts = {"tokens": 1000}, {"tokens": lengths}
            try:
                found = partition(lengths**2, num_parts, limits=limits, amounts=amounts)
            except CapacityError:
                num_parts += 1
        assert np.bincount(found.parts, lengths).max() <= 1000
        assert num_parts <= max(large, -(-int(lengths.sum()) // 1000)) + 2


def test_the_same_inputs_give_the_same_parts_whatever_the_unit_of_cost():
    costs = costs_of("workload", 300, 3)
    found = partition(costs, 7)
    assert (partition(costs * 2.0**-60, 7).parts == found.parts).all()
    assert (partition(costs.tolist(), 7).parts == found.parts).all()
    longer = partition(costs, 7, effort=0.01)
    assert longer.makespan <= found.makespan
    assert (partition(costs, 7, effort=0.01).parts == longer.parts).all()


def test_extreme_costs_are_shared_out():
    assert partition([], 3).makespan == 0.0
    assert partition([0.0, 0.0, 0.0], 3).counts.tolist() == [1, 1, 1]
    assert partition([1e308, 1e308], 2).makespan == pytest.approx(1e308)
    assert partition([5e-324, 0.0], 2).gap == 0.0
    assert partition([3], 5).counts.sum() == 1


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"num_parts": 0}, ArgumentError, "num_parts is 0; allowed: whole numbers >= 1"),
        ({"costs": [[1]]}, ArgumentError, "costs has shape"),
        ({"costs": [1, np.nan, 2]}, SampleError, r"costs\[1\] is nan"),
        ({"costs": [1, -2, 2]}, SampleError, r"costs\[1\] is -2"),
        ({"costs": [1, 2, np.inf]}, SampleError, r"costs\[2\] is inf"),
        ({"method": "magic"}, ArgumentError, "method is 'magic'"),
        ({"counts": "some"}, ArgumentError, "counts is 'some'"),
        ({"counts": "equal"}, ArgumentError, "use counts='within_one', or give 2 or 4 items"),
        ({"groups": [1, 2]}, ArgumentError, "groups has shape"),
        ({"groups": [0.5, 1, 1]}, ArgumentError, "groups has shape"),
        ({"speeds": [1]}, ArgumentError, "one speed for each of the 2 parts"),
        ({"speeds": [1, 0]}, ArgumentError, r"speeds\[1\] is 0; allowed: finite numbers > 0"),
        ({"speeds": [-1, 1]}, ArgumentError, r"speeds\[0\] is -1"),
        ({"speeds": [1, None]}, ArgumentError, r"speeds\[1\] is nan"),
        ({"speeds": [1, 1e-20]}, ArgumentError, "factor of 2"),
        ({"speeds": [1, 2], "method": "karmarkar_karp"}, ArgumentError, "equal speeds only"),
        ({"effort": "slow"}, ArgumentError, "effort is 'slow'"),
        ({"effort": -1.0}, ArgumentError, "effort is -1.0"),
        ({"limits": {"tokens": 5}}, ArgumentError, "give the amount of each sample"),
        ({"amounts": {"tokens": [1, 2, 3]}}, ArgumentError, "give a limit for it"),
        ({"limits": {"samples": 0}}, ArgumentError, r"limits\['samples'\] is 0"),
        ({"limits": {"samples": [1, 2, 3]}}, ArgumentError, "one for each of the 2 parts"),
        (
            {"limits": {"tokens": 5}, "amounts": {"tokens": [1, 2]}},
            ArgumentError,
            "one whole number for each of the 3 samples",
        ),
        (
            {"limits": {"tokens": 5}, "amounts": {"tokens": [1, -2, 3]}},
            SampleError,
            r"amounts\['tokens'\]\[1\] is -2",
        ),
        (
            {"limits": {"tokens": 5}, "amounts": {"tokens": [1, 7, 3]}},
            CapacityError,
            r"limits\['tokens'\] is at most 5 .* sample 1 has 7 .* raise the limit to 7",
        ),
        (
            {
                "limits": {"tokens": 5},
                "amounts": {"tokens": [3, 1, 3]},
                "groups": [4, -1, 4],
            },
            CapacityError,
            r"the group of samples 0, 2 has 6 and cannot be split; raise the limit to 6",
        ),
        (
            {"limits": {"tokens": 5}, "amounts": {"tokens": [4, 4, 4]}},
            CapacityError,
            r"limits\['tokens'\] is 5, but the samples have 12 together and 2 parts hold 10; the "
            "smallest that works is 8",
        ),
        (
            {"limits": {"tokens": [5, 6]}, "amounts": {"tokens": [4, 4, 3]}},
            CapacityError,
            r"is \[5, 6\], but no partition .* the smallest that works is 1 more on each part",
        ),
        (
            {"limits": {"samples": 1, "tokens": 5}, "amounts": {"tokens": [4, 4, 4]}},
            CapacityError,
            r"limits\['samples'\] and limits\['tokens'\]: no partition of 3 items to 2 parts",
        ),
    ],
)
def test_bad_input_is_refused_by_name(arguments, error, words):
    given_arguments = {"costs": [1, 2, 3], "num_parts": 2} | arguments
    with pytest.raises(error, match=words) as caught:
        partition(**given_arguments)
    assert isinstance(caught.value, BalancerError)


def test_an_oversize_group_carries_its_samples():
    with pytest.raises(CapacityError) as caught:
        partition(
            [1, 1, 1], 2, groups=[7, 0, 7], limits={"tokens": 5}, amounts={"tokens": [3, 1, 3]}
        )
    assert caught.value.sample_ids == (0, 2)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 4), st.integers(9, 14))
def test_the_limit_that_an_error_names_works(tokens, num_parts, most):
    """Trying again with the value in the message succeeds, and one less is refused."""
    try:
        partition(tokens, num_parts, limits={"tokens": most}, amounts={"tokens": tokens})
    except CapacityError as error:
        works = int(str(error).rsplit(" ", 1)[1])
        amounts = {"tokens": tokens}
        partition(tokens, num_parts, limits={"tokens": works}, amounts=amounts)
        with pytest.raises(CapacityError):
            partition(tokens, num_parts, limits={"tokens": works - 1}, amounts=amounts)
