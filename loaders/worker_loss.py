"""A worker process that is gone, told in words where torch's own error would not say so."""

from collections.abc import Generator, Iterable
from typing import TypeVar

from balancer.errors import BalancerError

__all__ = ["WorkerLostError", "from_workers"]

_T = TypeVar("_T")


class WorkerLostError(BalancerError, RuntimeError):
    """A worker process ended while what it had read was on its way.

    Also a `RuntimeError`, as is what torch raises for a worker that it finds dead. Nothing is lost:
    `loader.state_dict()` holds what was handed out, and another loader goes on from there.
    """


def from_workers(microbatches: Iterable[_T]) -> Generator[_T, None, None]:
    """What workers send, unchanged; their end in the middle of it is a `WorkerLostError`.

    Tensors travel through a socket of the worker that made them, which is closed when it dies.

    Example:
        >>> list(from_workers([1, 2]))
        [1, 2]
    """
    try:
        yield from microbatches
    except (ConnectionError, EOFError, FileNotFoundError) as error:
        raise WorkerLostError(
            f"a worker ended while a microbatch it had read was on its way ({error!r}); it was "
            "killed, often for want of memory or shared memory: lower num_workers or "
            "prefetch_factor, or make microbatches smaller, and go on from state_dict()"
        ) from error
