"""Resuming in the middle of an epoch: seconds, samples read on the way, and bytes of the state."""

import importlib.util
import pickle
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, DistributedSampler

from balancer.samples import SampleTable
from benchmarks.measure import Record
from loaders.loader import BalancedDataLoader

__all__ = ["measure_resume"]


class _Counting:
    """As many samples as asked for, which cost nothing to read; counts what is read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.reads = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        return index


@dataclass(frozen=True, kw_only=True)
class _Job:
    """A rank that resumes at one step of an epoch, every step one microbatch."""

    sizes: SampleTable
    step: int
    batch_size: int
    dp_size: int
    seed: int


def measure_resume(
    *,
    name: str,
    num_samples: int,
    step: int,
    batch_size: int,
    dp_size: int,
    repeats: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Time from loading a state to the first microbatch, and `__getitem__` calls for those skipped.

    Loaders are built before, kernels compiled, there are no workers, and reading costs nothing, so
    skipping by reading is shown at its best. Peers resume a plain shuffled rank of as many samples
    a step: torch's DataLoader read up to the place; accelerate's `skip_first_batches`; torchdata's
    StatefulDataLoader. Those not installed are left out.

    Args:
        name: Name of the experiment in the records.
        num_samples: Samples of the dataset.
        step: Step to resume at.
        batch_size: Samples of a microbatch, on average.
        dp_size: Ranks; `evenstep_replanned` resumes on half as many.
        repeats: Timed resumes of each.
        seed: Seed of the sizes and the order.
        quick: A tenth of the samples and of the steps, once.
    """
    if quick:
        num_samples, step, repeats = num_samples // 10, step // 10, 1
    lengths = np.ceil(np.random.default_rng(seed).lognormal(6.0, 1.0, num_samples))
    job = _Job(
        sizes=SampleTable.from_lengths(lengths.astype(np.int64)),
        step=step, batch_size=batch_size, dp_size=dp_size, seed=seed,
    )  # fmt: skip
    ways: dict[str, Callable[[_Job], Iterator[tuple[float, int, int]]]] = {
        "evenstep": lambda job: _ours(job, job.dp_size),
        "evenstep_replanned": lambda job: _ours(job, job.dp_size // 2),
        "torch_skipping": _torch,
    }
    if importlib.util.find_spec("accelerate"):
        ways["accelerate_skip_first_batches"] = _accelerate
    if importlib.util.find_spec("torchdata"):
        ways["torchdata_stateful"] = _torchdata
    records = []
    for planner, way in ways.items():
        resumes = way(job)
        results = np.array([next(resumes) for _ in range(repeats)])
        for metric, unit, value in zip(
            ("resume_seconds", "reads_to_resume", "state_bytes"),
            ("s", "calls", "bytes"),
            np.median(results, axis=0),
            strict=True,
        ):
            records.append(Record(
                experiment=name, data=f"lognormal_n{num_samples}", planner=planner,
                topology=f"dp{dp_size}_m1_step{step}", barrier="microbatch", metric=metric,
                value=float(value), unit=unit, n=repeats,
            ))  # fmt: skip
    return records


def _ours(job: _Job, dp_size: int) -> Iterator[tuple[float, int, int]]:
    """Resume by our state, on as many ranks as it was saved on or on others."""
    saved = _our_loader(job, _Counting(len(job.sizes)), job.dp_size)
    saved.seek(job.step - 1)
    next(iter(saved))
    state = saved.state_dict()
    while True:
        dataset = _Counting(len(job.sizes))
        loader = _our_loader(job, dataset, dp_size)
        next(iter(loader))  # compiles
        dataset.reads = 0
        started = time.perf_counter()
        loader.load_state_dict(state)
        first = next(iter(loader))
        seconds = time.perf_counter() - started
        yield seconds, dataset.reads - len(first), len(pickle.dumps(state))


def _our_loader(job: _Job, dataset: _Counting, dp_size: int) -> BalancedDataLoader:
    return BalancedDataLoader(
        dataset, sizes=job.sizes, cost_model=lambda table: table.text_tokens, seed=job.seed,
        global_batch_size=job.batch_size * job.dp_size, dp_rank=0, dp_size=dp_size,
        collate_fn=list, on_topology_change="replan",
    )  # fmt: skip


def _torch(job: _Job) -> Iterator[tuple[float, int, int]]:
    """Read and throw away all batches that are behind; the state is the epoch and their number."""
    while True:
        dataset = _Counting(len(job.sizes))
        batches = iter(_plain_loader(job, dataset))
        started = time.perf_counter()
        for _ in range(job.step):
            next(batches)
        first = next(batches)
        seconds = time.perf_counter() - started
        yield seconds, dataset.reads - len(first), len(pickle.dumps((0, job.step)))


def _accelerate(job: _Job) -> Iterator[tuple[float, int, int]]:
    """Let the batch sampler run up to the place."""
    from accelerate import skip_first_batches

    while True:
        dataset = _Counting(len(job.sizes))
        loader = _plain_loader(job, dataset)
        started = time.perf_counter()
        first = next(iter(skip_first_batches(loader, job.step)))
        seconds = time.perf_counter() - started
        yield seconds, dataset.reads - len(first), len(pickle.dumps((0, job.step)))


def _torchdata(job: _Job) -> Iterator[tuple[float, int, int]]:
    """Load the state that a StatefulDataLoader saved there."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    saved = _plain_loader(job, _Counting(len(job.sizes)), StatefulDataLoader)
    batches = iter(saved)
    for _ in range(job.step):
        next(batches)
    state = saved.state_dict()
    while True:
        dataset = _Counting(len(job.sizes))
        loader = _plain_loader(job, dataset, StatefulDataLoader)
        started = time.perf_counter()
        loader.load_state_dict(state)
        first = next(iter(loader))
        seconds = time.perf_counter() - started
        yield seconds, dataset.reads - len(first), len(pickle.dumps(state))


def _plain_loader(job: _Job, dataset: _Counting, cls: Any = DataLoader) -> Any:
    sampler: Any = DistributedSampler(
        dataset,  # type: ignore[arg-type]
        num_replicas=job.dp_size, rank=0, seed=job.seed,
    )  # fmt: skip
    return cls(dataset, batch_size=job.batch_size, sampler=sampler, collate_fn=list)
