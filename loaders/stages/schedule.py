"""Which sample next: the one with the least slack."""

from collections.abc import Sequence

__all__ = ["LeastSlack"]


class LeastSlack:
    """Gives every sample the time at which its work should begin at the latest.

    A microbatch is due when all work up to and including its own would be done, were it spread
    evenly over the workers: no order of work can have it ready earlier, and later it would hold up
    a consumer that keeps pace. A sample should begin its own predicted seconds before that.
    Workers take the sample with the least such time first, so a dear sample of a later microbatch
    overtakes cheap ones of earlier microbatches just early enough. The rule is least slack time
    first (Mok 1983); the present is the same for all, so it need not be subtracted, and a time once
    given stays.

    Only predicted seconds enter, never a clock.

    Args:
        workers: Workers that share the samples' work.

    Example:
        >>> order = LeastSlack(workers=2)
        >>> order.latest_begins([1.0, 1.0])
        [0.0, 0.0]
        >>> order.latest_begins([1.0, 50.0])
        [25.5, -23.5]
    """

    def __init__(self, *, workers: int) -> None:
        self._workers = workers
        self._work = 0.0

    def latest_begins(self, seconds: Sequence[float]) -> list[float]:
        """Latest begin of each sample of the next microbatch, in the plan's order."""
        self._work += sum(seconds)
        due = self._work / self._workers
        return [due - own for own in seconds]
