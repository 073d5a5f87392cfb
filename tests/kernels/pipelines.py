"""Small pipelines for kernels: every schedule, ties, zeros, dear microbatches."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from balancer.kernels.pipeline import pipeline_time
from balancer.pipeline_schedule import pipeline_schedule
from balancer.topology import Topology

SCHEDULES = ("1f1b", "eager_1f1b", "interleaved")


@dataclass(frozen=True)
class Shape:
    """A schedule, its pipeline ranks, stages of each, and microbatches."""

    schedule: str
    pp_size: int
    virtual: int
    num_microbatches: int

    @property
    def num_stages(self):
        return self.pp_size * self.virtual

    @property
    def naive(self):
        """First arguments of the oracles."""
        return self.schedule, self.pp_size, self.virtual

    def topology(self, **options):
        return Topology(
            num_microbatches=self.num_microbatches, barrier="pipeline", pp_size=self.pp_size,
            virtual_stages=self.virtual, schedule=self.schedule, **{"dp_size": 1} | options,
        )  # fmt: skip

    def kernel(self):
        """The schedule as the search takes it."""
        table = pipeline_schedule(self.topology(), self.num_microbatches)
        return table.lane, table.after, table.duration, table.num_stages, table.pp_size

    def time(self, forward, backward):
        """Time by the compiled simulator."""
        lane, after, duration, _, pp_size = self.kernel()
        loads = np.concatenate([forward, backward], axis=1)
        return pipeline_time(loads.ravel(), lane, after, duration, pp_size)


@st.composite
def shapes(draw, *, max_microbatches=6, max_pp=4, schedules=SCHEDULES):
    """A shape of any schedule; interleaved ones have whole groups of microbatches."""
    schedule = draw(st.sampled_from(schedules))
    if schedule != "interleaved":
        microbatches = draw(st.integers(1, max_microbatches))
        return Shape(schedule, draw(st.integers(2, max_pp)), 1, microbatches)
    pp_size = draw(st.integers(2, min(max_pp, max_microbatches)))
    groups = draw(st.integers(1, max_microbatches // pp_size))
    return Shape(schedule, pp_size, draw(st.integers(2, 3)), groups * pp_size)


@st.composite
def works(draw, shape):
    """Forwards and backwards of each microbatch at each stage, int64, some of them 0 or dear."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = (2, shape.num_microbatches, shape.num_stages)
    high = draw(st.sampled_from([1, 3, 1000, 10**12]))
    values = rng.integers(0, high + 1, size)
    values[rng.random(size) < draw(st.sampled_from([0.0, 0.4]))] = 0
    return values[0], values[1]


@st.composite
def pipelines(draw, **options):
    """A shape and the work in it."""
    shape = draw(shapes(**options))
    return (shape, *draw(works(shape)))
