"""Which kind of worker suits a dataset: measured on its first samples."""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from loaders.stages.stage import Kind, usable_cores

__all__ = ["measured_kind"]

_LOG = logging.getLogger("loaders")

_ENOUGH = 0.6
"""Share of the ideal speed-up by threads from which on they are taken: they start at once, pass
results without copies, and share one memory."""


def measured_kind(read: Callable[[Any], Any], keys: Sequence[Any], num_workers: int) -> Kind:
    """`"thread"` if threads read these samples nearly as many times as fast, else `"process"`.

    Reads the first half of the samples one by one and the other half in threads, so code that does
    not release the interpreter's lock shows. What it found is logged.

    Args:
        read: Reads a sample.
        keys: Samples to read, at least two; more for samples that differ much.
        num_workers: Workers there will be.

    Example:
        >>> measured_kind(time.sleep, [0.01] * 8, num_workers=1)
        'thread'
    """
    wanted = min(num_workers, usable_cores())
    if wanted < 2 or len(keys) < 2:
        return "thread"
    one_by_one = _seconds(read, keys[0::2], 1)
    together = _seconds(read, keys[1::2], wanted)
    speedup = one_by_one / max(together, 1e-9)
    kind: Kind = "thread" if speedup >= _ENOUGH * wanted else "process"
    _LOG.info(
        "%d threads read samples %.2f times as fast as one: workers are of kind %r",
        wanted,
        speedup,
        kind,
    )
    return kind


def _seconds(read: Callable[[Any], Any], keys: Sequence[Any], workers: int) -> float:
    with ThreadPoolExecutor(workers) as pool:
        began = time.perf_counter()
        for _ in pool.map(read, keys):
            pass
        return time.perf_counter() - began
