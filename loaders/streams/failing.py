"""Samples of a stream that cannot be read or sized: the error that names one, or its omission."""

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loaders.sample_errors import OnSampleError, SampleReadError, shown

__all__ = ["DEAD_ITERATOR", "FailedSample", "Omissions", "stream_error"]

DEAD_ITERATOR = (
    "; an iterator that raised gives nothing more, so that no on_sample_error can leave the sample "
    "out: catch the exception where the dataset reads, or yield what is read and decode it in "
    "size_fn, where a failure costs that sample only"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSample:
    """A sample left out of a stream.

    Attributes:
        number: Its number among the samples that this rank's source gave.
        sample_id: Its id.
        error: Type and message of the exception.
    """

    number: int
    sample_id: int
    error: str


class Omissions:
    """Leaves failing samples out of a stream, as far as that is safe.

    A window that was begun before a stop is planned again from the same samples. One that fails
    only now would change the plan, so that samples came twice or never: an error under any policy.
    One that failed then is left out again without being tried.

    Args:
        policy: Every policy but `"raise"` leaves samples out: no plan has promised them yet, and
            the next one of the stream takes the place of one that fails.
        most_in_a_row: So many that fail one after another are an error: a stream without end
            would otherwise be read for ever.
    """

    def __init__(self, policy: OnSampleError, *, most_in_a_row: int) -> None:
        self.policy = policy
        self.most_in_a_row = most_in_a_row
        self._of_window: list[FailedSample] = []
        self._new: list[FailedSample] = []
        self._in_a_row = 0
        self._before: dict[int, str] = {}
        self._known_until = 0

    def begin(self, *, known_until: int = 0, failed: Sequence[Sequence[Any]] = ()) -> None:
        """Begin an epoch; of samples below `known_until` exactly the `failed` ones had failed."""
        self._of_window, self._new = [], []
        self._in_a_row = 0
        self._known_until = known_until
        self._before = {int(number): str(error) for number, error in failed}

    def knows(self, number: int, sample_id: int) -> bool:
        """Whether this one was left out when its window was first planned, and so is again."""
        if number not in self._before:
            return False
        self._keep(number, sample_id, self._before[number])
        return True

    def read(self) -> None:
        """A sample could be read."""
        self._in_a_row = 0

    def leave_out(self, number: int, sample_id: int, error: Exception, where: str) -> None:
        """Leave a sample out.

        Raises:
            SampleReadError: The policy does not allow it, or the sample had been read before.
        """
        if self.policy == "raise":
            raise stream_error("size_fn failed on", sample_id, where, error) from error
        if number < self._known_until:
            raise stream_error(
                "size_fn failed on a sample that it had not failed on before the state was saved, "
                "so that the window begun then cannot be planned again,", sample_id, where, error,
                cure="; make it readable again, or resume from the state of another window",
            ) from error  # fmt: skip
        self._in_a_row += 1
        if self._in_a_row >= self.most_in_a_row:
            raise stream_error(
                f"size_fn failed on {self._in_a_row} samples one after another, a whole window; "
                "the last is", sample_id, where, error,
            ) from error  # fmt: skip
        self._keep(number, sample_id, shown(error))

    def _keep(self, number: int, sample_id: int, error: str) -> None:
        failed = FailedSample(number=number, sample_id=sample_id, error=error)
        self._of_window.append(failed)
        self._new.append(failed)

    def take_new(self) -> list[FailedSample]:
        """Those left out since the last call."""
        new, self._new = self._new, []
        return new

    def since(self, number: int) -> list[list[Any]]:
        """Numbers and errors of those left out from a number on, JSON-able; forgets the others."""
        self._of_window = [each for each in self._of_window if each.number >= number]
        return [[each.number, each.error] for each in self._of_window]


def stream_error(
    what: str, sample_id: int, where: str, error: Exception, *, cure: str = ""
) -> SampleReadError:
    """The error to raise for an exception at a sample; raise it `from` the exception.

    Example:
        >>> print(stream_error("size_fn failed on", 7, "number 3 of rank 1 of 2", KeyError("x")))
        size_fn failed on sample 7 (number 3 of rank 1 of 2): KeyError: 'x'
        Original traceback:
        KeyError: 'x'
    """
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    return SampleReadError(
        f"{what} sample {sample_id} ({where}): {shown(error)}{cure}\nOriginal traceback:\n{trace}",
        sample_ids=[sample_id],
    )
