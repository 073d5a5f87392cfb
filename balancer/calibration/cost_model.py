"""CalibratedCost: the cost model that prices samples by measured coefficients."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.amounts import MODULE_AMOUNTS, amounts_of_media
from balancer.cost import Costs
from balancer.errors import ArgumentError, SampleError
from balancer.sample_media import table_media
from balancer.samples import SampleTable
from balancer.tokens import TokenRule

__all__ = ["CalibratedCost"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedCost:
    """Seconds of each sample in each module; made by `Calibration.cost_model`.

    Attributes:
        rule: Token rule of the model.
        coefficients: Seconds a unit of each module's own amounts.
        constant_s: Seconds a microbatch takes beside its samples; not in the costs.
        unpriced: Modules whose media may occur without a cost.

    Raises:
        ArgumentError: A module is unknown.

    Example:
        >>> from balancer.tokens import token_rule
        >>> cost = CalibratedCost(rule=token_rule("text-only"), constant_s=0.01,
        ...                       coefficients={"language": {"tokens": 2e-5}})
        >>> cost(SampleTable.from_lengths([1000, 500])).total
        array([0.02, 0.01])
    """

    rule: TokenRule
    coefficients: Mapping[str, Mapping[str, float]]
    constant_s: float
    unpriced: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for module in (*self.coefficients, *self.unpriced):
            if module not in MODULE_AMOUNTS:
                raise ArgumentError(
                    f"module {module!r} is unknown; allowed: {', '.join(MODULE_AMOUNTS)}"
                )

    @property
    def calibrated(self) -> bool:
        """True: these costs come from measurements."""
        return True

    def __call__(self, table: SampleTable) -> Costs:
        """Costs of every sample, unit `"s"`.

        Samples with a size or medium that the token rule does not take are listed in `illegal`.

        Raises:
            SampleError: A sample has media of a module that was not measured; names the samples.
        """
        media = table_media(table, self.rule)
        amounts = amounts_of_media(table, media)
        self._check_priced(amounts)
        values = [self._seconds(own, amounts, len(table)) for own in self.coefficients.values()]
        return Costs(
            modules=tuple(self.coefficients),
            values=np.stack(values, axis=1),
            tokens=amounts["tokens"].astype(np.int64),
            patches=amounts["patches"].astype(np.int64),
            images=table.num_images,
            target_tokens=table.target_tokens,
            unit="s",
            illegal=media.illegal,
            illegal_because=media.illegal_because,
        )

    @staticmethod
    def _seconds(
        own: Mapping[str, float], amounts: Mapping[str, NDArray[np.float64]], num: int
    ) -> NDArray[np.float64]:
        seconds = np.zeros(num)
        for name, coefficient in own.items():
            seconds += coefficient * amounts[name]
        return seconds

    def _check_priced(self, amounts: Mapping[str, NDArray[np.float64]]) -> None:
        for module, own in MODULE_AMOUNTS.items():
            if module in self.coefficients or module in self.unpriced:
                continue
            ids = np.flatnonzero(amounts[own[0]])
            if ids.size:
                raise SampleError(
                    f"sample {ids[0]} has {own[0]} ({ids.size} samples have), but {module} was not "
                    f"measured: measure microbatches with them, or pass unpriced=({module!r},)",
                    sample_ids=ids.tolist(),
                )
