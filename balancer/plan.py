"""Plan: which samples each rank runs, microbatch by microbatch, as data."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.bounds import Certificate
from balancer.errors import ArgumentError, PlanError
from balancer.group_check import checked_items
from balancer.modalities import dummy_amounts
from balancer.pipeline_check import check_deferred, check_in_flight, tokens_at
from balancer.plan_check import cell_amounts, check_conservation, check_limits, check_offsets
from balancer.plan_file import read_plan, write_plan
from balancer.priced import PricedSamples
from balancer.topology import Topology

__all__ = ["Flag", "Plan"]

_FORMAT = 1


class Flag(IntEnum):
    """Why a sample stands at a place of the plan.

    Example:
        >>> [flag.name for flag in Flag]
        ['REAL', 'REPEAT', 'FILLER']
    """

    REAL = 0
    """Delivered for the first time this epoch."""
    REPEAT = 1
    """Delivered again to complete the last step (`tail="pad"`)."""
    FILLER = 2
    """Keeps a rank in step with the others; must have no loss (`tail="filler"`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Assignment of samples to (step, microbatch, rank), immutable.

    Microbatch `index` of rank `dp_rank` in the plan's `step`-th step is the slice
    `sample_ids[offsets[b]:offsets[b + 1]]` with
    `b = (step_slots[step] + index) * dp_size + dp_rank`. Every rank has the same number of
    microbatches in a step: `step_slots[step + 1] - step_slots[step]`.

    Attributes:
        topology: Ranks, microbatches and limits the plan was made for.
        sample_ids: Ids, int64 `(num_placed,)`.
        flags: `Flag` of each placed id, int8 `(num_placed,)`.
        offsets: Where each microbatch begins, int64 `(num_microbatches_of_all_ranks + 1,)`.
        step_slots: Microbatches of a rank before each step, int64 `(num_steps + 1,)`.
        dropped: Ids that are not delivered, ascending, int64.
        alone: Oversize ids that got a microbatch of their own, ascending, int64.
        certificates: One `Certificate` a step.
        epoch: Epoch the plan belongs to.
        first_step: Number of the plan's first step within the epoch.
        deferred: Whether the language work of each placed id runs in its rank's next microbatch
            of the step, bool `(num_placed,)`; of size 0 where that is so for none. See
            `balancer.deferral`.

    Example:
        >>> plan = Plan.from_cells([[[[3, 1], [0]], [[2], [4]]]])
        >>> plan.microbatch(step=0, index=1, dp_rank=0)
        array([2])
        >>> [ids.tolist() for ids in plan.for_rank(1)]
        [[0], [4]]
    """

    topology: Topology
    sample_ids: NDArray[np.int64]
    flags: NDArray[np.int8]
    offsets: NDArray[np.int64]
    step_slots: NDArray[np.int64]
    dropped: NDArray[np.int64]
    alone: NDArray[np.int64]
    certificates: tuple[Certificate, ...] = ()
    epoch: int = 0
    first_step: int = 0
    deferred: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))

    def __post_init__(self) -> None:
        if self.deferred.size and not self.deferred.any():
            object.__setattr__(self, "deferred", np.zeros(0, np.bool_))
        for name in (*_ARRAYS, "deferred"):
            array = np.ascontiguousarray(getattr(self, name)).view()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def num_steps(self) -> int:
        """Steps in the plan."""
        return len(self.step_slots) - 1

    def num_microbatches(self, step: int) -> int:
        """Microbatches of every rank in the plan's `step`-th step."""
        return int(self.step_slots[step + 1] - self.step_slots[step])

    def cell(self, *, step: int, index: int, dp_rank: int) -> int:
        """Position of a microbatch in `offsets`.

        Raises:
            ArgumentError: No such step, microbatch or rank.
        """
        for name, value, size in (
            ("step", step, self.num_steps),
            ("dp_rank", dp_rank, self.topology.dp_size),
            ("index", index, self.num_microbatches(step) if 0 <= step < self.num_steps else 0),
        ):
            if not 0 <= value < size:
                raise ArgumentError(f"{name} is {value}; allowed: 0 to {size - 1}")
        return (int(self.step_slots[step]) + index) * self.topology.dp_size + dp_rank

    def microbatch(self, *, step: int, index: int, dp_rank: int) -> NDArray[np.int64]:
        """Sample ids of one microbatch, in order.

        Raises:
            ArgumentError: No such step, microbatch or rank.
        """
        cell = self.cell(step=step, index=index, dp_rank=dp_rank)
        return self.sample_ids[self.offsets[cell] : self.offsets[cell + 1]]

    def for_rank(self, dp_rank: int) -> Iterator[NDArray[np.int64]]:
        """All microbatches of one rank, in order."""
        for step in range(self.num_steps):
            for index in range(self.num_microbatches(step)):
                yield self.microbatch(step=step, index=index, dp_rank=dp_rank)

    def cell_of_sample(self) -> NDArray[np.int64]:
        """Microbatch position (see `cell`) of each entry of `sample_ids`."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def language_cell_of_sample(self) -> NDArray[np.int64]:
        """Microbatch position that runs the language work of each entry of `sample_ids`."""
        cells = self.cell_of_sample()
        return cells + self.topology.dp_size * self.deferred if self.deferred.size else cells

    @property
    def fingerprint(self) -> str:
        """Hash of the assignment: equal on every rank that computed the same plan."""
        digest = hashlib.sha256(repr((_FORMAT, self.epoch, self.first_step)).encode())
        digest.update(repr(self.topology).encode())
        for name in self._arrays:
            digest.update(name.encode())
            digest.update(getattr(self, name).data)
        return digest.hexdigest()

    @property
    def _arrays(self) -> tuple[str, ...]:
        """Names of the arrays that say something, so that a new one leaves fingerprints alone."""
        return (*_ARRAYS, "deferred") if self.deferred.size else _ARRAYS

    @classmethod
    def from_cells(
        cls,
        cells: Sequence[Sequence[Sequence[ArrayLike]]],
        *,
        topology: Topology | None = None,
    ) -> "Plan":
        """Plan from nested sequences `cells[step][microbatch][rank] = sample ids`.

        Raises:
            ArgumentError: Ranks or microbatches are missing somewhere.
        """
        ranks = {len(slot) for step in cells for slot in step}
        if len(ranks) != 1:
            raise ArgumentError(
                f"cells has microbatches with {sorted(ranks)} ranks; every microbatch needs an "
                "entry for every rank"
            )
        parts = [np.asarray(ids, np.int64) for step in cells for slot in step for ids in slot]
        sample_ids = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        first = len(cells[0]) if len(cells) else 1
        return cls(
            topology=topology or Topology(dp_size=ranks.pop(), num_microbatches=first),
            sample_ids=sample_ids,
            flags=np.zeros(sample_ids.shape, np.int8),
            offsets=np.cumsum([0, *map(len, parts)]),
            step_slots=np.cumsum([0, *map(len, cells)]),
            dropped=np.zeros(0, np.int64),
            alone=np.zeros(0, np.int64),
        )

    @classmethod
    def concatenate(cls, plans: Sequence["Plan"]) -> "Plan":
        """One plan of consecutive steps from the plans of each.

        Raises:
            ArgumentError: There are none, or they are not consecutive steps of one topology.
        """
        if not plans:
            raise ArgumentError("plans is empty; give at least one")
        expected = plans[0].first_step
        for plan in plans:
            if (plan.topology, plan.epoch) != (plans[0].topology, plans[0].epoch):
                raise ArgumentError("plans have different topologies or epochs")
            if plan.first_step != expected:
                raise ArgumentError(f"plans jump from step {expected - 1} to {plan.first_step}")
            expected += plan.num_steps
        sizes = np.concatenate([np.diff(plan.offsets) for plan in plans])
        slots = np.concatenate([np.diff(plan.step_slots) for plan in plans])
        return cls(
            topology=plans[0].topology,
            sample_ids=np.concatenate([plan.sample_ids for plan in plans]),
            flags=np.concatenate([plan.flags for plan in plans]),
            offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            step_slots=np.concatenate([[0], np.cumsum(slots)]).astype(np.int64),
            dropped=np.unique(np.concatenate([plan.dropped for plan in plans])),
            alone=np.unique(np.concatenate([plan.alone for plan in plans])),
            certificates=tuple(c for plan in plans for c in plan.certificates),
            epoch=plans[0].epoch,
            first_step=plans[0].first_step,
            deferred=np.concatenate(
                [np.resize(plan.deferred, len(plan.sample_ids)) for plan in plans]
            ),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the plan as an `.npz` file (without pickle) that `load` reads back."""
        arrays = {name: getattr(self, name) for name in self._arrays}
        names = ("epoch", "first_step", "fingerprint")
        numbers = {name: getattr(self, name) for name in names}
        write_plan(path, self.topology, self.certificates, arrays, numbers)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Plan":
        """Read a plan written by `save`.

        Raises:
            PlanError: The file is not a plan, is of another format, or was changed since.
        """
        fields, fingerprint = read_plan(path, _ARRAYS, "deferred")
        plan = cls(**fields)
        if plan.fingerprint != fingerprint:
            raise PlanError(f"{path} was damaged: its contents do not match its fingerprint")
        return plan

    def check(
        self, costs: PricedSamples, *, expected_ids: ArrayLike | None = None,
        group_ids: ArrayLike | None = None,
    ) -> None:  # fmt: skip
        """Prove conservation, the limits, and equal numbers of microbatches.

        On pipelines also tokens in flight, where an oversize sample alone counts as `max_tokens`,
        and that language work is passed on in pairs, to the next microbatch only.

        Args:
            costs: Costs of the whole dataset, rows by sample id.
            expected_ids: Ids that must be placed once or dropped; when not given, that no id is
                placed twice is all that is checked of conservation.
            group_ids: Group of each sample of the dataset, each of which must be in one microbatch;
                an oversize group may have one to itself.

        Raises:
            PlanError: A promise is broken; the message names the first sample or microbatch.
        """
        cells = int(self.step_slots[-1]) * self.topology.dp_size
        check_offsets(self.offsets, len(self.sample_ids), cells)
        check_conservation(
            self.sample_ids[self.flags == Flag.REAL],
            self.dropped,
            None if expected_ids is None else np.asarray(expected_ids, np.int64),
        )
        check_deferred(self.deferred, self.cell_of_sample(), self.step_slots, self.topology)
        language = np.bincount(self.language_cell_of_sample(), minlength=cells)
        first = checked_items(self.sample_ids, self.cell_of_sample(), group_ids)
        lone = np.bincount(self.cell_of_sample()[first], minlength=cells) == 1
        lone &= np.bincount(self.language_cell_of_sample()[first], minlength=cells) == 1
        lone &= np.isin(self.sample_ids[self.offsets[:-1]], self.alone)
        amounts = self.amounts(costs)
        amounts["samples"] = np.maximum(amounts["samples"], language)
        check_limits(amounts, lone, self.topology.rank_limits or (self.topology.limits,))
        if self.topology.max_in_flight is not None:
            own = replace(self, deferred=self.deferred[:0]).amounts(costs)
            for tokens in (own["tokens"], amounts["tokens"]):
                check_in_flight(tokens, lone, self.step_slots, self.topology)

    def amounts(self, costs: PricedSamples) -> dict[str, NDArray[np.int64]]:
        """Tokens, patches, images and samples of each microbatch, int64, in order of `offsets`.

        `tokens` is what is allocated: rounded as the limits say, and under the padded layout
        samples times the longest. They count where the language work runs, the others where the
        sample is delivered. Dummies of missing modules (`Limits.dummies`) are part of all.
        """
        added = dummy_amounts(self, costs)
        amounts = cell_amounts(self.sample_ids, self.offsets, self.topology.limits, costs, added)
        if self.deferred.size:
            amounts["tokens"] = tokens_at(
                self.language_cell_of_sample(), len(self.offsets) - 1,
                costs.select(self.sample_ids).tokens, self.topology.limits,
            )  # fmt: skip
        return amounts


_ARRAYS = ("sample_ids", "flags", "offsets", "step_slots", "dropped", "alone")
