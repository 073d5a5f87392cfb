"""RankLink: how the ranks of a stream agree and hand samples to one another.

Collectives run on a process group of their own, on the CPU, so that they never mix with those of
the training. Before each, ranks meet at the store of torch.distributed: a collective begins only
once all are there, and so none is ever left waiting in it for a rank that stopped, failed, or was
closed. Those that wait at the meeting learn of it and can leave it at any time.
"""

import logging
import time
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from threading import Event
from typing import Any

import numpy as np
import torch
import torch.distributed
from numpy.typing import NDArray
from torch.distributed import distributed_c10d

from balancer.errors import ArgumentError, BalancerError
from loaders.rank import discover_rank
from loaders.streams.parcels import pack_parcel, unpack_parcel

__all__ = ["RankLink", "StreamClosedError", "find_group"]

_log = logging.getLogger("loaders.streams")
_LONGEST_PAUSE_S = 0.1
_SLOW_S = 30.0
_links_made: dict[tuple[int, ...], int] = {}


class StreamClosedError(BalancerError):
    """This rank was asked to stop while it waited for the others."""


def find_group(group: Any) -> tuple[Any, int, int]:
    """The group, this process's rank in it and its size; the world when none is given.

    Without a group and without an initialised torch.distributed there is one rank; never so where
    the environment says that there are more.

    Raises:
        ArgumentError: This process is not in the group; or there are several ranks by the
            environment, and torch.distributed is not initialised.

    Example:
        >>> find_group(None)
        (None, 0, 1)
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        if group is not None:
            raise ArgumentError("group is given, but torch.distributed is not initialised")
        _, size = discover_rank()
        if size > 1:
            raise ArgumentError(
                f"group is None and WORLD_SIZE is {size}, but torch.distributed is not "
                "initialised; call torch.distributed.init_process_group() first: ranks that read "
                "a stream must agree where it ends"
            )
        return None, 0, 1
    group = torch.distributed.group.WORLD if group is None else group
    rank = torch.distributed.get_rank(group)
    if rank < 0:
        raise ArgumentError("group does not hold this process; give a group that it is a member of")
    return group, rank, torch.distributed.get_world_size(group)


class RankLink:
    """Connection of one rank to the others, for one pass over their streams.

    Attributes:
        dp_rank: This rank.
        dp_size: Ranks.
        stop: Set it, from any thread, to make a rank that waits give up with `StreamClosedError`.
        bytes_sent: Bytes of samples handed to other ranks.

    Args:
        group: The group, as `find_group` returned it; every member makes its links in the same
            order.
        timeout_s: Seconds to wait for the other ranks at a meeting.
    """

    def __init__(self, group: Any, *, dp_rank: int, dp_size: int, timeout_s: float) -> None:
        self.dp_rank = dp_rank
        self.dp_size = dp_size
        self.timeout_s = timeout_s
        self.stop = Event()
        self.bytes_sent = 0
        self._meetings = 0
        self._present = False
        self._store: Any = None
        if dp_size == 1:
            return
        members = tuple(torch.distributed.get_process_group_ranks(group))
        _links_made[members] = count = _links_made.get(members, 0) + 1
        name = f"evenstep/{sha256(repr(members).encode()).hexdigest()[:16]}/{count}"
        store = distributed_c10d._get_default_store()
        self._store = distributed_c10d.PrefixStore(name, store)
        self._collectives: Any = None

    def gather(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The rows of all ranks, `(dp_size, *rows.shape)`; every rank gives the same shape.

        Raises:
            StreamClosedError: `stop` was set.
            BalancerError: Another rank left, or did not come in time.
        """
        if self._store is None:
            return rows[None]
        self._meet()
        given = torch.from_numpy(np.array(rows))
        all_rows = [torch.empty_like(given) for _ in range(self.dp_size)]
        self._group().allgather([all_rows], [given]).wait()
        return torch.stack(all_rows).numpy()

    def exchange(self, outgoing: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Hand `outgoing[r]` to rank `r`, and get what every rank had for this one.

        Raises:
            BalancerError: As `gather`; or a sample cannot be pickled.
        """
        if self._store is None:
            return [list(samples) for samples in outgoing]
        parcels = [pack_parcel(samples) if samples else None for samples in outgoing]
        sizes = torch.tensor([0 if parcel is None else len(parcel) for parcel in parcels])
        self._meet()
        incoming = torch.empty_like(sizes)
        self._group().alltoall_base(incoming, sizes, [], []).wait()
        given = torch.cat([parcel for parcel in parcels if parcel is not None] or [_NOTHING])
        self.bytes_sent += int(sizes.sum())
        del parcels
        got = torch.empty(int(incoming.sum()), dtype=torch.uint8)
        splits = (incoming.tolist(), sizes.tolist())
        self._group().alltoall_base(got, given, *splits).wait()
        parts = torch.split(got, splits[0])
        return [unpack_parcel(part) if len(part) else [] for part in parts]

    def leave(self, why: str) -> None:
        """Tell the other ranks that this one will not come again; what is told first stands."""
        if self._store is not None:
            self._store.compare_set("left", "", f"rank {self.dp_rank} {why}")

    def close(self) -> None:
        """Let go of the connections; nothing is waited for."""
        self._collectives = None

    def _group(self) -> Any:
        if self._collectives is None:
            self._collectives = torch.distributed.ProcessGroupGloo(
                distributed_c10d.PrefixStore("gloo", self._store),
                self.dp_rank,
                self.dp_size,
                timedelta(seconds=self.timeout_s),
            )
        return self._collectives

    def _meet(self) -> None:
        """Wait until all ranks are here, or one of them decides not to wait any longer.

        Who is last, or gives up, writes the decision; the store keeps the first that is written.
        """
        number = self._meetings
        told = False
        self._meetings += 1
        decision = f"{number}/decision"
        self._store.set(f"at/{self.dp_rank}", str(number))
        if self._store.add(f"{number}/here", 1) == self.dp_size:
            self._store.compare_set(decision, "", "go")
        begun = time.monotonic()
        problem = BalancerError("another rank left")
        while not self._store.check([decision]):
            waited = time.monotonic() - begun
            if self.stop.is_set():
                problem = StreamClosedError(f"rank {self.dp_rank} was stopped")
                self.leave("stopped iterating before its stream ended")
            elif self._store.check(["left"]):
                problem = BalancerError(self._store.get("left").decode())
            elif waited > self.timeout_s:
                problem = BalancerError(self._missing(number))
                self.leave(f"gave up: {problem}")
            else:
                if not told and waited > min(self.timeout_s / 4, _SLOW_S):
                    self._warn(number, waited)
                    told = True
                time.sleep(min(_LONGEST_PAUSE_S, 0.001 + waited / 10))
                continue
            self._store.compare_set(decision, "", "leave")
        if self._store.get(decision) != b"go":
            if self._store.check(["left"]) and not isinstance(problem, StreamClosedError):
                problem = BalancerError(self._store.get("left").decode())
            raise problem
        if self.dp_rank == 0 and number:  # all are past it
            for name in ("here", "decision"):
                self._store.delete_key(f"{number - 1}/{name}")

    def _warn(self, number: int, waited: float) -> None:
        """Name the ranks that the others wait for; one of those tells."""
        late = self._late(number)
        if late and self.dp_rank == min(set(range(self.dp_size)) - set(late)):
            _log.warning(
                "rank %s keeps the other ranks waiting for the next window, %.1f s so far (an "
                "error after %g s): it reads or trains more slowly, or stopped",
                ", ".join(map(str, late)), waited, self.timeout_s,
            )  # fmt: skip

    def _late(self, number: int) -> list[int]:
        """Ranks that did not come to this meeting."""
        return [
            rank
            for rank in range(self.dp_size)
            if not self._store.check([f"at/{rank}"])
            or int(self._store.get(f"at/{rank}").decode()) < number
        ]

    def _missing(self, number: int) -> str:
        return (
            f"rank {', '.join(map(str, self._late(number)))} did not come to agree on the next "
            f"window within {self.timeout_s:g} s; it stopped, or reads more slowly: raise "
            "agree_timeout_s if so"
        )


_NOTHING = torch.zeros(0, dtype=torch.uint8)
