"""BalanceReport and Measures against numbers worked out by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.given_order import given_cells, given_plan
from balancer.measures import measure_plan
from balancer.plan import Flag, Plan
from balancer.planner import EpochPlanner, plan_step
from balancer.report import balance_report
from balancer.topology import Barrier, Limits, Topology


def _costs() -> Costs:
    """Six samples; vision and language in opposite proportions."""
    return Costs.from_values(
        [[4, 1], [0, 3], [2, 2], [0, 4], [1, 1], [3, 0]],
        modules=("vision", "language"),
        tokens=[10, 30, 20, 40, 10, 5],
        patches=[40, 0, 20, 0, 10, 30],
        images=[2, 0, 1, 0, 1, 1],
        unit="s",
    )


def _plan(barrier: Barrier = "microbatch", **limits: int | str) -> Plan:
    """Step 0: slots ({0} | {1}) and ({2} | {3}); step 1: one slot ({4} | {5})."""
    plan = Plan.from_cells([[[[0], [1]], [[2], [3]]], [[[4], [5]]]])
    topology = Topology(
        dp_size=2,
        num_microbatches=2,
        barrier=barrier,
        limits=Limits(**limits),  # type: ignore[arg-type]
    )
    return replace(plan, topology=topology)


def test_imbalance_per_microbatch_is_max_over_mean_in_each_slot() -> None:
    # Loads (rank 0 | rank 1): 5 | 3, 4 | 4 and 2 | 3.
    measures = measure_plan(_plan(), _costs())
    ratios = [5 / 4, 1.0, 3 / 2.5]
    assert measures.microbatch_imbalance.mean == pytest.approx(np.mean(ratios))
    assert measures.microbatch_imbalance.max == pytest.approx(1.25)
    assert measures.microbatch_imbalance.p95 == pytest.approx(np.quantile(ratios, 0.95))


def test_imbalance_per_step_sums_a_ranks_microbatches_first() -> None:
    # Step 0: 9 | 7, step 1: 2 | 3.
    measures = measure_plan(_plan(), _costs())
    assert measures.step_imbalance.mean == pytest.approx((9 / 8 + 3 / 2.5) / 2)


def test_imbalance_of_a_module_is_taken_where_ranks_wait() -> None:
    # Vision by slot: 4 | 0, 2 | 0, 1 | 3; by step: 6 | 0, 1 | 3. Language by step: 3 | 7, 1 | 0.
    by_slot = measure_plan(_plan(), _costs()).module_imbalance
    by_step = measure_plan(_plan("step"), _costs()).module_imbalance
    assert by_slot["vision"].mean == pytest.approx((2 + 2 + 1.5) / 3)
    assert by_step["vision"].mean == pytest.approx((2 + 1.5) / 2)
    assert by_step["language"].mean == pytest.approx((1.4 + 2) / 2)


def test_a_place_where_no_rank_has_cost_is_left_out_of_imbalance() -> None:
    costs = Costs.from_values([0.0, 0.0, 1.0, 3.0])
    measures = measure_plan(Plan.from_cells([[[[0], [1]], [[2], [3]]]]), costs)
    assert measures.microbatch_imbalance.mean == 1.5
    free = measure_plan(Plan.from_cells([[[[0], [1]]]]), costs)
    assert (free.microbatch_imbalance.max, free.idle_fraction) == (1.0, 0.0)


def test_idle_is_what_ranks_wait_for_one_another() -> None:
    # In turn: vision 4 + 2 + 3, language 3 + 4 + 1 = 17; per step 9 + 3 = 12; work of both 21.
    assert measure_plan(_plan(), _costs()).idle_fraction == pytest.approx(1 - 10.5 / 17)
    assert measure_plan(_plan("step"), _costs()).idle_fraction == pytest.approx(1 - 10.5 / 12)


def test_padding_and_fill_count_what_is_allocated() -> None:
    cells = Plan.from_cells([[[[0, 1], [2, 3]]]])
    topology = Topology(dp_size=2, limits=Limits(max_tokens=100, max_images=4, layout="padded"))
    measures = measure_plan(replace(cells, topology=topology), _costs())
    assert measures.padding_fraction == pytest.approx(1 - 100 / (2 * 30 + 2 * 40))
    assert measures.fill["tokens"] == pytest.approx((0.7, 0.8))
    assert measures.fill["images"] == pytest.approx((0.375, 0.5))
    assert measure_plan(_plan(max_tokens=50), _costs()).padding_fraction == 0


def test_fill_is_of_the_limit_of_each_rank() -> None:
    """Each microbatch is set beside its own rank's limit, not the loosest of all ranks."""
    cells = Plan.from_cells([[[[0, 1], [2, 3]]]])
    rank_limits = (Limits(max_tokens=100), Limits(max_tokens=70))
    measures = measure_plan(
        replace(cells, topology=Topology(dp_size=2, rank_limits=rank_limits)), _costs()
    )
    held = cells.amounts(_costs())["tokens"]
    shares = [held[0] / 100, held[1] / 70]
    assert measures.fill["tokens"] == pytest.approx((sum(shares) / 2, max(shares)))


def test_the_largest_microbatch_is_named_by_its_place_in_the_epoch() -> None:
    largest = measure_plan(replace(_plan(), first_step=7), _costs()).largest
    assert (largest.step, largest.index, largest.dp_rank) == (7, 1, 1)
    assert (largest.tokens, largest.samples, largest.images) == (40, 1, 0)


def test_a_report_lists_every_exception_by_id() -> None:
    plan = replace(
        _plan(),
        flags=np.array([0, Flag.REPEAT, 0, 0, Flag.FILLER, 0], np.int8),
        dropped=np.array([8, 9]),
        alone=np.array([0]),
    )
    report = balance_report(plan, _costs())
    assert (report.samples, report.steps, report.microbatches) == (4, 2, 3)
    assert (report.dropped, report.repeated) == ((8, 9), (1,))
    assert (report.fillers, report.alone) == ((4,), (0,))
    text = str(report)
    for line in ("2 samples: 8, 9", "1 samples: 1", "1 samples: 4", "1 samples: 0"):
        assert line in text


def test_long_lists_of_ids_are_cut_in_the_text_only() -> None:
    report = balance_report(replace(_plan(), dropped=np.arange(10, 30)), _costs())
    assert "20 samples: 10, 11, 12, 13, 14, 15, 16, 17, ... 12 more" in str(report)
    assert len(report.to_dict()["dropped"]) == 20


def test_a_planned_step_is_reported_beside_its_given_order() -> None:
    rng = np.random.default_rng(3)
    costs = Costs.from_values(rng.lognormal(size=64), tokens=np.full(64, 10))
    planner = EpochPlanner(costs, Topology(dp_size=4, num_microbatches=2), global_batch_size=32)
    plan = planner.plan_epoch(0)
    before = given_plan(planner, plan)
    before.check(costs, expected_ids=np.arange(64))
    report = balance_report(plan, costs, given=before)
    given_time = sum(certificate.given_time for certificate in plan.certificates)
    assert report.given is not None
    assert report.given.total_time == pytest.approx(given_time)
    assert report.speedup == pytest.approx(given_time / report.planned.total_time)
    assert report.given.time_over_bound >= report.planned.time_over_bound >= 1 - 1e-9
    assert sum(report.binds.values()) == sum(report.planners.values()) == 2
    assert "given order" in str(report)
    assert "planned" in str(report)
    json.dumps(report.to_dict(), allow_nan=False)


def test_numbers_that_are_not_known_are_null() -> None:
    plain = balance_report(_plan(), _costs()).to_dict()
    assert plain["speedup"] is None
    assert plain["planned"]["time_over_bound"] is None
    json.dumps(plain, allow_nan=False)


@given(num_samples=st.integers(1, 60), dp_size=st.integers(1, 5), num_slots=st.integers(1, 4))
def test_the_given_order_deals_ranks_in_turn_and_fills_slots_in_order(
    num_samples: int, dp_size: int, num_slots: int
) -> None:
    """Position p is on rank p mod dp_size, and a rank's slots never go down."""
    cells = given_cells(num_samples, dp_size, num_slots)
    assert (cells % dp_size == np.arange(num_samples) % dp_size).all()
    assert cells.max() < dp_size * num_slots
    for rank in range(dp_size):
        assert (np.diff(cells[rank::dp_size] // dp_size) >= 0).all()
    if num_samples % (dp_size * num_slots) == 0:
        assert (np.bincount(cells) == num_samples // (dp_size * num_slots)).all()


@pytest.mark.parametrize("tail", ["pad", "filler"])
def test_the_given_order_of_an_incomplete_step_is_a_whole_plan(tail: str) -> None:
    costs = Costs.from_values(np.arange(1.0, 12.0))
    planner = EpochPlanner(
        costs,
        Topology(dp_size=2, num_microbatches=2),
        global_batch_size=8,
        tail=tail,  # type: ignore[arg-type]
    )
    plan = planner.plan_epoch(0)
    before = given_plan(planner, plan)
    before.check(costs, expected_ids=np.arange(11))
    assert before.num_steps == plan.num_steps == 2


def test_costs_that_are_not_those_of_the_plan_are_refused() -> None:
    costs = _costs()
    plan = plan_step(costs, Topology(dp_size=2))
    with pytest.raises(ArgumentError, match="costs has 3 rows, plan holds sample 5"):
        balance_report(plan, costs.select([0, 1, 2]))
    with pytest.raises(ArgumentError, match="certified for"):
        balance_report(plan, replace(costs, values=costs.values * 2))
    with pytest.raises(ArgumentError, match="given has 2 steps on 2 ranks, plan has 1 on 2"):
        balance_report(plan, costs, given=_plan())
