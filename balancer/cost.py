"""Costs: what each sample takes in each module of the model, and what a cost model is."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.cost_columns import check_legal_ids, clipped_sum, costs_fingerprint
from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable

__all__ = ["CostFunction", "CostModel", "Costs", "evaluate_costs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cost of each sample in each module, and the amounts that limits are set on.

    Attributes:
        modules: Names of the modules, in the order they run, for example `("vision", "language")`.
        values: Cost of a sample in a module, float64 `(num_samples, num_modules)`, finite, >= 0.
        tokens: Language-model tokens of a sample, text plus merged media, int64.
        patches: Encoder patches of a sample, int64.
        images: Images of a sample (sampled video frames are not counted), int64.
        target_tokens: Supervised tokens of a sample, int64.
        unit: Unit of `values`: `"flops"`, `"s"` or `"tokens"`.
        prep: CPU seconds to read, decode and transform a sample, float64, finite, >= 0; `None`
            where not known (`PrepModel.predict` gives them). The loader's work, so no part of
            `values`.
        illegal: Ids, ascending int64, of samples that the model cannot take (a size beyond its
            range, a medium it has no encoder for); their other columns mean nothing.
        illegal_because: What the model does not take, for the first of them.

    Raises:
        ArgumentError: Shapes disagree.
        SampleError: A cost is NaN, infinite or negative; carries the sample ids.

    Example:
        >>> costs = Costs.from_values([[4.0], [2.0]], modules=("language",), tokens=[4, 2])
        >>> costs.total
        array([4., 2.])
    """

    modules: tuple[str, ...]
    values: NDArray[np.float64]
    tokens: NDArray[np.int64]
    patches: NDArray[np.int64]
    images: NDArray[np.int64]
    target_tokens: NDArray[np.int64]
    unit: str
    prep: NDArray[np.float64] | None = None
    illegal: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    illegal_because: str = ""

    def __post_init__(self) -> None:
        num_samples = self.tokens.shape[0]
        if self.values.shape != (num_samples, len(self.modules)):
            raise ArgumentError(
                f"values has shape {self.values.shape}; allowed: (number of samples, number of "
                f"modules) = ({num_samples}, {len(self.modules)})"
            )
        for name in ("patches", "images", "target_tokens"):
            if getattr(self, name).shape != (num_samples,):
                raise ArgumentError(
                    f"{name} has shape {getattr(self, name).shape}, tokens has ({num_samples},)"
                )
        _check_numbers(self.values, [f"{module} cost" for module in self.modules])
        if self.prep is not None:
            if self.prep.shape != (num_samples,):
                raise ArgumentError(
                    f"prep has shape {self.prep.shape}, tokens has ({num_samples},)"
                )
            _check_numbers(self.prep[:, None], ["prep"])
        for name in ("tokens", "patches", "images", "target_tokens"):
            if num_samples and getattr(self, name).min() < 0:
                sample_id = int(np.argmin(getattr(self, name)))
                raise SampleError(
                    f"{name} of sample {sample_id} is {getattr(self, name)[sample_id]}; "
                    "allowed: whole numbers >= 0",
                    sample_ids=[sample_id],
                )

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def from_values(
        cls,
        values: ArrayLike,
        *,
        modules: tuple[str, ...] = ("language",),
        tokens: ArrayLike | None = None,
        patches: ArrayLike | None = None,
        images: ArrayLike | None = None,
        target_tokens: ArrayLike | None = None,
        unit: str = "s",
        prep: ArrayLike | None = None,
    ) -> "Costs":
        """Costs from plain sequences; amounts that are not given are zero.

        Args:
            values: Shape `(num_samples,)` for one module, else `(num_samples, num_modules)`.
            modules: One name a column.
            tokens: Tokens of each sample.
            patches: Patches of each sample.
            images: Images of each sample.
            target_tokens: Supervised tokens of each sample; `tokens` when not given.
            unit: Unit of `values`.
            prep: CPU seconds to prepare each sample; not known when not given.
        """
        array = _columns(values)

        def column(given: ArrayLike | None) -> NDArray[np.int64]:
            return np.zeros(array.shape[0], np.int64) if given is None else _int_column(given)

        return cls(
            modules=tuple(modules),
            values=array,
            tokens=column(tokens),
            patches=column(patches),
            images=column(images),
            target_tokens=column(tokens if target_tokens is None else target_tokens),
            unit=unit,
            prep=None if prep is None else np.ascontiguousarray(prep, np.float64),
        )

    @property
    def total(self) -> NDArray[np.float64]:
        """Sum over the modules, float64 `(num_samples,)`."""
        total = np.zeros(len(self))
        for column in range(len(self.modules)):  # a fixed order of additions on every host
            total += self.values[:, column]
        return total

    def select(self, rows: ArrayLike) -> "Costs":
        """Costs of the given rows, in the given order."""
        ids = np.asarray(rows, np.int64)
        chosen = object.__new__(Costs)  # unchecked: these rows are checked, and steps ask often
        for name in ("values", "tokens", "patches", "images", "target_tokens"):
            object.__setattr__(chosen, name, getattr(self, name).take(ids, axis=0))
        for name in ("modules", "unit", "illegal_because"):
            object.__setattr__(chosen, name, getattr(self, name))
        object.__setattr__(chosen, "prep", None if self.prep is None else self.prep[ids])
        legal = not self.illegal.size
        illegal = self.illegal if legal else np.flatnonzero(np.isin(ids, self.illegal))
        object.__setattr__(chosen, "illegal", illegal)
        return chosen

    def check_legal(self, sample_ids: NDArray[np.int64] | None = None) -> None:
        """Refuse samples (all, or those given) that the model cannot take.

        Raises:
            SampleError: Naming the first ids, the reason and the cure.
        """
        check_legal_ids(self.illegal, self.illegal_because, sample_ids)

    @property
    def fingerprint(self) -> str:
        """Hash of everything in here; equal costs have equal fingerprints on any host."""
        hashes = {name: hashlib.sha256(column.data) for name, column in self.hashed_columns()}
        return costs_fingerprint(self.modules, self.unit, hashes)

    def hashed_columns(self) -> list[tuple[str, NDArray[Any]]]:
        """Name and contiguous array of each column that the fingerprint covers."""
        names = ["values", "tokens", "patches", "images", "target_tokens", "illegal"]
        names += [] if self.prep is None else ["prep"]
        return [(name, np.ascontiguousarray(getattr(self, name))) for name in names]

    def largest(self, amount: str) -> int:
        """Largest of an amount (`"tokens"`, `"patches"`, `"images"`) over all samples."""
        return int(getattr(self, amount).max(initial=0))

    def over(self, amount: str, limit: int) -> NDArray[np.int64]:
        """Ids, ascending, of the samples with more of an amount than `limit`."""
        return np.flatnonzero(getattr(self, amount) > limit)

    def clipped_sum(self, amount: str, limit: int, multiple: int = 1) -> int:
        """Sum over all samples of an amount, rounded up to a multiple, at most `limit` of each."""
        return clipped_sum(getattr(self, amount), limit, multiple)


class CostModel(Protocol):
    """Prices every sample of a table for one model; any callable with this signature will do."""

    def __call__(self, table: SampleTable, /) -> Costs:
        """Costs of the samples, in the order of the table."""
        ...


CostFunction = CostModel | Callable[[SampleTable], ArrayLike]
"""A cost model, or a function returning one number a sample (or one row of module costs)."""


def evaluate_costs(cost_model: CostFunction, table: SampleTable) -> Costs:
    """Costs of a table by a cost model or by a plain function of the table.

    A plain function returns `(num_samples,)`, or `(num_samples, num_modules)` costs; tokens are
    then the text tokens, patches zero, and images the table's.

    Raises:
        ArgumentError: The function returned another number of rows.
        SampleError: A cost is NaN, infinite or negative.

    Example:
        >>> table = SampleTable.from_lengths([2, 3])
        >>> evaluate_costs(lambda t: t.text_tokens**2, table).values[:, 0]
        array([4., 9.])
    """
    result = cost_model(table)
    if isinstance(result, Costs):
        costs = result
    else:
        values = _columns(result)
        names = ("cost",) if values.shape[1] == 1 else _numbered(values.shape[1])
        if values.shape[0] != len(table):
            raise ArgumentError(
                f"cost_model returned {values.shape[0]} rows for {len(table)} samples; "
                "return one row a sample, in order"
            )
        costs = Costs(
            modules=names,
            values=values,
            tokens=table.text_tokens,
            patches=np.zeros(len(table), np.int64),
            images=table.num_images,
            target_tokens=table.target_tokens,
            unit="cost",
        )
    if len(costs) != len(table):
        raise ArgumentError(f"cost_model returned {len(costs)} rows for {len(table)} samples")
    return costs


def _check_numbers(values: NDArray[np.float64], names: Sequence[str]) -> None:
    """Raise where a value is NaN, infinite or negative, with the sample and the column's name."""
    legal = np.isfinite(values) & (values >= 0)
    if not legal.all():
        rows, columns = np.nonzero(~legal)
        raise SampleError(
            f"{names[columns[0]]} of sample {rows[0]} is {values[rows[0], columns[0]]:g}; allowed: "
            "finite numbers >= 0; mend the cost model or leave the sample out",
            sample_ids=np.unique(rows).tolist(),
        )


def _columns(values: ArrayLike) -> NDArray[np.float64]:
    """Costs as `(num_samples, num_modules)`, from one number or one row a sample."""
    array = np.ascontiguousarray(values, np.float64)
    if array.ndim not in (1, 2):
        raise ArgumentError(
            f"values has shape {array.shape}; allowed: one number, or one row of module costs, "
            "a sample"
        )
    return array[:, None] if array.ndim == 1 else array


def _numbered(count: int) -> tuple[str, ...]:
    return tuple(f"module{index}" for index in range(count))


def _int_column(values: ArrayLike) -> NDArray[np.int64]:
    return np.ascontiguousarray(values, np.int64)
