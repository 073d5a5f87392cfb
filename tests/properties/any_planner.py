"""Epoch planners of any kind: what may be combined is combined."""

from dataclasses import dataclass

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import BalancerError
from balancer.groups import GroupedCosts
from balancer.planner import EpochPlanner
from balancer.topology import Limits, Topology
from tests.properties import planning

SPEEDS = st.sampled_from([1.0, 0.5, 2.0, 0.3])
BARRIERS = ("step", "microbatch", "pipeline")


@dataclass
class Samples:
    """What is planned: samples by themselves, or the groups that they make."""

    each: Costs
    group_ids: list[int] | None

    @property
    def priced(self):
        return self.each if self.group_ids is None else self.grouped

    @property
    def grouped(self):
        return GroupedCosts.from_ids(self.each, self.group_ids)


@st.composite
def sample_sets(draw):
    """Up to 30 samples, every second time in groups of any sizes."""
    each = draw(planning.costs(min_samples=6, max_samples=30, max_modules=2))
    numbers = st.lists(st.integers(0, len(each) // 2), min_size=len(each), max_size=len(each))
    return Samples(each, draw(st.none() | numbers))


@st.composite
def topologies(draw, modules, *, grouped):
    """Any barrier; limits and speeds by rank or module or for all; modalities kept in step."""
    dp_size = draw(st.integers(1, 4))
    barrier = draw(st.sampled_from(BARRIERS))
    turns = draw(st.sampled_from(["in_turn", "summed"]))
    limits = draw(st.just(Limits()) | planning.limits())
    if grouped:  # what they take must add up
        limits = Limits(max_tokens=limits.max_tokens, max_images=limits.max_images)
    speeds, rank_limits = (), ()
    if draw(st.booleans()):
        by_rank = st.lists(SPEEDS, min_size=dp_size, max_size=dp_size)
        in_turn = barrier == "microbatch" and turns == "in_turn"
        speeds = draw(by_rank)
        if in_turn and draw(st.booleans()):
            speeds = {name: draw(by_rank) for name in modules}
    if draw(st.booleans()):
        limits = Limits(max_tokens=limits.max_tokens)
        own = st.sampled_from([Limits(max_tokens=most) for most in (80, 160, 320)])
        rank_limits = draw(st.lists(own, min_size=dp_size, max_size=dp_size))
    syncs = [None] if barrier == "pipeline" else [None, "spread", "uniform"]
    return Topology(
        dp_size=dp_size,
        num_microbatches=draw(st.integers(1, 3)),
        barrier=barrier,
        modules=turns,
        limits=limits,
        rank_speeds=speeds,
        rank_limits=rank_limits,
        modality_sync=draw(st.sampled_from(syncs)),
        pp_size=2 if barrier == "pipeline" else 1,
    )


@st.composite
def planners(draw, samples):
    """Any planner of these samples that can be built."""
    topology = draw(topologies(samples.each.modules, grouped=samples.group_ids is not None))
    cells = topology.dp_size * topology.num_microbatches
    size = draw(st.integers(cells, 2 * cells + 2))
    window = draw(st.integers(1, 3))
    if topology.limits.given and not topology.rank_limits and window == 1:
        size = draw(st.sampled_from([size, None]))
    try:
        return EpochPlanner(
            samples.priced,
            topology,
            global_batch_size=size,
            seed=3,
            oversize=draw(st.sampled_from(["drop", "alone"])),
            tail=draw(st.sampled_from(["drop", "pad", "filler"])),
            window_steps=window,
            effort="fast",
        )
    except BalancerError:  # of too few samples for a step, or without a limit that ends a step
        assume(False)


def allocated(costs: Costs, limits: Limits, ids) -> dict[str, int]:
    """What a microbatch of these samples takes of each amount that is limited."""
    tokens = costs.tokens[np.asarray(ids)]
    taken = {
        "tokens": int(tokens.max() * len(ids) if limits.layout == "padded" else tokens.sum()),
        "patches": int(costs.patches[ids].sum()),
        "images": int(costs.images[ids].sum()),
        "samples": len(ids),
    }
    return {name: taken[name] for name in limits.given}
