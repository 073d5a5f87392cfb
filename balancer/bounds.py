"""Certificate: how near a planned step is to the best that any plan of its samples can do."""

from dataclasses import dataclass

__all__ = ["Certificate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Step time of a plan beside a lower bound that no plan of the same samples can beat.

    Attributes:
        step_time: Time of the planned step, in the unit of the costs.
        given_time: Time of the same samples in the order they were given.
        lower_bound: Time below which no plan of these samples on this topology can come.
        binds: What the bound comes from: `"mean load"`, `"largest sample"`, or
            `"two largest together"` (some rank must take two of the dearest).
        planner: The candidate that was best, for example `"vector greedy"` or `"given order"`.

    Example:
        >>> Certificate(step_time=10.2, given_time=14.0, lower_bound=10.0, binds="mean load",
        ...             planner="vector greedy").gap
        0.02
    """

    step_time: float
    given_time: float
    lower_bound: float
    binds: str
    planner: str

    @property
    def gap(self) -> float:
        """Step time over its lower bound, minus one, rounded to 12 digits; 0 for a free step."""
        return round(self.step_time / self.lower_bound - 1.0, 12) if self.lower_bound else 0.0
