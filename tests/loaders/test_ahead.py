"""Planning ahead: the same plans in the same order, and no thread that outlives its plan."""

import multiprocessing
import threading
import time

import pytest

from loaders.ahead import made_ahead
from loaders.loader import BalancedDataLoader
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens

TIME_LIMIT_S = 60


def planners():
    return [t for t in threading.enumerate() if t.name.startswith("evenstep")]


def test_while_one_is_in_use_the_next_is_made_and_no_other():
    made, second = [], threading.Event()

    def make(step):
        made.append((step, threading.current_thread() is threading.main_thread()))
        if step == 1:
            second.set()
        return step

    results = made_ahead(make, range(3), ahead_s=0)
    assert next(results) == 0
    assert second.wait(TIME_LIMIT_S)
    assert made == [(0, True), (1, False)]
    assert list(results) == [1, 2]
    assert not planners()


def test_what_takes_no_time_is_made_by_one_thread():
    """The first by whoever asks for it; a thread is not worth its start for a single other."""
    made = list(made_ahead(lambda step: threading.current_thread(), range(9), ahead_s=60))
    assert made == [threading.current_thread(), *[made[1]] * 8]
    assert made[1].name == "evenstep plans from step 1"
    assert not planners()


def test_a_thread_makes_no_more_than_it_has_time_for():
    """Of steps that take 30 ms of work, two begin within 50 ms, and two more in the next thread."""

    def make(step):
        until = time.thread_time() + 0.03
        while time.thread_time() < until:
            pass
        return threading.current_thread()

    made = list(made_ahead(make, range(7), ahead_s=0.05))
    threads = list(dict.fromkeys(made))
    assert [made.count(thread) for thread in threads] == [1, 2, 2, 2]


def test_closing_waits_for_what_is_being_made_and_nothing_else_is():
    under_way, closing, made = threading.Event(), threading.Event(), []

    def make(step):
        if step == 1:
            under_way.set()
            assert closing.wait(TIME_LIMIT_S)
        made.append(step)

    results = made_ahead(make, range(1000), ahead_s=60)
    next(results)
    assert under_way.wait(TIME_LIMIT_S)
    assert planners()
    threading.Timer(0.2, closing.set).start()
    results.close()
    assert made == [0, 1]
    assert not planners()


def test_an_error_is_raised_where_its_result_is_asked_for():
    results = made_ahead(lambda step: 1 / (1 - step), range(3), ahead_s=0)
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert not planners()


def is_free(connection):
    """In a forked process: whether planning is possible, that is, no lock is held for ever."""
    connection.send(list(made_ahead(lambda step: step, range(3), ahead_s=0)))


def test_a_fork_waits_until_nothing_is_being_made():
    under_way, go = threading.Event(), threading.Event()

    def make(step):
        if step == 1:
            under_way.set()
            assert go.wait(TIME_LIMIT_S)

    results = made_ahead(make, range(3), ahead_s=0)
    next(results)
    assert under_way.wait(TIME_LIMIT_S)
    threading.Timer(0.2, go.set).start()
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=is_free, args=(sender,))
    child.start()
    try:
        assert go.is_set()
        assert receiver.poll(TIME_LIMIT_S)
        assert receiver.recv() == [0, 1, 2]
    finally:
        child.kill()
        results.close()


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loop_that_breaks_leaves_no_thread(num_workers):
    lengths = skewed_lengths(64)
    loader = BalancedDataLoader(
        TextDataset(lengths), cost_model=text_tokens, global_batch_size=8, effort="fast",
        num_workers=num_workers, collate_fn=ids_of,
    )  # fmt: skip
    for _ in loader:
        break
    assert not planners()
