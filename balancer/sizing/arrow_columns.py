"""ArrowColumn: one column of sizes in Arrow data, as numpy arrays, with its nulls understood."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balancer.errors import ArgumentError, SampleError

__all__ = ["ArrowColumn", "media_items"]

_MAY_BE_UNKNOWN = ("video_fps",)


class ArrowColumn:
    """One column of sizes: a number, or a list of numbers, for each sample.

    Nothing loops over rows; lists are read by their offsets, slices and nulls included.

    Args:
        size: The size it holds, as `SizeColumns` names it.
        name: Its name in the data.
        data: A `pyarrow.Array` or `pyarrow.ChunkedArray`.

    Raises:
        ArgumentError: It holds neither numbers nor lists of numbers.

    Example:
        >>> import pyarrow
        >>> ArrowColumn("encoded_bytes", "b", pyarrow.array([[3, 4], None, []])).sums()
        array([7, 0, 0])
    """

    def __init__(self, size: str, name: str, data: Any) -> None:
        from pyarrow import types

        self.size, self.name = size, name
        self.array = data.combine_chunks() if hasattr(data, "combine_chunks") else data
        kind = self.array.type
        self.is_list = any(
            test(kind) for test in (types.is_list, types.is_large_list, types.is_fixed_size_list)
        )
        value_type = kind.value_type if self.is_list else kind
        if not any(
            test(value_type) for test in (types.is_integer, types.is_floating, types.is_null)
        ):
            raise ArgumentError(
                f"{size} is column {name!r} of type {kind}; allowed: numbers or lists of numbers; "
                "cast the column, or name another one"
            )

    @property
    def nulls(self) -> NDArray[np.bool_]:
        """Which samples have a null here, bool `(num_samples,)`."""
        return _nulls(self.array)

    def scalars(self, fill: Any) -> NDArray[Any]:
        """One number a sample, `fill` (a number, or one a sample) where it is null.

        Raises:
            ArgumentError: The column holds lists.
        """
        if self.is_list:
            raise ArgumentError(
                f"{self.size} is column {self.name!r} of type {self.array.type}; allowed: one "
                "number a sample; name another column"
            )
        return _numbers(self.array, fill)

    def sums(self) -> NDArray[Any]:
        """Sum of the numbers of each sample, `(num_samples,)`; 0 where null."""
        if not self.is_list:
            return self.scalars(0)
        values, offsets = _numbers(self.array.flatten(), 0), self.offsets()
        running = np.concatenate([np.zeros(1, values.dtype), np.cumsum(values)])
        return np.asarray(running[offsets[1:]] - running[offsets[:-1]])

    def offsets(self) -> NDArray[np.int64]:
        """Where each sample's list begins once flattened, a null being empty."""
        from pyarrow import compute

        return _running(_numbers(compute.list_value_length(self.array), 0))


def media_items(
    group: Sequence[ArrowColumn],
) -> dict[str, tuple[NDArray[Any], NDArray[np.int64]]]:
    """`(values, offsets)` of each column of one medium, by size.

    A null list is an empty one; where the columns hold one number a sample, nulls in all of them
    mean that the sample has no such item. An unknown frame rate is `nan`.

    Raises:
        ArgumentError: Some columns hold lists and others numbers.
        SampleError: A size is null while others of the same item are not.
    """
    if len({column.is_list for column in group}) > 1:
        kinds = ", ".join(f"{column.size} is {column.array.type}" for column in group)
        raise ArgumentError(f"{kinds}; allowed: lists in all of them, or one number a sample")
    if not group:
        return {}
    if group[0].is_list:
        return {
            column.size: (
                _known(column, column.array.flatten(), column.offsets()),
                column.offsets(),
            )
            for column in group
        }
    import pyarrow

    there = np.zeros(len(group[0].array), np.bool_)
    for column in group:
        if column.size not in _MAY_BE_UNKNOWN:
            there |= ~column.nulls
    mask, offsets = pyarrow.array(there), _running(there)
    return {
        column.size: (_known(column, column.array.filter(mask), offsets), offsets)
        for column in group
    }


def _known(column: ArrowColumn, items: Any, offsets: NDArray[np.int64]) -> NDArray[Any]:
    """Values of the items, refusing a null size."""
    if column.size in _MAY_BE_UNKNOWN:
        return _numbers(items, np.nan)
    nulls = np.flatnonzero(_nulls(items))
    if nulls.size:
        owners = np.searchsorted(offsets, nulls, side="right") - 1
        raise SampleError(
            f"{column.size} of sample {owners[0]} is null in column {column.name!r}, while other "
            "sizes of the same item are not; write it, or leave the item out of all of them",
            sample_ids=np.unique(owners).tolist(),
        )
    return _numbers(items, 0)


def _numbers(array: Any, fill: Any) -> NDArray[Any]:
    """Numpy values of an Arrow array, `fill` where it is null."""
    values = np.asarray(array.to_numpy(zero_copy_only=False))
    if not array.null_count:
        return values
    if values.dtype.kind == "O":  # a column of nothing but nulls
        values = np.zeros(len(array))
    return np.where(_nulls(array), fill, values)


def _nulls(array: Any) -> NDArray[np.bool_]:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), np.bool_)


def _running(counts: NDArray[Any]) -> NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
