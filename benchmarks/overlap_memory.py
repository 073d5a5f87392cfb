"""Host memory where the workers are a hundred times faster than training."""

import os
import sys
import time

import numpy as np

from benchmarks.measure import Record
from loaders.stages import Stage, StagePipeline

__all__ = ["measure_memory"]

_SAMPLES = 4  # of a microbatch
_MAX_BYTES = 8 << 20
_LEAST, _LARGEST = 16 << 10, 256 << 10  # bytes of a sample
_PAUSE = 4e-3  # seconds of training on a microbatch


def measure_memory(*, name: str, steps: int, seed: int) -> list[Record]:
    """Bytes in flight and growth of memory while a slow consumer takes what fast workers make.

    A sample is an array of 16 to 256 KiB, made in some 10 us by each of two workers, a microbatch
    four of them; training on one takes 4 ms. The bound is 8 MiB, a twentieth of the look-ahead.

    - `max_bytes`: the bound. `peak_bytes_in_flight`: most bytes that results in the stages had.
      `peak_over_bound_and_sample`: that over the bound and one largest sample; at most 1.
    - `rss_growth_mib`: memory of the process, median of the last fifth of the steps over that of
      the second. `prep_over_training`: seconds of the calls that make the samples over those of
      training.

    Args:
        name: Name of the experiment in the records.
        steps: Microbatches that are taken.
        seed: Seed of the sizes.
    """
    sizes = np.random.default_rng(seed).integers(_LEAST, _LARGEST + 1, steps * _SAMPLES)
    stage = Stage(name="read", work=lambda i: np.ones(int(sizes[i]), np.uint8), workers=2)
    collate = Stage(name="collate", work=np.concatenate, grain="microbatch", threads=0)
    plan = [list(range(i, i + _SAMPLES)) for i in range(0, steps * _SAMPLES, _SAMPLES)]
    resident = []
    with StagePipeline([stage, collate], look_ahead=256, max_bytes=_MAX_BYTES) as pipeline:
        for _, _microbatch in pipeline(plan):
            time.sleep(_PAUSE)
            resident.append(_resident_mib())
        peak, made = pipeline.most_bytes, pipeline.stats()[1]
    fifths = np.array_split(np.array(resident), 5)
    growth = float(np.median(fifths[4]) - np.median(fifths[1]))
    values = {
        "max_bytes": (float(_MAX_BYTES), "B"),
        "peak_bytes_in_flight": (float(peak), "B"),
        "peak_over_bound_and_sample": (peak / (_MAX_BYTES + _LARGEST), "ratio"),
        "rss_growth_mib": (growth, "MiB"),
        "prep_over_training": (made.mean * _SAMPLES / stage.workers / _PAUSE, "ratio"),
    }
    print(f"memory: peak {peak / 2**20:.1f} MiB, growth {growth:.1f} MiB", file=sys.stderr)
    return [
        Record(
            experiment=name,
            data="slow_consumer",
            planner="stages_thread",
            topology="workers2",
            barrier="none",
            metric=metric,
            value=value,
            unit=unit,
            n=steps,
        )
        for metric, (value, unit) in values.items()
    ]


def _resident_mib() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
