"""What a monitor says: events when something changes, and a report of the errors."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["EventKind", "MonitorEvent", "MonitorReport"]

EventKind = Literal["drift", "regime_shift", "poor_predictions", "good_predictions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorEvent:
    """Something that changed.

    Attributes:
        kind: `"drift"`: times moved away from predictions; `"regime_shift"`: samples are of
            another kind; `"poor_predictions"`, `"good_predictions"`: whether balancing on the
            predictions is worth it changed.
        observation: Observed times so far.
        sample: Samples so far.
        message: What happened and what to do.
    """

    kind: EventKind
    observation: int
    sample: int
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorReport:
    """How predictions compare with observed times, in this regime.

    Attributes:
        num_observations: Observed times in this regime.
        num_samples: Samples in this regime.
        scale: Usual ratio of observed over predicted time (their geometric mean).
        mape: Mean absolute error of the predictions relative to the observed time; late
            observations count more.
        mape_rescaled: The same after multiplying predictions by `scale`. This is the error that
            balancing suffers from: a common factor moves no sample.
        usable: Whether predictions are good enough to balance on; `None` while there are too few
            observations.
    """

    num_observations: int
    num_samples: int
    scale: float
    mape: float
    mape_rescaled: float
    usable: bool | None
