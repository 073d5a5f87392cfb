"""Workers that follow a step in the cost of preparation and back."""

import sys
import time
from collections.abc import Sequence
from itertools import pairwise

from benchmarks.measure import Record
from loaders.stages import Stage, StagePipeline
from loaders.stages.allotment import StageLimits
from loaders.stages.autoscale import Autoscaler
from loaders.stages.autoscaled import autoscaled

__all__ = ["measure_scaling"]

_SAMPLES = 4  # of a microbatch
_TRAINING = 0.02  # seconds of training on a microbatch
_DECODE = 4e-3  # seconds of decoding a sample: one worker is enough


def measure_scaling(*, name: str, phase: int) -> list[Record]:
    """Stalls and turns of a real pipeline whose decoding takes 1x, then 4x, then 1x as long.

    Decoding is a pause, as on a remote host, so that the cores of this one do not matter. Training
    takes 20 ms a microbatch and decoding 16, then 64, then 16 worker-milliseconds.

    For each phase, by `data`: `stall_share`, the share of time that training waited in the second
    half of the phase; `direction_changes`, how often the decoders turned from growing to shrinking
    or back, the first move counted; `workers`, the decoders at its end.

    Args:
        name: Name of the experiment in the records.
        phase: Microbatches of a phase.
    """

    def decode(sample_id: int) -> int:
        dear = phase <= sample_id // _SAMPLES < 2 * phase
        time.sleep(_DECODE * (4 if dear else 1))
        return sample_id

    row = [
        Stage(name="decode", work=decode, threads=0),
        Stage(name="collate", work=len, grain="microbatch", threads=0),
    ]
    plan = [list(range(i, i + _SAMPLES)) for i in range(0, 3 * phase * _SAMPLES, _SAMPLES)]
    waits, workers = [], []
    with StagePipeline(row) as pipeline:
        scaler = Autoscaler([StageLimits.of(stage) for stage in row], cool_down=0.5)
        asked = time.monotonic()
        for _ in autoscaled(pipeline, plan, scaler, every=4):
            waits.append(time.monotonic() - asked)
            workers.append(pipeline.stats()[1].workers)
            time.sleep(_TRAINING)
            asked = time.monotonic()
    records = []
    for number, label in enumerate(("1x", "4x", "1x_again")):
        first, last = number * phase, (number + 1) * phase
        waited = sum(waits[first + phase // 2 : last])
        values = {
            "stall_share": waited / (waited + _TRAINING * (last - first - phase // 2)),
            "direction_changes": float(_turns(workers[max(first - 1, 0) : last])),
            "workers": float(workers[last - 1]),
        }
        print(f"scaling: {label} {values}", file=sys.stderr)
        records += [
            Record(
                experiment=name,
                data=f"prep_{label}",
                planner="autoscaled",
                topology="none",
                barrier="none",
                metric=metric,
                value=value,
                unit="ratio",
                n=phase,
            )
            for metric, value in values.items()
        ]
    return records


def _turns(workers: Sequence[int]) -> int:
    moves = [after > before for before, after in pairwise(workers) if before != after]
    return sum(a != b for a, b in pairwise(moves)) + bool(moves)
