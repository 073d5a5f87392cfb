"""ResumableStream: what frameworks look for to set the epoch of a stream, save and resume it."""

from collections.abc import Mapping, Sequence
from typing import Any

from balancer.topology import check_count
from loaders.handing_out import HandsOut
from loaders.streams.state import StreamState

__all__ = ["ResumableStream"]


class ResumableStream(HandsOut):
    """A loader whose place is kept by a `StreamState`."""

    _state: StreamState

    @property
    def sampler(self) -> "ResumableStream":
        """Where frameworks look for `set_epoch`."""
        return self

    @property
    def epoch(self) -> int:
        """Epoch being handed out, or between epochs the one that comes next."""
        return self._state.epoch

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration hand out `epoch`; without a call, epochs follow one another.

        An epoch that a state was loaded for still begins where the state says.

        Raises:
            ArgumentError: `epoch` is not a whole number >= 0.
        """
        check_count("epoch", epoch, least=0)
        self._state.set_epoch(int(epoch))

    def state_dict(self) -> dict[str, Any]:
        """State after the microbatch handed out last: JSON-able where the dataset's own is.

        It says where this rank's window begins and what of it was handed out; to resume, the
        window is read again. Every rank saves its own. Of a `ShardedStream` it has two numbers a
        worker, however many shards are left, and one for each sample of the window handed out;
        once resumed by other ranks, two for each shard that one was in the middle of and at most
        a bit for each of the others.
        """
        return self._state.state_dict()

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Let the next iteration go on after the microbatch that was handed out last.

        A dataset with `load_state_dict` (and no workers) is asked to go there; of another one the
        samples up to there are read and thrown away.

        Of a `ShardedStream` the states of all ranks, saved after the same step, may be given as a
        list: then any number of ranks and workers, under any settings of the plan, hands out
        exactly the samples that had not been; each rank is assigned shards anew.

        Raises:
            StateError: Of another loader, rank or version, and what differs; or one is missing.
        """
        self._state.load_state_dict(state)
