"""Memory: bytes of a microbatch, and limits that keep it within a device's free memory.

Cost is time and is balanced; memory is what limits bound. Neither changes the other.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.topology import Layout, Limits

__all__ = [
    "MemoryModel",
    "limits_for",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryModel:
    """Bytes that a microbatch takes at its peak, linear in what it holds.

    With FlashAttention activations are linear in tokens and patches. `balancer.activations` makes
    a model from dimensions; better coefficients come from the device's own peak of a few
    microbatches.

    Attributes:
        bytes_per_token: Bytes a language-model token; of the padded layout, padding included.
        bytes_per_patch: Bytes an encoder patch.
        bytes_per_image: Bytes an image beside its patches.
        fixed_bytes: Bytes of any microbatch.

    Raises:
        ArgumentError: A number is negative or not finite, or all but the fixed are zero.

    Example:
        >>> model = MemoryModel(bytes_per_token=1000.0, bytes_per_patch=200.0, fixed_bytes=5000.0)
        >>> model.bytes(tokens=[10], patches=[20])
        array([19000.])
    """

    bytes_per_token: float = 0.0
    bytes_per_patch: float = 0.0
    bytes_per_image: float = 0.0
    fixed_bytes: float = 0.0

    def __post_init__(self) -> None:
        for name in ("bytes_per_token", "bytes_per_patch", "bytes_per_image", "fixed_bytes"):
            value = getattr(self, name)
            if not 0 <= value < float("inf"):
                raise ArgumentError(f"{name} is {value!r}; allowed: finite numbers >= 0")
        if not any(self.per_amount.values()):
            raise ArgumentError(
                "bytes_per_token, bytes_per_patch and bytes_per_image are all 0; give at least one"
            )

    @property
    def per_amount(self) -> dict[str, float]:
        """Bytes a unit, by the name of the amount."""
        return {
            "tokens": self.bytes_per_token,
            "patches": self.bytes_per_patch,
            "images": self.bytes_per_image,
        }

    def bytes(
        self, *, tokens: ArrayLike = 0, patches: ArrayLike = 0, images: ArrayLike = 0
    ) -> NDArray[np.float64]:
        """Bytes of microbatches of these amounts, float64, in their common shape."""
        return np.asarray(
            self.fixed_bytes
            + self.bytes_per_token * np.asarray(tokens, np.float64)
            + self.bytes_per_patch * np.asarray(patches, np.float64)
            + self.bytes_per_image * np.asarray(images, np.float64)
        )


def limits_for(
    memory_bytes: float,
    model: MemoryModel,
    *,
    costs: Costs | None = None,
    margin: float = 0.1,
    layout: Layout = "packed",
) -> Limits:
    """Limits under which no microbatch takes more than `memory_bytes`, less a margin.

    The limits hold together: a microbatch that reaches all of them at once still fits. The memory
    is shared out in the proportion in which the samples need it on average, but so that each
    limit lets the largest sample in where all fit; where they do not, the planner's `oversize`
    policy meets those over a limit. Costs themselves play no part, only tokens, patches, images.

    Args:
        memory_bytes: Bytes free on the device beside weights, gradients and optimizer state.
        model: Bytes of a microbatch.
        costs: Amounts of the samples; needed unless the model depends on one amount alone.
        margin: Share of the memory that is left free, for the allocator's fragments.
        layout: What the limit of tokens is checked on.

    Raises:
        ArgumentError: The memory does not even hold one of each, or `costs` is needed.

    Example:
        >>> model = MemoryModel(bytes_per_token=100.0, bytes_per_patch=10.0)
        >>> costs = Costs.from_values([1.0, 1.0], tokens=[30, 10], patches=[100, 0])
        >>> limits = limits_for(100_000, model, costs=costs)
        >>> limits.max_tokens, limits.max_patches
        (720, 1800)
    """
    if not 0 <= margin < 1:
        raise ArgumentError(f"margin is {margin!r}; allowed: shares >= 0 and below 1")
    per_unit = {name: value for name, value in model.per_amount.items() if value}
    budget = memory_bytes * (1.0 - margin) - model.fixed_bytes
    if not budget >= sum(per_unit.values()):
        raise ArgumentError(
            f"memory_bytes is {memory_bytes:g}; less a margin of {margin:.0%} and fixed_bytes = "
            f"{model.fixed_bytes:g} that does not hold one of {', '.join(per_unit)} "
            f"({sum(per_unit.values()):g} bytes): free memory, or lower the margin"
        )
    if costs is None:
        if len(per_unit) > 1:
            raise ArgumentError(
                f"costs is None; the memory is shared between {', '.join(per_unit)} in the "
                "proportion of the samples' amounts: give costs"
            )
        needs, largest = dict.fromkeys(per_unit, 1.0), dict.fromkeys(per_unit, 1.0)
    else:
        columns = {name: np.asarray(getattr(costs, name), np.float64) for name in per_unit}
        needs = {name: float(column.mean()) for name, column in columns.items()}
        largest = {name: max(1.0, float(column.max())) for name, column in columns.items()}
    shares = _shared(budget, per_unit, needs, largest)
    maxima: dict[str, Any] = {f"max_{name}": max(1, int(q)) for name, q in shares.items()}
    return Limits(layout=layout, **maxima)


def _shared(
    budget: float,
    per_unit: Mapping[str, float],
    needs: Mapping[str, float],
    largest: Mapping[str, float],
) -> dict[str, float]:
    """Amounts in proportion to the needs, each at least the largest where all of these fit."""
    least = largest
    if sum(per_unit[name] * largest[name] for name in per_unit) > budget:
        least = dict.fromkeys(per_unit, 1.0)
    raised: dict[str, float] = {}
    while True:  # at most one round for each amount: a raised one is never lowered again
        rest = budget - sum(per_unit[name] * value for name, value in raised.items())
        free = [name for name in per_unit if name not in raised]
        mean_bytes = sum(per_unit[name] * needs[name] for name in free)
        times = rest / mean_bytes if mean_bytes else 0.0
        short = [name for name in free if times * needs[name] < least[name]]
        if not short:
            return {name: raised.get(name, times * needs[name]) for name in per_unit}
        raised |= {name: least[name] for name in short}
