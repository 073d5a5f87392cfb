"""BalancedBatchSampler: the plan as lists of dataset indices, one a microbatch."""

import copy
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any, get_args

from numpy.typing import ArrayLike
from torch.utils.data import Sampler

from balancer.cost import CostFunction, evaluate_costs
from balancer.effort import Effort
from balancer.errors import ArgumentError
from balancer.groups import GroupedCosts
from balancer.planner import EpochPlanner, Illegal, Tail
from balancer.priced import PricedSamples
from balancer.samples import SampleTable
from balancer.step_planner import Oversize
from balancer.topology import Topology, check_choice, check_count
from loaders.ahead import made_ahead
from loaders.microbatch import Microbatch
from loaders.planned_steps import StepMaker
from loaders.progress import Position, Progress
from loaders.rebuilding import refuse_rebuilding
from loaders.skipping import begun_for_nothing, refuse_second_skip
from loaders.state import OnTopologyChange, load_state, save_state, whole

__all__ = ["BalancedBatchSampler", "EpochHandle"]


class BalancedBatchSampler(Sampler[list[int]]):
    """Microbatches of one rank (rank view), or of all ranks (global view), as lists of indices.

    Every rank plans the same steps from the same inputs and takes its own part, so no rank ever
    waits for another to agree, and all have the same number of microbatches. Steps are planned as
    they are reached, each in a thread while the one before it is in use.

    The global view yields the microbatches of all ranks, rank fastest: batch `i` belongs to rank
    `i % dp_size` and their number is a multiple of `dp_size`. It is for wrappers that shard a batch
    sampler themselves, such as accelerate's `BatchSamplerShard`.

    Each list is a `loaders.microbatch.Microbatch` and carries its `MicrobatchFacts`.

    `state_dict` may be called at any time and holds a few numbers, two hashes and the settings:
    what was yielded, or handed out by the `BalancedDataLoader` around it. `load_state_dict` plans
    nothing and reads nothing that is behind.

    Args:
        planner: Plans the steps.
        dp_rank: Rank of the view; `None` for the global view.
        on_topology_change: What loading the state of another topology, of other limits or options
            does: `"error"`, or `"replan"`, which delivers every sample that is left of the epoch
            once under the new ones, from the begin of the step on that was not whole. Without a
            change a state goes on in the middle of a step.
        batch_size: Refused, like `drop_last`: the plan has them. Lightning gives them, with a
            sampler as `planner`, where it wants to share out the samples itself.

    Attributes:
        planner: Plans the steps.
        dp_rank: Rank of the view; `None` for the global view.
        batch_size: `None`: microbatches differ in size.
        drop_last: Whether samples that do not fill a last step are left out.
        progress: What was handed out, and where the next iteration begins.
        maker: Makes the microbatches of a step and counts the seconds.

    Raises:
        ArgumentError: `dp_rank` is outside the planner's topology, or a framework builds the
            sampler anew.

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

    def __init__(
        self,
        planner: EpochPlanner,
        *,
        dp_rank: int | None = None,
        on_topology_change: OnTopologyChange = "error",
        batch_size: None = None,
        drop_last: None = None,
    ) -> None:
        refuse_rebuilding(planner, batch_size=batch_size, drop_last=drop_last)
        check_choice("on_topology_change", on_topology_change, get_args(OnTopologyChange))
        dp_size = planner.topology.dp_size
        if dp_rank is not None:
            check_count("dp_rank", dp_rank, least=0)
            if dp_rank >= dp_size:
                raise ArgumentError(
                    f"dp_rank is {dp_rank}, the topology's dp_size is {dp_size}; allowed: dp_rank "
                    f"from 0 to {dp_size - 1}, or None for the microbatches of all ranks"
                )
        self.planner = planner
        self.maker = StepMaker()
        self.dp_rank = dp_rank
        self.drop_last = planner.tail == "drop"
        self.on_topology_change = on_topology_change
        self.progress = Progress()

    @classmethod
    def from_table(
        cls,
        table: SampleTable,
        cost_model: CostFunction,
        topology: Topology,
        *,
        global_batch_size: int | None,
        dp_rank: int | None = None,
        seed: int = 0,
        shuffle: bool = True,
        oversize: Oversize = "error",
        illegal: Illegal = "error",
        tail: Tail = "drop",
        window_steps: int = 1,
        effort: Effort = "default",
        on_topology_change: OnTopologyChange = "error",
        group_ids: ArrayLike | None = None,
    ) -> "BalancedBatchSampler":
        """Sampler from sizes: prices them once and plans with `balancer.planner.EpochPlanner`.

        With `group_ids`, one a sample, samples of a group share a microbatch, and
        `global_batch_size` (in a loader `batch_size` too) and `max_samples` count groups:
        `balancer.groups.GroupedCosts`.
        """
        costs: PricedSamples = evaluate_costs(cost_model, table)
        if group_ids is not None:
            rounded = topology.limits.pad_sample_to
            costs = GroupedCosts.from_ids(costs, group_ids, pad_sample_to=rounded)
        planner = EpochPlanner(
            costs,
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
        return cls(planner, dp_rank=dp_rank, on_topology_change=on_topology_change)

    @property
    def sampler(self) -> "EpochHandle":
        """Where frameworks look for `set_epoch`."""
        return EpochHandle(self)  # kept here, it would be freed by the garbage collector only

    @property
    def epoch(self) -> int:
        """Epoch being delivered, or between epochs the one that the next iteration delivers."""
        running = self.progress.running_epoch
        return self.progress.start.epoch if running is None else running

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration deliver `epoch`; without a call, epochs follow one another.

        A place in that epoch that was loaded or sought is kept; else the epoch is whole, even if
        others had begun it.

        Raises:
            ArgumentError: `epoch` is not a whole number >= 0.
        """
        check_count("epoch", epoch, least=0)
        self.progress.set_epoch(int(epoch))
        if self.progress.start == Position(epoch=int(epoch)) and self.planner.steps(epoch).first:
            self.planner = whole(self.planner)
            self.progress.go_to(self.progress.start)

    def seek(self, step: int, *, epoch: int | None = None) -> None:
        """Let the next iteration begin at `step`; nothing in between is planned or read.

        Args:
            step: Step within the epoch.
            epoch: The epoch that a state would save when not given: that of a broken iteration.

        Raises:
            ArgumentError: The epoch has no such step.
        """
        epoch = self.progress.position.epoch if epoch is None else epoch
        check_count("epoch", epoch, least=0)
        check_count("step", step, least=0)
        steps = self.planner.steps(epoch)
        if not steps.first <= step < steps.end:
            raise ArgumentError(
                f"step is {step}; epoch {epoch} has steps {steps.first} to {steps.end - 1}"
            )
        each = self.planner.microbatches_per_step or self.planner.topology.num_microbatches
        behind = steps.rest.microbatches + (int(step) - steps.first) * each
        self.progress.go_to(Position(epoch=int(epoch), step=int(step), microbatches=behind))

    def state_dict(self) -> dict[str, Any]:
        """State that `load_state_dict` goes on from; plain values, under 4 KiB.

        After an early `break` it is where the loop broke off, though another iteration of this
        object begins the next epoch. After the last microbatch it is the begin of the next epoch.
        Until something is handed out, the state that was loaded.
        """
        loaded = self.progress.loaded
        if loaded is not None:
            return copy.deepcopy(loaded)
        return save_state(self.planner, self.progress.position)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration begin where the state was saved.

        Raises:
            StateError: It does not belong here; every difference is listed.
        """
        self.planner, position = load_state(self.planner, state, self.on_topology_change)
        self.progress.go_to(position, loaded=copy.deepcopy(dict(state)))

    def __len__(self) -> int:
        """Exact number of microbatches of `epoch` in this view, those handed out before too."""
        return self.num_microbatches(self.epoch)

    def num_microbatches(self, epoch: int) -> int:
        """Exact number of microbatches that an epoch has in this view, from its begin."""
        views = self.planner.topology.dp_size if self.dp_rank is None else 1
        return self.planner.microbatches_per_epoch(epoch) * views

    def __iter__(self) -> Iterator[list[int]]:
        """Microbatches of the next epoch; the epoch counts as begun at the first of them."""
        return self.microbatches(counted=True)

    def microbatches(self, *, counted: bool) -> Iterator[Microbatch]:
        """Microbatches of the next epoch; `counted` by `progress` if they are handed out as such.

        A loader that reads ahead counts by itself.
        """
        waiting = self.progress.waiting
        if waiting and begun_for_nothing():
            return
        begin = place = self.progress.begin()
        run = self.progress.run
        if waiting and begin != Position(epoch=begin.epoch):
            refuse_second_skip(begin.epoch, begin.step)
        planner, end = self.planner, self.planner.steps(begin.epoch).end
        dp_size = planner.topology.dp_size
        ranks = range(dp_size) if self.dp_rank is None else (self.dp_rank,)
        steps = range(begin.step, end)
        made = made_ahead(partial(self.maker.make, planner, begin.epoch, dp_ranks=ranks), steps)
        try:
            for step, batches in zip(steps, made, strict=True):
                behind = begin.microbatch * len(ranks) + begin.rank if step == begin.step else 0
                for batch in itertools.islice(batches, behind, None):
                    if counted:
                        place = self.progress.hand_out(
                            run, place, batch.facts, last_rank=ranks[-1], end=end
                        )
                    yield batch
        finally:
            made.close()
            if counted:
                self.progress.end(run)


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
