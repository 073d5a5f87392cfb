"""Limits that no plan can meet: the error names the smallest value that works, and it does."""

import re
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import CapacityError
from balancer.planner import plan_step
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


@given(samples(), st.integers(1, 3), st.integers(1, 2), st.sampled_from(["packed", "padded"]))
def test_a_step_that_does_not_fit_has_the_least_limit_and_number_that_do(
    costs, dp_size, most, layout
):
    """Samples that each fit but not together: either cure works, and one less does not."""
    limits = Limits(max_tokens=int(costs.tokens.max()), layout=layout)
    topology = Topology(
        dp_size=dp_size, num_microbatches=1, max_microbatches=most, limits=limits
    )  # fmt: skip
    message = refusal(costs, topology)
    if not message:
        return
    slots, tokens = named(message, "max_microbatches"), named(message, "max_tokens")
    assert refusal(costs, replace(topology, max_microbatches=slots)) == ""
    if slots - 1 > most:
        assert refusal(costs, replace(topology, max_microbatches=slots - 1))
    assert refusal(costs, replace(topology, limits=replace(limits, max_tokens=tokens))) == ""
    if tokens - 1 > limits.max_tokens:
        short = replace(limits, max_tokens=tokens - 1)
        assert refusal(costs, replace(topology, limits=short))
