"""ByteCache: what was read last, bounded in bytes, each thing read once."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

from balancer.checks import check_count

__all__ = ["ByteCache"]


class ByteCache:
    """Keeps what was used last, up to a number of bytes; safe in threads.

    Threads that ask for the same thing at once read it once: the others wait for the first. What
    was used last is always kept, however large. What is being read is not counted.

    Args:
        max_bytes: Most bytes to keep.

    Example:
        >>> cache = ByteCache(max_bytes=3)
        >>> [cache.get(key, lambda: print("reads") or "ab", len) for key in (1, 1)]
        reads
        ['ab', 'ab']
    """

    def __init__(self, *, max_bytes: int) -> None:
        check_count("max_bytes", max_bytes, least=0)
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._kept: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._coming: dict[Hashable, Future[Any]] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, read: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """What is kept under a key, or what `read` returns, of `size` bytes.

        Raises:
            BaseException: What `read` raised, in every thread that waited; it is not kept.
        """
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
            coming = self._coming.get(key)
            mine: Future[Any] = Future()
            if coming is None:
                self._coming[key] = mine
        if coming is not None:
            return coming.result()
        try:
            value = read()
            num_bytes = size(value)
        except BaseException as error:
            with self._lock:
                del self._coming[key]
            mine.set_exception(error)
            raise
        with self._lock:
            del self._coming[key]
            self._keep(key, value, num_bytes)
        mine.set_result(value)
        return value

    def _keep(self, key: Hashable, value: Any, num_bytes: int) -> None:
        self._kept[key] = (value, num_bytes)
        self._num_bytes += num_bytes
        while len(self._kept) > 1 and self._num_bytes > self._max_bytes:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._num_bytes -= dropped
