"""Settings of the pipeline barrier: what is refused, by name, and what plans keep of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError, CapacityError
from balancer.pipeline import step_times, tokens_in_flight
from balancer.pipeline_stages import encoder_first, stage_shares
from balancer.plan import Plan
from balancer.planner import plan_step
from balancer.topology import Limits, Topology

PIPELINE = {"dp_size": 2, "num_microbatches": 4, "barrier": "pipeline", "pp_size": 4}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pp_size": 1}, "pp_size is 1; allowed: whole numbers >= 2"),
        ({"barrier": "microbatch"}, "pp_size is 4 under barrier='microbatch'; pass barrier="),
        ({"schedule": "gpipe"}, "schedule is 'gpipe'; allowed: '1f1b', 'eager_1f1b', 'interleav"),
        ({"virtual_stages": 2}, "virtual_stages is 2 with schedule='1f1b'"),
        ({"schedule": "interleaved"}, "virtual_stages is 1 with schedule='interleaved'"),
        ({"stages": ({"language": 1},) * 3}, "stages has 3 entries; pp_size=4 x virtual_stages=1"),
        ({"stages": {"language": 1}}, "stages is {'language': 1}; allowed: a mapping of modules f"),
        ({"stages": (1, 2, 3, 4)}, "stages\\[0\\] is 1; allowed: a mapping from module"),
        (
            {"stages": ({"language": -1},) * 4},
            "stages\\[0\\]\\['language'\\] is -1; allowed: finit",
        ),
        ({"stages": ({"language": 0},) * 4}, "stages give module 'language' no weight"),
        ({"forward_share": 1.5}, "forward_share is 1.5; allowed: finite numbers >= 0 and <= 1"),
        ({"microbatch_cost": float("inf")}, "microbatch_cost is inf; allowed: finite numbers"),
        ({"microbatch_cost": float("nan")}, "microbatch_cost is nan; allowed: finite numbers"),
        ({"max_in_flight": 99}, "max_in_flight is 99 without limits.max_tokens"),
        (
            {"max_in_flight": 99, "limits": Limits(max_tokens=100)},
            "max_in_flight is 99, less than limits.max_tokens=100",
        ),
        (
            {"schedule": "interleaved", "virtual_stages": 2, "num_microbatches": 6},
            "num_microbatches is 6; .* give a multiple of it",
        ),
        ({"deferral": True}, "deferral is True and stages is \\(\\); encoders and the language"),
        (
            {"deferral": True, "stages": ({"vision": 1}, {"language": 1, "vision": 1}, {}, {})},
            "deferral is True and stages is .* need stages of their own",
        ),
        (
            {"deferral": True, "schedule": "interleaved", "virtual_stages": 2},
            'deferral is True with schedule="interleaved"',
        ),
        (
            {"deferral": True, "rank_speeds": (1.0, 0.5)},
            "deferral is True with rank_speeds or rank_limits",
        ),
        ({"deferral": True, "barrier": "step", "pp_size": 1}, "deferral is True under barrier="),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(options, message):
    """Each error names the argument, what was given, and what is allowed or to be done."""
    with pytest.raises(ArgumentError, match=message):
        Topology(**(PIPELINE | options))


def test_stages_must_hold_all_modules_of_the_costs():
    """A module at no stage, or one that there is not, is named."""
    costs = Costs.from_values(np.ones((8, 2)), modules=("vision", "language"))
    for stages, message in (
        (({"language": 1.0},) * 4, "stages leave out 'vision'; the costs have the modules"),
        (encoder_first(4, encoders=("vision", "audio")), "stages name 'audio'; the costs have"),
    ):
        with pytest.raises(ArgumentError, match=message):
            plan_step(costs, Topology(**PIPELINE, stages=stages))


def test_layers_of_each_stage_become_shares():
    """Weights may be numbers of layers; each module's shares sum to 1."""
    stages = ({"vision": 32, "language": 4}, {"language": 12}, {"language": 12})
    topology = Topology(dp_size=1, barrier="pipeline", pp_size=3, stages=stages)
    shares = stage_shares(topology, ("vision", "language"))
    assert shares.tolist() == [[1.0, 4 / 28], [0.0, 12 / 28], [0.0, 12 / 28]]
    assert stage_shares(Topology(**PIPELINE), ("a", "b")).tolist() == [[0.25, 0.25]] * 4


def test_one_rank_of_even_stages_takes_the_textbook_time():
    """Equal microbatches: (m + p - 1) times the work of one at a stage, plus its constant."""
    costs = Costs.from_values(np.full(4, 8.0))
    plan = Plan.from_cells(
        [[[[0]], [[1]], [[2]], [[3]]]],
        topology=Topology(**(PIPELINE | {"dp_size": 1, "microbatch_cost": 1.0})),
    )
    assert step_times(plan, costs) == pytest.approx([(4 + 4 - 1) * (8.0 / 4 + 1.0)])


def test_a_plan_survives_saving_with_its_stages(tmp_path):
    """Stages, schedule and fingerprint come back as they were; a topology can be a key."""
    costs = Costs.from_values(np.ones((16, 2)), modules=("vision", "language"))
    topology = Topology(**PIPELINE, stages=encoder_first(4), schedule="eager_1f1b")
    plan = plan_step(costs, topology)
    plan.save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
    assert loaded.topology == topology
    assert {topology: 1}[loaded.topology] == 1
    assert loaded.fingerprint == plan.fingerprint


def test_other_barriers_are_shown_without_pipelines():
    """What is shown, and so fingerprints, of the other barriers is what it was before."""
    assert "pp_size" not in repr(Topology(dp_size=2))
    assert "pp_size=4" in repr(Topology(**PIPELINE))
    assert "deferral" not in repr(Topology(**PIPELINE))


@given(st.integers(4, 12), st.integers(0, 2**32 - 1), st.sampled_from(["packed", "padded"]))
def test_memory_in_flight_is_kept_by_order_and_by_more_microbatches(most, seed, layout):
    """Tokens of microbatches held at once stay within the cap, or an error says to raise it."""
    tokens = np.random.default_rng(seed).integers(1, 5, 24)
    costs = Costs.from_values(tokens.astype(float), tokens=tokens)
    limits = Limits(max_tokens=4, layout=layout)
    topology = Topology(**(PIPELINE | {"pp_size": 2}), limits=limits, max_in_flight=most)
    try:
        plan = plan_step(costs, topology)
    except CapacityError:
        assert most < 8  # from there on any two microbatches fit
        return
    plan.check(costs, expected_ids=np.arange(24))
    assert tokens_in_flight(plan, costs).max() <= most


def test_only_pipelines_have_tokens_in_flight():
    """The other barriers have no such thing."""
    with pytest.raises(ArgumentError, match="plan is for barrier='microbatch'"):
        tokens_in_flight(Plan.from_cells([[[[0]]]]), Costs.from_values([1.0]))
