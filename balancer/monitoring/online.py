"""Online coefficients: a calibration kept up to date by what training itself shows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.amounts import CONSTANT
from balancer.calibration.fit import nnls_solver
from balancer.calibration.result import Calibration, ModuleFit
from balancer.errors import ArgumentError

__all__ = ["OnlineFit"]

_FLOAT = NDArray[np.float64]


class OnlineFit:
    """Exponentially weighted non-negative fit of microbatch seconds, near a calibration.

    Keeps the normal equations of the relative errors, k x k numbers for k coefficients, so memory
    does not grow. The coefficients that are fitted are those of the calibration, with one constant
    for all modules, for only the whole time of a microbatch is observed. The calibration counts as
    `prior_observations` observations for each coefficient: what the stream does not identify
    stays as it was calibrated.

    Args:
        calibration: Where to start from.
        half_life: Observations after which one counts half.
        prior_observations: What the calibration counts for. Times that scatter by 5 % beside shares
            of the time that were calibrated within 15 % make that (0.05 / 0.15)^2 = 0.1.
    """

    def __init__(
        self,
        calibration: Calibration,
        *,
        half_life: float = 500.0,
        prior_observations: float = 0.1,
    ) -> None:
        self.calibration = calibration
        self._keep = 0.5 ** (1.0 / half_life)
        self._prior = prior_observations
        own = calibration.module_coefficients.values()
        coefficients = {name: value for module in own for name, value in module.items()}
        self._names = tuple(coefficients)
        self._start = np.array([*coefficients.values(), calibration.constant_s])
        self.reset()

    def reset(self) -> None:
        """Forget all observations."""
        size = len(self._start)
        self._matrix = np.zeros((size, size))
        self._vector = np.zeros(size)
        self._weight = 0.0

    def update(
        self, amounts: Mapping[str, float], seconds: float, *, emphasis: float = 1.0
    ) -> None:
        """Take one microbatch.

        Args:
            amounts: Its amounts, by name.
            seconds: Its seconds.
            emphasis: Weight; less than 1 for one that is far from usual.

        Raises:
            ArgumentError: An amount is missing.
        """
        missing = [name for name in self._names if name not in amounts]
        if missing:
            raise ArgumentError(f"amounts has no {missing[0]!r}; needed: {', '.join(self._names)}")
        row = np.array([*(float(amounts[name]) for name in self._names), 1.0]) / seconds
        self._matrix = self._keep * self._matrix + emphasis * np.outer(row, row)
        self._vector = self._keep * self._vector + emphasis * row
        self._weight = self._keep * self._weight + emphasis

    def refit(self) -> Calibration:
        """The calibration with coefficients brought up to date; its held-out error is the old one.

        Raises:
            BalancerError: scipy is not installed.
        """
        if not self._weight:
            return self.calibration
        scale = np.sqrt(np.diag(self._matrix))
        seen = scale > 0
        scale[~seen] = 1.0
        matrix = self._matrix / np.outer(scale, scale)
        start = self._start * scale
        pull = np.where(seen, self._prior / (self._weight + self._prior), 1.0)
        matrix = matrix + np.diag(pull)
        vector = self._vector / scale + pull * start
        root = np.linalg.cholesky(matrix)
        solution = nnls_solver()(root.T, np.linalg.solve(root, vector)) / scale
        return self._updated(dict(zip((*self._names, CONSTANT), solution.tolist(), strict=True)))

    def _updated(self, latest: Mapping[str, float]) -> Calibration:
        """The calibration with these coefficients, the constant shared out as it was."""
        before = self.calibration.constant_s
        fits = []
        for fit in self.calibration.fits:
            constant = fit.coefficients.get(CONSTANT, 0.0)
            part = constant / before if before else 1.0 / len(self.calibration.fits)
            values = {name: latest[name] for name in fit.coefficients if name != CONSTANT}
            if CONSTANT in fit.coefficients:
                values[CONSTANT] = part * latest[CONSTANT]
            fits.append(_renewed(fit, values))
        return replace(self.calibration, fits=tuple(fits))

    def state_dict(self) -> dict[str, Any]:
        """State as plain numbers."""
        return {
            "names": list(self._names),
            "matrix": self._matrix.tolist(),
            "vector": self._vector.tolist(),
            "weight": self._weight,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same coefficients."""
        self._matrix = np.array(state["matrix"])
        self._vector = np.array(state["vector"])
        self._weight = state["weight"]


def _renewed(fit: ModuleFit, values: Mapping[str, float]) -> ModuleFit:
    note = "coefficients brought up to date during training"
    notes = fit.notes if note in fit.notes else (*fit.notes, note)
    return replace(fit, coefficients=dict(values), notes=notes)
