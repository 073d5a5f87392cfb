"""Kernels of in-step deferral beside their oracles."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.kernels.pipeline_deferral import deferred_times, deferred_total, deferred_value
from balancer.kernels.pipeline_deferral_search import search_deferral
from balancer.pipeline_schedule import pipeline_schedule
from balancer.pipeline_value import deferral_schedule, rank_members
from tests import naive_deferral, naive_pipeline
from tests.kernels.pipelines import shapes, works


@st.composite
def apart(draw, **options):
    """A shape, its first language stage, and the topology with deferral."""
    shape = draw(shapes(schedules=("1f1b", "eager_1f1b"), **options))
    boundary = draw(st.integers(1, shape.pp_size - 1))
    stages = [{"vision": 1.0}] * boundary + [{"language": 1.0}] * (shape.pp_size - boundary)
    return shape, boundary, shape.topology(stages=tuple(stages), deferral=True)


@given(apart(), st.data())
def test_times_equal_the_event_queue(pipeline, data):
    """Encoders' backward waits for the gradient of the next microbatch where work is passed on."""
    shape, boundary, topology = pipeline
    forward, backward = data.draw(works(shape))
    flags = data.draw(st.lists(st.booleans(), min_size=len(forward), max_size=len(forward)))
    flags[-1] = False
    passes = {j for j, flag in enumerate(flags) if flag}
    expected = naive_pipeline.time(
        *shape.naive, forward.tolist(), backward.tolist(), passes, boundary
    )
    schedule = deferral_schedule(pipeline_schedule(topology, len(forward)), topology)
    loads = np.concatenate([forward, backward], axis=1).ravel()
    assert deferred_times(loads, np.array(flags, np.int64), 1, schedule).tolist() == [expected]
    assert expected >= naive_pipeline.time(*shape.naive, forward.tolist(), backward.tolist())


@st.composite
def instances(draw, num_ranks=2):
    """Items with costs and amounts on some ranks, at least one a microbatch, within the caps."""
    shape, boundary, topology = draw(apart(max_microbatches=4, max_pp=3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_cells = num_ranks * shape.num_microbatches
    cells = np.concatenate([np.arange(num_cells), rng.integers(0, num_cells, rng.integers(0, 9))])
    costs = rng.integers(0, 20, (len(cells), 2 * shape.num_stages))
    sides = draw(st.sampled_from([[], [1], [0], [1, 0], [1, 2]]))
    amounts = rng.integers(1, 9, (len(cells), len(sides)))
    padded = bool(sides) and sides[0] == 1 and draw(st.booleans())
    held = [amounts[cells == cell] for cell in range(num_cells)]
    caps = [max(int(rows[:, a].sum()) for rows in held) for a in range(len(sides))]
    if padded:
        caps[0] = max(len(rows) * int(rows[:, 0].max()) for rows in held)
    most = draw(st.sampled_from([0, 9, 40])) if sides else 0
    return SimpleNamespace(
        shape=shape, boundary=boundary, cells=cells, costs=costs,
        constants=rng.integers(0, 3, 2 * shape.num_stages), amounts=amounts, most=most,
        caps=np.array(caps, np.int64), padded=padded, sides=np.array(sides, np.int64),
        schedule=deferral_schedule(pipeline_schedule(topology, shape.num_microbatches), topology),
        num_ranks=num_ranks,
    )  # fmt: skip


def oracle(problem):
    """The oracle of one rank's value."""
    return lambda items: naive_deferral.rank_value(
        items, problem.shape.num_microbatches, problem.constants.tolist(),
        (problem.caps.tolist(), problem.padded), problem.sides.tolist(), problem.shape.naive,
        problem.boundary, problem.most,
    )  # fmt: skip


def kernel_arguments(problem):
    """Work and limits as the kernels take them."""
    work = (problem.costs.ravel(), problem.constants)
    return work, (problem.amounts.ravel(), problem.caps, problem.padded, problem.sides)


@settings(max_examples=60)
@given(instances(num_ranks=1), st.data())
def test_value_of_a_rank_equals_the_oracle(problem, data):
    """Illegal, tokens over the cap in flight, and time, of any lateness of the samples."""
    slots, size = problem.shape.num_microbatches, len(problem.cells)
    late = np.array(data.draw(st.lists(st.sampled_from([0, 0, 1]), min_size=size, max_size=size)))
    columns = 2 * problem.shape.num_stages
    lengths = [slots * columns, slots, 2 * slots, 2 * slots * problem.caps.size, 2 * slots,
               2 * slots, problem.shape.pp_size, len(problem.schedule[0])]  # fmt: skip
    scratch = tuple(np.empty(length, np.int64) for length in lengths)
    member, count, _ = rank_members(problem.cells, 1, slots)
    found = deferred_value(
        0, problem.cells, late, (member, count, len(member)), slots, *kernel_arguments(problem),
        problem.schedule, problem.most, scratch,
    )  # fmt: skip
    rows = zip(problem.cells.tolist(), late.tolist(), problem.costs.tolist(),
               problem.amounts.tolist(), strict=True)  # fmt: skip
    assert found == oracle(problem)(list(rows))


@settings(max_examples=40)
@given(instances(), st.integers(0, 120))
def test_search_ends_where_the_oracle_does(problem, budget):
    """Compiled and plain-Python searches make the same moves, and never end worse."""
    slots = problem.shape.num_microbatches
    search = naive_deferral.DeferralSearch(
        problem.cells.tolist(), problem.costs.tolist(), problem.amounts.tolist(),
        problem.num_ranks, slots, oracle(problem),
    )  # fmt: skip
    start = search.slowest()[1]
    expected = search.run(0, budget)
    cells, late = problem.cells.copy(), np.zeros(len(problem.cells), np.int64)
    found = search_deferral(
        cells, late, rank_members(cells, problem.num_ranks, slots), *kernel_arguments(problem),
        problem.num_ranks, slots, problem.schedule, problem.most, 0, budget,
    )  # fmt: skip
    assert (found, cells.tolist(), late.tolist()) == (expected, search.placed, search.late)
    assert search.slowest()[1] <= start


@given(instances(num_ranks=1), st.integers(0, 2**32 - 1))
def test_items_pay_where_passing_on_or_not_is_cheapest(problem, seed):
    """The priced total is the least over microbatches and both ways, item by item."""
    slots, stages = problem.shape.num_microbatches, problem.shape.num_stages
    rng = np.random.default_rng(seed)
    prices, tolls = rng.random((slots, 2 * stages)), rng.random((slots, problem.caps.size))
    fills = rng.random(problem.amounts.shape)
    language = np.arange(2 * stages) % stages >= problem.boundary
    expected = 0.0
    for row, fill in zip(problem.costs, fills, strict=True):
        encoder = prices[:, ~language] @ row[~language]
        encoder += tolls[:, problem.sides != 1] @ fill[problem.sides != 1]
        spoken = prices[:, language] @ row[language]
        spoken += tolls[:, problem.sides == 1] @ fill[problem.sides == 1]
        expected += min([*(encoder + spoken), *(encoder[:-1] + spoken[1:])])
    found = deferred_total(
        problem.costs.ravel(), fills.ravel(), prices.ravel(), tolls.ravel(), problem.sides, slots,
        stages, problem.boundary,
    )  # fmt: skip
    assert np.isclose(found, expected)
