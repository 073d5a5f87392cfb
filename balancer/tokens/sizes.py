"""Checks the media sizes handed to a token rule, once for every family."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balancer.errors import ArgumentError

__all__ = ["MAX_SIDE_PIXELS", "checked_audio", "checked_images", "checked_videos"]

MAX_SIDE_PIXELS = 2**20
"""Longest side a rule accepts; keeps every product of sizes exact in float64."""

_MAX_FRAMES = 2**32
_MAX_SECONDS = 1e7


def checked_images(
    heights: ArrayLike, widths: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Heights and widths as int64 arrays of one length.

    Raises:
        ArgumentError: An array is not one-dimensional or not of integers, the lengths differ, or a
            side is outside 1 to `MAX_SIDE_PIXELS`; the message gives the position.

    Example:
        >>> checked_images([480], [640])
        (array([480]), array([640]))
    """
    checked_heights = _integers("heights", heights, MAX_SIDE_PIXELS)
    checked_widths = _integers("widths", widths, MAX_SIDE_PIXELS)
    _same_length("heights", checked_heights, "widths", checked_widths)
    return checked_heights, checked_widths


def checked_videos(
    frames: ArrayLike, fps: ArrayLike, heights: ArrayLike, widths: ArrayLike
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Frame counts, frame rates (`nan` where unknown), heights and widths of one length.

    Raises:
        ArgumentError: As for `checked_images`, or a frame rate is not positive and finite or `nan`.

    Example:
        >>> checked_videos([300], [float("nan")], [480], [640])[1]
        array([nan])
    """
    checked_heights, checked_widths = checked_images(heights, widths)
    checked_frames = _integers("frames", frames, _MAX_FRAMES)
    _same_length("heights", checked_heights, "frames", checked_frames)
    rates = _floats("fps", fps)
    _same_length("heights", checked_heights, "fps", rates)
    allowed = np.isnan(rates) | ((rates > 0) & np.isfinite(rates))
    _refuse_first("fps", rates, allowed, "positive and finite, or nan where unknown")
    return checked_frames, rates, checked_heights, checked_widths


def checked_audio(seconds: ArrayLike) -> NDArray[np.float64]:
    """Durations as a float64 array.

    Raises:
        ArgumentError: The array is not one-dimensional, or a duration is not positive and finite.

    Example:
        >>> checked_audio([1.5])
        array([1.5])
    """
    durations = _floats("seconds", seconds)
    allowed = (durations > 0) & (durations <= _MAX_SECONDS)
    _refuse_first("seconds", durations, allowed, f"positive and at most {_MAX_SECONDS:.0f}")
    return durations


def _integers(name: str, values: ArrayLike, largest: int) -> NDArray[np.int64]:
    """The values as a contiguous int64 array, each between 1 and `largest`."""
    array = np.asarray(values)
    if array.size == 0 and array.ndim == 1:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ArgumentError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; "
            "it must be a one-dimensional array of integers"
        )
    if array.min() < 1 or array.max() > largest:
        _refuse_first(name, array, (array >= 1) & (array <= largest), f"from 1 to {largest}")
    return np.ascontiguousarray(array, np.int64)


def _floats(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """The values as a contiguous one-dimensional float64 array."""
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise ArgumentError(
            f"{name} has shape {array.shape} and dtype {array.dtype}; "
            "it must be a one-dimensional array of numbers"
        )
    return np.ascontiguousarray(array, np.float64)


def _same_length(
    first_name: str,
    first: NDArray[np.int64],
    second_name: str,
    second: NDArray[np.int64] | NDArray[np.float64],
) -> None:
    """Refuse two arrays that describe different numbers of items."""
    if first.size != second.size:
        raise ArgumentError(
            f"{second_name} has {second.size} items but {first_name} has {first.size}; "
            "give one value an item"
        )


def _refuse_first(
    name: str, values: NDArray[np.generic], allowed: NDArray[np.bool_], range_text: str
) -> None:
    """Refuse the first value that is not allowed, by its position."""
    if not allowed.all():
        position = int(np.argmin(allowed))
        raise ArgumentError(
            f"{name}[{position}] is {values[position]}; it must be {range_text}; "
            f"{int((~allowed).sum())} of {values.size} values are outside"
        )
