"""The schedule in a simulation, with the state machine that the engine drives."""

import random

from hypothesis import given
from hypothesis import strategies as st

from loaders.stages.run import Run
from loaders.stages.stage import Stage
from tests.loaders.stages.simulation import bound, simulate_stages, simulate_torch, skewed

MICROBATCH = 8


def _one_in_a_hundred(seed: int, count: int) -> list[list[float]]:
    """Samples of which one in a hundred, at random places, is fifty times dearer."""
    rng = random.Random(seed)
    return skewed([50.0 if rng.random() < 0.01 else 1.0 for _ in range(count)], MICROBATCH)


def test_least_slack_hides_dear_samples_that_other_orders_wait_for():
    """On skewed work at the producers' rate: near the bound, and ahead of every other order."""
    ratios = {"ours": 0.0, "arrival": 0.0, "torch": 0.0, "torch, prefetch 8": 0.0}
    for seed in range(5):
        work = _one_in_a_hundred(seed, 8 * 400)
        pace = {"workers": 2, "consumer_seconds": sum(map(sum, work)) / len(work) / 2}
        least = bound(work, **pace)
        runs = {
            "ours": simulate_stages(work, look_ahead=16, **pace),
            "arrival": simulate_stages(work, look_ahead=4, least_slack=False, **pace),
            "torch": simulate_torch(work, prefetch=2, **pace),
            "torch, prefetch 8": simulate_torch(work, prefetch=8, **pace),
        }
        for name, (seconds, _) in runs.items():
            ratios[name] += seconds / least / 5
    assert ratios["ours"] <= 1.06
    assert ratios["ours"] < ratios["torch, prefetch 8"] < ratios["torch"]
    assert ratios["ours"] < 0.9 * ratios["arrival"]


work = st.lists(st.lists(st.floats(0.0, 50.0), max_size=5), max_size=12)


@given(work, st.integers(1, 4), st.integers(1, 16), st.floats(0.0, 20.0), st.integers(1, 5))
def test_every_microbatch_is_delivered_and_no_bound_is_beaten(
    microbatches, workers, look_ahead, consumer_seconds, max_bytes
):
    """Whatever the bounds, a run ends with all delivered, no sooner than is possible."""
    seconds, waits = simulate_stages(
        microbatches,
        workers=workers,
        look_ahead=look_ahead,
        consumer_seconds=consumer_seconds,
        max_bytes=max_bytes,
    )
    assert len(waits) == len(microbatches)
    least = bound(microbatches, workers=workers, consumer_seconds=consumer_seconds)
    assert seconds >= least * (1 - 1e-9)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.integers(2, 30), st.randoms())
def test_bytes_in_flight_stay_within_the_bound_and_one_sample(counts, max_bytes, rng):
    """Results held stay within the bound, or one microbatch, and one result of each worker."""
    sizes = {i: rng.randint(1, 8) for i in range(sum(counts))}
    run = Run(
        [Stage(name="read", work=int, workers=3, threads=0)],
        workers=[3],
        look_ahead=16,
        max_bytes=max_bytes,
    )
    ids = iter(range(sum(counts)))
    microbatches = [[next(ids) for _ in range(count)] for count in counts]
    for sample_ids in microbatches:
        run.admit(sample_ids, [1.0] * len(sample_ids))
    largest = max(sum(sizes[i] for i in sample_ids) for sample_ids in microbatches)
    run.planned = True
    running = []
    while not run.finished:
        while len(running) < 3 and not isinstance(job := run.begin(0), str):
            running.append(job)
        if running:
            job = running.pop(rng.randrange(len(running)))
            run.end(job, None, sizes[job.sample_id])
        assert run.room.held <= max(max_bytes, largest) + 3 * max(sizes.values())
        run.deliver()
    assert run.room.held == 0


def test_more_workers_make_later_work_due_earlier():
    """The rule follows a change of the workers: twice as many, half the time to the due time."""
    workers = [1]
    run = Run([Stage(name="read", work=int, threads=0)], workers=workers, look_ahead=8,
              max_bytes=1 << 20)  # fmt: skip
    due = []
    for number in range(6):
        workers[0] = 1 if number < 3 else 2
        run.admit([number], [4.0])
        due.append(run.window[-1].samples[0].urgency[0] + 4.0)
    assert due == [4.0, 8.0, 12.0, 14.0, 16.0, 18.0]
