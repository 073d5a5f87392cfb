"""StagePipeline in threads: order, content, bounds, failures and ends."""

import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.errors import ArgumentError
from loaders.stages import Stage, StageError, StagePipeline

LIMIT = pytest.mark.timeout(60)


def double(value):
    return 2 * value


def stages(workers=2, **options):
    return [
        Stage(name="read", work=double, workers=workers, threads=0, **options),
        Stage(name="shift", work=lambda value: value + 1, workers=workers, threads=0),
        Stage(name="collate", work=tuple, grain="microbatch"),
    ]


def named_threads():
    names = ("read-", "shift-", "collate-", "planning")
    return [t.name for t in threading.enumerate() if t.name.startswith(names)]


@LIMIT
@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 99), max_size=6), max_size=12),
    st.integers(1, 4),
    st.integers(1, 20),
    st.sampled_from([1, 100, 1 << 30]),
)
def test_microbatches_come_in_plan_order_with_their_samples_in_order(
    microbatches, workers, look_ahead, max_bytes
):
    """Whatever the workers, look-ahead and bounds: the same microbatches, in the same order."""
    expected = [tuple(2 * i + 1 for i in ids) for ids in microbatches]
    options = {"look_ahead": look_ahead, "max_bytes": max_bytes}
    with StagePipeline(stages(workers), **options) as pipeline:
        assert [value for _, value in pipeline(microbatches)] == expected
        assert [value for _, value in pipeline(microbatches)] == expected
    assert named_threads() == []


@LIMIT
def test_case_k9_one_worker_everywhere_finishes():
    """Source and consumer take no worker's place: 200 items pass stages of one worker each."""
    with StagePipeline(stages(1)) as pipeline:
        assert len(list(pipeline([[i] for i in range(200)]))) == 200


@LIMIT
def test_case_k10_a_stopped_consumer_stops_the_workers():
    """However long nobody takes, no more is read than look-ahead and bytes allow."""
    read = []

    def note(sample_id):
        read.append(sample_id)
        return bytes(1000)

    row = [Stage(name="read", work=note, workers=2, threads=0)]
    with StagePipeline(row, look_ahead=1000, max_bytes=10_000) as pipeline:
        iterator = pipeline([[i] for i in range(2000)])
        next(iterator)
        for _ in range(50):
            before = len(read)
            time.sleep(0.02)
            if len(read) == before:
                break
        assert 1 <= len(read) <= 1 + 10 + 1
        assert len(list(iterator)) == 1999


def test_case_k5_bytes_in_flight_stay_within_the_bound_and_one_sample():
    """Results of 1 and of 200 units, in turn: never more than the bound and one of them."""
    row = [Stage(name="read", work=lambda i: bytes(200 if i % 2 else 1), workers=1, threads=0)]
    with StagePipeline(row, look_ahead=64, max_bytes=500) as pipeline:
        iterator = pipeline([[i] for i in range(100)])
        run = iterator.gi_frame.f_locals["run"]
        list(iterator)
    assert 200 <= run.room.highest <= 500 + 200


@LIMIT
@pytest.mark.parametrize("workers", [1, 3])
def test_what_joins_the_samples_is_within_the_bound_too(workers):
    """Samples and the microbatch made of them count both; the bound and one sample hold (K5)."""
    row = [
        Stage(name="read", work=lambda i: bytes(100), workers=workers, threads=0),
        Stage(name="collate", work=b"".join, grain="microbatch", threads=0),
    ]
    with StagePipeline(row, look_ahead=64, max_bytes=2000) as pipeline:
        assert len(list(pipeline([list(range(i, i + 4)) for i in range(400)]))) == 400
        assert 1000 <= pipeline.most_bytes <= 2000 + 100


@LIMIT
@pytest.mark.parametrize("stage", ["read", "shift", "collate"])
def test_a_stage_that_raises_is_named_with_the_sample_and_the_cause(stage):
    """The consumer gets the stage, the ids and the original exception; nothing is left running."""

    def fail(value):
        if value in (13, 26, (27,)) or value == [27]:
            raise KeyError("broken")
        return value

    row = [
        Stage(name="read", work=fail if stage == "read" else int, threads=0),
        Stage(name="shift", work=fail if stage == "shift" else (lambda v: v), threads=0),
        Stage(name="collate", work=fail if stage == "collate" else tuple, grain="microbatch"),
    ]
    failing = 13 if stage != "collate" else 27
    with StagePipeline(row) as pipeline:
        with pytest.raises(
            StageError, match=rf"stage '{stage}' failed on sample {failing}"
        ) as info:
            list(pipeline([[i] for i in range(40)]))
        assert info.value.sample_ids == (failing,)
        assert isinstance(info.value.__cause__, KeyError)
    assert named_threads() == []


@LIMIT
def test_a_stage_that_returns_nothing_or_another_type_is_named():
    """None and undeclared types are refused with the stage and the sample."""
    with (
        StagePipeline([Stage(name="read", work=lambda i: None)]) as pipeline,
        pytest.raises(StageError, match=r"'read' failed on sample 4.*returned None"),
    ):
        list(pipeline([[4]]))
    with (
        StagePipeline([Stage(name="read", work=str, returns=bytes)]) as pipeline,
        pytest.raises(StageError, match="returned a str; allowed by returns: bytes"),
    ):
        list(pipeline([[4]]))


@LIMIT
def test_a_call_in_a_thread_that_takes_too_long_is_named():
    """A hung call ends the iteration with the stage, the sample and what to do."""
    forever = threading.Event()
    row = [Stage(name="read", work=lambda i: forever.wait(30) or 1, timeout=0.2)]
    pipeline = StagePipeline(row)
    with pytest.raises(StageError, match=r"'read' has worked on sample 7 .* timeout is 0\.2"):
        list(pipeline([[7]]))
    forever.set()
    pipeline.close()
    assert named_threads() == []


@LIMIT
def test_another_sample_takes_the_place_of_a_failed_one():
    """`on_error` names it; both are listed, and the microbatch keeps its size."""

    def read(sample_id):
        if sample_id == 3:
            raise OSError("unreadable")
        return sample_id

    row = [Stage(name="read", work=read, workers=2, threads=0)]
    with StagePipeline(row, on_error=lambda job, error: 90) as pipeline:
        values = [list(value) for _, value in pipeline([[1, 2], [3, 4]])]
        assert values == [[1, 2], [90, 4]]
        assert pipeline.replaced == [(3, 90)]


@LIMIT
def test_a_plan_that_fails_is_the_consumers_error():
    """What the source of microbatches raises reaches the consumer as it is."""

    def broken():
        yield [1]
        raise RuntimeError("no plan")

    with StagePipeline(stages()) as pipeline:
        iterator = pipeline(broken())
        with pytest.raises(RuntimeError, match="no plan"):
            list(iterator)
        assert [v for _, v in pipeline([[1]])] == [(3,)]


@LIMIT
def test_breaking_off_leaves_the_pipeline_usable_and_closing_it_leaves_nothing():
    """After a break another pass begins at once; after close no thread is left."""
    with StagePipeline(stages()) as pipeline:
        for _, value in pipeline([[i] for i in range(100)]):
            assert value == (1,)
            break
        assert [v for _, v in pipeline([[5], [6]])] == [(11,), (13,)]
    assert named_threads() == []
    with pytest.raises(RuntimeError, match="closed"):
        pipeline([[1]])


@LIMIT
def test_workers_may_change_while_running():
    """Nothing is lost when a stage gets more or fewer workers in the middle."""
    with StagePipeline(stages(1), look_ahead=4) as pipeline:
        values = []
        for number, (_, value) in enumerate(pipeline([[i] for i in range(60)])):
            values.append(value)
            if number % 5 == 0:
                pipeline.resize("read", 1 + number % 4)
        assert values == [(2 * i + 1,) for i in range(60)]
        with pytest.raises(ArgumentError, match="stage is 'decode'; allowed: 'read'"):
            pipeline.resize("decode", 2)


@LIMIT
def test_statistics_count_every_call_and_what_the_consumer_waited_for():
    """Counts are exact, and each wait is booked under what was awaited (K12)."""
    row = [
        Stage(name="read", work=lambda i: time.sleep(0.005) or i, threads=0),
        Stage(name="collate", work=tuple, grain="microbatch"),
    ]
    with StagePipeline(row, trace=1000) as pipeline:
        list(pipeline([[i, i] for i in range(10)]))
        planning, read, collate = pipeline.stats()
        assert (planning.count, read.count, collate.count) == (10, 20, 10)
        assert read.mean >= 0.005
        assert set(pipeline.waits) <= {"planning", "read", "collate"}
        assert pipeline.waits["read"] > 0
        assert sum(wait.data_wait for wait in pipeline.step_waits) == pytest.approx(
            sum(pipeline.waits.values())
        )
        assert sum(call.stage == "read" for call in pipeline.calls) == 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"look_ahead": 0}, "look_ahead is 0"),
        ({"max_bytes": -1}, "max_bytes is -1"),
        ({"order": "any"}, "order is 'any'"),
        ({"seconds": [1.0, float("nan")]}, "seconds"),
        ({"start_method": "thread"}, "start_method is 'thread'"),
    ],
)
def test_bad_arguments_are_refused_by_name(options, message):
    with pytest.raises(ArgumentError, match=message):
        StagePipeline(stages(), **options)


def test_stages_that_do_not_go_together_are_refused():
    read = Stage(name="read", work=int)
    collate = Stage(name="collate", work=tuple, grain="microbatch")
    for row, message in (
        ([], "grains of none"),
        ([collate], "grains microbatch"),
        ([read, collate, Stage(name="late", work=int)], "grains"),
        ([read, read], "'read' 2 times"),
        ([Stage(name="read", work=lambda i: i, kind="process"), collate], "cannot be pickled"),
    ):
        with pytest.raises(ArgumentError, match=message):
            StagePipeline(row, start_method="spawn")


def test_more_busy_threads_than_cores_are_warned_of():
    with pytest.warns(UserWarning, match="workers x threads"):
        StagePipeline([Stage(name="read", work=int, workers=500)]).close()
