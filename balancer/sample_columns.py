"""Columns of a SampleTable, checked: one number a sample, or ragged columns of its media."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError, SampleError

__all__ = ["checked_column", "checked_media"]

_FLOAT_COLUMNS = ("video_fps", "audio_seconds")


def checked_column(name: str, values: ArrayLike) -> NDArray[np.int64]:
    """One size a sample as int64.

    Raises:
        ArgumentError: It is not one number a sample.
        SampleError: A size is negative, fractional or not finite.

    Example:
        >>> checked_column("text_tokens", [3.0, 4.0])
        array([3, 4])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise ArgumentError(f"{name} has shape {array.shape}; allowed: one number a sample")
    return _checked(name, array, np.arange(array.shape[0]))


def _ragged(name: str, values: Any, num_samples: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Flat values and offsets of a ragged column given as sequences or as `(values, offsets)`."""
    if isinstance(values, tuple) and len(values) == 2 and isinstance(values[0], np.ndarray):
        flat, offsets = values[0], np.ascontiguousarray(values[1], np.int64)
        bad = offsets.ndim != 1 or offsets.shape[0] != num_samples + 1 or offsets[0] != 0
        if bad or offsets[-1] != flat.shape[0] or (np.diff(offsets) < 0).any():
            raise ArgumentError(
                f"{name}: offsets must rise from 0 to {flat.shape[0]} in {num_samples + 1} entries"
            )
    else:
        if len(values) != num_samples:
            raise ArgumentError(
                f"{name} has {len(values)} rows, text_tokens has {num_samples}; give an empty "
                "sequence for a sample without this medium"
            )
        offsets = np.zeros(num_samples + 1, np.int64)
        np.cumsum([len(row) for row in values], out=offsets[1:])
        flat = np.array([item for row in values for item in row], dtype=np.float64)
    owners = np.repeat(np.arange(num_samples), np.diff(offsets))
    return _checked(name, flat, owners), offsets


def checked_media(num_samples: int, group: dict[str, Any]) -> dict[str, NDArray[Any]]:
    """Columns of one medium, checked to describe the same items, and their `offsets`.

    Columns are sequences of sequences, `(values, offsets)`, or `None`; `video_fps` may be `None`
    beside others that are given, and is then unknown (`nan`).

    Raises:
        ArgumentError: Only some of the columns are given, or one has another number of rows.
        SampleError: A size is not legal, or the columns disagree about a sample's items.

    Example:
        >>> columns = {"image_heights": [[4], []], "image_widths": [[5], []]}
        >>> checked_media(2, columns)["offsets"]
        array([0, 1, 1])
    """
    if group.get("video_frames") is not None and group["video_fps"] is None:
        frames, frame_offsets = _ragged("video_frames", group["video_frames"], num_samples)
        group = group | {"video_fps": (np.full(frames.shape[0], np.nan), frame_offsets)}
    given = {name: values for name, values in group.items() if values is not None}
    if not given:
        columns: dict[str, NDArray[Any]] = {
            name: np.zeros(0, np.float64 if name in _FLOAT_COLUMNS else np.int64) for name in group
        }
        return columns | {"offsets": np.zeros(num_samples + 1, np.int64)}
    missing = sorted(set(group) - set(given))
    if missing:
        raise ArgumentError(f"{missing[0]} is missing; it goes with {sorted(given)[0]}")
    columns, first, first_offsets = {}, "", np.zeros(0, np.int64)
    for name, values in given.items():
        columns[name], offsets = _ragged(name, values, num_samples)
        if first and not np.array_equal(offsets, first_offsets):
            sample_id = int(np.flatnonzero(np.diff(offsets) != np.diff(first_offsets))[0])
            raise SampleError(
                f"{name} and {first} have different numbers of items for sample {sample_id}",
                sample_ids=[sample_id],
            )
        first, first_offsets = name, offsets
    return columns | {"offsets": first_offsets}


def _checked(name: str, values: NDArray[Any], owners: NDArray[np.int64]) -> NDArray[Any]:
    """`values` as int64 (float64 for seconds and rates), or the error naming the first samples."""
    least = 1 if name.startswith(("image_", "video_")) else 0
    if name in _FLOAT_COLUMNS:
        column: NDArray[Any] = np.ascontiguousarray(values, np.float64)
        unknown = np.isnan(column) if name == "video_fps" else np.zeros(column.shape, np.bool_)
        legal = unknown | (np.isfinite(column) & (column > 0))
        allowed = "finite numbers > 0" + (" or nan (unknown)" if name == "video_fps" else "")
    else:
        whole = values.astype(np.float64) if values.dtype.kind not in "iu" else values
        with np.errstate(invalid="ignore"):
            legal = np.isfinite(whole) & (whole >= least) & (whole == np.floor(whole))
            legal &= whole < 2**62
        column = np.ascontiguousarray(np.where(legal, whole, least), np.int64)
        allowed = f"whole numbers >= {least}"
    if not legal.all():
        _raise_illegal(name, values, owners, legal, allowed)
    return column


def _raise_illegal(
    name: str,
    values: NDArray[Any],
    owners: NDArray[np.int64],
    legal: NDArray[np.bool_],
    allowed: str,
) -> None:
    at_fault: Sequence[int] = owners[~legal].tolist()
    more = f" (and {len(at_fault) - 1} more)" if len(at_fault) > 1 else ""
    raise SampleError(
        f"{name} of sample {at_fault[0]} is {values[~legal][0]:g}{more}; allowed: {allowed}",
        sample_ids=at_fault,
    )
