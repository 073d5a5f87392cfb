"""ProcessWorker: results, failures and ends of a stage's function in a process of its own."""

import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from loaders.stages import Stage, StageError, StagePipeline, WorkerDied
from loaders.stages.process_worker import ProcessWorker

pytestmark = pytest.mark.timeout(120)


class TwoArguments(Exception):
    """Cannot be rebuilt from its message alone."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def work(request):
    """What the request asks for."""
    kind, value = request
    if kind == "echo":
        return value
    if kind == "raise":
        raise value if isinstance(value, Exception) else TwoArguments(value, value)
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "die once":
        if not Path(value).exists():
            Path(value).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"
    if kind == "sleep":
        time.sleep(value)
    if kind == "threads":
        return torch.get_num_threads()
    if kind == "large":
        return torch.arange(value, dtype=torch.int64)
    return os.getpid()


@pytest.fixture
def worker():
    made = ProcessWorker(Stage(name="read", work=work, kind="process"), start_method="fork")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def shared():
    made = ProcessWorker(Stage(name="read", work=work, kind="process"), start_method="fork")
    yield made
    made.stop()


dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.uint8,
                          torch.complex64, torch.float16])  # fmt: skip


@settings(max_examples=40)
@given(shape=st.lists(st.integers(0, 4), max_size=3), dtype=dtypes, turned=st.booleans())
def test_tensors_and_arrays_come_back_bit_equal(shared, shape, dtype, turned):
    """Any type, shape and memory order, nested, and writable."""
    tensor = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    if turned and tensor.dim() > 1:
        tensor = tensor.transpose(0, 1)
    array = np.arange(6.0).reshape(2, 3)[:, ::2]
    back = shared.call(("echo", {"t": [tensor], "a": array, "b": b"text"}))
    assert back["t"][0].dtype == dtype
    assert torch.equal(back["t"][0], tensor)
    assert np.array_equal(back["a"], array)
    assert back["b"] == b"text"
    if back["t"][0].numel():
        back["t"][0].zero_()


def test_results_of_many_megabytes_come_back_whole(worker):
    """A tensor of 80 MB is what it was."""
    assert torch.equal(worker.call(("large", 10_000_000)), torch.arange(10_000_000))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_start_method_limits_threads_and_serves(method):
    """One thread in each worker, whatever it began as (K3)."""
    worker = ProcessWorker(Stage(name="read", work=work, kind="process"), start_method=method)
    try:
        assert worker.call(("threads", None)) == 1
        assert worker.call(("pid", None)) != os.getpid()
    finally:
        worker.stop()


def test_exceptions_keep_their_type_or_their_words(worker):
    """A plain exception comes back as it is, one that cannot be rebuilt as its text (K6)."""
    with pytest.raises(KeyError, match="gone") as info:
        worker.call(("raise", KeyError("gone")))
    assert "in work" in str(info.value.__cause__)
    with pytest.raises(RuntimeError, match="TwoArguments: x and x"):
        worker.call(("raise", "x"))
    assert worker.call(("echo", 1)) == 1


def test_what_cannot_be_sent_back_is_an_error_of_that_call():
    stage = Stage(name="read", work=lambda _: threading.Lock(), kind="process")
    worker = ProcessWorker(stage, start_method="fork")
    try:
        with pytest.raises((TypeError, AttributeError, RuntimeError), match="pickle"):
            worker.call(0)
    finally:
        worker.stop()


def test_a_killed_process_is_replaced_and_its_call_made_again(worker, tmp_path):
    """SIGKILL in a call: redone on a new process, and counted."""
    assert worker.call(("die once", str(tmp_path / "died"))) == "alive"
    assert worker.restarts == 1


def test_a_call_that_kills_every_process_is_given_up(worker):
    with pytest.raises(WorkerDied, match="exit code -9 in the middle of the call, 3 times"):
        worker.call(("die", None))


def test_a_call_that_hangs_is_ended_and_the_next_one_served():
    stage = Stage(name="read", work=work, kind="process", timeout=0.5)
    worker = ProcessWorker(stage, start_method="fork")
    try:
        with pytest.raises(TimeoutError, match=r"longer than 0\.5 s"):
            worker.call(("sleep", 60))
        assert worker.call(("echo", 2)) == 2
    finally:
        worker.stop()


def test_stopping_ends_a_call_in_progress_and_may_come_twice():
    worker = ProcessWorker(Stage(name="read", work=work, kind="process"), start_method="fork")
    ended = []

    def hang():
        with pytest.raises(WorkerDied):
            worker.call(("sleep", 60))
        ended.append(True)

    thread = threading.Thread(target=hang)
    thread.start()
    time.sleep(0.3)
    worker.stop()
    thread.join(60)
    worker.stop()
    assert ended == [True]
    with pytest.raises(WorkerDied):
        worker.call(("echo", 1))


def read(sample_id):
    if sample_id == 11:
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.full((3,), sample_id)


def test_a_stage_whose_process_is_killed_names_the_sample_and_the_cure():
    """In a pipeline: stage, sample, exit code and what to do next, after the retries."""
    row = [Stage(name="read", work=read, kind="process", workers=2, retries=1, threads=0)]
    with (
        StagePipeline(row, start_method="fork") as pipeline,
        pytest.raises(StageError, match=r"'read' failed on sample 11.*-9.*2 times.*memory"),
    ):
        list(pipeline([[i] for i in range(30)]))


def test_processes_and_threads_hand_out_the_same():
    """The same tensors in the same order for any number and kind of workers."""
    expected = [[i, i + 1] for i in range(0, 10, 2)]
    for kind, workers in (("thread", 1), ("process", 1), ("process", 3)):
        row = [Stage(name="read", work=read, kind=kind, workers=workers, threads=0)]
        with StagePipeline(row, start_method="fork") as pipeline:
            got = [[int(t[0]) for t in samples] for _, samples in pipeline(expected)]
        assert got == expected
