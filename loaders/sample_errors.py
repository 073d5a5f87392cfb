"""What happens where a sample cannot be read: the error that names it, or another in its place."""

import traceback
from collections.abc import Sequence
from typing import Literal

from torch.utils.data import get_worker_info

from balancer.errors import SampleError
from loaders.microbatch import MicrobatchFacts

__all__ = ["ForeignError", "OnSampleError", "SampleReadError", "read_error", "shown"]

OnSampleError = Literal["raise", "replace", "filler"]


class SampleReadError(SampleError):
    """A sample could not be read, or a microbatch not collated.

    The message has the sample ids, rank, step, microbatch, worker and the original traceback, so
    that nothing is lost where the exception itself cannot travel between processes.
    """


class ForeignError(RuntimeError):
    """Stands for a worker's exception that cannot be rebuilt elsewhere; its message shows it."""


def read_error(
    what: str, sample_ids: Sequence[int], facts: MicrobatchFacts | None, error: BaseException
) -> SampleReadError:
    """The error to raise for an exception at these samples; raise it `from` the exception.

    Example:
        >>> print(read_error("reading failed at", [13], None, KeyError("x")))
        reading failed at sample 13: KeyError: 'x'
        Original traceback:
        KeyError: 'x'
    """
    worker = get_worker_info()
    ids = ", ".join(map(str, sample_ids))
    where = "" if worker is None else f", worker {worker.id} of {worker.num_workers}"
    if facts is not None:
        where += (
            f", dp_rank {facts.dp_rank} of {facts.dp_size}, epoch {facts.epoch}, "
            f"step {facts.step}, microbatch {facts.index}"
        )
    trace = "".join(traceback.format_exception(type(error), error, error.__traceback__)).rstrip()
    return SampleReadError(
        f"{what} sample{'s' if len(sample_ids) != 1 else ''} {ids}{where}: {shown(error)}\n"
        f"Original traceback:\n{trace}",
        sample_ids=sample_ids,
    )


def shown(error: BaseException) -> str:
    """Type and message of an exception in one line, the same wherever it was raised.

    Example:
        >>> shown(SampleError("no image")), shown(ValueError())
        ('balancer.errors.SampleError: no image', 'ValueError')
        >>> shown(ForeignError(shown(ValueError("x"))))
        'ValueError: x'
    """
    message = " ".join(str(error).splitlines())
    if isinstance(error, ForeignError):
        return message
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    return f"{name}: {message}" if message else name
