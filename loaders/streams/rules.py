"""StreamRules: what the plan of a stream depends on beside its samples."""

from dataclasses import dataclass

from balancer.effort import Effort
from balancer.planner import Tail
from balancer.step_planner import Oversize
from balancer.topology import Topology

__all__ = ["StreamRules"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRules:
    """What the plan of a stream depends on beside its samples; the same on every rank.

    Attributes:
        topology: Ranks, microbatches, barrier and limits.
        global_batch_size: Samples of a step over all ranks; a multiple of `dp_size`.
        window_steps: Steps of a window.
        oversize: Policy for samples over a limit.
        tail: Policy for samples that do not fill a step.
        effort: Counted work that planning a step may take.
    """

    topology: Topology
    global_batch_size: int
    window_steps: int
    oversize: Oversize
    tail: Tail
    effort: Effort = "default"

    @property
    def rank_samples(self) -> int:
        """Samples that a rank reads for a step."""
        return self.global_batch_size // self.topology.dp_size
