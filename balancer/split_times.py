"""Planned step time of one way to split GPUs between encoders and language model."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from balancer.checks import check_count
from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.limits import Limits
from balancer.step_planner import plan_step
from balancer.topology import Schedule, Topology

__all__ = ["SplitLayout", "SplitTime", "draw_steps", "split_time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitLayout:
    """How a job's GPUs form pipelines.

    Attributes:
        dp_size: Pipelines side by side.
        num_microbatches: Microbatches of each in a step.
        gpus_per_stage: GPUs that share a stage (tensor or context parallelism); it is taken to be
            as many times faster.

    Example:
        >>> str(SplitLayout(dp_size=4, num_microbatches=8)), SplitLayout(dp_size=4).num_stages(16)
        ('dp4_m8', 4)
    """

    dp_size: int
    num_microbatches: int = 4
    gpus_per_stage: int = 1

    def __post_init__(self) -> None:
        for name in ("dp_size", "num_microbatches", "gpus_per_stage"):
            check_count(name, getattr(self, name))

    def __str__(self) -> str:
        shared = f"_tp{self.gpus_per_stage}" if self.gpus_per_stage > 1 else ""
        return f"dp{self.dp_size}_m{self.num_microbatches}{shared}"

    def num_stages(self, num_gpus: int) -> int:
        """Stages of each pipeline.

        Raises:
            ArgumentError: The GPUs cannot be divided so, or leave fewer than two stages.
        """
        parts = self.dp_size * self.gpus_per_stage
        if num_gpus % parts or num_gpus < 2 * parts:
            raise ArgumentError(
                f"num_gpus is {num_gpus}; layout {self} has dp_size={self.dp_size} x "
                f"gpus_per_stage={self.gpus_per_stage} = {parts} GPUs for each stage of all "
                f"pipelines: give a multiple of {parts}, at least {2 * parts}"
            )
        return num_gpus // parts


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitTime:
    """One split and its time.

    Attributes:
        layout: The layout split.
        encoder_stages: Stages of the encoders in each pipeline.
        encoder_gpus: GPUs of the encoders over all pipelines.
        language_gpus: GPUs of the language model.
        step_time: Mean simulated time of the planned steps.
        lower_bound: Mean of what no plan of these steps can beat.
    """

    layout: SplitLayout
    encoder_stages: int
    encoder_gpus: int
    language_gpus: int
    step_time: float
    lower_bound: float


def draw_steps(
    costs: Costs, size: int, num_steps: int, rng: np.random.Generator
) -> tuple[Costs, ...]:
    """Costs of the samples of each step, drawn without replacement while there are enough."""
    ids = np.concatenate(
        [rng.permutation(len(costs)) for _ in range(-(-size * num_steps // len(costs)))]
    )
    return tuple(costs.select(ids[step * size : (step + 1) * size]) for step in range(num_steps))


def split_time(
    steps: Sequence[Costs],
    layout: SplitLayout,
    encoder_stages: int,
    *,
    num_stages: int,
    language: str,
    limits: Limits,
    schedule: Schedule,
) -> SplitTime:
    """Mean time of the steps when the first `encoder_stages` of `num_stages` are the encoders'."""
    encoders = {name: 1.0 for name in steps[0].modules if name != language}
    stages = (encoders,) * encoder_stages + ({language: 1.0},) * (num_stages - encoder_stages)
    topology = Topology(
        dp_size=layout.dp_size, num_microbatches=layout.num_microbatches, barrier="pipeline",
        pp_size=num_stages, stages=stages, schedule=schedule, limits=limits,
    )  # fmt: skip
    planned = [plan_step(costs, topology).certificates[0] for costs in steps]
    gpus = layout.dp_size * layout.gpus_per_stage
    return SplitTime(
        layout=layout,
        encoder_stages=encoder_stages,
        encoder_gpus=gpus * encoder_stages,
        language_gpus=gpus * (num_stages - encoder_stages),
        step_time=float(np.mean([each.step_time for each in planned])) / layout.gpus_per_stage,
        lower_bound=float(np.mean([each.lower_bound for each in planned])) / layout.gpus_per_stage,
    )
