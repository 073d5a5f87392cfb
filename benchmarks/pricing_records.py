"""What the parts of the pricing experiment share: their records, and predictions beside times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.quality import prediction_quality
from benchmarks.measure import Record, versions

__all__ = ["Predicted", "heldout_records", "pricing_record"]

_PACKAGES = ("pillow", "scipy", "torch", "transformers")
_MODULES = {"pillow": "PIL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Times that were measured, and what predictors that were not fitted to them say.

    Attributes:
        data: What was timed.
        seconds: Measured CPU seconds.
        predicted: Seconds by predictor.
    """

    data: str
    seconds: NDArray[np.float64]
    predicted: Mapping[str, NDArray[np.float64]]


def heldout_records(name: str, splits: Sequence[Predicted]) -> list[Record]:
    """Errors of every predictor: means over the splits and, of several, the worst one."""
    records = []
    for predictor in splits[0].predicted:
        found = [prediction_quality(split.predicted[predictor], split.seconds) for split in splits]
        mape = [quality.mape_with_outliers for quality in found]
        values = {
            "mape_heldout": float(np.mean(mape)),
            "spearman_heldout": float(np.mean([quality.spearman for quality in found])),
        }
        if len(splits) > 1:
            values["mape_heldout_worst"] = max(mape)
        records += [
            pricing_record(name, splits[0].data, predictor, metric, value, n=found[0].num)
            for metric, value in values.items()
        ]
    return records


def pricing_record(
    name: str, data: str, planner: str, metric: str, value: float, *, unit: str = "ratio", n: int
) -> Record:
    """A record of something that was priced: no plan, no ranks, one core."""
    return Record(
        experiment=name, data=data, planner=planner, topology="one_core", barrier="none",
        metric=metric, value=float(value), unit=unit, n=n, versions=versions() | _installed(),
    )  # fmt: skip


def _installed() -> dict[str, str]:
    present = [package for package in _PACKAGES if find_spec(_MODULES.get(package, package))]
    return {package: version(package) for package in present}
