"""How far windows move samples: below the window, and reported by source."""

import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.__main__ import main
from balancer.cost import Costs
from balancer.planner import EpochPlanner, plan_step, plan_window
from balancer.report import balance_report
from balancer.topology import Topology


@given(st.integers(1, 5), st.integers(1, 3), st.integers(8, 60), st.integers(0, 2**32 - 1))
def test_e8_steps_moved_are_reported_by_source(window_steps, dp_size, num_samples, seed):
    """I2: every sample moves by fewer steps than the window has; the report says how far."""
    rng = np.random.default_rng(seed)
    costs = Costs.from_values(rng.lognormal(0.0, 1.5, num_samples))
    planner = EpochPlanner(
        costs, Topology(dp_size=dp_size), global_batch_size=2 * dp_size, seed=seed % 97,
        window_steps=window_steps, tail="filler",
    )  # fmt: skip
    plan = planner.plan_epoch(0)
    sources = rng.integers(0, 3, num_samples)
    moved = planner.displacement(plan)
    report = balance_report(plan, costs, displacement=moved, sources=sources)
    strict = {
        int(i): step for step in range(planner.num_steps) for i in planner.step_ids(0, step)[0]
    }
    steps = {
        int(i): step
        for step in range(plan.num_steps)
        for index in range(plan.num_microbatches(step))
        for rank in range(dp_size)
        for i in plan.microbatch(step=step, index=index, dp_rank=rank)
    }
    for source, numbers in report.displacement.items():
        ids = np.flatnonzero(sources == source).tolist()
        away = [abs(steps[i] - strict[i]) for i in ids]
        assert numbers["max"] == max(away) < window_steps
        assert np.isclose(numbers["mean"], np.mean(away))
        assert numbers["mean"] <= numbers["max"] >= numbers["p99"]
    assert set(report.displacement) == set(sources.tolist())
    assert str(report).count("steps moved in their window") == len(report.displacement)
    assert not balance_report(plan, costs).displacement


def test_outliers_end_in_the_same_step_or_in_as_many_whichever_is_faster():
    """Four dear samples on two ranks meet in two steps; alone they would make four steps long."""
    values = np.ones(32)
    values[[0, 8, 16, 24]] = 20.0
    costs = Costs.from_values(values)
    topology = Topology(dp_size=2)
    plans = plan_window(costs, topology, sample_ids=range(32), num_steps=4)
    strict = [plan_step(costs, topology, sample_ids=range(8 * s, 8 * s + 8)) for s in range(4)]
    together = sum(plan.certificates[0].step_time for plan in plans)
    assert [plan.certificates[0].step_time for plan in strict] == [20.0] * 4
    assert together == 23.0 + 23.0 + 4.0 + 4.0
    spread = np.ones(32)
    spread[:4] = 6.0
    plans = plan_window(Costs.from_values(spread), topology, sample_ids=range(32), num_steps=4)
    assert [plan.certificates[0].step_time for plan in plans] != [20.0] * 4
    assert sum(plan.certificates[0].step_time for plan in plans) <= 26.0


def test_the_command_line_reports_steps_moved(capsys):
    """`balancer plan --window-steps` shows how far samples moved, as text and in JSON."""
    arguments = [
        "plan", "embedded", "--model", "qwen2.5-vl-7b", "--dp-size", "2",
        "--global-batch-size", "64", "--steps", "4", "--window-steps", "2",
    ]  # fmt: skip
    assert main(arguments) == 0
    assert "steps moved in their window" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)["report"]["displacement"]["0"]
    assert 0 < moved["mean"] <= moved["max"] == 1
