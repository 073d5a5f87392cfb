"""Worker processes: every way to start them, their threads and memory, and what is sent to them."""

import gc
import os
import pickle
import weakref
from pathlib import Path

import numba
import pytest
import torch

from balancer.cost import Costs
from balancer.planner import EpochPlanner
from balancer.samples import SampleTable
from balancer.topology import Topology
from loaders.collate import PackedCollator
from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from loaders.shared_memory import bytes_in_flight, warn_of_full_shared_memory
from tests.loaders.fixed_plan import without_planning
from tests.loaders.planning import TextDataset, skewed_lengths, text_tokens

START_METHODS = ["fork", "spawn", "forkserver"]


def make_loader(dataset=None, **options):
    settings = {
        "cost_model": text_tokens, "global_batch_size": 16, "num_microbatches": 2,
        "dp_rank": 0, "dp_size": 2, "collate_fn": PackedCollator(check_targets="error"),
    }  # fmt: skip
    dataset = dataset or TextDataset(skewed_lengths(48))
    return without_planning(BalancedDataLoader(dataset, **(settings | options)))


def initialise(worker_id):
    os.environ["EVENSTEP_TEST_WORKER"] = str(worker_id)


class Threads(TextDataset):
    def __getitem__(self, index):
        worker = os.environ["EVENSTEP_TEST_WORKER"]
        assert gc.get_freeze_count() > 0
        return torch.get_num_threads(), numba.get_num_threads(), int(worker)


@pytest.mark.parametrize("method", START_METHODS)
def test_case_k3_workers_have_one_thread_and_the_users_init_is_called(method):
    loader = make_loader(
        Threads(skewed_lengths(48)), num_workers=2, multiprocessing_context=method,
        worker_init_fn=initialise, collate_fn=list, on_sample_error="replace",
    )  # fmt: skip
    seen = {threads for batch in loader for threads in batch}
    assert seen == {(1, 1, 0), (1, 1, 1)}


@pytest.mark.parametrize("method", START_METHODS)
def test_case_k7_every_start_method_gives_the_same_microbatches(method):
    alone = [batch["input_ids"].tolist() for batch in make_loader()]
    loader = make_loader(num_workers=2, multiprocessing_context=method)
    assert [batch["input_ids"].tolist() for batch in loader] == alone


class Nothing:
    """A dataset of a size that it need not hold."""

    def __init__(self, num_samples):
        self.num_samples = num_samples

    def __len__(self):
        return self.num_samples

    def __getitem__(self, index):
        return {"input_ids": torch.ones(8, dtype=torch.int64)}


def million(**options):
    sizes = SampleTable.from_lengths([8] * 1_000_000)
    return make_loader(Nothing(1_000_000), sizes=sizes, global_batch_size=256, **options)


def test_case_k8_the_plan_of_a_million_samples_stays_in_the_parent():
    """All that torch pickles for a worker, for a dataset that is small itself."""
    inner = million(num_workers=1, on_sample_error="replace")._loader
    sent = pickle.dumps((inner.dataset, inner.collate_fn, inner.worker_init_fn))
    assert len(sent) < 4096


def private_kib():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def memory_of_worker(samples):
    return private_kib()


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").is_file(), reason="needs smaps_rollup")
def test_case_k1_a_worker_does_not_grow_with_the_microbatches_it_reads():
    """Forked beside the plan of a million samples, less than 10 MiB in 400 microbatches.

    The parent's objects are frozen too: when it collects garbage it writes to all of them, once,
    and what it shared until then with the worker counts as the worker's own.
    """
    loader = million(
        num_workers=1, multiprocessing_context="fork", collate_fn=memory_of_worker,
        num_microbatches=1, on_sample_error="replace",
    )  # fmt: skip
    readings = []
    gc.collect()
    gc.freeze()
    try:
        for reading in loader:
            readings.append(reading)
            if len(readings) == 400:
                break
    finally:
        gc.unfreeze()
    assert readings[-1] - readings[20] < 10 * 1024


class Batch:
    """A microbatch that can be watched."""

    def __init__(self, samples):
        self.samples = samples


@pytest.mark.parametrize("persistent", [False, True])
def test_case_k11_nothing_of_an_epoch_is_kept_beyond_it(persistent):
    loader = make_loader(collate_fn=Batch, num_workers=1, persistent_workers=persistent)
    for _ in range(2):
        batch = None
        for batch in loader:
            alive = weakref.ref(batch)
        del batch
        gc.collect()
        assert alive() is None


def test_case_k11_while_the_next_is_fetched_only_the_user_holds_a_microbatch():
    stream = iter(make_loader(collate_fn=Batch))
    alive = weakref.ref(next(stream))
    held = next(stream)
    assert alive() is None
    assert held.samples


def planner_of(tokens, patches):
    costs = Costs.from_values([1.0] * 64, tokens=[tokens] * 64, patches=[patches] * 64)
    return EpochPlanner(costs, Topology(dp_size=2, num_microbatches=2), global_batch_size=16)


def test_case_k4_shared_memory_too_small_is_told_before_the_start(monkeypatch):
    """4 samples of 1000 tokens and 10,000 patches a microbatch, 8 microbatches in flight."""
    planner = planner_of(1000, 10_000)
    expected = 8 * 4 * (1000 * 28 + 10_000 * 4704)
    assert bytes_in_flight(planner, num_workers=2, prefetch_factor=4) == expected
    usage = type("Usage", (), {"free": 64 * 2**20})
    monkeypatch.setattr("loaders.shared_memory.shutil.disk_usage", lambda path: usage)
    with pytest.warns(UserWarning, match=r"num_workers=2 .* 1436 MiB .* 64 MiB free") as caught:
        BalancedDataLoader(
            Nothing(64), batch_sampler=BalancedBatchSampler(planner, dp_rank=0), num_workers=2,
            prefetch_factor=4, collate_fn=list,
        )  # fmt: skip
    message = str(caught[0].message)
    for remedy in ("lower num_workers or prefetch_factor", "max_tokens", "--shm-size"):
        assert remedy in message
    options = {"prefetch_factor": None}
    warn_of_full_shared_memory(planner_of(10, 0), num_workers=4, **options)
    warn_of_full_shared_memory(planner, num_workers=0, **options)
    warn_of_full_shared_memory(planner, num_workers=4, path="/no/such/folder", **options)
