"""Room: what may begin now, so that the bytes in flight stay within their bound."""

from collections.abc import Sequence

from loaders.stages.jobs import MicrobatchJob

__all__ = ["Room"]


class Room:
    """Counts the bytes that the loader holds, and what is about to be added.

    Nobody knows how large a result is before it is there, so a call that begins sets aside the
    largest result of its stage so far. Beside these calls, room is kept for the stages behind the
    first, whose workers hold what they were given and what they make of it. The first stage for
    microbatches is expected to make at least as many bytes as the samples it is given have.

    Args:
        max_bytes: Bound on the bytes in flight.
        workers: Workers of each stage; the caller's own list, which may change.
        num_sample_stages: Stages for samples, which come first.

    Attributes:
        held: Bytes in flight: results of finished calls that nobody has taken out of the loader.
        highest: Most bytes in flight so far, a call's argument and its result both counted.
    """

    def __init__(self, *, max_bytes: int, workers: Sequence[int], num_sample_stages: int) -> None:
        self._max_bytes = max_bytes
        self._workers = workers
        self._joins = num_sample_stages if num_sample_stages < len(workers) else None
        self._largest = [0] * len(workers)
        self._set_aside = 0
        self._sum_finished = 0
        self._num_finished = 0
        self.held = 0
        self.highest = 0

    def fits(self, stage: int, given: int) -> bool:
        """Whether a call of a sample-grained stage that is given so many bytes may begin."""
        room = self._max_bytes - self.held - self._set_aside
        if stage == 0:
            return self._largest[0] <= room - self._kept_for_later_stages()
        return self._largest[stage] - given <= room

    def begin(self, stage: int) -> int:
        """A call begins; returns the bytes set aside for it, which `end` gives back."""
        self._set_aside += self._largest[stage]
        return self._largest[stage]

    def end(self, stage: int, *, set_aside: int, given: int, result: int) -> None:
        """A call has ended: its argument is gone, its result held."""
        self._set_aside -= set_aside
        self.highest = max(self.highest, self.held + result)
        self.held += result - given
        self._largest[stage] = max(self._largest[stage], result)

    def sample_finished(self, nbytes: int) -> None:
        """A sample has left the last sample-grained stage."""
        self._sum_finished += nbytes
        self._num_finished += 1

    def release(self, nbytes: int) -> None:
        """A result was thrown away or taken out of the loader."""
        self.held -= nbytes

    def last_within(self, microbatches: Sequence[MicrobatchJob]) -> int:
        """Number of the last microbatch that fits beside all before it, as far as one can tell.

        Unfinished samples are expected to be as large as samples were on average. The first
        microbatch always counts as one that fits, and alone until one sample is known.
        """
        last = microbatches[0].number
        room = self._max_bytes - self._kept_for_later_stages()
        if self._num_finished == 0:
            return last
        average = self._sum_finished / self._num_finished
        for job in microbatches:
            expected = int(job.held + job.unfinished * average)
            if self._joins is not None:
                self._largest[self._joins] = max(self._largest[self._joins], expected)
            room -= expected
            if room < 0:
                break
            last = job.number
        return last

    def _kept_for_later_stages(self) -> int:
        """Bytes that later stages may need at once; never more than half of the bound."""
        later = zip(self._workers[1:], self._largest[1:], strict=True)
        return min(sum(workers * largest for workers, largest in later), self._max_bytes // 2)
