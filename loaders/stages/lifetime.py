"""Closes at interpreter exit what was left open."""

import atexit
from typing import Protocol
from weakref import WeakSet

__all__ = ["close_at_exit"]


class _Closable(Protocol):
    def close(self) -> None: ...


_OPEN: "WeakSet[_Closable]" = WeakSet()


def close_at_exit(closable: _Closable) -> None:
    """Close this when the interpreter exits, before daemon threads are cut off in native code."""
    if not _OPEN:
        atexit.unregister(_close_all)
        atexit.register(_close_all)
    _OPEN.add(closable)


def _close_all() -> None:
    for closable in list(_OPEN):
        closable.close()
