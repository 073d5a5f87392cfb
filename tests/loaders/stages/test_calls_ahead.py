"""Calls sent to a process while it still makes another one."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.stages import Stage, StagePipeline, WorkerDied
from loaders.stages.process_worker import ProcessWorker
from loaders.stages.run import Run

pytestmark = pytest.mark.timeout(120)


def work(request):
    """What the request asks for."""
    kind, value = request
    if kind == "die" or (kind == "die once" and not Path(value).exists()):
        if kind == "die once":
            Path(value).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "raise":
        raise KeyError(value)
    if kind == "sleep":
        time.sleep(value)
    if kind == "large":
        return torch.arange(value)
    return value


def started(**options):
    stage = Stage(name="read", work=work, kind="process", **options)
    return ProcessWorker(stage, start_method="fork")


def test_answers_come_in_the_order_of_the_calls_whatever_each_becomes(tmp_path):
    """A result, an exception and an argument that cannot be sent each belong to their own call."""
    worker = started()
    try:
        worker.begin(("echo", 1))
        worker.begin(("raise", "gone"))
        assert worker.finish() == 1
        worker.begin(("echo", threading.Lock()))
        with pytest.raises(KeyError, match="gone"):
            worker.finish()
        worker.begin(("echo", 2))
        with pytest.raises(TypeError, match="pickle"):
            worker.finish()
        assert worker.finish() == 2
        assert worker.restarts == 0
    finally:
        worker.stop()


@pytest.mark.parametrize("first", ["die once", "echo"])
def test_both_calls_of_a_killed_process_are_made_again(tmp_path, first):
    """Whichever of the two it died in, one more process makes both."""
    died = str(tmp_path / "died")
    worker = started()
    try:
        worker.begin((first, died))
        worker.begin(("echo" if first == "die once" else "die once", died))
        assert worker.finish() == died
        assert worker.finish() == died
        assert worker.restarts == 1
    finally:
        worker.stop()


def test_a_call_is_not_given_up_for_the_one_behind_it():
    """Its large answer is lost each time that the next call kills the process at once."""
    worker = started(retries=1)
    try:
        worker.begin(("large", 3_000_000))
        worker.begin(("die", None))
        assert torch.equal(worker.finish(), torch.arange(3_000_000))
        worker.begin(("echo", 5))
        with pytest.raises(WorkerDied, match="2 times in a row"):
            worker.finish()
        assert worker.finish() == 5
    finally:
        worker.stop()


def test_without_retries_a_process_has_one_call_and_the_next_has_another_process():
    """Nothing is lost for a call that was not its fault."""
    worker = started(retries=0)
    try:
        assert worker.most_begun == 1
        with pytest.raises(WorkerDied, match="1 times in a row"):
            worker.call(("die", None))
        assert worker.call(("echo", 3)) == 3
    finally:
        worker.stop()


def test_each_call_has_its_own_timeout_and_only_the_one_that_hangs_is_ended():
    """Two calls may take longer together; the call behind one that hangs is made all the same."""
    worker = started(timeout=4.0)
    try:
        for seconds in (2.5, 2.5, 60):
            worker.begin(("sleep", seconds))
        worker.begin(("echo", 7))
        assert [worker.finish() for _ in range(2)] == [2.5, 2.5]
        with pytest.raises(TimeoutError, match="longer than 4 s"):
            worker.finish()
        assert worker.finish() == 7
        assert worker.restarts == 1
    finally:
        worker.stop()


def test_stopping_ends_both_calls():
    worker = started()
    worker.begin(("sleep", 60))
    worker.begin(("echo", 1))
    worker.stop()
    for _ in range(2):
        with pytest.raises(WorkerDied):
            worker.finish()


def run_of(seconds, *, workers=2, max_bytes=1 << 30):
    stage = Stage(name="read", work=int, workers=workers, threads=0)
    run = Run([stage], workers=[workers], look_ahead=8, max_bytes=max_bytes)
    run.admit(range(len(seconds)), seconds)
    run.planned = True
    return run


def test_nothing_is_sent_ahead_of_an_idle_worker_or_behind_a_dear_sample():
    """Only where every worker runs a call, enough wait for all, and the call is no long one."""
    run = run_of([1.0, 50.0, *[1.0] * 5])
    dear, first = run.begin(0), run.begin(0)
    assert run.begin_ahead(first) is None  # how large a result is nobody knows yet
    run.end(first, None, 8)
    assert run.begin_ahead(dear) is None  # the other worker is idle
    cheap = run.begin(0)
    assert (dear.sample_id, first.sample_id, cheap.sample_id) == (1, 0, 2)
    assert run.begin_ahead(dear) is None
    assert run.begin_ahead(cheap).sample_id == 3
    run.begin_ahead(cheap), run.begin_ahead(cheap)
    assert run.waiting(0) == 1
    assert run.begin_ahead(cheap) is None  # the last one is for whoever is free first


@settings(max_examples=50)
@given(st.lists(st.integers(1, 9), min_size=3, max_size=30), st.integers(10, 60), st.randoms())
def test_room_is_set_aside_for_what_is_sent_ahead(sizes, max_bytes, rng):
    """Held bytes stay within the bound, or the microbatch, and a result of each call begun."""
    run = run_of([1.0] * len(sizes), max_bytes=max_bytes)
    begun = []
    while not run.finished:
        while len(begun) < 2 and not isinstance(job := run.begin(0), str):
            begun.append(job)
        ahead = run.begin_ahead(begun[0]) if begun else None
        begun += [ahead] if ahead is not None else []
        if begun:
            job = begun.pop(rng.randrange(len(begun)))
            run.end(job, None, sizes[job.sample_id])
        assert run.room.held <= max(max_bytes, sum(sizes)) + 4 * max(sizes)
        run.deliver()
    assert run.room.held == 0


def read(sample_id):
    if sample_id == 11:
        raise ValueError("torn")
    return torch.full((3,), sample_id)


def test_a_pipeline_sends_ahead_and_replaces_only_what_failed():
    """Same samples in the same order as threads, the torn one replaced by the named one."""
    given_ids = [list(range(i, i + 4)) for i in range(0, 40, 4)]
    handed = []
    for kind in ("process", "thread"):
        row = [Stage(name="read", work=read, kind=kind, workers=2, threads=0)]
        with StagePipeline(row, start_method="fork", on_error=lambda *_: 99) as pipeline:
            handed.append([[int(t[0]) for t in each] for _, each in pipeline(given_ids)])
            assert pipeline.stats()[1].count == 41
    assert handed[0] == handed[1]
    assert handed[0][2] == [8, 9, 10, 99]
