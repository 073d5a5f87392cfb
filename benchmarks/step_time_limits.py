"""Step time over its bound under a token limit, on sizes and barriers by name."""

from collections.abc import Mapping, Sequence

from balancer.cost import CostFunction
from balancer.limits import Limits
from balancer.pipeline_stages import encoder_first
from balancer.topology import Topology
from benchmarks.measure import Record
from benchmarks.planners import PlannerChoice
from benchmarks.step_time import Place, measure_places
from benchmarks.traces import Trace

__all__ = ["limited_topology", "measure_step_time_limits"]

_STAGES = 4


def limited_topology(
    dp_size: int, num_microbatches: int, barrier: str, max_tokens: int
) -> Topology:
    """Topology of a barrier named `"step"`, `"in_turn"`, `"summed"` or `"pipeline"`.

    `"in_turn"` and `"summed"` are the microbatch barrier; a pipeline has four ranks, the first of
    them the encoder's.
    """
    size = {"dp_size": dp_size, "num_microbatches": num_microbatches}
    limits = Limits(max_tokens=max_tokens)
    if barrier == "pipeline":
        return Topology(
            **size, limits=limits, barrier="pipeline", pp_size=_STAGES,
            stages=encoder_first(_STAGES),
        )  # fmt: skip
    if barrier == "step":
        return Topology(**size, limits=limits, barrier="step")
    modules = "summed" if barrier == "summed" else "in_turn"
    return Topology(**size, limits=limits, barrier="microbatch", modules=modules)  # type: ignore[arg-type]


def measure_step_time_limits(
    *,
    name: str,
    traces: Mapping[str, Trace],
    cost: CostFunction,
    planners: Mapping[str, PlannerChoice],
    dp_sizes: Mapping[int, int],
    num_microbatches: Sequence[int],
    barriers: Sequence[str],
    max_tokens: int,
    samples_per_rank: int,
    seed: int,
    quick: bool,
) -> list[Record]:
    """Records of `benchmarks.step_time` for every size and barrier.

    Args:
        name: Name of the experiment in the records.
        traces: Traces by name.
        cost: What samples are priced by.
        planners: Planner choices by name.
        dp_sizes: Steps for each trace, by number of ranks.
        num_microbatches: Numbers of microbatches.
        barriers: Names as of `limited_topology`.
        max_tokens: Token limit of a microbatch.
        samples_per_rank: Samples of a step over ranks.
        seed: Seed of the shuffled order.
        quick: One step each of the first size, to see that it runs.
    """
    sizes = list(dp_sizes.items())
    places = [
        Place(
            topology=limited_topology(dp_size, number, barrier, max_tokens),
            barrier=f"microbatch_{barrier}" if barrier in ("in_turn", "summed") else barrier,
            num_steps=1 if quick else num_steps,
        )
        for dp_size, num_steps in (sizes[:1] if quick else sizes)
        for number in (num_microbatches[:1] if quick else num_microbatches)
        for barrier in barriers
    ]
    return measure_places(
        name=name, traces=traces, cost=cost, planners=planners, places=places,
        samples_per_rank=samples_per_rank, seed=seed,
    )  # fmt: skip
