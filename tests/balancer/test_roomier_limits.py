"""Errors of limits that no plan can meet: the limit, and the smallest value that works."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.errors import CapacityError
from balancer.planner import plan_step
from balancer.topology import Limits, Topology


def topology(**limits):
    return Topology(dp_size=2, max_microbatches=1, limits=Limits(**limits))


@given(st.lists(st.integers(1, 50), min_size=3, max_size=12), st.sampled_from(["packed", "padded"]))
@settings(max_examples=30)
def test_the_error_names_a_value_that_works_and_is_the_smallest_by_best_fit(tokens, layout):
    """What the error says to raise max_tokens to is enough, and never above what all need."""
    costs, most = Costs.from_values(tokens, tokens=tokens), max(tokens)
    try:
        plan_step(costs, topology(max_tokens=most, layout=layout), effort="fast")
    except CapacityError as error:
        message = str(error)
    else:
        return
    value = int(re.search(r"raise max_tokens to (\d+)", message)[1])
    assert most < value <= max(tokens) * len(tokens)
    plan = plan_step(costs, topology(max_tokens=value, layout=layout), effort="fast")
    plan.check(costs, expected_ids=np.arange(len(tokens)))


def test_the_limit_at_fault_is_named():
    """Of two limits only the one that keeps the samples out is said to be too low."""
    costs = Costs.from_values([1] * 8, tokens=[10] * 8, images=[3] * 8)
    with pytest.raises(CapacityError, match=r"the 8 samples .* or raise max_images to 12$"):
        plan_step(costs, topology(max_tokens=1000, max_images=9))
    with pytest.raises(CapacityError, match=r"or raise max_samples to 4$"):
        plan_step(costs, topology(max_samples=3))
    with pytest.raises(
        CapacityError, match=r"set max_microbatches to 2 or to None, or raise the l"
    ):
        plan_step(costs, topology(max_tokens=30, max_images=9))
