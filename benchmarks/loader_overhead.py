"""What our loader costs beside torch's where nothing is to balance, and what a step stalls."""

import io
import time
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, DistributedSampler

from balancer.samples import SampleTable
from benchmarks.measure import Record
from loaders.loader import BalancedDataLoader

__all__ = ["measure_loader_overhead"]


class Images:
    """A JPEG image, decoded, scaled to `side` and normalised whenever a sample is read."""

    def __init__(self, num_samples: int, side: int) -> None:
        self.num_samples = num_samples
        self.side = side
        noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(noise).resize((640, 480), Image.Resampling.BICUBIC).save(buffer, "JPEG")
        self.encoded = buffer.getvalue()

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        with Image.open(io.BytesIO(self.encoded)) as image:
            scaled = image.convert("RGB").resize((self.side, self.side))
        pixels = torch.from_numpy(np.array(scaled)).permute(2, 0, 1)
        return pixels.to(torch.float32).div_(127.5).sub_(1), index


class Arrays:
    """Arrays that need next to no work: what remains is the loader's own."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((1024,), index), index


class Nothing:
    """Samples that cost nothing to read."""

    def __init__(self, num_samples: int) -> None:
        self.num_samples = num_samples

    def __len__(self) -> int:
        return self.num_samples

    def __getitem__(self, index: int) -> int:
        return index


def measure_loader_overhead(
    *,
    name: str,
    num_samples: int,
    batch_size: int,
    side: int,
    num_workers: Sequence[int],
    repeats: int,
    dp_size: int,
    samples_per_rank: int,
    num_microbatches: int,
    num_steps: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Time of an epoch over torch's, and the time that training is held up in each step.

    `total_time_vs_torch`: ours over theirs, median over pairs of epochs run one right after the
    other, which of them first by turns. Both read the same samples in microbatches of the same
    number with torch's `default_collate`: `jpeg`, decoded images, and `arrays`, which need no work
    and so show what the loader itself takes. The first microbatch, which starts workers and
    compiles, is not timed. `longest_gap_vs_torch`: likewise of the longest wait for a microbatch.

    `step_stall_seconds`: what the training process spends in asking for the microbatches of a step
    of skewed samples that cost nothing to read, without workers, median over the steps; training
    itself is a pause, during which the next step is planned.

    Args:
        name: Name of the experiment in the records.
        num_samples: Images of an epoch.
        batch_size: Images of a microbatch.
        side: Pixels of a side.
        num_workers: Numbers of workers to measure with.
        repeats: Pairs for each.
        dp_size: Ranks of the step whose stall is measured.
        samples_per_rank: Its samples for each rank.
        num_microbatches: Its microbatches.
        num_steps: Steps measured.
        seed: Seed of the order and of the sizes.
        quick: Fewer pairs, images and steps.
    """
    if quick:
        num_samples, repeats, num_steps = num_samples // 4, 3, num_steps // 4
    records = []
    datasets = {"jpeg": Images(num_samples, side), "arrays": Arrays(num_samples)}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as in workers: what reading takes does not depend on cores
    for (kind, dataset), workers in product(datasets.items(), num_workers):
        pairs = _pairs(dataset, batch_size, workers, repeats, seed)
        for metric, ratios in zip(
            ("total_time_vs_torch", "longest_gap_vs_torch"), zip(*pairs, strict=True), strict=True
        ):
            records.append(Record(
                experiment=name, data=f"uniform_{kind}_n{num_samples}", planner="balanced",
                topology=f"dp1_m1_workers{workers}", barrier="microbatch", metric=metric,
                value=float(np.median(ratios)), unit="ratio", n=repeats,
            ))  # fmt: skip
    torch.set_num_threads(threads)
    for policy in ("raise", "replace"):
        stalls = list(
            islice(_stalls(dp_size, samples_per_rank, num_microbatches, policy, seed), num_steps)
        )
        records.append(Record(
            experiment=name, data=f"lognormal_{policy}", planner="balanced",
            topology=f"dp{dp_size}_m{num_microbatches}_samples{samples_per_rank}",
            barrier="microbatch", metric="step_stall_seconds",
            value=float(np.median(stalls)), unit="s", n=num_steps,
        ))  # fmt: skip
    return records


def _pairs(
    dataset: Any, batch_size: int, workers: int, repeats: int, seed: int
) -> Iterator[tuple[float, float]]:
    """Total time and longest gap of our epoch over those of torch's."""
    sampler: Any = DistributedSampler(dataset, num_replicas=1, rank=0, seed=seed)
    theirs: Any = DataLoader(
        dataset, batch_size=batch_size, sampler=sampler, num_workers=workers, drop_last=True
    )
    ours = BalancedDataLoader(
        dataset, sizes=SampleTable.from_lengths([1] * len(dataset)), seed=seed, dp_rank=0,
        cost_model=lambda table: table.text_tokens, batch_size=batch_size, dp_size=1,
        num_workers=workers,
    )  # fmt: skip
    _epoch(ours)
    for number in range(repeats):
        if number % 2:
            mine, other = _epoch(ours), _epoch(theirs)
        else:
            other, mine = _epoch(theirs), _epoch(ours)
        yield mine[0] / other[0], mine[1] / other[1]


def _epoch(loader: Any) -> tuple[float, float]:
    """Seconds from the first microbatch to the last, and the longest between two."""
    times = [time.perf_counter() for _ in loader]
    return times[-1] - times[0], float(np.diff(times).max())


def _stalls(
    dp_size: int, samples_per_rank: int, num_microbatches: int, policy: Any, seed: int
) -> Iterator[float]:
    """Seconds spent in asking for the microbatches of a step, the first steps left out."""
    num_samples = 100_000
    lengths = np.ceil(np.random.default_rng(seed).lognormal(6.0, 1.0, num_samples))
    loader = BalancedDataLoader(
        Nothing(num_samples), sizes=SampleTable.from_lengths(lengths.astype(np.int64)),
        cost_model=lambda table: table.text_tokens, dp_rank=0, dp_size=dp_size, seed=seed,
        global_batch_size=samples_per_rank * dp_size, num_microbatches=num_microbatches,
        on_sample_error=policy, collate_fn=list, seed_samples=False,
    )  # fmt: skip
    microbatches = iter(loader)
    for step in range(num_samples):
        stalled = 0.0
        for _ in range(num_microbatches):
            asked = time.perf_counter()
            next(microbatches)
            stalled += time.perf_counter() - asked
            time.sleep(0.005)
        if step > 1:
            yield stalled
