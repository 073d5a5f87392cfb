"""Turns: what worker processes read, one item of each in turn, in an order free of timing."""

from collections import deque
from collections.abc import Iterator
from typing import Any

__all__ = ["EndOfPart", "Turns"]


class EndOfPart:
    """What a worker sends from the end of its part on."""


class Turns(Iterator[tuple[int, Any]]):
    """Pairs of worker and item: one item of each worker in turn, past those that have ended.

    torch passes over a worker that has ended from some moment on, so that its order depends on
    timing. Here workers send `EndOfPart` without end and still take their turn.

    Attributes:
        turn: Worker whose turn is next.

    Args:
        items: Iterator of a torch DataLoader over the workers' items, one each in turn.
        num_workers: Workers.
        turn: Worker to begin with.
    """

    def __init__(self, items: Iterator[Any], num_workers: int, turn: int) -> None:
        self.turn = turn
        self._items = items
        self._came: list[deque[Any]] = [deque() for _ in range(num_workers)]
        self._next_to_come = 0
        self._ended = [False] * num_workers

    def __next__(self) -> tuple[int, Any]:
        while not all(self._ended):
            worker = self.turn
            while not self._came[worker]:
                self._came[self._next_to_come].append(next(self._items))
                self._next_to_come = (self._next_to_come + 1) % len(self._came)
            self.turn = (worker + 1) % len(self._came)
            item = self._came[worker].popleft()
            if not isinstance(item, EndOfPart):
                return worker, item
            self._ended[worker] = True
        raise StopIteration

    def end(self, *, stop_workers: bool) -> None:
        """Let go of the workers, and stop them if asked to."""
        stop = getattr(self._items, "_shutdown_workers", None)
        if stop_workers and stop is not None:
            stop()
