"""How many frames of a video the GLM-4V pipelines sample."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["capped_frames", "dynamic_frames"]

_MAX_DYNAMIC_FRAMES = 640
_MAX_DYNAMIC_SECONDS = 2400
_RATE_OF_SECONDS = ((30, 3.0), (300, 1.0), (_MAX_DYNAMIC_SECONDS, 0.5))
"""Frames a second up to a duration, seconds; the last rate holds beyond it."""


def capped_frames(
    frames: NDArray[np.int64],
    fps: NDArray[np.float64],
    *,
    target_fps: float,
    max_seconds: float,
) -> NDArray[np.int64]:
    """Distinct frames at `target_fps`, no more than `max_seconds` of them, made even.

    Source: transformers `video_processing_glm4v.py`.

    Example:
        >>> capped_frames(np.array([300]), np.array([30.0]), target_fps=2.0, max_seconds=300.0)
        array([20])
    """
    wanted = np.maximum(np.floor(frames / fps * target_fps).astype(np.int64), 1)
    last = [
        np.minimum(np.ceil(np.maximum(wanted - back, 0) * fps / target_fps), frames - 1)
        for back in (1, 2, 3)
    ]
    # Sampling slower than the video repeats a frame at its end only, faster one skips none.
    repeats = ((last[0] == last[1]) & (wanted > 1)) * 1 + ((last[1] == last[2]) & (wanted > 2)) * 1
    distinct = np.where(fps >= target_fps, wanted - repeats, last[0] + 1).astype(np.int64)
    most = int(max_seconds * target_fps)
    long = frames / fps > max_seconds
    distinct = np.where(long, np.minimum(frames, most), distinct)
    even: NDArray[np.int64] = distinct + distinct % 2
    return even


def dynamic_frames(
    frames: NDArray[np.int64], fps: NDArray[np.float64], *, temporal_patch_size: int
) -> NDArray[np.int64]:
    """Distinct frames at a rate that falls with the duration, made even.

    The published code walks through the frames and takes the first one at or after every tick, up
    to the last whole second; where that gives fewer than the rate asks for, it spreads the number
    asked for evenly up to the last frame taken. Source: transformers
    `video_processing_glm46v.py`.

    Example:
        >>> dynamic_frames(np.array([300]), np.array([30.0]), temporal_patch_size=2)
        array([60])
    """
    seconds = frames / fps
    ticks_a_second = np.full(frames.size, _RATE_OF_SECONDS[-1][1])
    for longest, rate in reversed(_RATE_OF_SECONDS):
        ticks_a_second = np.where(seconds <= longest, rate, ticks_a_second)
    wanted = np.minimum(seconds, _MAX_DYNAMIC_SECONDS) * ticks_a_second * temporal_patch_size
    wanted = np.minimum(wanted.astype(np.int64), _MAX_DYNAMIC_FRAMES)
    taken, last = _ticked_frames(frames, fps, ticks_a_second * temporal_patch_size)
    distinct = np.where(taken < wanted, np.minimum(wanted, last + 1), np.minimum(wanted, frames))
    distinct = np.where(frames < wanted, frames, distinct)
    even: NDArray[np.int64] = distinct + distinct % 2
    return even


def _ticked_frames(
    frames: NDArray[np.int64], fps: NDArray[np.float64], ticks_a_second: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Frames taken at the ticks of the whole seconds, and the index of the last one."""
    # Beyond the longest duration there are more ticks than frames are ever asked for.
    whole_seconds = np.minimum(np.floor(frames / fps), _MAX_DYNAMIC_SECONDS)
    taken = np.zeros_like(frames)
    last = np.zeros_like(frames)
    for rate in np.unique(ticks_a_second):
        chosen = np.flatnonzero(ticks_a_second == rate)
        longest = whole_seconds[chosen].max()
        # Ticks are sums of a rounded step, so that they may fall short of a whole second.
        ticks = np.cumsum(np.full(int(longest * rate) + 3, 1 / rate))
        ticks = np.concatenate([[0.0], ticks])
        count = np.maximum(np.searchsorted(ticks, whole_seconds[chosen], side="left"), 1)
        count = np.minimum(count, frames[chosen])
        taken[chosen], last[chosen] = _walk(frames[chosen], fps[chosen], ticks, count)
    return taken, last


def _walk(
    frames: NDArray[np.int64],
    fps: NDArray[np.float64],
    ticks: NDArray[np.float64],
    count: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Frames taken before the video ends, and the index of the last one."""
    spacing = 1 / fps
    reached = _first_at_or_after(ticks[count - 1], spacing, count - 1)
    # The last tick may lie behind the last frame; then the one before it is the last taken.
    beyond = reached > frames - 1
    count = np.where(beyond & (count > 1), count - 1, count)
    reached = np.where(beyond, _first_at_or_after(ticks[count - 1], spacing, count - 1), reached)
    return count, np.minimum(reached, frames - 1)


def _first_at_or_after(
    times: NDArray[np.float64], spacing: NDArray[np.float64], at_least: NDArray[np.int64]
) -> NDArray[np.int64]:
    """First frame whose time is not before `times`, one frame a tick at most."""
    guess = np.ceil(times / spacing)
    guess = np.where((guess - 1) * spacing >= times, guess - 1, guess)
    guess = np.where(guess * spacing < times, guess + 1, guess)
    return np.maximum(guess.astype(np.int64), at_least)
