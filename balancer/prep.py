"""PrepModel: CPU seconds to read, decode and transform a sample, fitted on measured ones."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.calibration.fit import fit_times
from balancer.calibration.identify import least_measurements
from balancer.calibration.quality import Quality, held_out_rows, prediction_quality
from balancer.errors import ArgumentError, SampleError
from balancer.prep_features import PrepFeatures, resize_work, resized_sizes

__all__ = ["PrepFeatures", "PrepModel", "fit_prep", "resize_work", "resized_sizes"]

_FLOAT = NDArray[np.float64]
_FORMAT = 1
_LEAST_ROWS = 8  # samples that a format needs for coefficients of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepModel:
    """CPU seconds of a sample as a sum of coefficients times its `PrepFeatures`.

    A model of one CPU core with one version of the decoders: measure where it will run.

    Attributes:
        coefficients: Seconds a unit of each named amount, >= 0.
        held_out: Errors on measurements that were set aside, of a fit that saw only the others.
        num_rows: Measurements that the coefficients come from, outliers left out.
        num_outliers: Measurements left out.
        hardware: What was measured on.
        versions: Versions of the libraries that decode.

    Example:
        >>> quality = Quality(mape=0.1, mape_with_outliers=0.1, r2=0.99, spearman=0.99, num=9,
        ...                   num_outliers=0)
        >>> model = PrepModel(coefficients={"image/JPEG:pixels": 1e-8, "sample:items": 1e-4},
        ...                   held_out=quality, num_rows=20, num_outliers=0)
        >>> features = PrepFeatures(names=("image/JPEG/CMYK:pixels", "sample:items"),
        ...                         values=np.array([[1e6, 1.0]]))
        >>> model.predict(features)
        array([0.0101])
    """

    coefficients: Mapping[str, float]
    held_out: Quality
    num_rows: int
    num_outliers: int
    hardware: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def predict(self, features: PrepFeatures) -> _FLOAT:
        """Seconds of each sample, float64 `(num_samples,)`.

        A group without coefficients is priced as the group above it: `image/JPEG/CMYK` as
        `image/JPEG`, then as `image`.

        Raises:
            ArgumentError: Samples have an amount that was never measured.
        """
        seconds = np.zeros(len(features))
        for name, amounts in zip(features.names, features.values.T, strict=True):
            known = next((n for n in _generalised(name) if n in self.coefficients), None)
            if known is not None:
                seconds += self.coefficients[known] * amounts
            elif amounts.any() and not name.startswith("sample:"):
                raise ArgumentError(
                    f"features has {name}, which no measurement had; measured were "
                    f"{', '.join(self.coefficients)}: measure samples that have it"
                )
        return seconds

    def save(self, path: str | PathLike[str]) -> None:
        """Write a JSON file that `load` reads back, every number with its unit."""
        content = asdict(self) | {
            "format": _FORMAT,
            "coefficients": {
                name: {"value": value, "unit": f"s/{_UNITS[name.split(':')[1]]}"}
                for name, value in self.coefficients.items()
            },
            "versions": dict(self.versions),
        }
        Path(path).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "PrepModel":
        """Read a model written by `save`.

        Raises:
            ArgumentError: The file is not such a model, or is of another format.
            OSError: The file cannot be read.
        """
        try:
            content: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
            version = content.pop("format")
            if version != _FORMAT:
                raise ArgumentError(
                    f"path: {path} has format {version}; this version reads {_FORMAT}: fit again"
                )
            coefficients = {n: float(c["value"]) for n, c in content.pop("coefficients").items()}
            quality = Quality(**content.pop("held_out"))
            return cls(coefficients=coefficients, held_out=quality, **content)
        except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as e:
            raise ArgumentError(
                f"path: {path} is not a saved prep model ({type(e).__name__}: {e})"
            ) from e


_UNITS = {
    "bytes": "byte",
    "characters": "character",
    "items": "item",
    "output_pixels": "pixel",
    "pixels": "pixel",
    "resize_pixels": "pixel",
    "seconds": "s",
}


def fit_prep(
    features: PrepFeatures,
    seconds: ArrayLike,
    *,
    held_out: float = 0.5,
    seed: int = 0,
    hardware: str = "",
    versions: Mapping[str, str] | None = None,
) -> PrepModel:
    """Fit coefficients >= 0 to measured seconds by their relative errors.

    A format with fewer than 8 samples shares the coefficients of the format above it, and every
    group above gets coefficients of its own fit, for formats that were not measured. The error
    is that of a fit without the rows set aside; the coefficients come from all rows.

    Args:
        features: Features of the measured samples.
        seconds: Measured CPU seconds of each sample, > 0.
        held_out: Share of the rows to set aside for the error.
        seed: Which rows are set aside.
        hardware: What was measured on.
        versions: Versions of the libraries that decode.

    Raises:
        ArgumentError: Too few measurements for the coefficients.
        BalancerError: scipy is not installed.
        SampleError: A time is not finite or not > 0; carries the rows.

    Example:
        >>> pixels = np.linspace(1e5, 2e6, 40)
        >>> features = PrepFeatures(names=("image/PNG:pixels", "sample:items"),
        ...                         values=np.stack([pixels, np.ones(40)], axis=1))
        >>> model = fit_prep(features, 1e-8 * pixels + 1e-4)
        >>> round(model.coefficients["image/PNG:pixels"] * 1e9, 6)
        10.0
    """
    times = _checked_seconds(features, seconds)
    if not 0.0 < held_out < 1.0:
        raise ArgumentError(f"held_out is {held_out}; allowed: numbers between 0 and 1")
    aside = held_out_rows(len(times), held_out, seed)
    first, _ = _fit_levels(features.select(~aside), times[~aside])
    quality = Quality(mape=0.0, mape_with_outliers=0.0, r2=0.0, spearman=0.0, num=0, num_outliers=0)
    model = PrepModel(
        coefficients=first, held_out=quality, num_rows=0, num_outliers=0, versions=versions or {}
    )
    predicted = np.maximum(model.predict(features.select(aside)), np.finfo(np.float64).tiny)
    coefficients, kept = _fit_levels(features, times)
    return PrepModel(
        coefficients=coefficients,
        held_out=prediction_quality(predicted, times[aside]),
        num_rows=int(kept.sum()),
        num_outliers=int((~kept).sum()),
        hardware=hardware,
        versions=versions or {},
    )


def _fit_levels(features: PrepFeatures, seconds: _FLOAT) -> tuple[dict[str, float], Any]:
    """Coefficients of the general groups, then of the special ones, which replace them."""
    deepest = max(name.count("/") for name in features.names)
    coefficients: dict[str, float] = {}
    kept = np.ones(len(seconds), np.bool_)
    for depth in range(deepest + 1):
        names, design = _merged(features, depth)
        least = least_measurements(len(names))
        if len(seconds) < least:
            if coefficients:
                break
            raise ArgumentError(
                f"seconds has {len(seconds)} measurements to fit on; {', '.join(names)} need at "
                f"least {least}: measure more samples, or set less aside"
            )
        fit = fit_times(design, seconds)
        coefficients |= dict(zip(names, fit.coefficients.tolist(), strict=True))
        kept = fit.kept
    return coefficients, kept


def _merged(features: PrepFeatures, depth: int) -> tuple[list[str], _FLOAT]:
    """Columns with groups no deeper than `depth`, and rare ones added to the group above."""
    columns: dict[str, _FLOAT] = {}
    for name, amounts in zip(features.names, features.values.T, strict=True):
        enough = np.count_nonzero(amounts) >= _LEAST_ROWS
        target = next(
            general
            for general in _generalised(name)
            if general.count("/") <= (depth if enough else depth - 1) or "/" not in general
        )
        columns[target] = columns.get(target, 0.0) + amounts
    distinct: dict[str, _FLOAT] = {}
    for name, amounts in columns.items():
        if amounts.any() and not any(np.array_equal(amounts, c) for c in distinct.values()):
            distinct[name] = amounts
    return list(distinct), np.stack(list(distinct.values()), axis=1)


def _generalised(name: str) -> list[str]:
    """The name, and the names of the same amount of the groups above.

    Example:
        >>> _generalised("image/JPEG/RGB:bytes")
        ['image/JPEG/RGB:bytes', 'image/JPEG:bytes', 'image:bytes']
    """
    group, amount = name.split(":")
    parts = group.split("/")
    return [f"{'/'.join(parts[:count])}:{amount}" for count in range(len(parts), 0, -1)]


def _checked_seconds(features: PrepFeatures, seconds: ArrayLike) -> _FLOAT:
    times = np.asarray(seconds, np.float64)
    if times.shape != (len(features),):
        raise ArgumentError(
            f"seconds has shape {times.shape}; allowed: one time for each of the {len(features)} "
            "rows of features"
        )
    legal = np.isfinite(times) & (times > 0)
    if not legal.all():
        row = int(np.argmin(legal))
        raise SampleError(
            f"seconds of sample {row} is {times[row]:g}; allowed: finite numbers > 0",
            sample_ids=np.flatnonzero(~legal).tolist(),
        )
    return times
