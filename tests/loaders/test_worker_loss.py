"""A worker that is killed is an error in words, and the loader goes on from its state."""

import os
import signal

import pytest

from loaders.loader import BalancedDataLoader
from loaders.worker_loss import WorkerLostError, from_workers
from tests.loaders.fixed_plan import without_planning
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens


def ids_and_worker(samples):
    return ids_of(samples), os.getpid()


def make_loader():
    return without_planning(
        BalancedDataLoader(
            TextDataset(skewed_lengths(400)), cost_model=text_tokens, global_batch_size=4,
            dp_rank=0, dp_size=1, num_workers=2, collate_fn=ids_and_worker, timeout=120,
        )
    )  # fmt: skip


@pytest.mark.parametrize("error", [ConnectionResetError(104), EOFError(), FileNotFoundError()])
def test_an_error_of_the_transport_says_that_a_worker_ended(error):
    def broken():
        yield 1
        raise error

    received = from_workers(broken())
    assert next(received) == 1
    with pytest.raises(WorkerLostError, match=r"a worker ended .* lower num_workers"):
        next(received)


def test_after_a_kill_the_rest_of_the_epoch_is_delivered_once():
    loader, delivered, states = make_loader(), [], []

    def train():
        for number, (ids, worker) in enumerate(loader):
            delivered.extend(ids)
            states.append(loader.state_dict())
            if number == 5:
                os.kill(worker, signal.SIGKILL)

    with pytest.raises(RuntimeError, match="worker"):
        train()
    resumed = make_loader()
    resumed.load_state_dict(states[-1])
    assert sorted(delivered + [index for ids, _ in resumed for index in ids]) == list(range(400))
    assert len(delivered) < 400
