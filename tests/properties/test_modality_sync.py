"""No rank skips a module that others run: spread, uniform and dummy plans."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import ArgumentError, CapacityError
from balancer.modalities import missing_modules, used_modules
from balancer.plan import Plan
from balancer.planner import EpochPlanner, plan_step
from balancer.step_planner import oversize_ids
from balancer.topology import Limits, Topology
from loaders.sampler import BalancedBatchSampler
from tests.properties import planning

SYNCS = st.sampled_from(["spread", "uniform"])


def images_and_text(num_images, num_samples=64, seed=0, language=1.0):
    """Samples some of which have vision work, at random places."""
    rng = np.random.default_rng(seed)
    vision = np.zeros(num_samples)
    vision[rng.permutation(num_samples)[:num_images]] = rng.lognormal(2.0, 1.0, num_images)
    values = np.stack([vision, rng.lognormal(0.0, language, num_samples)], axis=1)
    return Costs.from_values(values, modules=("vision", "language"))


def where_ranks_meet(plan):
    """Slots in which a skipped module matters."""
    if plan.topology.barrier == "microbatch":
        return range(plan.num_microbatches(0))
    return range(plan.num_microbatches(0) - 1, plan.num_microbatches(0))


@given(planning.costs(), planning.topologies(), SYNCS)
def test_a_synced_plan_keeps_every_other_promise(costs, topology, sync):
    """I1, I3, I5: all samples once, limits kept, equal counts, never worse where it may not be."""
    assume(len(costs) >= topology.dp_size * topology.num_microbatches)
    plan = plan_step(costs, replace(topology, modality_sync=sync), oversize="alone")
    plan.check(costs, expected_ids=np.arange(len(costs)))
    certificate = plan.certificates[0]
    assert certificate.lower_bound <= certificate.step_time * (1 + 1e-9)


@given(
    st.integers(1, 5), st.integers(1, 4), st.integers(0, 40), st.integers(0, 99),
    st.sampled_from(["step", "microbatch"]), SYNCS, st.sampled_from(["in_turn", "summed"]),
)  # fmt: skip
def test_f1_no_rank_skips_vision_where_there_are_enough_images(
    dp_size, num_slots, num_images, seed, barrier, sync, modules
):
    """With an image sample a rank nobody skips; with fewer as few as can be; spread covers all."""
    costs = images_and_text(num_images, seed=seed)
    topology = Topology(
        dp_size=dp_size, num_microbatches=num_slots, barrier=barrier, modules=modules,
        modality_sync=sync,
    )  # fmt: skip
    plan = plan_step(costs, topology)
    skipped = int(missing_modules(plan, costs).sum())
    short = max(0, dp_size - num_images) if num_images else 0
    assert skipped == short
    if sync == "spread" and barrier == "microbatch" and num_images >= dp_size * num_slots:
        assert used_modules(plan, costs)[:, 0].all()


@pytest.mark.parametrize("sync", ["spread", "uniform"])
@pytest.mark.parametrize("barrier", ["step", "microbatch"])
def test_f1_four_images_on_four_ranks(sync, barrier):
    """F1: 4 image and 60 text samples on 4 ranks: each rank has exactly one image sample."""
    costs = images_and_text(4)
    plan = plan_step(costs, Topology(dp_size=4, barrier=barrier, modality_sync=sync))
    has_image = costs.values[plan.sample_ids, 0] > 0
    assert np.add.reduceat(has_image, plan.offsets[:-1]).tolist() == [1, 1, 1, 1]
    assert not missing_modules(plan, costs).any()


@pytest.mark.parametrize(
    ("barrier", "sync"),
    [*product(["step", "microbatch"], ["spread", "uniform"]), ("microbatch", "dummy")],
)
def test_f1_two_images_on_four_ranks(barrier, sync):
    """F1: with 2 image samples the two other ranks need a dummy, at the same slot index."""
    costs = images_and_text(2)
    topology = Topology(
        dp_size=4, num_microbatches=2, barrier=barrier, modality_sync=sync,
        limits=Limits(dummies={"vision": {"tokens": 4, "patches": 16}}),
    )  # fmt: skip
    planner = EpochPlanner(costs, topology, global_batch_size=64)
    facts = [batch.facts for batch in BalancedBatchSampler(planner)]
    dummy = {"vision": {"tokens": 4, "patches": 16}}
    asked = [each for each in facts if each.needs_dummy]
    assert len(asked) == 2
    assert all(each.needs_dummy == dummy for each in asked)
    assert all(each.missing_modules == ("vision",) for each in asked)
    assert len({each.index for each in asked}) == 1
    assert len({each.dp_rank for each in asked}) == 2


def test_f8_the_last_microbatch_of_a_step_asks_for_what_ddp_waits_for():
    """F8: under the step barrier only the last microbatch needs dummies, of all the step uses."""
    costs = images_and_text(2)
    topology = Topology(
        dp_size=4, num_microbatches=2, barrier="step", modality_sync="dummy",
        limits=Limits(dummies={"vision": {"tokens": 4}}),
    )  # fmt: skip
    plan = plan_step(costs, topology)
    used, missing = used_modules(plan, costs)[:, 0], missing_modules(plan, costs)[:, 0]
    assert not missing[:4].any()
    assert (missing[4:] == ~used[4:]).all()


def legal_assignments(costs, topology, num_slots):
    """Every assignment of the samples that keeps the limits and leaves no microbatch empty."""
    ids = np.arange(len(costs))
    num_cells = topology.dp_size * num_slots
    for cells in product(range(num_cells), repeat=len(ids)):
        of = [ids[np.array(cells) == cell] for cell in range(num_cells)]
        if not all(map(len, of)):
            continue
        slots = [of[s * topology.dp_size : (s + 1) * topology.dp_size] for s in range(num_slots)]
        plan = Plan.from_cells([slots], topology=topology)
        held = plan.amounts(costs)
        if all((held[name] <= most).all() for name, most in topology.limits.given.items()):
            yield plan


@given(st.integers(0, 2**32 - 1), st.sampled_from(["packed", "padded"]), SYNCS)
@settings(max_examples=15)
def test_a_legal_spread_is_found_if_there_is_one(seed, layout, sync):
    """Brute force over small steps with tight limits, two encoders, samples with both included."""
    rng = np.random.default_rng(seed)
    values = np.concatenate(
        [rng.integers(1, 9, (6, 2)) * (rng.random((6, 2)) < 0.5), rng.integers(1, 9, (6, 1))], 1
    )
    costs = Costs.from_values(
        values, modules=("vision", "audio", "language"), tokens=rng.integers(1, 6, 6)
    )
    dp_size, num_slots = ((2, 2), (2, 1), (3, 1))[rng.integers(3)]
    most = int(rng.integers(6, 14))
    topology = Topology(
        dp_size=dp_size, num_microbatches=num_slots, max_microbatches=num_slots,
        limits=Limits(max_tokens=most, layout=layout), modality_sync=sync,
    )  # fmt: skip
    try:
        plan = plan_step(costs, topology)
    except CapacityError:
        return
    plan.check(costs)
    lacking = int((~used_modules(plan, costs)[:, :2]).sum())
    skipped = int(missing_modules(plan, costs).sum())
    everywhere = uniform = False
    for other in legal_assignments(costs, topology, num_slots):
        everywhere = everywhere or bool(used_modules(other, costs)[:, :2].all())
        uniform = uniform or not missing_modules(other, costs).any()
    if sync == "spread" and everywhere:
        assert lacking == 0
    if uniform:
        assert skipped == 0


@given(planning.costs(), planning.topologies(), st.integers(0, 6), st.integers(0, 8))
def test_dummies_count_against_the_limits(costs, topology, tokens, patches):
    """I3: with the dummies it needs, every microbatch is within its limits."""
    limits = topology.limits
    size = {"patches": patches} if limits.layout == "padded" else {"tokens": tokens}
    dummies = {name: size | {"images": 1} for name in costs.modules}
    if limits.max_images is not None and limits.max_images <= len(costs.modules):
        limits = replace(limits, max_images=None)
    synced = replace(topology, limits=replace(limits, dummies=dummies), modality_sync="dummy")
    over = oversize_ids(costs, synced, "drop", sample_ids=None)
    assume(over.size < len(costs))
    plan = plan_step(costs, synced, oversize="drop", fill=True)
    plan.check(costs, expected_ids=np.arange(len(costs)))
    missing, amounts = missing_modules(plan, costs), plan.amounts(costs)
    for cell, lacking in enumerate(missing.sum(axis=1)):
        ids = plan.sample_ids[plan.offsets[cell] : plan.offsets[cell + 1]]
        assert amounts["images"][cell] == costs.images[ids].sum() + lacking
        if limits.layout == "packed":
            held = costs.tokens[ids].sum() + lacking * tokens
            assert amounts["tokens"][cell] == held
            assert limits.max_tokens is None or held <= limits.max_tokens
        else:
            held = costs.patches[ids].sum() + lacking * patches
            assert limits.max_patches is None or held <= limits.max_patches


def test_a_sample_must_fit_beside_the_dummies():
    """The error names what is left of the limit, and the limit that works works."""
    costs = Costs.from_values([[0.0, 1.0]], modules=("vision", "language"), tokens=[100])
    limits = Limits(max_tokens=100, dummies={"vision": {"tokens": 4}})
    topology = Topology(dp_size=1, limits=limits, modality_sync="dummy")
    with pytest.raises(CapacityError, match=r"max_tokens=100 \(room for 96\).*to 104"):
        plan_step(costs, topology)
    plan_step(costs, replace(topology, limits=replace(limits, max_tokens=104)))


@pytest.mark.parametrize(
    ("limits", "fields", "message"),
    [
        ({}, {"modality_sync": "even"}, "modality_sync is 'even'; allowed"),
        ({}, {"modality_sync": "dummy"}, "without limits.dummies"),
        ({"dummies": {"vision": {"tokens": 4}}}, {}, "without modality_sync"),
        ({"dummies": {"vision": {"rows": 4}}}, {"modality_sync": "dummy"}, "'patches', 'images'"),
        ({"dummies": {"vision": {"tokens": -1}}}, {"modality_sync": "dummy"}, "is -1; allowed"),
        ({"dummies": "vision"}, {"modality_sync": "dummy"}, "dummies is 'vision'; allowed"),
        (
            {"dummies": {"vision": {"tokens": 4}}, "max_tokens": 4},
            {"modality_sync": "dummy"},
            "raise it to at least 5",
        ),
        (
            {"dummies": {"vision": {"tokens": 4}}, "layout": "padded"},
            {"modality_sync": "dummy"},
            "4 tokens under layout",
        ),
        (
            {},
            {"modality_sync": "spread", "barrier": "pipeline", "pp_size": 2},
            'under barrier="pipeline"',
        ),
    ],
)
def test_what_cannot_be_kept_is_refused(limits, fields, message):
    """Bad options fail at construction, by name, with what is allowed."""
    with pytest.raises(ArgumentError, match=message):
        Topology(dp_size=2, limits=Limits(**limits), **fields)


def test_a_synced_plan_survives_saving(tmp_path):
    """Choice and dummies come back; topologies without them are shown as before."""
    limits = Limits(dummies={"vision": {"tokens": 4}})
    topology = Topology(dp_size=2, modality_sync="spread", limits=limits)
    plan = plan_step(images_and_text(8), topology)
    plan.save(tmp_path / "plan.npz")
    assert Plan.load(tmp_path / "plan.npz").topology == topology
    assert "modality_sync" not in repr(Topology(dp_size=2))
    assert "dummies" not in repr(Topology(dp_size=2))
