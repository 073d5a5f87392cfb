"""StreamStats: what became of the samples of a stream, and the log lines that tell of it."""

import logging
from dataclasses import dataclass, field

import numpy as np

from loaders.streams.gather import GatheredWindow
from loaders.streams.rules import StreamRules

__all__ = ["StreamStats", "note_dropped", "note_ends"]

_log = logging.getLogger("loaders.streams")


@dataclass(slots=True, kw_only=True)
class StreamStats:
    """What became of the samples of this rank's stream in the epoch that was iterated last.

    Attributes:
        num_steps: Steps planned so far.
        num_read: Samples read, those left out included.
        left_out: Ids of samples over a limit or illegal, by the policies that drop them.
        failed: Ids of samples left out because they failed (`on_sample_error`).
        dropped: Ids of samples that filled no step at the end (`tail="drop"`); not those that were
            never read, as another rank's stream had ended.
        num_repeats: Samples given again on this rank (`tail="pad"`).
        num_fillers: Samples without a loss on this rank.
        samples_sent: Samples that went to other ranks.
        bytes_sent: Their bytes.
        ended: Samples that each rank had read when its stream ended, by rank.
    """

    num_steps: int = 0
    num_read: int = 0
    left_out: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    num_repeats: int = 0
    num_fillers: int = 0
    samples_sent: int = 0
    bytes_sent: int = 0
    ended: dict[int, int] = field(default_factory=dict)


def note_ends(
    stats: StreamStats,
    gathered: GatheredWindow,
    rules: StreamRules,
    dp_rank: int,
    *,
    first_step: int,
    stops: bool,
) -> None:
    """Name the ranks whose streams have ended before others', on them and on rank 0.

    Args:
        stats: Keeps the ends.
        gathered: The window.
        rules: Has the tail policy.
        dp_rank: This rank.
        first_step: Step that the window begins with.
        stops: Whether the first stream to end ends all.
    """
    new = [rank for rank in np.flatnonzero(gathered.ended).tolist() if rank not in stats.ended]
    if not new:
        return
    stats.ended |= {rank: int(gathered.num_read[rank]) for rank in new}
    longest = gathered.num_read.max()
    early = [r for r in new if not gathered.ended.all() or gathered.num_read[r] < longest]
    if dp_rank not in (0, *early):
        return
    then = "all ranks stop together" if stops else "all ranks go on together"
    for rank in early:
        _log.warning(
            "the stream of rank %d ended after %d samples, in the window from step %d; %s "
            "(tail=%r)", rank, gathered.num_read[rank], first_step, then, rules.tail,
        )  # fmt: skip


def note_dropped(stats: StreamStats, dp_rank: int, *, epoch: int) -> None:
    """Say how many samples of this rank an epoch that has ended leaves out at its tail."""
    ended = dp_rank in stats.ended
    if stats.dropped or not ended:
        _log.warning(
            'epoch %d: rank %d drops %d samples that fill no step (tail="drop")%s; stats().dropped '
            "lists them until the next epoch begins", epoch, dp_rank, len(stats.dropped),
            "" if ended else ", and leaves what follows in its stream unread",
        )  # fmt: skip
