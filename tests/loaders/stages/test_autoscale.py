"""Autoscaler: workers follow what the consumer takes, and stay when nothing changes."""

import random
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from balancer.errors import ArgumentError
from loaders.stages.allotment import HostLimits, StageLimits, allot, rate
from loaders.stages.autoscale import Autoscaler, Snapshot, StageLoad
from loaders.stages.autoscaled import autoscaled
from loaders.stages.pipeline import StagePipeline
from loaders.stages.stage import Stage
from tests.loaders.stages.scaling import simulate

STAGES = [
    Stage(name="read", work=abs, threads=0),
    Stage(name="decode", work=abs),
    Stage(name="collate", work=len, grain="microbatch"),
]
SHARES = (0.1, 1.0, 0.2)  # of the seconds that decoding takes
PHASE = 600  # microbatches
SETTLED = 300


def scaler(stages=STAGES, *, startup_seconds=0.0, **options):
    limits = [replace(StageLimits.of(s), startup_seconds=startup_seconds) for s in stages]
    return Autoscaler(limits, **{"cores": 16, "cool_down": 1.0, **options})


def noisy(seed, spread, seconds):
    """Each call's seconds, up to `spread` of them more or less."""
    draw = random.Random(seed)
    return lambda stage, microbatch: (
        SHARES[stage] * seconds(microbatch) * draw.uniform(1 - spread, 1 + spread)
    )


@pytest.mark.parametrize("startup_seconds", [0.0, 3.0])
@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_workers_follow_a_step_in_cost_and_back(startup_seconds, spread):
    """Cost 1x, 4x, 1x: the consumer waits < 5 % once settled; at most 2 turns a step change."""

    def seconds(microbatch):
        return 0.08 if PHASE <= microbatch < 2 * PHASE else 0.02

    outcome = simulate(
        scaler(startup_seconds=startup_seconds),
        STAGES,
        microbatches=3 * PHASE,
        sample_seconds=noisy(0, spread, seconds),
        consumer_seconds=lambda _: 0.1,
        startup_seconds=startup_seconds,
    )
    for first in range(0, 3 * PHASE, PHASE):
        assert outcome.stall(first + SETTLED, first + PHASE) < 0.05
        assert outcome.direction_changes(first, first + PHASE) <= 2
    decoders = [outcome.workers[(phase + 1) * PHASE - 1][1] for phase in range(3)]
    assert decoders[1] == 4
    assert decoders[0] <= 2
    assert decoders[2] <= 2


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    spread=st.floats(0.0, 0.9),
    decode=st.floats(0.005, 0.3),
)
@example(seed=6, spread=0.875, decode=0.125)
@example(seed=6, spread=0.5, decode=0.1)
def test_a_constant_load_does_not_make_it_flap(seed, spread, decode):
    """Noise of any seed: one turn at most, never back and forth later, within the cores."""
    draw = random.Random(seed + 1)
    outcome = simulate(
        scaler(cores=8),
        STAGES,
        microbatches=PHASE,
        sample_seconds=noisy(seed, spread, lambda _: decode),
        consumer_seconds=lambda _: 0.1 * draw.uniform(1 - spread, 1 + spread),
    )
    assert outcome.direction_changes(0, PHASE) <= 2
    assert outcome.direction_changes(SETTLED, PHASE) <= 1
    assert max(decoders + collators for _, decoders, collators in outcome.workers) <= 8


def test_a_constant_load_without_noise_settles_for_good():
    outcome = simulate(
        scaler(),
        STAGES,
        microbatches=PHASE,
        sample_seconds=noisy(0, 0.0, lambda _: 0.06),
        consumer_seconds=lambda _: 0.1,
    )
    assert outcome.workers[-1][1] == 3
    assert outcome.direction_changes(SETTLED, PHASE) == 0


def snapshots(count, *, interval, waited, decode, workers, **more):
    """Observations of a decoder alone, a microbatch of one sample each."""
    return [
        Snapshot(
            now=interval * n, delivered=n, waited=waited * n, samples_per_delivery=1.0,
            stages=(StageLoad(name="decode", workers=workers, count=n, busy_seconds=decode * n),),
            **more,
        )
        for n in range(count)
    ]  # fmt: skip


def last_of(scaler, seen):
    """Workers after the first change, or as they were."""
    for snapshot in seen:
        wanted = scaler.observe(snapshot)["decode"]
        if wanted != snapshot.stages[0].workers:
            return wanted
    return seen[-1].stages[0].workers


DECODE = [STAGES[1]]


def test_a_stopped_consumer_never_adds_workers_and_one_pause_takes_none_away():
    stopped = scaler(DECODE)
    seen = snapshots(9, interval=4.0, waited=3.0, decode=4.0, workers=1)
    for hour in range(1, 50):
        assert stopped.observe(replace(seen[0], now=3600.0 * hour)) == {"decode": 1}
    paused = scaler(DECODE)
    seen = snapshots(40, interval=1.0, waited=0.0, decode=3.8, workers=4)
    later = [replace(s, now=s.now + 3600.0 * (s.delivered >= 20)) for s in seen]
    assert last_of(paused, later) == 4


def test_busy_workers_of_a_consumer_that_does_not_wait_are_left_alone():
    """Utilisation is 1, the consumer waits for nothing: no reason to add workers."""
    seen = snapshots(40, interval=1.0, waited=0.0, decode=4.0, workers=4)
    assert last_of(scaler(DECODE), seen) == 4


def test_a_worker_is_only_started_if_it_saves_more_than_it_costs():
    """1 s of 4 saved a microbatch: worth a start-up of 3 s with 100 to come, not with 3."""
    seen = snapshots(9, interval=4.0, waited=2.0, decode=4.0, workers=1)
    for remaining, expected in ((100, 3), (3, 1)):
        with_rest = [replace(snapshot, remaining=remaining) for snapshot in seen]
        assert last_of(scaler(DECODE, startup_seconds=3.0), with_rest) == expected


def test_cores_and_memory_bound_the_workers():
    seen = snapshots(9, interval=4.0, waited=3.5, decode=4.0, workers=1, bytes_in_flight=400)
    limits = [StageLimits(name="decode", worker_bytes=100)]
    for options, expected in (
        ({"cores": 64}, 9),
        ({"cores": 3}, 3),
        ({"cores": 64, "max_bytes": 1000}, 6),
        ({"cores": 64, "max_bytes": 300}, 1),
    ):
        assert last_of(Autoscaler(limits, **options), seen) == expected


def test_a_stage_gets_no_more_than_the_one_before_it_can_feed():
    stages = [StageLimits(name="read", threads=0, most=2), StageLimits(name="decode")]
    assert allot(1e9, [1.0, 3.0], stages, HostLimits(cores=64)) == (2, 6)


@given(
    seconds=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=4),
    wanted=st.floats(0.01, 20.0),
    cores=st.integers(4, 24),
)
def test_no_allotment_of_as_many_threads_is_faster(seconds, wanted, cores):
    """Either the rate is reached, or one more worker for the slowest stage would not fit."""
    stages = [StageLimits(name=str(i)) for i in range(len(seconds))]
    workers = allot(wanted, seconds, stages, HostLimits(cores=cores))
    assert sum(workers) <= max(cores, len(stages))
    assert rate(workers, seconds) >= wanted or sum(workers) == cores
    for place, count in enumerate(workers):
        fewer = [n - (i == place) for i, n in enumerate(workers)]
        assert count == 1 or rate(fewer, seconds) < min(wanted, rate(workers, seconds) + 1e-12)


class Scripted:
    """Asks for what it was told, one answer an observation."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.seen = []

    def observe(self, snapshot):
        self.seen.append(snapshot)
        return self.answers.pop(0)


def test_the_driver_resizes_a_real_pipeline_and_loses_nothing():
    script = Scripted({"a": 3, "b": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 2})
    stages = [Stage(name="a", work=abs, threads=0), Stage(name="b", work=abs, threads=0)]
    with StagePipeline(stages) as pipeline:
        made = [
            samples for _, samples in autoscaled(pipeline, [[i, i] for i in range(12)], script,
                                                 every=4)
        ]  # fmt: skip
        assert [stage.workers for stage in pipeline.stats()[1:]] == [1, 2]
    assert made == [[i, i] for i in range(12)]
    assert [snapshot.delivered for snapshot in script.seen] == [4, 8, 12]
    assert [snapshot.remaining for snapshot in script.seen] == [8, 4, 0]
    assert {snapshot.samples_per_delivery for snapshot in script.seen} == {2.0}
    assert [load.workers for load in script.seen[1].stages] == [3, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cores": 0}, "cores is 0"),
        ({"window": 0}, "window is 0"),
        ({"dead_band": 2.0}, "dead_band is 2.0"),
        ({"max_bytes": -1}, "max_bytes is -1"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ArgumentError, match=message):
        scaler(**arguments)


def test_limits_and_snapshots_that_do_not_fit_are_refused():
    with pytest.raises(ArgumentError, match="most of stage 'a' is 1"):
        StageLimits(name="a", least=2, most=1)
    with pytest.raises(ArgumentError, match=r"snapshot has the stages \['decode'\]"):
        scaler().observe(snapshots(1, interval=1, waited=0, decode=1, workers=1)[0])
