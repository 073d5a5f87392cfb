"""The pipeline simulator against an event queue, and what its times must obey."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from balancer.kernels.pipeline import end_times, peak_in_flight
from balancer.pipeline_bounds import order_bound
from balancer.pipeline_schedule import pipeline_schedule
from tests import naive_pipeline
from tests.kernels.pipelines import pipelines, shapes


@given(pipelines())
def test_simulated_time_equals_the_event_queue(pipeline):
    """One pass over the operations gives the very time of a simulation event by event."""
    shape, forward, backward = pipeline
    expected = naive_pipeline.time(*shape.naive, forward.tolist(), backward.tolist())
    assert shape.time(forward, backward) == expected


@given(pipelines())
def test_every_event_ends_when_the_event_queue_says(pipeline):
    """Each forward and each backward ends at the time of the event-by-event simulation."""
    shape, forward, backward = pipeline
    table = pipeline_schedule(shape.topology(), shape.num_microbatches)
    loads = np.concatenate([forward, backward], axis=1).ravel()
    end = np.empty(len(table.lane), np.int64)
    clock = np.empty(shape.pp_size, np.int64)
    end_times(loads, 0, table.lane, table.after, table.duration, clock, end)
    log = naive_pipeline.events(*shape.naive, forward.tolist(), backward.tolist())
    expected = {operation: (ended, p) for ended, p, operation in log}
    for at, (p, column) in enumerate(zip(table.lane, table.duration, strict=True)):
        j, within = divmod(int(column), 2 * shape.num_stages)
        back, stage = divmod(within, shape.num_stages)
        assert expected["FB"[back], stage, j] == (end[at], p)


@given(shapes(max_microbatches=12), st.integers(0, 9), st.integers(0, 9))
def test_uniform_microbatches_take_microbatches_plus_ranks_minus_one(shape, f, b):
    """Uniform work takes exactly (m + p - 1) (f + b); v stages a rank shorten the fill to 1 / v."""
    forward = np.full((shape.num_microbatches, shape.num_stages), f)
    backward = np.full_like(forward, b)
    whole = shape.num_microbatches * shape.virtual + shape.pp_size - 1
    assert shape.time(forward, backward) == whole * (f + b)


@given(pipelines(), st.data())
def test_more_work_never_ends_sooner(pipeline, data):
    """The time is monotone in every forward and every backward."""
    shape, forward, backward = pipeline
    before = shape.time(forward, backward)
    part = data.draw(st.sampled_from([forward, backward]))
    j = data.draw(st.integers(0, shape.num_microbatches - 1))
    s = data.draw(st.integers(0, shape.num_stages - 1))
    more = data.draw(st.integers(1, 10**6))
    part[j, s] += more
    assert before <= shape.time(forward, backward) <= before + more


@given(pipelines(max_microbatches=5))
def test_order_bound_is_below_the_best_of_all_orders(pipeline):
    """No order of the microbatches comes below the bound for a fixed assignment."""
    shape, forward, backward = pipeline
    loads = np.concatenate([forward, backward], axis=1)
    best = naive_pipeline.best_order(*shape.naive, forward.tolist(), backward.tolist())
    assert order_bound(loads, shape.topology()) <= best


@given(shapes(schedules=("1f1b", "eager_1f1b"), max_microbatches=9), st.integers(1, 99))
def test_order_bound_is_exact_where_all_is_uniform(shape, work):
    """Equal microbatches at equal stages: the bound is (m + p - 1) (f + b)."""
    loads = np.full((shape.num_microbatches, 2 * shape.num_stages), work)
    whole = (shape.num_microbatches + shape.pp_size - 1) * 2 * work
    assert order_bound(loads, shape.topology()) == whole


@given(shapes(max_microbatches=9), st.data())
def test_peak_in_flight_equals_the_oracle(shape, data):
    """Tokens held between forwards and backwards, counted operation by operation."""
    size = shape.num_microbatches
    tokens = data.draw(st.lists(st.integers(0, 50), min_size=size, max_size=size))
    lane, _, duration, num_stages, pp_size = shape.kernel()
    found = peak_in_flight(np.array(tokens), 0, lane, duration, num_stages, pp_size)
    assert found == naive_pipeline.peak(*shape.naive, tokens)
    if shape.virtual == 1:  # then they are those of consecutive microbatches
        window = shape.pp_size if shape.schedule == "1f1b" else 2 * shape.pp_size - 1
        assert found == max(sum(tokens[j : j + window]) for j in range(size))
        table = pipeline_schedule(shape.topology(), size)
        assert table.window == min(window, size)
