"""EpochPlanner: any step of any epoch, planned from its number alone."""

import hashlib
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from balancer.epoch_order import EpochOrder
from balancer.errors import ArgumentError, CapacityError, PlanError
from balancer.plan import Flag, Plan
from balancer.priced import PricedSamples
from balancer.step_planner import Oversize, oversize_ids, plan_from_assignment, plan_step
from balancer.topology import Topology, check_choice, check_count
from balancer.windows import plan_window

__all__ = ["EpochPlanner", "Illegal", "Tail", "plan_from_assignment", "plan_step", "plan_window"]

Tail = Literal["drop", "pad", "filler"]
Illegal = Literal["error", "drop"]

_VERSION = 1
"""Raised whenever the same inputs would give another plan than before."""


class EpochPlanner:
    """Plans the steps of every epoch; a step's plan depends on nothing but its number.

    Membership is strict unless `window_steps` says otherwise: step `s` of an epoch holds the
    samples that a plain shuffled loader of `global_batch_size` would give it, positions
    `s * global_batch_size` onwards of the epoch's order; only their rank and microbatch are
    chosen. The order is a permutation keyed by
    `(seed, epoch)`, computed where it is needed: seeking to any step is O(global_batch_size).

    Attributes:
        costs: Costs of all samples, rows by sample id.
        topology: Ranks, microbatches, barrier and limits.
        global_batch_size: Samples of a step over all ranks.
        order: Order of the samples in every epoch.
        seed: Seed of the order.
        shuffle: Whether epochs are shuffled; else the order is that of the ids.
        oversize: Policy for samples over a limit: `"error"`, `"drop"` or `"alone"`.
        illegal: Policy for samples that the model cannot take: `"error"` or `"drop"`.
        window_steps: Complete steps that share out their samples among them, so that a sample may
            move by fewer than `window_steps` steps; 1 keeps membership strict.
        tail: Policy for the last, incomplete step: `"drop"` it, `"pad"` it with flagged repeats
            from the start of the epoch, or run it short, with a flagged `"filler"` where a
            microbatch would have no sample.
        num_steps: Steps of an epoch, the same for every epoch.

    Raises:
        ArgumentError: A number or choice is not allowed, or a step has fewer samples than
            microbatches.
        SampleError: The model cannot take a sample and `illegal` is `"error"`.
        CapacityError: A sample is over a limit and `oversize` is `"error"`; or an average step
            does not fit the microbatches.
        PlanError: There is no sample, or none in a complete step under `tail="drop"`.

    Example:
        >>> from balancer.cost import Costs
        >>> costs = Costs.from_values(range(1, 9))
        >>> planner = EpochPlanner(costs, Topology(dp_size=2), global_batch_size=4)
        >>> planner.num_steps
        2
        >>> plan = planner.plan(epoch=0, step=1)
        >>> sorted(plan.sample_ids.tolist()) == sorted(planner.step_ids(0, 1)[0].tolist())
        True
    """

    def __init__(
        self,
        costs: PricedSamples,
        topology: Topology,
        *,
        global_batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        oversize: Oversize = "error",
        illegal: Illegal = "error",
        tail: Tail = "drop",
        window_steps: int = 1,
    ) -> None:
        check_count("global_batch_size", global_batch_size)
        check_count("seed", seed, least=0)
        check_count("window_steps", window_steps)
        if seed >= 2**63:
            raise ArgumentError(f"seed is {seed}; allowed: whole numbers from 0 to 2**63 - 1")
        check_choice("oversize", oversize, get_args(Oversize))
        check_choice("illegal", illegal, get_args(Illegal))
        check_choice("tail", tail, get_args(Tail))
        cells = topology.dp_size * topology.num_microbatches
        if global_batch_size < cells:
            raise ArgumentError(
                f"global_batch_size is {global_batch_size}, fewer samples than dp_size="
                f"{topology.dp_size} x num_microbatches={topology.num_microbatches} = {cells} "
                f"microbatches; raise it to at least {cells}, or lower num_microbatches"
            )
        self.costs = costs
        self.topology = topology
        self.global_batch_size = int(global_batch_size)
        self.seed = int(seed)
        self.shuffle = bool(shuffle)
        self.oversize = oversize
        self.illegal = illegal
        self.tail = tail
        self.window_steps = int(window_steps)
        self._window: tuple[tuple[int, int], list[Plan]] = ((-1, -1), [])
        self.order = EpochOrder(
            num_ids=len(costs),
            left_out=self._ids_left_out(),
            seed=self.seed,
            shuffle=self.shuffle,
        )
        self._num_samples = self.order.num_samples
        self._slots_of_epoch: dict[int, NDArray[np.int64]] = {}
        whole, rest = divmod(self._num_samples, self.global_batch_size)
        self.num_steps = whole if tail == "drop" else whole + (rest > 0)
        self._check_enough_samples()
        self._check_average_step()

    def step_ids(self, epoch: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Ids of a step in the order of the epoch, and the `Flag` of each.

        Raises:
            ArgumentError: `epoch` is negative or the step is not in the epoch.
        """
        check_count("epoch", epoch, least=0)
        if not 0 <= step < self.num_steps:
            raise ArgumentError(f"step is {step}; an epoch has steps 0 to {self.num_steps - 1}")
        begin = step * self.global_batch_size
        end = begin + self.global_batch_size
        if self.tail == "filler":
            end = min(end, self._num_samples)
        positions = np.arange(begin, end)
        repeated = positions >= self._num_samples
        flags = np.where(repeated, np.int8(Flag.REPEAT), np.int8(Flag.REAL))
        return self.order.ids_at(positions % self._num_samples, epoch), flags

    def plan(self, epoch: int, step: int) -> Plan:
        """Plan of one step, with its certificate.

        Raises:
            ArgumentError: As `step_ids`.
            CapacityError: The step does not fit `max_microbatches`.
        """
        ids, flags = self.step_ids(epoch, step)
        whole = self._num_samples // self.global_batch_size
        if self.window_steps > 1 and step < whole:
            window = step // self.window_steps
            return self._plan_window(epoch, window, whole)[step - window * self.window_steps]
        return plan_step(
            self.costs,
            self.topology,
            sample_ids=ids,
            flags=flags,
            oversize=self.oversize,
            fill=self.tail == "filler",
            epoch=epoch,
            step=step,
        )

    def _plan_window(self, epoch: int, window: int, whole: int) -> list[Plan]:
        """Plans of a window's steps; the last one planned is kept."""
        if self._window[0] != (epoch, window):
            first = window * self.window_steps
            steps = range(first, min(first + self.window_steps, whole))
            plans = plan_window(
                self.costs,
                self.topology,
                sample_ids=np.concatenate([self.step_ids(epoch, step)[0] for step in steps]),
                num_steps=len(steps),
                oversize=self.oversize,
                epoch=epoch,
                first_step=first,
            )
            self._window = ((epoch, window), plans)
        return self._window[1]

    def displacement(self, plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of a plan's samples, ascending, and the steps each moved from its strict step.

        Below `window_steps` in size; `balancer.windows.displacement_summary` sums them up by
        source. Needs all steps of the windows concerned, as `plan_epoch` gives them.
        """
        ids, strict = [], []
        for step in range(plan.first_step, plan.first_step + plan.num_steps):
            members, flags = self.step_ids(plan.epoch, step)
            ids.append(members[flags == Flag.REAL])
            strict.append(np.full(len(ids[-1]), step))
        real = plan.flags == Flag.REAL
        slot = plan.cell_of_sample()[real] // plan.topology.dp_size
        planned = plan.first_step + np.searchsorted(plan.step_slots, slot, side="right") - 1
        by_id, by_strict_id = np.argsort(plan.sample_ids[real]), np.argsort(np.concatenate(ids))
        moved = planned[by_id] - np.concatenate(strict)[by_strict_id]
        return plan.sample_ids[real][by_id], moved

    def plan_epoch(
        self, epoch: int, *, num_steps: int | None = None, progress: bool = False
    ) -> Plan:
        """Plan of the first `num_steps` steps of an epoch, all when not given.

        With all steps, `dropped` holds every id that the epoch does not deliver. Shows a bar on
        standard error with `progress`.
        """
        count = self.num_steps if num_steps is None else min(num_steps, self.num_steps)
        check_count("num_steps", count)
        steps = tqdm(range(count), desc="planning", unit="step", disable=not progress)
        plan = Plan.concatenate([self.plan(epoch, step) for step in steps])
        return replace(plan, dropped=self.dropped(epoch)) if count == self.num_steps else plan

    def dropped(self, epoch: int) -> NDArray[np.int64]:
        """Ids, ascending, that are not delivered in an epoch: illegal, oversize and the tail's."""
        cut = np.zeros(0, np.int64)
        if self.tail == "drop":
            delivered = self.num_steps * self.global_batch_size
            cut = self.order.ids_at(np.arange(delivered, self._num_samples), epoch)
        return np.sort(np.concatenate([self.order.left_out, cut]))

    def slots_per_step(self, epoch: int) -> NDArray[np.int64]:
        """Microbatches of every rank in each step of an epoch, int64 `(num_steps,)`.

        Known at once unless limits may force a step to take more than `num_microbatches`, or the
        pipeline barrier may choose; then the epoch is planned once and the result kept.
        """
        topology = self.topology
        fixed = topology.max_microbatches == topology.num_microbatches
        chosen = topology.barrier == "pipeline" and topology.max_microbatches is not None
        if fixed or not (topology.limits.given or chosen):
            return np.full(self.num_steps, topology.num_microbatches)
        if epoch not in self._slots_of_epoch:
            counts = [self.plan(epoch, step).num_microbatches(0) for step in range(self.num_steps)]
            self._slots_of_epoch = {epoch: np.array(counts, np.int64)}
        return self._slots_of_epoch[epoch]

    def microbatches_per_epoch(self, epoch: int) -> int:
        """Exact number of microbatches of every rank in an epoch; see `slots_per_step`."""
        return int(self.slots_per_step(epoch).sum())

    @property
    def fingerprint(self) -> str:
        """Hash of everything the plans depend on; equal on all ranks that plan alike."""
        settings = (
            _VERSION, self.topology, self.global_batch_size, self.seed, self.shuffle,
            self.oversize, self.illegal, self.tail, self.window_steps,
        )  # fmt: skip
        return hashlib.sha256((repr(settings) + self.costs.fingerprint).encode()).hexdigest()

    def _ids_left_out(self) -> NDArray[np.int64]:
        """Ids, ascending, that no epoch delivers."""
        if self.illegal == "error":
            self.costs.check_legal()
        over = oversize_ids(self.costs, self.topology, self.oversize, sample_ids=None)
        return np.union1d(self.costs.illegal, over if self.oversize == "drop" else over[:0])

    def _check_enough_samples(self) -> None:
        if not self._num_samples:
            cause = "all are over a limit or illegal" if len(self.costs) else "there are none"
            raise PlanError(f"costs has no sample to plan ({cause}); an epoch would be empty")
        if not self.num_steps:
            raise PlanError(
                f"costs has {self._num_samples} samples to plan, fewer than global_batch_size="
                f'{self.global_batch_size}, and tail="drop" drops an incomplete step; lower '
                'global_batch_size, or pass tail="pad" or "filler"'
            )

    def _check_average_step(self) -> None:
        """Refuse limits that even an average step does not fit: most steps would fail later."""
        most = self.topology.max_microbatches
        if most is None:
            return
        limits = self.topology.limits
        for name, limit in limits.room.items():
            if name == "samples":
                mean = float(self.global_batch_size)
            else:
                left_out = getattr(self.costs.select(self.order.left_out), name)
                multiple = limits.pad_sample_to if name == "tokens" else 1
                amount = self.costs.clipped_sum(name, limit, multiple)
                amount -= np.minimum(limits.taken(name, left_out), limit).sum()
                mean = float(amount) / self._num_samples * self.global_batch_size
            fits = limit * self.topology.dp_size * most
            if mean > fits:
                needed = -(-mean // (limit * self.topology.dp_size))
                raise CapacityError(
                    f"an average step has {mean:.0f} {name}; {self.topology.dp_size} ranks x "
                    f"max_microbatches={most} with max_{name}={limit} hold {fits}; raise "
                    f"max_microbatches to at least {needed:.0f}, raise max_{name}, or lower "
                    "global_batch_size"
                )
