"""Limits that no plan can meet: the error names the smallest value that works, and it does."""

import re
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import CapacityError
from balancer.groups import GroupedCosts
from balancer.planner import EpochPlanner, plan_step
from balancer.topology import Limits, Topology

AMOUNTS = ("tokens", "patches", "images")


@st.composite
def samples(draw, *, most=9):
    """Two to `most` samples with some of every amount."""
    size = draw(st.integers(2, most))
    rows = {
        name: draw(st.lists(st.integers(1, high), min_size=size, max_size=size))
        for name, high in zip(AMOUNTS, (60, 40, 6), strict=True)
    }
    return Costs.from_values(rows["tokens"], **rows)


def refusal(costs, topology, **options):
    """Message of the error that planning ends with; empty where it does not."""
    try:
        plan_step(costs, topology, effort="fast", fill=True, **options).check(costs)
    except CapacityError as error:
        return str(error)
    return ""


def named(message, argument):
    """The value that a message says to raise or set an argument to."""
    found = re.search(rf"{argument} to (?:at least )?(\d+)", message)
    return found and int(found[1])


@given(
    samples(), st.sampled_from(AMOUNTS), st.data(), st.sampled_from(["packed", "padded"]),
    st.sampled_from([1, 4]), st.sampled_from([1, 8]), st.booleans(),
)  # fmt: skip
def test_a_sample_over_a_limit_has_the_least_limit_that_holds_it(
    costs, name, data, layout, sample, microbatch, with_dummies
):
    """The value named works, and one less is refused, with roundings, dummies and groups."""
    largest = int(getattr(costs, name).max())
    assume(largest > 1)
    low = data.draw(st.integers(1, largest - 1))
    dummies = {"cost": {name: 3}} if with_dummies and layout == "packed" else {}
    extra = 3 + sample + microbatch
    limits = Limits(
        **{f"max_{name}": low + extra}, layout=layout, pad_sample_to=sample,
        pad_microbatch_to=microbatch, dummies=dummies,
    )  # fmt: skip
    sync = "spread" if dummies else None
    topology = Topology(dp_size=1, limits=limits, modality_sync=sync)
    message = refusal(costs, topology)
    if not message:
        return
    assert f"more than max_{name}={low + extra}" in message
    value = named(message, f"max_{name}")
    enough = replace(topology, limits=replace(limits, **{f"max_{name}": value}))
    short = replace(topology, limits=replace(limits, **{f"max_{name}": value - 1}))
    assert refusal(costs, enough) == ""
    assert named(refusal(costs, short), f"max_{name}") == value


@given(
    samples(), st.integers(1, 3), st.integers(1, 2), st.sampled_from(["packed", "padded"]),
    st.sampled_from([1, 8]), st.sampled_from(["step", "microbatch", "pipeline"]),
)  # fmt: skip
def test_a_step_that_does_not_fit_has_the_least_limit_and_number_that_do(
    costs, dp_size, most, layout, multiple, barrier
):
    """Samples that each fit but not together: either cure works, and one less does not."""
    largest = -(-int(costs.tokens.max()) // multiple) * multiple
    limits = Limits(max_tokens=largest, layout=layout, pad_microbatch_to=multiple)
    topology = Topology(
        dp_size=dp_size, max_microbatches=most, limits=limits, barrier=barrier,
        pp_size=2 if barrier == "pipeline" else 1,
    )  # fmt: skip
    message = refusal(costs, topology)
    if not message:
        return
    slots, tokens = named(message, "max_microbatches"), named(message, "max_tokens")
    assert refusal(costs, replace(topology, max_microbatches=slots)) == ""
    if slots - 1 > most:
        assert refusal(costs, replace(topology, max_microbatches=slots - 1))
    enough, short = (replace(limits, max_tokens=value) for value in (tokens, tokens - 1))
    assert refusal(costs, replace(topology, limits=enough)) == ""
    assert refusal(costs, replace(topology, limits=short))


@given(samples(most=6), st.lists(st.integers(0, 2), min_size=6, max_size=6), st.integers(1, 60))
def test_a_group_over_a_limit_has_the_least_limit_that_holds_it(costs, group_ids, limit):
    """The samples of the group are named; the value works and one less is refused."""
    grouped = GroupedCosts.from_ids(costs, group_ids[: len(costs)])
    topology = Topology(dp_size=1, limits=Limits(max_tokens=limit))
    if grouped.tokens.max() <= limit:
        assert refusal(grouped, topology) == ""
        return
    value = named(refusal(grouped, topology), "max_tokens")
    assert refusal(grouped, replace(topology, limits=Limits(max_tokens=value))) == ""
    assert refusal(grouped, replace(topology, limits=Limits(max_tokens=value - 1)))


@given(samples(), st.integers(2, 3), st.data())
def test_ranks_too_small_for_any_sample_have_the_least_limit_that_takes_one(costs, dp_size, data):
    """A rank whose own limit takes no sample is named, with what would take the smallest."""
    costs = replace(costs, tokens=costs.tokens + 1)
    least, largest = int(costs.tokens.min()), int(costs.tokens.max())
    small = data.draw(st.integers(0, dp_size - 1))

    def topology(most):
        limits = [Limits(max_tokens=most if rank == small else largest) for rank in range(dp_size)]
        return Topology(dp_size=dp_size, rank_limits=limits)

    for low in {1, least - 1}:
        message = refusal(costs, topology(low))
        assert f"rank_limits[{small}]" in message
        assert named(message, "max_tokens") == least
    assert refusal(costs, topology(least)) == ""


@given(samples(), st.integers(1, 3), st.integers(1, 2), st.sampled_from([1, 8]))
def test_an_average_step_that_does_not_fit_is_refused_with_what_would(
    costs, dp_size, most, multiple
):
    """At construction of a planner; the least limit and number named pass, one less does not."""
    largest = -(-int(costs.tokens.max()) // multiple) * multiple
    limits = Limits(max_tokens=largest, pad_microbatch_to=multiple)
    topology = Topology(dp_size=dp_size, max_microbatches=most, limits=limits)

    def message_of(topology):
        try:
            EpochPlanner(costs, topology, global_batch_size=max(len(costs), dp_size), tail="filler")
        except CapacityError as error:
            return str(error)
        return ""

    message = message_of(topology)
    if not message:
        return
    slots, tokens = named(message, "max_microbatches"), named(message, "max_tokens")
    for number in (slots, slots - 1):
        refused = message_of(replace(topology, max_microbatches=number))
        assert bool(refused) == (number < slots)
    for value in (tokens, tokens - 1):
        refused = message_of(replace(topology, limits=replace(limits, max_tokens=value)))
        assert bool(refused) == (value < tokens)
