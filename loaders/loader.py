"""BalancedDataLoader: torch's DataLoader with a plan in place of batch_size and sampler."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.data import IterableDataset, default_collate

from balancer.cost import CostFunction
from balancer.effort import Effort
from balancer.modality_options import ModalitySync
from balancer.planner import Illegal, Tail
from balancer.samples import SampleTable
from balancer.step_planner import Oversize
from balancer.topology import Barrier, Layout, Limits, Modules
from loaders.arguments import checked_dataset, rank_view, refuse_reordering
from loaders.failures import FailureList
from loaders.iteration import EpochIteration
from loaders.microbatch import MicrobatchFacts
from loaders.planning import plan_batches
from loaders.sample_errors import OnSampleError
from loaders.sampler import BalancedBatchSampler
from loaders.shared_memory import warn_of_full_shared_memory
from loaders.stage_arguments import Workers, make_stage_loader, refuse_stage_options
from loaders.stages.run import Order
from loaders.stages.stage import Stage
from loaders.state import OnTopologyChange
from loaders.statistics import EpochStatistics
from loaders.streams.arguments import stream_options
from loaders.streams.loader import StreamLoader
from loaders.substitutes import Substitutes
from loaders.torch_loader import torch_loader
from loaders.worker_arguments import worker_options

__all__ = ["BalancedDataLoader"]


class BalancedDataLoader(EpochIteration):
    """Drop-in for `torch.utils.data.DataLoader` whose ranks finish their steps together.

    Takes torch's keyword arguments, which mean the same, and those of the plan. Iterating yields
    what `collate_fn` returns for each microbatch of this rank; `steps()` groups them by optimizer
    step. A step holds the samples that a plain shuffled loader would give it; only their place
    moves. It wraps a DataLoader and is none itself, so frameworks leave it as it is.

    Args:
        dataset: Map-style dataset. With a torch IterableDataset and the arguments `size_fn` and
            `window_size`, what is made is a `loaders.StreamLoader`; see there.
        sizes: Sizes of all samples; `dataset.sizes` when not given.
        cost_model: Prices the samples, for example `balancer.flops.cost.FlopsCost`, or a function
            of the table that returns one number a sample.
        batch_size: Samples of a microbatch, on average; or give `global_batch_size`.
        global_batch_size: Samples of an optimizer step over all ranks. With neither, but a limit,
            a step takes samples while its microbatches have room: `balancer.filled_steps`.
        num_microbatches: Microbatches of each rank in a step: gradient accumulation steps.
        max_microbatches: As in `balancer.topology.Topology`.
        max_tokens: Most tokens of a microbatch; likewise `max_patches`, `max_images`,
            `max_samples`.
        limits: All of these in one object.
        layout: What `max_tokens` counts, `"packed"` or `"padded"`; by default as `collate_fn` says
            (its attribute `layout`), else packed.
        barrier: Where ranks wait: `"step"` for DDP with `no_sync`, `"microbatch"` for FSDP. For
            model pipelines plan with an `EpochPlanner` and pass its sampler as `batch_sampler`.
        modules: As in `balancer.topology.Topology`, and likewise `modality_sync`.
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
        on_topology_change: What `load_state_dict` does with the state of another topology, other
            limits or options: `"error"`, or `"replan"` what is left of the epoch under the new
            ones, as in `BalancedBatchSampler`.
        group_ids: Group of each sample, kept together: `BalancedBatchSampler.from_table`.
        batch_sampler: A `BalancedBatchSampler` (rank view) in place of all arguments of the plan.
        sampler: Refused: the plan decides the order.
        collate_fn: Gets the list of a microbatch's samples; torch's `default_collate` when not
            given. One with a true attribute `wants_facts`, as `PackedCollator`, gets a
            `SampleList`, which carries the microbatch's facts.
        num_workers: As in torch, and likewise `pin_memory`, `timeout`, `worker_init_fn`,
            `multiprocessing_context`, `generator`, `prefetch_factor`, `persistent_workers` and
            `pin_memory_device`. Those that need workers have no effect without.
        in_order: Must be true: ranks run microbatches in the order of the plan.
        on_sample_error: A sample that cannot be read ends the run with a `SampleReadError`
            (`"raise"`), or one near in cost is read instead, flagged as a repeat (`"replace"`) or
            as a filler without a loss (`"filler"`); see `loaders.reading.MicrobatchDataset`.
        seed_samples: Whether the global generators of `random`, NumPy and torch are seeded by
            (seed, epoch, sample) before each sample is read, so that augmentation does not depend
            on workers, ranks or resumes; false leaves them to torch and `worker_init_fn`. Threads
            share the global generators: there draw from `loaders.seeding.sample_generator()`.
        workers: Who reads: torch's DataLoader (`"torch"`), which gives a whole microbatch to a
            worker; or single samples, the most urgent first, go to threads (`"thread"`, for code
            that releases the GIL), processes (`"process"`), actors of a Ray cluster (`"ray"`), or
            what is faster on the first samples (`"auto"`): see `loaders.stages.StagePipeline`. Then
            `num_workers=0` means as many as there are cores.
        stages: Stages of your own for `workers` other than torch's, instead of reading `dataset`;
            `collate_fn` follows them unless one of them is for microbatches.
        look_ahead: Most microbatches that stages work on ahead, 16 when not given.
        max_bytes: Bound on the bytes in flight in stages, 1 GiB when not given.
        order: `"plan"`, or `"ready"`, as in `StagePipeline`.
        trace: Calls that stages keep for a timeline, none when not given.
        autoscale: Whether the workers of stages become more and fewer with what training takes.
        step_log: Called with a dict of numbers when the last microbatch of a step is handed out,
            for example `loaders.step_log.StepLog("steps.csv")`.

    Attributes:
        facts: `MicrobatchFacts` of the microbatch handed out last; `None` before the first.
        failures: First 10,000 samples that could not be read; `failures.total` counts all.
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

    def __new__(cls, dataset: Any = None, **options: Any) -> Any:
        """A `loaders.StreamLoader` where the dataset is a torch IterableDataset."""
        if isinstance(dataset, IterableDataset):
            return StreamLoader(dataset, **stream_options(dataset, options))
        return super().__new__(cls)

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
        modality_sync: ModalitySync | None = None,
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
        on_topology_change: OnTopologyChange = "error",
        group_ids: ArrayLike | None = None,
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
        on_sample_error: OnSampleError = "raise",
        seed_samples: bool = True,
        workers: Workers = "torch",
        stages: Sequence[Stage] | None = None,
        look_ahead: int | None = None,
        max_bytes: int | None = None,
        order: Order | None = None,
        trace: int | None = None,
        autoscale: bool | None = None,
        step_log: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        refuse_reordering(sampler=sampler, batch_sampler=batch_sampler, in_order=in_order)
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
            "modality_sync": modality_sync,
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
            "on_topology_change": on_topology_change,
            "group_ids": group_ids,
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
        self.on_sample_error = on_sample_error
        self.seed_samples = seed_samples
        self.step_log = step_log
        self.facts: MicrobatchFacts | None = None
        self.failures = FailureList()
        self._statistics = EpochStatistics(self.collate_fn, batch_sampler.maker)
        if on_sample_error != "raise":
            batch_sampler.maker.substitutes = Substitutes.of_planner(batch_sampler.planner)
        checked = worker_options(
            num_workers=num_workers, pin_memory=pin_memory, timeout=timeout,
            worker_init_fn=worker_init_fn, multiprocessing_context=multiprocessing_context,
            generator=generator, prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers, pin_memory_device=pin_memory_device,
        )  # fmt: skip
        policies: dict[str, Any] = {
            "seed": batch_sampler.planner.seed if seed_samples else None,
            "on_sample_error": on_sample_error,
        }
        staging: dict[str, Any] = {
            "stages": stages, "look_ahead": look_ahead, "max_bytes": max_bytes, "order": order,
            "trace": trace, "autoscale": autoscale,
        }  # fmt: skip
        if workers == "torch":
            refuse_stage_options(staging)
            warn_of_full_shared_memory(
                batch_sampler.planner, num_workers=num_workers, prefetch_factor=prefetch_factor
            )
            self._loader = torch_loader(
                dataset, batch_sampler, self.collate_fn, **policies, **checked
            )
        else:
            self._loader = make_stage_loader(
                dataset, batch_sampler, self.collate_fn, workers=workers, num_workers=num_workers,
                timeout=timeout, persistent_workers=persistent_workers,
                multiprocessing_context=multiprocessing_context,
                unsupported={
                    "worker_init_fn": worker_init_fn, "generator": generator,
                    "prefetch_factor": prefetch_factor, "pin_memory": pin_memory,
                },
                **policies, **staging,
            )  # fmt: skip

    # What help() and inspect.signature show is that of `__new__`, which takes any options.
    __new__.__signature__ = inspect.signature(__init__)  # type: ignore[attr-defined]


def _defaults() -> dict[str, Any]:
    parameters = inspect.signature(BalancedDataLoader.__init__).parameters
    return {name: parameter.default for name, parameter in parameters.items()}
