"""First filter: measurements whose signal is not the time of the work."""

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.measurements import Measurements

__all__ = ["signal_faults"]


def signal_faults(
    measurements: Measurements,
    target: str,
    *,
    max_wait: float,
    peak_flops_per_s: float | None = None,
) -> dict[str, NDArray[np.bool_]]:
    """Rows that do not time the work, by the reason; a row has one reason at most.

    Args:
        measurements: All rows.
        target: Whose seconds are judged.
        max_wait: Largest share of the seconds that may be waiting: a microbatch starved of data,
            or backed up behind another rank, shows the wait and not the work.
        peak_flops_per_s: FLOPs a second that the device cannot exceed.

    Returns:
        Reasons `"no time"` (missing, not finite or not above zero), `"nothing in it"` (all amounts
        zero), `"waited"` and `"faster than the device"`, each with a mask of the rows.
    """
    seconds = measurements.seconds[target]
    faults = {"no time": ~(np.isfinite(seconds) & (seconds > 0))}
    empty = np.ones(len(seconds), np.bool_)
    for column in measurements.amounts.values():
        empty &= column == 0
    faults["nothing in it"] = empty
    if measurements.wait_seconds is not None:
        faults["waited"] = ~(measurements.wait_seconds <= max_wait * seconds)
    if peak_flops_per_s is not None and measurements.flops is not None:
        faults["faster than the device"] = measurements.flops > peak_flops_per_s * seconds
    counted = np.zeros(len(seconds), np.bool_)
    for reason, rows in faults.items():
        faults[reason] = rows & ~counted
        counted |= rows
    return faults
