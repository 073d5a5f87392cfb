"""EpochPlanner: any step of any epoch, planned from its number alone."""

import copy
import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from balancer.effort import Effort, checked_effort
from balancer.epoch_checks import check_average_step, check_enough_samples, check_step_size
from balancer.epoch_order import EpochOrder
from balancer.epoch_rest import EpochRest
from balancer.epoch_steps import EpochSteps, Tail
from balancer.errors import ArgumentError
from balancer.filled_steps import StepFiller
from balancer.plan import Plan
from balancer.planner_settings import topology_from, topology_settings, without_defaults
from balancer.priced import PricedSamples
from balancer.step_planner import Oversize, oversize_ids, plan_from_assignment, plan_step
from balancer.topology import Topology, check_choice, check_count
from balancer.windows import displacement, plan_window

__all__ = ["EpochPlanner", "Illegal", "Tail", "plan_from_assignment", "plan_step", "plan_window"]

Illegal = Literal["error", "drop"]

_VERSION = 6
"""Raised whenever the same inputs would give another plan than before."""

_NO_WINDOW: tuple[tuple[int, range], list[Plan]] = ((-1, range(0)), [])


class EpochPlanner:
    """Plans the steps of every epoch; a step's plan depends on nothing but its number.

    Membership is strict unless `window_steps` says otherwise: step `s` of an epoch holds the
    samples that a plain shuffled loader of `global_batch_size` would give it; only their rank and
    microbatch are chosen. The order is a permutation keyed by `(seed, epoch)`, computed where it is
    needed: seeking to any step is O(global_batch_size).

    Attributes:
        costs: Costs of all samples, rows by sample id.
        topology: Ranks, microbatches, barrier and limits.
        global_batch_size: Samples of a step over all ranks; `None` for filled steps, which take
            samples in order while their microbatches have room: `balancer.filled_steps`.
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
        effort: Counted work that planning a step may take, as in `plan_step`.
        num_steps: Steps of a whole epoch, the same for every epoch; of epoch 0 where filled.
        rest: The epoch of which only the rest is planned, if any; see `balancer.resume`.

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
        global_batch_size: int | None,
        seed: int = 0,
        shuffle: bool = True,
        oversize: Oversize = "error",
        illegal: Illegal = "error",
        tail: Tail = "drop",
        window_steps: int = 1,
        effort: Effort = "default",
    ) -> None:
        check_count("seed", seed, least=0)
        check_count("window_steps", window_steps)
        if seed >= 2**63:
            raise ArgumentError(f"seed is {seed}; allowed: whole numbers from 0 to 2**63 - 1")
        check_choice("oversize", oversize, get_args(Oversize))
        check_choice("illegal", illegal, get_args(Illegal))
        check_choice("tail", tail, get_args(Tail))
        check_step_size(costs, topology, global_batch_size, window_steps)
        self.costs = costs
        self.topology = topology
        self.global_batch_size = global_batch_size
        self.seed = int(seed)
        self.shuffle = bool(shuffle)
        self.oversize = oversize
        self.illegal = illegal
        self.tail = tail
        self.window_steps = int(window_steps)
        self.effort = checked_effort(effort)
        left_out, alone = self._ids_apart()
        self._filler = StepFiller(costs, topology, alone) if global_batch_size is None else None
        self.order = EpochOrder(
            num_ids=len(costs),
            left_out=left_out,
            seed=self.seed,
            shuffle=self.shuffle,
        )
        self.rest: EpochRest | None = None
        self._head = np.zeros(0, np.int64)
        self._window: tuple[tuple[int, range], list[Plan]] = _NO_WINDOW
        self._slots_of_epoch: dict[int, NDArray[np.int64]] = {}
        steps = self.steps(0)
        self.num_steps, self.samples_per_epoch = steps.end, steps.num_samples - len(steps.cut)
        check_enough_samples(costs, self.order, self.global_batch_size, self.num_steps)
        check_average_step(costs, topology, self.order, self.global_batch_size)

    def steps(self, epoch: int) -> EpochSteps:
        """Which samples each step of an epoch holds, under strict membership."""
        resumed = self.rest is not None and self.rest.epoch == epoch
        steps = EpochSteps(
            order=self.order,
            rest=self.rest if resumed and self.rest else EpochRest(epoch=epoch),
            head=self._head if resumed else self._head[:0],
            global_batch_size=self.global_batch_size or 0,
            tail=self.tail,
            window_steps=self.window_steps,
        )
        return steps if self._filler is None else self._filler.filled(steps)

    def step_ids(self, epoch: int, step: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
        """Ids of a step in the order of the epoch, and the `Flag` of each.

        Raises:
            ArgumentError: `epoch` is negative or the step is not in the epoch.
        """
        check_count("epoch", epoch, least=0)
        steps = self.steps(epoch)
        if not steps.first <= step < steps.end:
            raise ArgumentError(
                f"step is {step}; epoch {epoch} has steps {steps.first} to {steps.end - 1}"
            )
        return steps.members(step)

    def plan(self, epoch: int, step: int) -> Plan:
        """Plan of one step, with its certificate.

        Raises:
            ArgumentError: As `step_ids`.
            CapacityError: The step does not fit `max_microbatches`.
        """
        ids, flags = self.step_ids(epoch, step)
        steps = self.steps(epoch)
        window = steps.window_of(step)
        if len(window) > 1:
            return self._plan_window(epoch, window)[step - window.start]
        return plan_step(
            self.costs,
            self.topology,
            sample_ids=ids,
            flags=flags,
            oversize=self.oversize,
            fill=self.tail == "filler" or steps.in_head(step) or self._filler is not None,
            effort=self.effort,
            epoch=epoch,
            step=step,
        )

    def _plan_window(self, epoch: int, window: range) -> list[Plan]:
        """Plans of a window's steps; the last one planned is kept."""
        if (kept := self._window)[0] != (epoch, window):  # read once: threads may plan too
            plans = plan_window(
                self.costs,
                self.topology,
                sample_ids=np.concatenate([self.step_ids(epoch, step)[0] for step in window]),
                num_steps=len(window),
                oversize=self.oversize,
                effort=self.effort,
                epoch=epoch,
                first_step=window.start,
            )
            self._window = kept = ((epoch, window), plans)
        return kept[1]

    def displacement(self, plan: Plan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of a plan's samples, ascending, and the steps each moved from its strict step.

        Below `window_steps` in size; `balancer.windows.displacement_summary` sums them up by
        source. Needs all steps of the windows concerned, as `plan_epoch` gives them.
        """
        return displacement(plan, self.step_ids)

    def plan_epoch(
        self, epoch: int, *, num_steps: int | None = None, progress: bool = False
    ) -> Plan:
        """Plan of the first `num_steps` steps of an epoch, or of its rest; all when not given.

        With all steps, `dropped` holds every id that the epoch does not deliver. Shows a bar on
        standard error with `progress`.
        """
        every = range(self.steps(epoch).first, self.steps(epoch).end)
        count = len(every) if num_steps is None else min(num_steps, len(every))
        check_count("num_steps", count)
        steps = tqdm(every[:count], desc="planning", unit="step", disable=not progress)
        plan = Plan.concatenate([self.plan(epoch, step) for step in steps])
        return replace(plan, dropped=self.dropped(epoch)) if count == len(every) else plan

    def dropped(self, epoch: int) -> NDArray[np.int64]:
        """Ids, ascending, that are not delivered in an epoch: illegal, oversize and the tail's."""
        return np.sort(np.concatenate([self.order.left_out, self.steps(epoch).cut]))

    def slots_per_step(self, epoch: int) -> NDArray[np.int64]:
        """Microbatches of every rank in each step of an epoch or of its rest, int64.

        Known at once unless limits may force a step to take more than `num_microbatches`, or the
        pipeline barrier may choose; then the epoch is planned once and the result kept.
        """
        steps = range(self.steps(epoch).first, self.steps(epoch).end)
        if self.microbatches_per_step is not None:
            return np.full(len(steps), self.microbatches_per_step)
        if epoch not in self._slots_of_epoch:
            counts = [self.plan(epoch, step).num_microbatches(0) for step in steps]
            self._slots_of_epoch = {epoch: np.array(counts, np.int64)}
        return self._slots_of_epoch[epoch]

    @property
    def microbatches_per_step(self) -> int | None:
        """Microbatches of every rank in every step; `None` where steps may differ."""
        topology = self.topology
        fixed = topology.max_microbatches == topology.num_microbatches
        fixed |= self._filler is not None and topology.barrier != "pipeline"
        chosen = topology.barrier == "pipeline" and topology.max_microbatches is not None
        same = fixed or not (topology.limits.given or chosen)
        return topology.num_microbatches if same else None

    def microbatches_per_epoch(self, epoch: int) -> int:
        """Exact number of microbatches of every rank in an epoch; see `slots_per_step`.

        For a resumed epoch with those handed out before.
        """
        return self.steps(epoch).rest.microbatches + int(self.slots_per_step(epoch).sum())

    @property
    def settings(self) -> dict[str, Any]:
        """Topology, limits and options that are not their defaults, as plain values."""
        options = inspect.signature(EpochPlanner).parameters.values()
        defaults = {each.name: each.default for each in options if each.kind == each.KEYWORD_ONLY}
        given = {name: getattr(self, name) for name in defaults}
        plain = topology_settings(self.topology) | without_defaults(given, defaults)
        return {"version": _VERSION} | plain

    @classmethod
    def from_settings(cls, costs: PricedSamples, settings: Mapping[str, Any]) -> "EpochPlanner":
        """The planner that has the given `settings`."""
        options = inspect.signature(cls).parameters
        own = {name: value for name, value in settings.items() if name in options}
        return cls(costs, topology_from(settings), **own)

    @property
    def fingerprint(self) -> str:
        """Hash of everything the plans depend on; equal on all ranks that plan alike."""
        settings = json.dumps(self.settings, sort_keys=True)
        return hashlib.sha256((settings + self.costs_fingerprint).encode()).hexdigest()

    @cached_property
    def costs_fingerprint(self) -> str:
        """Hash of the costs, computed once."""
        return self.costs.fingerprint

    def with_rest(self, rest: EpochRest | None, head: NDArray[np.int64]) -> "EpochPlanner":
        """A planner that differs in the epoch of `rest` only; see `balancer.resume.resumed`."""
        planner = copy.copy(self)
        planner.rest, planner._head = rest, head
        planner._window, planner._slots_of_epoch = _NO_WINDOW, {}
        return planner

    def _ids_apart(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids, ascending, that no epoch delivers, and that get a microbatch of their own."""
        if self.illegal == "error":
            self.costs.check_legal()
        over = oversize_ids(self.costs, self.topology, self.oversize, sample_ids=None)
        dropped, alone = (over, over[:0]) if self.oversize == "drop" else (over[:0], over)
        return np.union1d(self.costs.illegal, dropped), alone
