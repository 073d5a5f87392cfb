"""Which sample next: the one with the least slack."""

from collections.abc import Sequence

__all__ = ["LeastSlack"]

_DEAR = 2.0  # times the mean


class LeastSlack:
    """Gives every sample the time at which its work should begin at the latest.

    A microbatch is due when all work up to and including its own would be done, were it spread
    evenly over the workers: no order of work can have it ready earlier, and later it would hold up
    a consumer that keeps pace. A sample should begin its own predicted seconds before that.
    Workers take the sample with the least such time first, so a dear sample of a later microbatch
    overtakes cheap ones of earlier microbatches just early enough. The rule is least slack time
    first (Mok 1983); the present is the same for all, so it need not be subtracted, and a time once
    given stays.

    Only predicted seconds enter, never a clock. Where the number of workers changes, work that is
    added later is spread over the new number.

    Example:
        >>> order = LeastSlack()
        >>> order.latest_begins([1.0, 1.0], workers=2)
        [0.0, 0.0]
        >>> order.latest_begins([1.0, 50.0], workers=2)
        [25.5, -23.5]
        >>> order.latest_begins([1.0, 7.0], workers=8)
        [26.5, 20.5]
    """

    def __init__(self) -> None:
        self._due = 0.0
        self._sum = 0.0
        self._num = 0

    def latest_begins(self, seconds: Sequence[float], *, workers: int) -> list[float]:
        """Latest begin of each sample of the next microbatch, in the plan's order.

        Args:
            seconds: Predicted seconds of its samples.
            workers: Workers that share the samples' work now.
        """
        self._due += sum(seconds) / workers
        return [self._due - own for own in seconds]

    def dear(self, seconds: Sequence[float]) -> list[bool]:
        """Which samples of the next microbatch take more than twice the mean until then.

        What is sent to a process behind such a sample would wait for it, whatever its own slack.

        Example:
            >>> LeastSlack().dear([1.0, 50.0, 1.0])
            [False, True, False]
        """
        self._sum += sum(seconds)
        self._num += len(seconds)
        return [own * self._num > _DEAR * self._sum for own in seconds]
