"""EpochRest: what is left of an epoch when other settings plan on from the next step."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["EpochRest", "InterruptedWindow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptedWindow:
    """A window of which some steps were delivered: what rebuilds the plan of the others.

    Attributes:
        settings: `EpochPlanner.settings` of the planner that shared its samples out.
        first_step: Number of its first step.
        place: Place in the order of the epoch where it begins.
        delivered: Samples of it that were delivered.
    """

    settings: Mapping[str, Any]
    first_step: int
    place: int
    delivered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRest:
    """Where the rest of an epoch begins: a few numbers, whatever the size of the dataset.

    The rest is what an interrupted window still holds, step by step, then the order of the epoch
    from `place` on.

    Attributes:
        epoch: Epoch; all others are whole.
        first_step: Steps delivered before.
        place: Place in the order of the epoch (see `balancer.epoch_order.EpochOrder`) from which on
            nothing was delivered.
        window: Window that was interrupted, if any.
        microbatches: Microbatches that a rank was handed in the steps before.

    Example:
        >>> rest = EpochRest(epoch=3, first_step=10, place=640, microbatches=40)
        >>> EpochRest.from_json(rest.to_json()) == rest
        True
    """

    epoch: int
    first_step: int = 0
    place: int = 0
    window: InterruptedWindow | None = None
    microbatches: int = 0

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "EpochRest":
        """From what `to_json` returned."""
        window = values["window"]
        return cls(**{**values, "window": None if window is None else InterruptedWindow(**window)})
