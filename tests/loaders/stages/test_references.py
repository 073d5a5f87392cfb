"""Results live no longer than they are needed, without any collection of garbage."""

import gc
import multiprocessing
import threading
import time
import weakref

import numpy as np
import pytest

from loaders.stages import Stage, StagePipeline

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def made():
    """Weak references to all that the stages made, while nothing collects cycles."""
    gc.collect()
    gc.disable()
    try:
        yield []
    finally:
        gc.enable()


def stages(made):
    def noted(array):
        made.append(weakref.ref(array))
        return array

    return [
        Stage(name="read", work=lambda i: noted(np.full(4, i)), workers=2, threads=0),
        Stage(name="shift", work=lambda array: noted(array + 1), threads=0),
        Stage(name="collate", work=lambda s: noted(np.stack(s)), grain="microbatch", threads=0),
    ]


def test_a_microbatch_handed_out_is_the_consumers_alone(made):
    """Once the consumer asks for the next one, none before is alive (K10, K11)."""
    with StagePipeline(stages(made), look_ahead=2) as pipeline:
        for number, (_, microbatch) in enumerate(pipeline([[i, i + 1] for i in range(200)])):
            kept = weakref.ref(microbatch)
            assert microbatch[0, 0] == number + 1
            del microbatch
            assert sum(ref() is not None for ref in made) <= 40
    assert kept() is None
    assert [ref() for ref in made if ref() is not None] == []


def test_what_was_made_ahead_of_a_break_is_dropped(made):
    """A pass that is broken off keeps nothing of what it had ready."""
    with StagePipeline(stages(made)) as pipeline:
        iterator = pipeline([[i, i + 1] for i in range(200)])
        next(iterator)
        iterator.close()
        pipeline.close()
        assert len(made) > 3
        assert [ref() for ref in made if ref() is not None] == []


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_the_workers_of_a_pipeline_that_nobody_keeps_end(kind):
    """Not closed, only dropped: its threads and processes end all the same."""
    threads, children = set(threading.enumerate()), set(multiprocessing.active_children())
    read = Stage(name="read", work=abs, kind=kind, workers=2, threads=0)
    pipeline = StagePipeline([read], start_method="fork")
    assert len(list(pipeline([[1], [2]]))) == 2
    assert not set(threading.enumerate()) <= threads
    del pipeline
    until = time.monotonic() + 20
    while not (
        set(threading.enumerate()) <= threads and set(multiprocessing.active_children()) <= children
    ):
        assert time.monotonic() < until
        time.sleep(0.02)
