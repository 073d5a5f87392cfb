"""Measurements: what microbatches held and how long they took."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.calibration.amounts import (
    AMOUNTS,
    CONSTANT,
    MODULE_AMOUNTS,
    microbatch_amounts,
    sample_amounts,
)
from balancer.errors import ArgumentError
from balancer.samples import SampleTable
from balancer.tokens import TokenRule
from balancer.topology import Layout

__all__ = ["TOTAL", "Measurements"]

TOTAL = "total"
"""Name of the time of all modules together, where they were not timed apart."""

_FLOAT = NDArray[np.float64]
_SECONDS = {f"{module}_seconds": module for module in MODULE_AMOUNTS} | {"seconds": TOTAL}


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Amounts of microbatches beside measured seconds; all arrays are `(num_measurements,)`.

    Time whole microbatches, forward and backward, after a few that are not counted, with the
    device synchronised before each reading of the clock.

    Attributes:
        amounts: Amount by name (see `MODULE_AMOUNTS`), float64, finite and >= 0.
        seconds: Seconds by module, or under `"total"` those of all modules together; a time that
            is missing is NaN.
        wait_seconds: Of these seconds, those spent waiting (for data, or for other ranks), or
            `None` where that was not recorded.
        flops: FLOPs of the microbatch, for a check against the device's peak, or `None`.
        rule: Name of the token rule that counted, or `None` where it is not known.

    Raises:
        ArgumentError: Lengths differ, a name is unknown, or an amount is impossible.

    Example:
        >>> records = [{"tokens": 512, "tokens_squared": 512**2, "language_seconds": 0.011},
        ...            {"tokens": 900, "tokens_squared": 450_000, "language_seconds": 0.019}]
        >>> Measurements.from_records(records).seconds["language"]
        array([0.011, 0.019])
    """

    amounts: Mapping[str, _FLOAT]
    seconds: Mapping[str, _FLOAT]
    wait_seconds: _FLOAT | None = None
    flops: _FLOAT | None = None
    rule: str | None = None

    def __post_init__(self) -> None:
        if not self.amounts or not self.seconds:
            raise ArgumentError(
                "measurements have no amounts or no seconds; give columns of at least one of "
                f"{', '.join(_given_amounts())} and one of {', '.join(_SECONDS)}"
            )
        _check_names("amounts", self.amounts, _given_amounts())
        _check_names("seconds", self.seconds, (*MODULE_AMOUNTS, TOTAL))
        columns = {**self.amounts, **{f"seconds of {key}": v for key, v in self.seconds.items()}}
        for name in ("wait_seconds", "flops"):
            if getattr(self, name) is not None:
                columns[name] = getattr(self, name)
        if len({column.shape for column in columns.values()}) > 1:
            lengths = ", ".join(f"{name} {column.shape}" for name, column in columns.items())
            raise ArgumentError(f"measurements have columns of different shapes: {lengths}")
        for name, column in self.amounts.items():
            bad = np.flatnonzero(~(np.isfinite(column) & (column >= 0)))
            if bad.size:
                raise ArgumentError(
                    f"{name} of measurement {bad[0]} is {column[bad[0]]:g}; allowed: finite "
                    "numbers >= 0"
                )

    def __len__(self) -> int:
        return len(next(iter(self.seconds.values())))

    @classmethod
    def from_records(cls, records: Sequence[Mapping[str, Any]]) -> "Measurements":
        """Measurements from one mapping a microbatch.

        Keys are amounts, `seconds` or `<module>_seconds`, and if known `wait_seconds` and `flops`;
        other keys are ignored. Every record needs the keys of the first.

        Raises:
            ArgumentError: There are no records, a key is missing, or a value is not a number.
        """
        if not len(records):
            raise ArgumentError("records is empty; give one record a measured microbatch")
        known = (*_given_amounts(), *_SECONDS, "wait_seconds", "flops")
        names = [name for name in known if name in records[0]]
        columns = {name: _column(records, name) for name in names}
        return cls(
            amounts={name: columns[name] for name in names if name in AMOUNTS},
            seconds={_SECONDS[name]: columns[name] for name in names if name in _SECONDS},
            wait_seconds=columns.get("wait_seconds"),
            flops=columns.get("flops"),
        )

    @classmethod
    def from_csv(cls, path: str | PathLike[str]) -> "Measurements":
        """Measurements from a CSV file with a header, one row a microbatch.

        Raises:
            ArgumentError: A column is missing, or a cell is not a number.
            OSError: The file cannot be read.
        """
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        if not rows:
            raise ArgumentError(f"{path} has no rows; give one row a measured microbatch")
        return cls.from_records(rows)

    @classmethod
    def from_microbatches(
        cls,
        table: SampleTable,
        rule: TokenRule,
        microbatches: Sequence[ArrayLike],
        seconds: Mapping[str, ArrayLike] | ArrayLike,
        *,
        layout: Layout = "packed",
        wait_seconds: ArrayLike | None = None,
    ) -> "Measurements":
        """Measurements of microbatches of known samples.

        Args:
            table: Sizes of the samples.
            rule: Token rule of the model.
            microbatches: Sample ids of each microbatch, `plan.microbatch(...)` for example.
            seconds: Seconds of each microbatch, in all or by module.
            layout: How the microbatches were laid out.
            wait_seconds: Seconds of each microbatch spent waiting.

        Raises:
            ArgumentError: A microbatch is empty, or the numbers of them differ.
            SampleError: The rule does not take a size.
        """
        given = seconds if isinstance(seconds, Mapping) else {TOTAL: seconds}
        amounts = microbatch_amounts(sample_amounts(table, rule), microbatches, layout=layout)
        return cls(
            amounts={name: column for name, column in amounts.items() if column.any()},
            seconds={name: np.asarray(values, np.float64) for name, values in given.items()},
            wait_seconds=None if wait_seconds is None else np.asarray(wait_seconds, np.float64),
            rule=rule.name,
        )


def _check_names(what: str, given: Mapping[str, _FLOAT], allowed: Sequence[str]) -> None:
    for name in given:
        if name not in allowed:
            raise ArgumentError(f"{what} has {name!r}; allowed: {', '.join(allowed)}")


def _given_amounts() -> tuple[str, ...]:
    return tuple(name for name in AMOUNTS if name != CONSTANT)


def _column(records: Sequence[Mapping[str, Any]], name: str) -> _FLOAT:
    """One key of all records; a time left empty is NaN."""
    column = np.empty(len(records))
    for index, record in enumerate(records):
        if name not in record:
            raise ArgumentError(
                f"records[{index}] has no {name!r}, the first record has; give every record the "
                "same keys"
            )
        value = record[name]
        try:
            missing = name in _SECONDS and value in ("", None)
            column[index] = np.nan if missing else float(value)
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"{name} of measurement {index} is {value!r}; allowed: a number"
            ) from error
    return column
