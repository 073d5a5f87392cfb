"""Topology: how many ranks and microbatches there are, where ranks wait, and what fits."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Literal, get_args

from balancer.checks import check_choice, check_count, check_number
from balancer.errors import ArgumentError
from balancer.limits import Layout, Limits
from balancer.modality_options import ModalitySync, check_modality_sync
from balancer.ranks import Speeds, checked_speeds, merged_limits
from balancer.stage_roles import check_deferral

__all__ = [
    "WAITS",
    "Barrier",
    "Layout",
    "Limits",
    "Modules",
    "Schedule",
    "Topology",
    "check_choice",
    "check_count",
]

Barrier = Literal["step", "microbatch", "pipeline"]
Modules = Literal["in_turn", "summed"]
Schedule = Literal["1f1b", "eager_1f1b", "interleaved"]

WAITS: dict[Barrier, str] = {
    "step": "ranks wait once a step",
    "microbatch": "ranks wait in every microbatch",
    "pipeline": "pipelines wait once a step, their ranks for each other",
}
"""Where ranks wait under each barrier, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Where a step's samples go and where ranks wait for each other.

    Attributes:
        dp_size: Data-parallel ranks.
        num_microbatches: Microbatches of each rank in a step.
        max_microbatches: Most microbatches a step may take when its samples do not fit
            `num_microbatches` under the limits; every rank then takes as many. `None`: as many as
            are needed; equal to `num_microbatches`: never more, and an error where they do not fit.
            Under the pipeline barrier the planner may take any number up to it where that is
            faster.
        barrier: Where ranks wait: `"step"` once a step (DDP with `no_sync`), `"microbatch"` in
            every microbatch (FSDP, tensor or expert parallelism), `"pipeline"` once a step, each
            data-parallel rank being a pipeline of `pp_size` model parts that its microbatches run
            through in order.
        modules: Under the microbatch barrier, `"in_turn"` if ranks wait after each module of a
            microbatch (each is sharded), `"summed"` if they wait once for the microbatch.
        limits: Hard caps of a microbatch.
        rank_speeds: How fast each rank is relative to the costs: a sample of cost 1 takes 1 / speed
            there. One number a rank; or, with modules in turn, such a tuple for each module by
            its name. Empty: all are alike. Under the pipeline barrier it is the speed of a whole
            pipeline.
        rank_limits: Hard caps of the microbatches of each rank, one `Limits` a rank, all of the
            same amounts, beside or instead of `limits`. Empty: `limits` for all. `limits` then
            are the loosest of any rank.
        modality_sync: What is done so that no rank skips a module (an encoder) that others run at
            the same time; see `balancer.modality_sync`. `"spread"` samples over the microbatches,
            `"uniform"` the same modules on all ranks at a time, `"dummy"` room for `limits.dummies`
            in all microbatches, `None` nothing.
        pp_size: Pipeline ranks of the model, at least 2 under the pipeline barrier, else 1.
        stages: What each stage holds, in the order samples run through them: a mapping from module
            to its weight there (layers, or a fraction), one for each of `pp_size * virtual_stages`
            stages. A module's weights over all stages are brought to sum 1. Empty: every module
            is split evenly.
        schedule: Order of forwards and backwards; see `balancer.pipeline_schedule`.
        virtual_stages: Stages of each pipeline rank, more than 1 only when `"interleaved"`; stage
            `s` runs on pipeline rank `s % pp_size`.
        forward_share: Share of a cost that is its forward pass, in [0, 1]; the rest is backward.
        microbatch_cost: Cost of any microbatch at each stage on top of its samples', in the unit
            of the costs, forward and backward together.
        max_in_flight: Most tokens of the microbatches whose activations a pipeline rank holds at
            once; a microbatch at one of `virtual_stages` counts for that fraction. Needs
            `limits.max_tokens`. `None`: no limit.
        deferral: Whether a sample's language work may run in the microbatch after that of its
            encoder work (see `balancer.deferral`), where that is faster: seldom, and by a few per
            cent at most. `stages` must keep encoders and the language model (the modules of the
            last stage) apart.

    Raises:
        ArgumentError: A number or choice is not allowed, or is given under another barrier than
            the one it is for.

    Example:
        >>> str(Topology(dp_size=8, num_microbatches=4))
        'dp8_m4'
        >>> str(Topology(dp_size=8, num_microbatches=4, barrier="pipeline", pp_size=2))
        'dp8_m4_pp2'
    """

    dp_size: int
    num_microbatches: int = 1
    max_microbatches: int | None = None
    barrier: Barrier = "microbatch"
    modules: Modules = "in_turn"
    limits: Limits = field(default_factory=Limits)
    pp_size: int = 1
    stages: tuple[Mapping[str, float], ...] = field(default=(), hash=False)
    schedule: Schedule = "1f1b"
    virtual_stages: int = 1
    forward_share: float = 1 / 3
    microbatch_cost: float = 0.0
    max_in_flight: int | None = None
    deferral: bool = False
    rank_speeds: Speeds = field(default=(), hash=False)
    rank_limits: tuple[Limits, ...] = ()
    modality_sync: ModalitySync | None = None

    def __post_init__(self) -> None:
        check_count("dp_size", self.dp_size)
        check_count("num_microbatches", self.num_microbatches)
        check_choice("barrier", self.barrier, get_args(Barrier))
        check_choice("modules", self.modules, get_args(Modules))
        if self.max_microbatches is not None:
            check_count("max_microbatches", self.max_microbatches)
            if self.max_microbatches < self.num_microbatches:
                raise ArgumentError(
                    f"max_microbatches is {self.max_microbatches}, less than num_microbatches="
                    f"{self.num_microbatches}; raise it, or leave it out for no maximum"
                )
        if not isinstance(self.limits, Limits):
            raise ArgumentError(f"limits is {self.limits!r}; allowed: a Limits object")
        object.__setattr__(self, "stages", _plain_stages(self.stages))
        self._set_ranks()
        check_modality_sync(
            self.modality_sync,
            self.barrier,
            self.limits.dummies,
            deferral=self.deferral,
            max_in_flight=self.max_in_flight,
        )
        if self.barrier == "pipeline":
            self._check_pipeline()
        else:
            self._check_no_pipeline()

    def __str__(self) -> str:
        pipeline = f"_pp{self.pp_size}" if self.barrier == "pipeline" else ""
        return f"dp{self.dp_size}_m{self.num_microbatches}{pipeline}"

    def __repr__(self) -> str:
        """All fields that this barrier knows, so that a new barrier leaves fingerprints alone."""
        hidden: tuple[str, ...] = () if self.barrier == "pipeline" else _PIPELINE_FIELDS
        hidden += tuple(name for name in _SHOWN_IF_GIVEN if not getattr(self, name))
        shown = [each.name for each in fields(self) if each.name not in hidden]
        return f"Topology({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    @property
    def num_stages(self) -> int:
        """Stages that a sample runs through: `pp_size * virtual_stages`."""
        return self.pp_size * self.virtual_stages

    def _set_ranks(self) -> None:
        """Bring speeds and limits of the ranks to their plain form."""
        object.__setattr__(self, "rank_speeds", checked_speeds(self.rank_speeds, self.dp_size))
        in_turn = self.barrier == "microbatch" and self.modules == "in_turn"
        if isinstance(self.rank_speeds, Mapping) and not in_turn:
            raise ArgumentError(
                f"rank_speeds is a mapping from modules under barrier={self.barrier!r}, modules="
                f'{self.modules!r}; allowed with barrier="microbatch" and modules="in_turn" only: '
                "give one speed a rank"
            )
        if self.deferral and (self.rank_speeds or self.rank_limits):
            raise ArgumentError(
                "deferral is True with rank_speeds or rank_limits; ranks must be alike for it: "
                "leave one of them out"
            )
        limits, rank_limits = merged_limits(self.limits, self.rank_limits, self.dp_size)
        object.__setattr__(self, "limits", limits)
        object.__setattr__(self, "rank_limits", rank_limits)
        if self.max_in_flight is not None and len({each.max_tokens for each in rank_limits}) > 1:
            raise ArgumentError(
                "rank_limits differ in max_tokens while max_in_flight is set; give all ranks the "
                "same max_tokens, or leave max_in_flight out"
            )

    def _check_no_pipeline(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if each.name in _PIPELINE_FIELDS and value != each.default:
                raise ArgumentError(
                    f"{each.name} is {value!r} under barrier={self.barrier!r}; pass "
                    f'barrier="pipeline", or leave {each.name} out'
                )

    def _check_pipeline(self) -> None:
        check_count("pp_size", self.pp_size, least=2)
        check_count("virtual_stages", self.virtual_stages)
        check_choice("schedule", self.schedule, get_args(Schedule))
        if (self.virtual_stages > 1) != (self.schedule == "interleaved"):
            raise ArgumentError(
                f"virtual_stages is {self.virtual_stages} with schedule={self.schedule!r}; "
                'allowed: more than 1 with "interleaved", 1 with the others'
            )
        if self.schedule == "interleaved":
            self._check_interleaved()
        if self.stages and len(self.stages) != self.num_stages:
            raise ArgumentError(
                f"stages has {len(self.stages)} entries; pp_size={self.pp_size} x virtual_stages="
                f"{self.virtual_stages} needs {self.num_stages}: give one for each"
            )
        check_number("forward_share", self.forward_share, most=1.0)
        check_number("microbatch_cost", self.microbatch_cost, most=math.inf)
        if self.max_in_flight is not None:
            self._check_in_flight()
        if self.deferral:
            unequal = bool(self.rank_speeds or self.rank_limits)
            check_deferral(self.stages, self.schedule, unequal)

    def _check_interleaved(self) -> None:
        for name in ("num_microbatches", "max_microbatches"):
            value = getattr(self, name)
            if value is not None and value % self.pp_size:
                raise ArgumentError(
                    f'{name} is {value}; schedule="interleaved" runs microbatches in groups of '
                    f"pp_size={self.pp_size}: give a multiple of it"
                )

    def _check_in_flight(self) -> None:
        check_count("max_in_flight", self.max_in_flight)
        most = self.limits.max_tokens
        if self.limits.pad_microbatch_to > 1:
            raise ArgumentError(
                f"max_in_flight is {self.max_in_flight} with limits.pad_microbatch_to="
                f"{self.limits.pad_microbatch_to}; tokens in flight are not counted rounded up by "
                "microbatch: leave one of them out"
            )
        if most is None:
            raise ArgumentError(
                f"max_in_flight is {self.max_in_flight} without limits.max_tokens; set max_tokens "
                "too, at most max_in_flight, so that each microbatch fits by itself"
            )
        if most > self.max_in_flight:  # type: ignore[operator]
            raise ArgumentError(
                f"max_in_flight is {self.max_in_flight}, less than limits.max_tokens={most}; a "
                "microbatch must fit by itself: raise max_in_flight or lower max_tokens"
            )


_PIPELINE_FIELDS = (
    "pp_size",
    "stages",
    "schedule",
    "virtual_stages",
    "forward_share",
    "microbatch_cost",
    "max_in_flight",
    "deferral",
)


_SHOWN_IF_GIVEN = ("deferral", "rank_speeds", "rank_limits", "modality_sync")
"""Fields that are part of a fingerprint only where they are used."""


def _plain_stages(stages: object) -> tuple[dict[str, float], ...]:
    """Stages as a tuple of plain dicts, each in the order of its names.

    Raises:
        ArgumentError: It is no sequence of mappings from names to weights >= 0, or a module has
            no weight at all.
    """
    if isinstance(stages, str | Mapping) or not hasattr(stages, "__iter__"):
        raise ArgumentError(f"stages is {stages!r}; allowed: a mapping of modules for each stage")
    plain, totals = [], dict[str, float]()
    for index, stage in enumerate(stages):
        if not isinstance(stage, Mapping):
            raise ArgumentError(
                f"stages[{index}] is {stage!r}; allowed: a mapping from module to its weight"
            )
        for name, weight in stage.items():
            check_number(f"stages[{index}][{name!r}]", weight, most=math.inf)
            totals[name] = totals.get(name, 0.0) + float(weight)
        plain.append({name: float(stage[name]) for name in sorted(stage)})
    for name, total in totals.items():
        if total == 0.0:
            raise ArgumentError(f"stages give module {name!r} no weight; give one stage some")
    return tuple(plain)
