"""Strategies for whole planning problems."""

import numpy as np
from hypothesis import strategies as st

from balancer.cost import Costs
from balancer.topology import Limits, Topology


@st.composite
def costs(draw, *, min_samples=1, max_samples=40, max_modules=3):
    """Costs with ties, zeros, text-only samples and a dear one now and then."""
    size = draw(st.integers(min_samples, max_samples))
    modules = draw(st.integers(1, max_modules))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    values = rng.lognormal(0.0, draw(st.sampled_from([0.0, 0.5, 2.0])), (size, modules))
    values[rng.random((size, modules)) < draw(st.sampled_from([0.0, 0.3]))] = 0.0
    if draw(st.booleans()):
        values = np.round(values)
    values[rng.integers(size)] *= draw(st.sampled_from([1.0, 30.0]))
    return Costs.from_values(
        values,
        modules=tuple(f"m{k}" for k in range(modules)),
        tokens=rng.integers(1, 100, size),
        patches=rng.integers(0, 50, size),
        images=rng.integers(0, 4, size),
    )


@st.composite
def limits(draw):
    """Limits that most samples of `costs` keep by themselves."""

    def maybe(low, high):
        return draw(st.none() | st.integers(low, high))

    return Limits(
        max_tokens=maybe(60, 400),
        max_patches=maybe(30, 200),
        max_images=maybe(2, 12),
        max_samples=maybe(1, 12),
        layout=draw(st.sampled_from(["packed", "padded"])),
    )


@st.composite
def topologies(draw, *, max_dp=5, max_slots=4, limited=True):
    """Ranks, microbatches and barriers of every kind."""
    return Topology(
        dp_size=draw(st.integers(1, max_dp)),
        num_microbatches=draw(st.integers(1, max_slots)),
        barrier=draw(st.sampled_from(["step", "microbatch"])),
        modules=draw(st.sampled_from(["in_turn", "summed"])),
        limits=draw(limits()) if limited else Limits(),
    )
