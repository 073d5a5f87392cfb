"""Schedule: which forwards and backwards each pipeline rank runs, in which order, and after what.

`"1f1b"`: pipeline rank p of P runs P - p forwards, then one backward and one forward in turn
(PipeDream-Flush; Narayanan et al. 2021, arXiv:2006.09503). `"eager_1f1b"`: 2 (P - p) - 1 forwards
first, which hides transfers for more memory (Zhuang et al. 2022, arXiv:2211.05322).
`"interleaved"`: each rank has several stages and runs groups of P microbatches through one after
the other (Narayanan et al. 2021, arXiv:2104.04473).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from balancer.stage_roles import language_stages
from balancer.topology import Topology

__all__ = ["PipelineSchedule", "pipeline_schedule"]

_Op = tuple[bool, int, int]
"""Whether it is a backward, the stage, the microbatch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchedule:
    """Forwards and backwards of one pipeline, each after all those it waits for.

    Attributes:
        pp_size: Pipeline ranks.
        num_stages: Stages, `pp_size` times the virtual ones.
        num_microbatches: Microbatches.
        lane: Pipeline rank of each operation, int64.
        after: Operation of another stage that it waits for, or -1, int64.
        duration: Which duration it has, int64: of stage s and microbatch j the forward at
            `2 * num_stages * j + s`, the backward at `num_stages` more.
        passed_after: The same where the microbatch passes language work on to the next, so that
            the encoders' backward waits for the next one's gradient too; `after` without deferral.
        window: Consecutive microbatches, any, that the first pipeline rank holds at once; 1 where a
            rank has several stages.
    """

    pp_size: int
    num_stages: int
    num_microbatches: int
    lane: NDArray[np.int64]
    after: NDArray[np.int64]
    duration: NDArray[np.int64]
    passed_after: NDArray[np.int64]
    window: int


def pipeline_schedule(topology: Topology, num_microbatches: int) -> PipelineSchedule:
    """Operations of a pipeline rank's step with some number of microbatches.

    O(num_stages * num_microbatches), kept for the shapes used last.

    Example:
        >>> topology = Topology(dp_size=1, barrier="pipeline", pp_size=2)
        >>> schedule = pipeline_schedule(topology, 1)
        >>> schedule.lane.tolist(), schedule.after.tolist(), schedule.duration.tolist()
        ([0, 1, 1, 0], [-1, 0, 1, 2], [0, 1, 3, 2])
    """
    boundary = language_stages(topology.stages).start if topology.deferral else 0
    return _schedule(
        topology.schedule, topology.pp_size, topology.num_stages, num_microbatches, boundary
    )


@lru_cache(maxsize=256)
def _schedule(
    name: str, pp_size: int, num_stages: int, num_microbatches: int, boundary: int
) -> PipelineSchedule:
    """Schedule; `boundary` is the first language stage where language work may be passed on."""
    lanes = [_lane(name, p, pp_size, num_stages, num_microbatches) for p in range(pp_size)]

    def passed_to(op: _Op) -> _Op | None:
        waited = _waits_for(op, num_stages)
        if waited and boundary and op[:2] == (True, boundary - 1):
            return True, boundary, min(op[2] + 1, num_microbatches - 1)
        return waited

    order = _order(lanes, passed_to)
    place = {op: index for index, op in enumerate(order)}
    after = [place[op] if op else -1 for op in (_waits_for(op, num_stages) for op in order)]
    passed_after = [place[op] if op else -1 for op in map(passed_to, order)]
    first_backward = next(index for index, op in enumerate(lanes[0]) if op[0])
    return PipelineSchedule(
        pp_size=pp_size,
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        lane=_frozen([stage % pp_size for _, stage, _ in order]),
        after=_frozen(after),
        passed_after=_frozen(passed_after),
        duration=_frozen([2 * num_stages * j + num_stages * back + s for back, s, j in order]),
        window=first_backward if num_stages == pp_size else 1,
    )


def _lane(name: str, p: int, pp_size: int, num_stages: int, num_microbatches: int) -> list[_Op]:
    """Operations of pipeline rank p in order: warm-up, one forward one backward, cool-down."""
    virtual = num_stages // pp_size
    total = num_microbatches * virtual
    if name == "interleaved":
        warm_up = 2 * (pp_size - p - 1) + (virtual - 1) * pp_size
    elif name == "eager_1f1b":
        warm_up = 2 * (pp_size - p - 1)
    else:
        warm_up = pp_size - p - 1
    warm_up = min(total, warm_up)
    forwards, backwards = (
        [_turn(index, back, p, pp_size, virtual) for index in range(total)]
        for back in (False, True)
    )
    steady = zip(forwards[warm_up:], backwards, strict=False)
    return [
        *forwards[:warm_up],
        *(op for pair in steady for op in pair),
        *backwards[total - warm_up :],
    ]


def _turn(index: int, back: bool, p: int, pp_size: int, virtual: int) -> _Op:
    """The index-th forward, or backward, of pipeline rank p."""
    if virtual == 1:
        return back, p, index
    group, within = divmod(index, pp_size * virtual)
    chunk, microbatch = divmod(within, pp_size)
    chunk = virtual - 1 - chunk if back else chunk
    return back, chunk * pp_size + p, group * pp_size + microbatch


def _waits_for(op: _Op, num_stages: int) -> _Op | None:
    """The operation of the same microbatch that must have ended."""
    back, stage, microbatch = op
    if not back:
        return (False, stage - 1, microbatch) if stage else None
    return (True, stage + 1, microbatch) if stage + 1 < num_stages else (False, stage, microbatch)


def _order(lanes: list[list[_Op]], waits_for: Callable[[_Op], _Op | None]) -> list[_Op]:
    """All operations, each after those it waits for."""
    order: list[_Op] = []
    done: set[_Op | None] = {None}
    reached = [0] * len(lanes)
    total = sum(map(len, lanes))
    while len(order) < total:
        for p, lane in enumerate(lanes):
            while reached[p] < len(lane) and waits_for(lane[reached[p]]) in done:
                order.append(lane[reached[p]])
                done.add(order[-1])
                reached[p] += 1
    return order


def _frozen(values: list[int]) -> NDArray[np.int64]:
    array = np.array(values, np.int64)
    array.flags.writeable = False
    return array
