"""BalancedDataLoader: torch's DataLoader with a plan in place of batch_size and sampler."""

import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import DataLoader, default_collate

from balancer.cost import CostFunction
from balancer.effort import Effort
from balancer.planner import Illegal, Tail
from balancer.samples import SampleTable
from balancer.step_planner import Oversize
from balancer.topology import Barrier, Layout, Limits, Modules
from loaders.arguments import checked_dataset, rank_view, refuse_reordering, worker_options
from loaders.microbatch import MicrobatchFacts
from loaders.planning import plan_batches
from loaders.reading import MicrobatchDataset
from loaders.sampler import BalancedBatchSampler, EpochHandle
from loaders.step import Step

__all__ = ["BalancedDataLoader"]


class BalancedDataLoader:
    """Drop-in for `torch.utils.data.DataLoader` whose ranks finish their steps together.

    Takes torch's keyword arguments, which mean the same, and those of the plan. Iterating yields
    what `collate_fn` returns for each microbatch of this rank; `steps()` groups them by optimizer
    step. A step holds the samples that a plain shuffled loader would give it; only their place
    moves. It wraps a DataLoader and is none itself, so frameworks leave it as it is.

    Args:
        dataset: Map-style dataset.
        sizes: Sizes of all samples; `dataset.sizes` when not given.
        cost_model: Prices the samples, for example `balancer.flops.cost.FlopsCost`, or a function
            of the table that returns one number a sample.
        batch_size: Samples of a microbatch, on average; or give `global_batch_size`.
        global_batch_size: Samples of an optimizer step over all ranks.
        num_microbatches: Microbatches of each rank in a step: gradient accumulation steps.
        max_microbatches: As in `balancer.topology.Topology`.
        max_tokens: Most tokens of a microbatch; likewise `max_patches`, `max_images`,
            `max_samples`.
        limits: All of these in one object.
        layout: What `max_tokens` counts, `"packed"` or `"padded"`; by default as `collate_fn` says
            (its attribute `layout`), else packed.
        barrier: Where ranks wait: `"step"` for DDP with `no_sync`, `"microbatch"` for FSDP. For
            model pipelines plan with an `EpochPlanner` and pass its sampler as `batch_sampler`.
        modules: As in `balancer.topology.Topology`.
        oversize: A sample beyond a limit is an `"error"`, is left out (`"drop"`), or gets a
            microbatch of its own (`"alone"`).
        illegal: A sample that the model cannot take is an `"error"`, or left out (`"drop"`).
        tail: Samples that do not fill a last step are left out (`"drop"`), completed by repeats
            (`"pad"`), or spread with zero-loss fillers where ranks lack samples (`"filler"`).
        window_steps: Steps that share out their samples, as in `balancer.planner.EpochPlanner`; 1
            gives every step exactly the samples a plain shuffled loader would.
        effort: Counted work that planning a step may take, as in `balancer.planner.plan_step`.
        drop_last: torch's word for it: true is `tail="drop"`, false `tail="pad"`.
        shuffle: Whether epochs are shuffled, by `seed` and the epoch only; as in torch's
            DistributedSampler, and unlike its DataLoader, they are unless told otherwise.
        seed: Seed of the order.
        dp_rank: Data-parallel rank; found by `loaders.rank.discover_rank` when not given.
        dp_size: Data-parallel ranks; give both or neither.
        mesh: Device mesh to find them in.
        batch_sampler: A `BalancedBatchSampler` (rank view) in place of all arguments of the plan.
        sampler: Refused: the plan decides the order.
        collate_fn: Gets the list of a microbatch's samples; torch's `default_collate` when not
            given. One with a true attribute `wants_facts`, as `PackedCollator`, gets a
            `SampleList`, which carries the microbatch's facts.
        num_workers: As in torch, and likewise `pin_memory`, `timeout`, `worker_init_fn`,
            `multiprocessing_context`, `generator`, `prefetch_factor`, `persistent_workers` and
            `pin_memory_device`. Those that need workers have no effect without.
        in_order: Must be true: ranks run microbatches in the order of the plan.

    Attributes:
        facts: `MicrobatchFacts` of the microbatch handed out last; `None` before the first.
        batch_size: `None`: microbatches differ in size.

    Raises:
        ArgumentError: An argument is not allowed or two do not go together.
        SampleError: A size or a cost is impossible.
        CapacityError: A sample is beyond a limit and `oversize` is `"error"`.

    Example:
        >>> texts = ["a", "bb", "c", "dddd", "ee", "f"]
        >>> loader = BalancedDataLoader(
        ...     texts, sizes=SampleTable.from_lengths([len(text) for text in texts]),
        ...     cost_model=lambda table: table.text_tokens, global_batch_size=6,
        ...     num_microbatches=2, shuffle=False, collate_fn=list)
        >>> for step in loader.steps():
        ...     loads = [sum(map(len, microbatch)) for microbatch in step]
        ...     print(sorted(loads), "of", step.num_target_tokens, "tokens")
        [5, 6] of 11 tokens
    """

    batch_size: None = None

    def __init__(
        self,
        dataset: Any,
        *,
        sizes: SampleTable | None = None,
        cost_model: CostFunction | None = None,
        batch_size: int | None = None,
        global_batch_size: int | None = None,
        num_microbatches: int = 1,
        max_microbatches: int | None = None,
        max_tokens: int | None = None,
        max_patches: int | None = None,
        max_images: int | None = None,
        max_samples: int | None = None,
        limits: Limits | None = None,
        layout: Layout | None = None,
        barrier: Barrier = "microbatch",
        modules: Modules = "in_turn",
        oversize: Oversize = "error",
        illegal: Illegal = "error",
        tail: Tail | None = None,
        window_steps: int = 1,
        effort: Effort = "default",
        drop_last: bool | None = None,
        shuffle: bool = True,
        seed: int = 0,
        dp_rank: int | None = None,
        dp_size: int | None = None,
        mesh: DeviceMesh | None = None,
        batch_sampler: BalancedBatchSampler | None = None,
        sampler: None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        refuse_reordering(sampler=sampler, in_order=in_order)
        self.dataset = checked_dataset(dataset)
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        plan_arguments: dict[str, Any] = {
            "sizes": sizes,
            "cost_model": cost_model,
            "batch_size": batch_size,
            "global_batch_size": global_batch_size,
            "num_microbatches": num_microbatches,
            "max_microbatches": max_microbatches,
            "max_tokens": max_tokens,
            "max_patches": max_patches,
            "max_images": max_images,
            "max_samples": max_samples,
            "limits": limits,
            "layout": layout,
            "barrier": barrier,
            "modules": modules,
            "oversize": oversize,
            "illegal": illegal,
            "tail": tail,
            "window_steps": window_steps,
            "effort": effort,
            "drop_last": drop_last,
            "shuffle": shuffle,
            "seed": seed,
            "dp_rank": dp_rank,
            "dp_size": dp_size,
            "mesh": mesh,
        }
        if batch_sampler is None:
            batch_sampler = plan_batches(dataset, self.collate_fn, **plan_arguments)
        else:
            rank_view(batch_sampler, plan_arguments, _defaults())
        self.batch_sampler: BalancedBatchSampler = batch_sampler
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.generator = generator
        self.prefetch_factor = prefetch_factor
        self.persistent_workers = persistent_workers
        self.pin_memory_device = pin_memory_device
        self.in_order = in_order
        self.facts: MicrobatchFacts | None = None
        self._running_epoch: int | None = None
        self._loader = self._torch_loader()

    def _torch_loader(self) -> "DataLoader[Any]":
        wrapped = isinstance(self.dataset, MicrobatchDataset)
        return DataLoader(
            self.dataset if wrapped else MicrobatchDataset(self.dataset),
            batch_sampler=self.batch_sampler,
            collate_fn=_CollateWithFacts(self.collate_fn),
            num_workers=self.num_workers,
            pin_memory=self.pin_memory,
            pin_memory_device=self.pin_memory_device,
            generator=self.generator,
            worker_init_fn=self.worker_init_fn,
            **worker_options(
                self.num_workers,
                timeout=self.timeout,
                multiprocessing_context=self.multiprocessing_context,
                prefetch_factor=self.prefetch_factor,
                persistent_workers=self.persistent_workers,
            ),
        )

    @property
    def sampler(self) -> EpochHandle:
        """Where frameworks look for `set_epoch`."""
        return self.batch_sampler.sampler

    @property
    def drop_last(self) -> bool:
        """Whether samples that do not fill a last step are left out."""
        return self.batch_sampler.drop_last

    @property
    def epoch(self) -> int:
        """Epoch being handed out, or between epochs the one that the next iteration hands out."""
        return self.batch_sampler.epoch if self._running_epoch is None else self._running_epoch

    @property
    def num_steps(self) -> int:
        """Optimizer steps of an epoch."""
        return self.batch_sampler.planner.num_steps

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration hand out `epoch`; without a call, epochs follow one another.

        Raises:
            ArgumentError: `epoch` is not a whole number >= 0.
        """
        self.batch_sampler.set_epoch(epoch)
        self._running_epoch = None

    def __len__(self) -> int:
        """Exact number of microbatches of this rank in `epoch`."""
        return self.batch_sampler.num_microbatches(self.epoch)

    def __iter__(self) -> Iterator[Any]:
        """Microbatches of the next epoch, each as `collate_fn` returned it."""
        with closing(self._handed_out()) as stream:
            for _, microbatch in stream:
                yield microbatch

    def steps(self) -> Iterator[Step]:
        """Optimizer steps of the next epoch, each an iterator over its microbatches.

        What a loop body leaves of a step is read and thrown away before the next one.
        """
        with closing(self._handed_out()) as stream:
            for facts, microbatch in stream:
                step = Step(facts, microbatch, stream)
                yield step
                step.skip_rest()

    def _handed_out(self) -> Generator[tuple[MicrobatchFacts, Any], None, None]:
        """Microbatches with their facts; when closed, nothing of it is left running."""
        iterator = iter(self._loader)
        try:
            for facts, microbatch in iterator:
                self.facts = facts
                self._running_epoch = facts.epoch
                yield facts, microbatch
        finally:
            self._running_epoch = None
            if not self.persistent_workers:
                _stop_workers(iterator)


def _stop_workers(iterator: Any) -> None:
    """Stop worker processes now; a traceback would keep the iterator, and so them, alive."""
    stop = getattr(iterator, "_shutdown_workers", None)
    if stop is not None:
        stop()


def _defaults() -> dict[str, Any]:
    parameters = inspect.signature(BalancedDataLoader).parameters
    return {name: parameter.default for name, parameter in parameters.items()}


class _CollateWithFacts:
    """Collates in the worker and sends the facts along, so that order is never guessed."""

    def __init__(self, collate_fn: Callable[[list[Any]], Any]) -> None:
        self.collate_fn = collate_fn

    def __call__(self, samples: list[Any]) -> tuple[MicrobatchFacts | None, Any]:
        wants_facts = getattr(self.collate_fn, "wants_facts", False)
        facts = getattr(samples, "facts", None)
        return facts, self.collate_fn(samples if wants_facts else list(samples))
