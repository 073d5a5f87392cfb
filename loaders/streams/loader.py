"""StreamLoader: balanced microbatches from an iterable, planned over a window of its samples."""

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, get_args

from torch.utils.data import default_collate

from balancer.cost import CostFunction
from balancer.effort import Effort, checked_effort
from balancer.errors import PlanError
from balancer.modality_options import ModalitySync
from balancer.planner import Illegal, Tail
from balancer.step_planner import Oversize
from balancer.topology import Barrier, Layout, Limits, Modules, check_choice
from loaders.arguments import (
    resolve_global_batch_size,
    resolve_tail,
    resolve_topology,
)
from loaders.failures import FailureList
from loaders.microbatch import MicrobatchFacts, SampleList
from loaders.sample_errors import OnSampleError, read_error
from loaders.streams.arguments import (
    check_stream,
    check_sync,
    microbatches_per_epoch,
    steps_of_window,
)
from loaders.streams.engine import PlannedWindow, StreamEngine
from loaders.streams.exchange import RankLink, find_group
from loaders.streams.failing import Omissions
from loaders.streams.reader import WindowReader
from loaders.streams.resumable import ResumableStream
from loaders.streams.rows import RowPricing
from loaders.streams.rules import StreamRules
from loaders.streams.sharded_source import ShardedSource
from loaders.streams.shards import ShardedStream
from loaders.streams.source import StreamSource
from loaders.streams.state import StreamState
from loaders.streams.stats import StreamStats

__all__ = ["StreamLoader"]


class StreamLoader(ResumableStream):
    """Balanced microbatches of this rank from its own stream of samples.

    Reads `window_size` samples, plans steps over them, hands those out and reads on as they go: the
    first microbatch comes after a window at most, and no more samples than a window are in memory
    (beside what worker processes prefetch). A sample never leaves its window. Within it, samples
    change steps and microbatches so that the ranks' steps cost alike; every rank keeps the samples
    that it read. Use `loaders.rebalance` to let them move between ranks.

    With several ranks the streams may have any length. Once a window the ranks gather the sizes of
    its samples, on the CPU, and so all end with the same step: under `tail="drop"` when the first
    cannot fill one, otherwise when all have ended, with flagged repeats or fillers on those that
    ended before. A warning of the logger `loaders.streams` names them. Each rank's dataset must
    yield its own share; a dataset that does not take its worker's share is split by turns. A
    `loaders.ShardedStream` is shared out to ranks and workers by its shards.

    Ids are `number * dp_size + dp_rank`, where a rank's samples are numbered as its source gives
    them; those of a `ShardedStream` are its own. Each epoch iterates the dataset anew, after its
    `set_epoch` where it has one.

    Args:
        dataset: An iterable dataset, or any iterable that can be iterated more than once.
        size_fn: Size of a sample: a `balancer.sizing.sample_size.SampleSize`, or a mapping with its
            keys.
        cost_model: Prices the sizes, for example `balancer.flops.cost.FlopsCost`.
        window_size: Samples of this rank that are planned together, in as many steps as fit.
        batch_size: Samples of a microbatch, on average; or give `global_batch_size`.
        global_batch_size: Samples of an optimizer step over all ranks, a multiple of their number.
        num_microbatches: Microbatches of each rank in a step; more where limits ask for them.
        max_microbatches: As in `balancer.topology.Topology`.
        max_tokens: Most tokens of a microbatch; it, `max_patches`, `max_images`, `max_samples`,
            `limits`, `layout` and `modules` as in `BalancedDataLoader`.
        barrier: Where ranks wait, `"step"` or `"microbatch"`.
        modality_sync: As in `balancer.topology.Topology`; `"spread"` and `"uniform"` where samples
            may change ranks only, with `rebalance`.
        oversize: As in `BalancedDataLoader`, and likewise `illegal`; what they drop is listed.
        tail: Samples that do not fill a last step are left out (`"drop"`), completed by repeats
            (`"pad"`), or run with zero-loss fillers (`"filler"`).
        on_sample_error: A sample for which `size_fn` raises ends the run with a `SampleReadError`
            (`"raise"`). With `"replace"` or `"filler"`, which are alike here, it is left out, the
            next one takes its place, and it is listed in `failures` and `stats().failed`: nothing
            was planned for it yet, so that no rank's microbatches change in number. Where the
            dataset itself raises it has ended, and where `collate_fn` does its microbatch was
            promised: errors always, as are impossible sizes and a whole window that fails.
        effort: Counted work that planning a step may take, as in `balancer.planner.plan_step`;
            where samples keep their ranks the default is the fast one.
        drop_last: torch's word for it: `tail="drop"` or `"pad"`.
        steps_per_epoch: Optimizer steps of an epoch; streams that end before are an error. `None`:
            until they end, without a length.
        group: Process group of the data-parallel ranks; all processes when not given. With NCCL
            too, all that the ranks agree on goes over the CPU.
        agree_timeout_s: Seconds that a rank waits for the others to read their windows; after a
            quarter of it, or 30 s, a warning names those that it waits for.
        collate_fn: As in `BalancedDataLoader`; it runs in this process.
        num_workers: Processes that read, and likewise torch's `timeout`, `worker_init_fn`,
            `multiprocessing_context`, `generator`, `prefetch_factor` and `persistent_workers`.

    Attributes:
        facts: `MicrobatchFacts` of the microbatch handed out last; `None` before the first.
        failures: Samples left out because they failed, in the order they came, and their `total`.
        epoch: Epoch being handed out, or between epochs the one that comes next.
        batch_size: `None`: microbatches differ in size.

    Raises:
        ArgumentError: An argument is not allowed or two do not go together.

    Example:
        >>> texts = ["a", "bbbb", "cc", "d", "eeee", "ff", "g"]
        >>> loader = StreamLoader(
        ...     texts, size_fn=lambda text: {"text_tokens": len(text)},
        ...     cost_model=lambda table: table.text_tokens, window_size=6, global_batch_size=3,
        ...     num_microbatches=2, tail="filler", collate_fn=list)
        >>> for step in loader.steps():
        ...     print(step.num_target_tokens, "tokens:", list(step))
        7 tokens: [['bbbb'], ['a', 'cc']]
        7 tokens: [['eeee'], ['d', 'ff']]
        1 tokens: [['g'], ['g']]
        >>> loader.stats().num_fillers
        1
    """

    batch_size: None = None
    _moves = False

    def __init__(
        self,
        dataset: Any,
        *,
        size_fn: Callable[[Any], Any],
        cost_model: CostFunction,
        window_size: int,
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
        on_sample_error: OnSampleError = "raise",
        effort: Effort = "default",
        drop_last: bool | None = None,
        steps_per_epoch: int | None = None,
        group: Any = None,
        agree_timeout_s: float = 600.0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        persistent_workers: bool = False,
        **options: Any,
    ) -> None:
        check_choice("on_sample_error", on_sample_error, get_args(OnSampleError))
        check_stream(dataset, size_fn, barrier, oversize, illegal, steps_per_epoch, options)
        self.collate_fn = default_collate if collate_fn is None else collate_fn
        self._group, self.dp_rank, self.dp_size = find_group(group)
        topology = resolve_topology(
            collate_fn, dp_size=self.dp_size, num_microbatches=num_microbatches,
            max_microbatches=max_microbatches, max_tokens=max_tokens, max_patches=max_patches,
            max_images=max_images, max_samples=max_samples, limits=limits, layout=layout,
            barrier=barrier, modules=modules, modality_sync=modality_sync,
        )  # fmt: skip
        check_sync(modality_sync, moves=self._moves)
        samples_of_step = resolve_global_batch_size(
            batch_size=batch_size, global_batch_size=global_batch_size, dp_size=self.dp_size,
            num_microbatches=num_microbatches,
        )  # fmt: skip
        self.rules = StreamRules(
            topology=topology,
            global_batch_size=samples_of_step,
            window_steps=steps_of_window(window_size, samples_of_step, topology),
            oversize=oversize,
            tail=resolve_tail(tail, drop_last),
            effort=checked_effort(effort),
        )
        pricing = RowPricing.of(size_fn, cost_model, topology, oversize=oversize, illegal=illegal)
        make_source = ShardedSource if isinstance(dataset, ShardedStream) else StreamSource
        source = make_source(
            dataset, dp_rank=self.dp_rank, dp_size=self.dp_size, num_workers=num_workers,
            persistent_workers=persistent_workers and num_workers > 0,
            options=options if num_workers else {},
        )  # fmt: skip
        omissions = Omissions(
            on_sample_error, most_in_a_row=self.rules.window_steps * self.rules.rank_samples
        )
        self._reader = WindowReader(source, pricing, omissions)
        self.failures = FailureList()
        self.dataset = dataset
        self.steps_per_epoch = steps_per_epoch
        self.agree_timeout_s = agree_timeout_s
        self.facts: MicrobatchFacts | None = None
        self._state = StreamState(
            rules=self.rules, source=source, num_workers=num_workers,
            modules=pricing.modules, moves=self._moves, steps_per_epoch=steps_per_epoch,
        )  # fmt: skip
        self._stats = StreamStats()

    def __len__(self) -> int:
        """Microbatches of this rank in an epoch, where that is known.

        Raises:
            TypeError: `steps_per_epoch` is not given, or limits may ask for more microbatches.
        """
        return microbatches_per_epoch(self.rules.topology, self.steps_per_epoch)

    def stats(self) -> StreamStats:
        """What became of this rank's samples in the epoch iterated last."""
        return self._stats

    def _handed_out(self) -> Generator[tuple[MicrobatchFacts, Any], None, None]:
        """Microbatches with their facts; when closed, nothing of it is left running."""
        begun = self._state.begin()
        yield from self._epoch()
        if begun and not self._state.handed_out_any:  # the state was of the epoch's very end
            self._state.begin()
            yield from self._epoch()

    def _epoch(self) -> Generator[tuple[MicrobatchFacts, Any], None, None]:
        state = self._state
        link = RankLink(
            self._group, dp_rank=self.dp_rank, dp_size=self.dp_size, timeout_s=self.agree_timeout_s
        )
        engine = StreamEngine(self.rules, self._reader, link, moves=self._moves)
        with closing(self._windows(engine)) as windows:
            for window in windows:
                self._stats = engine.stats
                self.failures.add(window.failures)
                state.enter(window.start)
                while window.steps:
                    step = window.steps.popleft()
                    is_last = window.is_last and not window.steps
                    for facts, samples in step:
                        if not state.advance(facts, is_last=is_last and facts.is_last):
                            continue
                        self.facts = facts
                        yield facts, self._collated(facts, samples)
                    num_steps = facts.step + 1
                    del step, samples
                    if num_steps == self.steps_per_epoch:
                        state.finish()
                        return
                    self._after_step(engine, window)
        if self.steps_per_epoch is not None:
            raise PlanError(
                f"the streams ended after {engine.stats.num_steps} steps of steps_per_epoch="
                f"{self.steps_per_epoch}; lower it, or let the dataset repeat itself"
            )
        state.finish()

    def _windows(self, engine: StreamEngine) -> Generator[PlannedWindow, None, None]:
        return engine.windows(self._state.epoch, self._state.window_start)

    def _after_step(self, engine: StreamEngine, window: PlannedWindow) -> None:
        """Read on in the room that the step left."""
        if not window.is_last:
            engine.read_ahead()

    def _collated(self, facts: MicrobatchFacts, samples: SampleList) -> Any:
        wants_facts = getattr(self.collate_fn, "wants_facts", False)
        try:
            return self.collate_fn(samples if wants_facts else list(samples))
        except Exception as error:
            raise read_error("collate_fn failed at", facts.sample_ids, facts, error) from error
