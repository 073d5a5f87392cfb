"""Groups of samples: planned as one item, never split, over-long policies apply to the group."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import Costs, evaluate_costs
from balancer.errors import ArgumentError, CapacityError, PlanError, SampleError
from balancer.groups import GroupedCosts, expand
from balancer.plan import Plan
from balancer.planner import EpochPlanner
from balancer.samples import SampleTable
from balancer.step_planner import plan_step
from balancer.table_costs import TableCosts
from balancer.topology import Limits, Topology
from tests.properties.planning import costs

DEFAULTS = {"effort": "fast"}


def pairs_of(lengths: list[int], **options: int) -> tuple[Costs, np.ndarray, GroupedCosts]:
    """Costs of the samples, the ids of pairs (i, i + n), and the costs of the pairs."""
    samples = Costs.from_values(lengths, tokens=lengths)
    group_ids = np.tile(np.arange(len(lengths) // 2), 2)
    return samples, group_ids, GroupedCosts.from_ids(samples, group_ids, **options)


def test_fifty_pairs_are_never_split_over_an_epoch():
    """Every sample is placed once, and both of a pair in one microbatch."""
    lengths = np.random.default_rng(0).integers(1, 60, 100).tolist()
    samples, group_ids, pairs = pairs_of(lengths)
    topology = Topology(dp_size=2, num_microbatches=2, limits=Limits(max_tokens=512))
    planner = EpochPlanner(pairs, topology, global_batch_size=12, tail="filler", **DEFAULTS)
    plan = expand(planner.plan_epoch(0), pairs)
    plan.check(samples, expected_ids=range(100), group_ids=group_ids)
    cell_of = dict(zip(plan.sample_ids.tolist(), plan.cell_of_sample().tolist(), strict=True))
    assert len(cell_of) == 100
    assert all(cell_of[first] == cell_of[first + 50] for first in range(50))


@given(
    samples=costs(min_samples=4, max_modules=2),
    dp_size=st.integers(1, 3),
    oversize=st.sampled_from(["drop", "alone"]),
    max_tokens=st.sampled_from([None, 120, 250]),
    pad_sample_to=st.sampled_from([1, 8]),
    data=st.data(),
)
def test_an_expanded_plan_keeps_all_promises(
    samples, dp_size, oversize, max_tokens, pad_sample_to, data
):
    """Conservation, limits and whole groups hold, and cells hold what those of the groups do."""
    number = st.integers(0, len(samples) // 2)
    group_ids = data.draw(st.lists(number, min_size=len(samples), max_size=len(samples)))
    grouped = GroupedCosts.from_ids(samples, group_ids, pad_sample_to=pad_sample_to)
    limits = Limits(max_tokens=max_tokens, pad_sample_to=pad_sample_to)
    topology = Topology(dp_size=dp_size, limits=limits)
    try:
        of_groups = plan_step(grouped, topology, oversize=oversize, fill=True, **DEFAULTS)
    except PlanError:  # every group was dropped
        assert oversize == "drop"
        return
    plan = expand(of_groups, grouped)
    of_groups.check(grouped, expected_ids=range(len(grouped)))
    plan.check(samples, expected_ids=range(len(samples)), group_ids=group_ids)
    amounts, expected = plan.amounts(samples), of_groups.amounts(grouped)
    assert amounts["tokens"].tolist() == expected["tokens"].tolist()
    assert amounts["patches"].tolist() == expected["patches"].tolist()
    assert amounts["images"].tolist() == expected["images"].tolist()


@given(group_ids=st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_groups_stand_in_the_order_of_their_first_samples(group_ids):
    """Rows, members and sums are those of a plain loop over the samples."""
    groups: dict[int, list[int]] = {}
    for sample_id, group_id in enumerate(group_ids):
        groups.setdefault(group_id, []).append(sample_id)
    values = [0.1 * 2**k for k in range(len(group_ids))]
    grouped = GroupedCosts.from_ids(Costs.from_values(values), group_ids)
    assert [grouped.members_of([row]).tolist() for row in range(len(grouped))] == [*groups.values()]
    assert grouped.members_of(range(len(grouped))).tolist() == list(chain(*groups.values()))
    assert grouped.total.tolist() == [sum(values[k] for k in ids) for ids in groups.values()]


def test_a_pair_over_the_cap_is_an_error_that_names_both_samples():
    _, _, pairs = pairs_of([5, 6, 5, 7])
    with pytest.raises(CapacityError, match="the group of samples 1, 3 has 13 tokens") as error:
        plan_step(pairs, Topology(dp_size=1, limits=Limits(max_tokens=12)))
    assert error.value.sample_ids == (1, 3)


def test_a_pair_over_the_cap_is_dropped_whole():
    samples, group_ids, pairs = pairs_of([5, 6, 5, 7])
    topology = Topology(dp_size=1, limits=Limits(max_tokens=12))
    plan = expand(plan_step(pairs, topology, oversize="drop"), pairs)
    plan.check(samples, expected_ids=range(4), group_ids=group_ids)
    assert (plan.dropped.tolist(), plan.sample_ids.tolist()) == ([1, 3], [0, 2])


def test_a_pair_over_the_cap_gets_a_microbatch_to_itself():
    samples, group_ids, pairs = pairs_of([5, 6, 5, 7])
    topology = Topology(dp_size=2, limits=Limits(max_tokens=12))
    plan = expand(plan_step(pairs, topology, oversize="alone"), pairs)
    plan.check(samples, expected_ids=range(4), group_ids=group_ids)
    assert plan.alone.tolist() == [1, 3]
    assert sorted(ids.tolist() for rank in (0, 1) for ids in plan.for_rank(rank)) == [
        [0, 2],
        [1, 3],
    ]
    with pytest.raises(PlanError, match="more than max_tokens=12"):
        plan.check(samples)


def test_the_check_finds_a_group_that_was_split():
    plan = Plan.from_cells([[[[0, 1], [2]]]])
    samples = Costs.from_values([1.0, 1.0, 1.0])
    plan.check(samples, group_ids=["a", "a", "b"])
    with pytest.raises(PlanError, match=r"sample 1 without the whole of its group, samples \[1, 2"):
        plan.check(samples, group_ids=["a", "b", "b"])


def test_a_group_with_a_sample_that_the_model_cannot_take_is_left_out_whole():
    legal = Costs.from_values([1.0] * 6)
    samples = replace(legal, illegal=np.array([4]), illegal_because="too wide")
    pairs = GroupedCosts.from_ids(samples, [0, 1, 2, 0, 1, 2])
    with pytest.raises(SampleError, match="too wide") as error:
        EpochPlanner(pairs, Topology(dp_size=1), global_batch_size=1)
    assert error.value.sample_ids == (4,)
    planner = EpochPlanner(pairs, Topology(dp_size=1), global_batch_size=1, illegal="drop")
    assert expand(planner.plan_epoch(0), pairs).dropped.tolist() == [1, 4]


def test_max_samples_counts_groups_of_one_size_and_is_refused_for_others():
    samples, group_ids, pairs = pairs_of([1] * 12)
    topology = Topology(dp_size=1, num_microbatches=3, limits=Limits(max_samples=2))
    plan = expand(plan_step(pairs, topology), pairs)
    assert plan.topology.limits.max_samples == 4
    plan.check(samples, expected_ids=range(12), group_ids=group_ids)
    uneven = GroupedCosts.from_ids(samples, [0] * 7 + [1] * 5)
    with pytest.raises(ArgumentError, match="which have 5 to 7 samples"):
        EpochPlanner(uneven, topology, global_batch_size=3)


def test_tokens_that_do_not_add_up_over_a_group_are_refused():
    _, _, pairs = pairs_of([3, 4, 5, 6])
    padded = Topology(dp_size=1, limits=Limits(max_tokens=64, layout="padded"))
    with pytest.raises(ArgumentError, match='layout is "padded"'):
        EpochPlanner(pairs, padded, global_batch_size=2)
    rounded = Topology(dp_size=1, limits=Limits(max_tokens=64, pad_sample_to=8))
    with pytest.raises(ArgumentError, match="give GroupedCosts pad_sample_to=8"):
        EpochPlanner(pairs, rounded, global_batch_size=2)
    EpochPlanner(pairs_of([3, 4, 5, 6], pad_sample_to=8)[2], rounded, global_batch_size=2)


def test_one_group_id_a_sample_is_asked_for():
    with pytest.raises(ArgumentError, match=r"group_ids has shape \(2,\); .* \(3,\)"):
        GroupedCosts.from_ids(Costs.from_values([1.0, 2, 3]), [0, 1])


def test_the_fingerprint_tells_who_is_with_whom():
    """Sums alone do not: other pairs of the same samples may have the same."""
    samples = Costs.from_values([1.0, 1.0, 1.0, 1.0])
    prints = {
        GroupedCosts.from_ids(samples, ids).fingerprint for ids in ([0, 0, 1, 1], [0, 1, 0, 1])
    }
    assert len(prints) == 2
    assert GroupedCosts.from_ids(samples, [5, 5, 2, 2]).fingerprint in prints


def test_groups_of_a_table_priced_when_needed_are_those_in_memory():
    table = SampleTable.from_lengths([5, 9, 2, 7])

    def tokens(table: SampleTable) -> np.ndarray:
        return table.text_tokens

    in_memory = GroupedCosts.from_ids(evaluate_costs(tokens, table), [0, 1, 0, 1])
    lazy = GroupedCosts.from_ids(TableCosts(table, tokens, progress=False), [0, 1, 0, 1])
    assert lazy.fingerprint == in_memory.fingerprint
    assert lazy.total.tolist() == in_memory.total.tolist() == [7, 16]
