"""Plans of windows over gathered sizes: conservation, limits, equal counts, and nothing worse."""

from collections import Counter
from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.plan import Flag, Plan
from balancer.topology import Limits, Topology
from loaders.streams.moving_plan import keep_in_place, plan_moving
from loaders.streams.parcels import pack_parcel, unpack_parcel
from loaders.streams.plan import WindowPlan, plan_in_place
from loaders.streams.rules import StreamRules

MAX_TOKENS = 60


@st.composite
def windows(draw: st.DrawFn) -> tuple[Costs, np.ndarray, StreamRules]:
    """Samples of two to four ranks, not equally many, and rules to plan them by."""
    dp_size = draw(st.integers(2, 4))
    num_microbatches = draw(st.integers(1, 3))
    size = draw(st.integers(num_microbatches, 5))
    window_steps = draw(st.integers(1, 3))
    counts = draw(st.lists(st.integers(0, window_steps * size), min_size=dp_size, max_size=dp_size))
    num = sum(counts)
    tokens = draw(st.lists(st.integers(1, 40), min_size=num, max_size=num))
    vision = draw(st.lists(st.integers(0, 9), min_size=num, max_size=num))
    costs = Costs.from_values(
        np.stack([np.array(vision), np.array(tokens)], axis=1).reshape(num, 2),
        modules=("vision", "language"),
        tokens=tokens,
    )
    rules = StreamRules(
        topology=Topology(
            dp_size=dp_size,
            num_microbatches=num_microbatches,
            barrier=draw(st.sampled_from(["step", "microbatch"])),
            limits=Limits(max_tokens=MAX_TOKENS if draw(st.booleans()) else None),
        ),
        global_batch_size=size * dp_size,
        window_steps=window_steps,
        oversize="error",
        tail=draw(st.sampled_from(["drop", "pad", "filler"])),
    )
    return costs, np.repeat(np.arange(dp_size), counts), rules


def check(window: WindowPlan, costs: Costs, rules: StreamRules, num_rows: int) -> None:
    """Each row is real once or left; limits hold; each step has its samples and its number."""
    placed: Counter[int] = Counter(window.left.tolist())
    for number, plan in enumerate(window.steps):
        plan.check(costs)
        assert plan.first_step == number
        assert plan.num_microbatches(0) >= rules.topology.num_microbatches
        assert (np.diff(plan.offsets) > 0).all()
        placed.update(plan.sample_ids[plan.flags == Flag.REAL].tolist())
        if rules.tail != "filler":
            assert (plan.flags != Flag.FILLER).sum() == rules.global_batch_size
    assert placed == Counter(range(num_rows))


def kept_weight(plan: Plan, owner: np.ndarray, weight: np.ndarray) -> int:
    stays = owner[plan.sample_ids] == plan.cell_of_sample() % plan.topology.dp_size
    return int(weight[plan.sample_ids[stays]].sum())


@given(windows())
@settings(max_examples=25)
def test_in_place_every_rank_keeps_its_samples_and_all_take_the_same_steps(problem: Any) -> None:
    costs, owner, rules = problem
    counts = np.bincount(owner, minlength=rules.topology.dp_size)
    spare: list[int | None] = [0 if not count else None for count in counts]
    for rank, count in enumerate(counts):
        spare[rank] = int(np.argmax(owner == rank)) if count else 0
    if not len(costs):
        return
    window = plan_in_place(costs, owner, spare, rules)
    check(window, costs, rules, len(costs))
    again = plan_in_place(costs, owner, spare, rules)
    assert [p.fingerprint for p in again.steps] == [p.fingerprint for p in window.steps]
    for plan in window.steps:
        rank = plan.cell_of_sample() % rules.topology.dp_size
        mine = owner[plan.sample_ids] == rank
        stands_in = counts[rank] == 0
        assert (mine | stands_in).all()
    size = rules.rank_samples
    expected = min(counts) // size if rules.tail == "drop" else -(-max(counts) // size)
    assert len(window.steps) == expected


@given(windows())
@settings(max_examples=25)
def test_in_place_the_dearest_ranks_of_the_steps_cost_no_more_than_in_the_given_order(
    problem: Any,
) -> None:
    """Of each module by itself where ranks wait after each, of their sum under the step barrier."""
    costs, owner, rules = problem
    size, dp_size = rules.rank_samples, rules.topology.dp_size
    whole = min(np.bincount(owner, minlength=dp_size)) // size
    kept = [np.flatnonzero(owner == rank)[: whole * size] for rank in range(dp_size)]
    in_turn = rules.topology.barrier == "microbatch"
    columns = costs.values if in_turn else costs.total[:, None]
    given_time = sum(
        np.max([columns[own[step * size : (step + 1) * size]].sum(axis=0) for own in kept], 0).sum()
        for step in range(whole)
    )
    rules = StreamRules(
        topology=rules.topology, global_batch_size=rules.global_batch_size,
        window_steps=rules.window_steps, oversize="error", tail="drop",
    )  # fmt: skip
    window = plan_in_place(costs, owner, [None] * dp_size, rules)
    planned = 0.0
    for plan in window.steps:
        load = np.zeros((dp_size, columns.shape[1]))
        real = plan.sample_ids[plan.flags == Flag.REAL]
        rank = (plan.cell_of_sample() % dp_size)[plan.flags == Flag.REAL]
        np.add.at(load, rank, columns[real])
        planned += load.max(axis=0).sum()
    assert planned <= given_time + 1e-9


def test_in_place_modules_that_ranks_wait_for_one_after_another_are_evened_out_one_by_one() -> None:
    """Two images and two texts of 8 on rank 0, four samples of 4 and 4 on rank 1: 32 is least.

    On sums alone rank 0 may run its images together, and rank 1 waits: 16 + 8 twice, that is 48.
    """
    costs = Costs.from_values(
        [[8, 0], [8, 0], [0, 8], [0, 8], [4, 4], [4, 4], [4, 4], [4, 4]],
        modules=("vision", "language"),
    )
    rules = StreamRules(
        topology=Topology(dp_size=2, num_microbatches=2), global_batch_size=8, window_steps=1,
        oversize="error", tail="drop",
    )  # fmt: skip
    (plan,) = plan_in_place(costs, np.repeat([0, 1], 4), [None, None], rules).steps
    assert plan.certificates[0].step_time == 32


def test_moving_spreads_the_images_of_one_rank_over_all() -> None:
    """F1: rank 0 read both images; with `modality_sync="spread"` each rank runs one."""
    costs = Costs.from_values(
        [[1, 1], [0, 9], [1, 1], [0, 9]], modules=("vision", "language"), tokens=[1, 9, 1, 9]
    )
    rules = StreamRules(
        topology=Topology(dp_size=2, barrier="step", modality_sync="spread"), global_batch_size=4,
        window_steps=1, oversize="error", tail="drop", effort="fast",
    )  # fmt: skip
    (plan,) = plan_moving(costs, np.array([0, 1, 0, 1]), rules, is_last=False).steps
    rank_of = plan.cell_of_sample() % 2
    assert sorted(rank_of[np.isin(plan.sample_ids, [0, 2])].tolist()) == [0, 1]


@given(windows(), st.booleans())
@settings(max_examples=25)
def test_moving_every_sample_has_a_place_and_renaming_ranks_changes_no_step_time(
    problem: Any, is_last: bool
) -> None:
    costs, owner, rules = problem
    if not len(costs):
        return
    window = plan_moving(costs, owner, rules, is_last=is_last)
    check(window, costs, rules, len(costs))
    if not is_last or rules.tail == "drop":
        assert len(window.left) == len(costs) % rules.global_batch_size
        assert (np.diff(window.left) == 1).all()
    else:
        assert not len(window.left)


@given(windows(), st.randoms(use_true_random=False))
@settings(max_examples=25)
def test_renamed_ranks_hold_the_same_microbatches_and_move_no_more_than_half_as_well_as_any(
    problem: Any, random: Any
) -> None:
    """Greedy keeps at least half the weight that the best renaming keeps, so of any other's."""
    costs, owner, rules = problem
    dp_size = rules.topology.dp_size
    if len(costs) < rules.global_batch_size:
        return
    rows = list(range(rules.global_batch_size))
    random.shuffle(rows)
    cells = [[[rows[rank::dp_size]] for rank in range(dp_size)]]
    plan = Plan.from_cells(
        [[[cells[0][rank][0] for rank in range(dp_size)]]],
        topology=Topology(dp_size=dp_size, barrier=rules.topology.barrier),
    )
    weight = 1 + costs.tokens
    renamed = keep_in_place(plan, owner, weight)
    parts = {tuple(ids.tolist()) for rank in range(dp_size) for ids in plan.for_rank(rank)}
    assert {
        tuple(ids.tolist()) for rank in range(dp_size) for ids in renamed.for_rank(rank)
    } == parts
    assert 2 * kept_weight(renamed, owner, weight) >= kept_weight(plan, owner, weight)


arrays = st.one_of(
    st.lists(st.integers(-5, 5), max_size=9).map(lambda values: np.array(values, np.int32)),
    st.lists(st.integers(-5, 5), max_size=9).map(torch.tensor),
    st.tuples(st.integers(0, 3), st.integers(0, 3)).map(
        lambda shape: torch.arange(shape[0] * shape[1], dtype=torch.bfloat16).reshape(shape)
    ),
    st.integers(0, 3).map(lambda n: torch.arange(8).reshape(2, 4)[:, n]),
)


@settings(max_examples=25)
@given(st.lists(st.dictionaries(st.text(max_size=3), st.one_of(arrays, st.text()), max_size=3)))
def test_parcels_come_out_as_they_went_in(samples: list[dict[str, Any]]) -> None:
    got = unpack_parcel(pack_parcel(samples))
    assert len(got) == len(samples)
    for ours, theirs in zip(samples, got, strict=True):
        assert list(ours) == list(theirs)
        for name, value in ours.items():
            assert type(theirs[name]) is type(value)
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(theirs[name], value, rtol=0, atol=0)
            elif isinstance(value, np.ndarray):
                np.testing.assert_array_equal(theirs[name], value)
            else:
                assert theirs[name] == value
