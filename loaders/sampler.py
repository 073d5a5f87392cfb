"""BalancedBatchSampler: the plan as lists of dataset indices, one a microbatch."""

from collections.abc import Iterator

from torch.utils.data import Sampler

from balancer.cost import CostFunction, evaluate_costs
from balancer.effort import Effort
from balancer.errors import ArgumentError
from balancer.plan import Plan
from balancer.planner import EpochPlanner, Illegal, Tail
from balancer.samples import SampleTable
from balancer.step_planner import Oversize
from balancer.topology import Topology, check_count
from loaders.microbatch import Microbatch
from loaders.step_facts import step_microbatches

__all__ = ["BalancedBatchSampler", "EpochHandle"]


class BalancedBatchSampler(Sampler[list[int]]):
    """Microbatches of one rank (rank view), or of all ranks (global view), as lists of indices.

    Every rank plans the same steps from the same inputs and takes its own part, so no rank ever
    waits for another to agree, and all have the same number of microbatches. Steps are planned one
    by one as they are reached.

    The global view yields the microbatches of all ranks, rank fastest: batch `i` belongs to rank
    `i % dp_size` and their number is a multiple of `dp_size`. It is for wrappers that shard a batch
    sampler themselves, such as accelerate's `BatchSamplerShard`.

    Each list is a `loaders.microbatch.Microbatch` and carries its `MicrobatchFacts`.

    Attributes:
        planner: Plans the steps.
        dp_rank: Rank of the view; `None` for the global view.
        batch_size: `None`: microbatches differ in size.
        drop_last: Whether samples that do not fill a last step are left out.
        sampler: Where frameworks look for `set_epoch`.

    Raises:
        ArgumentError: `dp_rank` is outside the planner's topology.

    Example:
        >>> from balancer.cost import Costs
        >>> planner = EpochPlanner(Costs.from_values([8.0, 1, 1, 6, 2, 6]), Topology(dp_size=2),
        ...                        global_batch_size=6, shuffle=False)
        >>> views = [BalancedBatchSampler(planner, dp_rank=rank) for rank in (0, 1)]
        >>> [planner.costs.total[ids].sum().item() for view in views for ids in view]
        [12.0, 12.0]
        >>> len(views[0]), len(BalancedBatchSampler(planner))
        (1, 2)
    """

    batch_size: None = None

    def __init__(self, planner: EpochPlanner, *, dp_rank: int | None = None) -> None:
        dp_size = planner.topology.dp_size
        if dp_rank is not None:
            check_count("dp_rank", dp_rank, least=0)
            if dp_rank >= dp_size:
                raise ArgumentError(
                    f"dp_rank is {dp_rank}, the topology's dp_size is {dp_size}; allowed: dp_rank "
                    f"from 0 to {dp_size - 1}, or None for the microbatches of all ranks"
                )
        self.planner = planner
        self.dp_rank = dp_rank
        self.drop_last = planner.tail == "drop"
        self.sampler = EpochHandle(self)
        self._next_epoch = 0
        self._running_epoch: int | None = None

    @classmethod
    def from_table(
        cls,
        table: SampleTable,
        cost_model: CostFunction,
        topology: Topology,
        *,
        global_batch_size: int,
        dp_rank: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        oversize: Oversize = "error",
        illegal: Illegal = "error",
        tail: Tail = "drop",
        window_steps: int = 1,
        effort: Effort = "default",
    ) -> "BalancedBatchSampler":
        """Sampler from sizes: prices them once and plans with `balancer.planner.EpochPlanner`."""
        planner = EpochPlanner(
            evaluate_costs(cost_model, table),
            topology,
            global_batch_size=global_batch_size,
            seed=seed,
            shuffle=shuffle,
            oversize=oversize,
            illegal=illegal,
            tail=tail,
            window_steps=window_steps,
            effort=effort,
        )
        return cls(planner, dp_rank=dp_rank)

    @property
    def epoch(self) -> int:
        """Epoch being delivered, or between epochs the one that the next iteration delivers."""
        return self._next_epoch if self._running_epoch is None else self._running_epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration deliver `epoch`; without a call, epochs follow one another.

        Raises:
            ArgumentError: `epoch` is not a whole number >= 0.
        """
        check_count("epoch", epoch, least=0)
        self._next_epoch = int(epoch)
        self._running_epoch = None

    def __len__(self) -> int:
        """Exact number of microbatches of `epoch` in this view."""
        return self.num_microbatches(self.epoch)

    def num_microbatches(self, epoch: int) -> int:
        """Exact number of microbatches that an epoch has in this view."""
        views = self.planner.topology.dp_size if self.dp_rank is None else 1
        return self.planner.microbatches_per_epoch(epoch) * views

    def __iter__(self) -> Iterator[list[int]]:
        """Microbatches of the next epoch; the epoch counts as begun at the first of them."""
        epoch = self._running_epoch = self._next_epoch
        self._next_epoch = epoch + 1
        try:
            for step in range(self.planner.num_steps):
                yield from self._step_microbatches(self.planner.plan(epoch, step))
        finally:
            if self._running_epoch == epoch:
                self._running_epoch = None

    def _step_microbatches(self, plan: Plan) -> Iterator[Microbatch]:
        """Microbatches of a plan of one step in this view, with their facts."""
        ranks = range(plan.topology.dp_size) if self.dp_rank is None else (self.dp_rank,)
        return step_microbatches(plan, self.planner.costs, dp_ranks=ranks)


class EpochHandle:
    """The `sampler` of a batch sampler: frameworks call its `set_epoch`, and nothing else.

    Example:
        >>> from balancer.cost import Costs
        >>> batches = BalancedBatchSampler(EpochPlanner(
        ...     Costs.from_values([1.0, 2.0]), Topology(dp_size=1), global_batch_size=1))
        >>> batches.sampler.set_epoch(4)
        >>> batches.epoch
        4
    """

    def __init__(self, batch_sampler: BalancedBatchSampler) -> None:
        self._batch_sampler = batch_sampler

    @property
    def epoch(self) -> int:
        """Epoch of the batch sampler."""
        return self._batch_sampler.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the batch sampler."""
        self._batch_sampler.set_epoch(epoch)
