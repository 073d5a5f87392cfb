"""Calibration: fitted coefficients with their error, as a readable file and as a cost model."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.calibration.amounts import AMOUNTS, CONSTANT, MODULE_AMOUNTS
from balancer.calibration.cost_model import CalibratedCost
from balancer.calibration.quality import Quality
from balancer.errors import ArgumentError
from balancer.tokens import TokenRule

__all__ = ["Calibration", "ModuleFit"]

_FORMAT = 1
_FLOAT = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleFit:
    """Coefficients of one module, or of all modules timed together.

    Attributes:
        target: Module, or `"total"`.
        coefficients: Seconds a unit of each amount; `"constant"` is seconds a microbatch.
        standard_errors: Standard error of each of them.
        held_out: Errors on rows that were not fitted; the coefficients are from all rows.
        num_rows: Rows the coefficients come from.
        dropped: Rows left out before the fit, by reason.
        num_outliers: Rows left out because they are far from the fit.
        notes: What a reader should know, in words.
    """

    target: str
    coefficients: Mapping[str, float]
    standard_errors: Mapping[str, float]
    held_out: Quality
    num_rows: int
    dropped: Mapping[str, int]
    num_outliers: int
    notes: tuple[str, ...] = ()

    def predict(self, amounts: Mapping[str, _FLOAT]) -> _FLOAT:
        """Seconds of microbatches of these amounts, the constant included.

        Raises:
            ArgumentError: An amount that has a coefficient is missing.
        """
        for name in self.coefficients:
            if name != CONSTANT and name not in amounts:
                raise ArgumentError(
                    f"amounts has no {name!r}, which the time of {self.target} depends on"
                )
        size = len(next(iter(amounts.values())))
        seconds = np.full(size, self.coefficients.get(CONSTANT, 0.0))
        for name, coefficient in self.coefficients.items():
            if name != CONSTANT:
                seconds += coefficient * amounts[name]
        return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Measured coefficients of a model on one kind of hardware, unit seconds.

    Attributes:
        fits: One fit a module, in the order the modules run, or one for `"total"`.
        hardware: What was measured on.
        versions: Versions of what was measured and fitted with.
        rule: Name of the token rule that counted, or `None` where it is not known.

    Example:
        >>> quality = Quality(mape=0.03, mape_with_outliers=0.03, r2=0.99, spearman=0.99, num=20,
        ...                   num_outliers=0)
        >>> fit = ModuleFit(target="language", coefficients={"tokens": 2e-5, "constant": 0.01},
        ...                 standard_errors={"tokens": 1e-7, "constant": 1e-4}, held_out=quality,
        ...                 num_rows=40, dropped={}, num_outliers=0)
        >>> calibration = Calibration(fits=(fit,), hardware="one GPU", versions={})
        >>> calibration.constant_s
        0.01
        >>> print(calibration)
        language: 2e-05 s/token, 0.01 s/microbatch; held-out error 3.0 % (20 of 40 rows)
    """

    fits: tuple[ModuleFit, ...]
    hardware: str
    versions: Mapping[str, str]
    rule: str | None = None

    @property
    def calibrated(self) -> bool:
        """True: these costs come from measurements."""
        return True

    @property
    def constant_s(self) -> float:
        """Seconds that every microbatch takes beside the costs of its samples."""
        return sum(fit.coefficients.get(CONSTANT, 0.0) for fit in self.fits)

    @property
    def module_coefficients(self) -> dict[str, dict[str, float]]:
        """Coefficients of each module's own amounts, modules in the order they run."""
        merged = {name: value for fit in self.fits for name, value in fit.coefficients.items()}
        modules = {
            module: {name: merged[name] for name in own if name in merged}
            for module, own in MODULE_AMOUNTS.items()
        }
        return {module: own for module, own in modules.items() if own}

    def predict(self, amounts: Mapping[str, _FLOAT]) -> _FLOAT:
        """Seconds of microbatches of these amounts: all modules and the constant.

        Raises:
            ArgumentError: An amount that has a coefficient is missing.
        """
        predicted = [fit.predict(amounts) for fit in self.fits]
        return np.asarray(np.sum(predicted, axis=0), np.float64)

    def cost_model(self, rule: TokenRule, *, unpriced: tuple[str, ...] = ()) -> CalibratedCost:
        """Cost model that prices the samples of a table in seconds.

        The constant of a microbatch is not in it, for it does not depend on where samples go: see
        `constant_s`.

        Args:
            rule: Token rule of the model.
            unpriced: Modules whose media may occur without a cost (features computed beforehand).

        Raises:
            ArgumentError: The measurements were counted with another rule.
        """
        if self.rule is not None and self.rule != rule.name:
            raise ArgumentError(
                f"rule is {rule.name!r}, the measurements were counted with {self.rule!r}; give "
                "that rule, or measure again"
            )
        return CalibratedCost(
            rule=rule,
            coefficients=self.module_coefficients,
            constant_s=self.constant_s,
            unpriced=unpriced,
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write a JSON file that `load` reads back, every number with its unit."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2) + "\n", encoding="utf-8")

    def to_dict(self) -> dict[str, Any]:
        """What `save` writes."""
        return {
            "format": _FORMAT,
            "calibrated": True,
            "hardware": self.hardware,
            "versions": dict(self.versions),
            "token_rule": self.rule,
            "constant": {"value": self.constant_s, "unit": "s/microbatch"},
            "fits": [_fit_to_dict(fit) for fit in self.fits],
        }

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "Calibration":
        """Read a calibration written by `save`.

        Raises:
            ArgumentError: The file is not a calibration, or is of another format.
            OSError: The file cannot be read.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
            if content["format"] != _FORMAT:
                raise ArgumentError(
                    f"{path} has format {content['format']}; this version reads {_FORMAT}: "
                    "calibrate again"
                )
            return cls(
                fits=tuple(_fit_from_dict(entry) for entry in content["fits"]),
                hardware=content["hardware"],
                versions=content["versions"],
                rule=content["token_rule"],
            )
        except (KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ArgumentError(
                f"{path} is not a saved calibration ({type(error).__name__}: {error})"
            ) from error

    def __str__(self) -> str:
        return "\n".join(line for fit in self.fits for line in _lines(fit))


def _fit_to_dict(fit: ModuleFit) -> dict[str, Any]:
    coefficients = {
        name: {
            "value": value,
            "standard_error": fit.standard_errors[name],
            "unit": f"s/{AMOUNTS[name]}",
        }
        for name, value in fit.coefficients.items()
    }
    return {
        "target": fit.target,
        "coefficients": coefficients,
        "held_out": asdict(fit.held_out),
        "num_rows": fit.num_rows,
        "dropped": dict(fit.dropped),
        "num_outliers": fit.num_outliers,
        "notes": list(fit.notes),
    }


def _fit_from_dict(entry: dict[str, Any]) -> ModuleFit:
    coefficients = entry["coefficients"]
    return ModuleFit(
        target=entry["target"],
        coefficients={name: float(cell["value"]) for name, cell in coefficients.items()},
        standard_errors={name: cell["standard_error"] for name, cell in coefficients.items()},
        held_out=Quality(**entry["held_out"]),
        num_rows=entry["num_rows"],
        dropped=entry["dropped"],
        num_outliers=entry["num_outliers"],
        notes=tuple(entry["notes"]),
    )


def _lines(fit: ModuleFit) -> list[str]:
    terms = ", ".join(f"{value:.3g} s/{AMOUNTS[name]}" for name, value in fit.coefficients.items())
    quality = fit.held_out
    line = (
        f"{fit.target}: {terms}; held-out error {quality.mape:.1%} "
        f"({quality.num} of {fit.num_rows} rows)"
    ).replace("%", " %")
    return [line, *(f"  {note}" for note in fit.notes)]
