"""StreamState: where the epoch of a stream stands, saved and loaded."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

from balancer.errors import StateError
from balancer.plan import Flag
from loaders.microbatch import MicrobatchFacts
from loaders.streams.resharding import reshard
from loaders.streams.rules import StreamRules
from loaders.streams.sharded_source import ShardedSource
from loaders.streams.source import StreamSource

__all__ = ["StreamState"]

_VERSION = 3


class StreamState:
    """Epoch, start of the window, and what of the window was handed out.

    Attributes:
        epoch: Epoch being handed out, or the next one.
        window_start: Start of the window to begin with; `None`: the beginning of the epoch.
        handed_out_any: Whether the iteration has handed out a microbatch.

    Args:
        rules: What plans depend on.
        source: Where samples come from.
        num_workers: Processes that read.
        modules: Modules of the costs.
        moves: Whether samples move between ranks.
        steps_per_epoch: Steps of an epoch, if given.
    """

    def __init__(
        self,
        *,
        rules: StreamRules,
        source: StreamSource | ShardedSource,
        num_workers: int,
        modules: tuple[str, ...],
        moves: bool,
        steps_per_epoch: int | None,
    ) -> None:
        self.epoch = 0
        self.window_start: dict[str, Any] | None = None
        self.handed_out_any = False
        self._next = _beginning(0)
        self._now: dict[str, Any] | None = None
        self._done = 0
        self._handed_out: list[int] = []
        self._to_skip = 0
        self._source = source
        self._quota = rules.window_steps * rules.rank_samples
        self._num_parts = max(num_workers, 1)
        self._settings = {
            "dp_size": rules.topology.dp_size,
            "dp_rank": source.dp_rank,
            "shards": source.fingerprint,
            "topology": repr(rules.topology),
            "global_batch_size": rules.global_batch_size,
            "window_steps": rules.window_steps,
            "oversize": rules.oversize,
            "tail": rules.tail,
            "effort": rules.effort,
            "num_workers": self._num_parts,
            "modules": list(modules),
            "moves": moves,
            "steps_per_epoch": steps_per_epoch,
        }

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration begin `epoch`, unless a state of it was loaded."""
        if self._now is None and self._next["epoch"] == epoch:
            return
        self._next, self._now, self.epoch = _beginning(epoch), None, epoch

    def begin(self) -> bool:
        """Begin an iteration; whether it goes on where a state says."""
        self._now = place = self._next
        self.epoch, self.window_start = place["epoch"], place["window_start"]
        self._next = _beginning(self.epoch + 1)
        self._done, self._to_skip = 0, place["done"]
        self._handed_out = []
        self.handed_out_any = False
        return self.window_start is not None

    def enter(self, window_start: dict[str, Any]) -> None:
        """A window's microbatches follow."""
        self.window_start = window_start
        self._done, self._handed_out = 0, []

    def advance(self, facts: MicrobatchFacts, *, is_last: bool) -> bool:
        """Count a microbatch, maybe the epoch's last; whether it is to be handed out now."""
        self._done += 1
        if self._source.num_shards:  # other ranks may have to know
            flagged = zip(facts.sample_ids, facts.flags, strict=True)
            self._handed_out += [sample_id for sample_id, flag in flagged if flag == Flag.REAL]
        if self._to_skip:
            self._to_skip -= 1
            return False
        self.handed_out_any = True
        steps = self._settings["steps_per_epoch"]
        if is_last or (facts.is_last and facts.step + 1 == steps):
            self._now = _beginning(self.epoch + 1)
        else:
            self._now = {
                "epoch": self.epoch, "window_start": self.window_start, "done": self._done,
                "next_step": facts.step + facts.is_last, "handed_out": self._handed_out,
            }  # fmt: skip
        return True

    def finish(self) -> None:
        """The epoch is over; the next one follows."""
        self._now, self.epoch = None, self._next["epoch"]

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from; see `StreamLoader.state_dict`."""
        place = copy.deepcopy(self._now or self._next)
        return {"version": _VERSION, "kind": "stream", "settings": dict(self._settings), **place}

    def load_state_dict(self, state: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
        """Take up the state of this rank, or those of all ranks of a run of other settings.

        Raises:
            StateError: It is of another version or loader, or lists every setting that differs.
        """
        states = [state] if isinstance(state, Mapping) else list(state)
        for each in states:
            self._check_kind(each)
        own = [each for each in states if each["settings"] == self._settings]
        if own:
            self._next = copy.deepcopy({name: own[0][name] for name in _beginning(0)})
        elif states and (states[0] is not state or states[0]["settings"]["dp_size"] == 1):
            self._check_shards(states[0]["settings"])
            self._next = reshard(
                states, dp_rank=self._source.dp_rank, dp_size=self._source.dp_size,
                num_parts=self._num_parts, order=self._source.order(states[0]["epoch"]),
                quota=self._quota,
            )  # fmt: skip
        else:
            raise StateError(
                "state was saved under other settings: "
                f"{self._different(states[0]['settings'] if states else {})}; resume with the "
                "same, each rank with its own state; or read a ShardedStream and give the states "
                "of all ranks as a list"
            )
        self._now, self.epoch = None, self._next["epoch"]

    def _check_kind(self, state: Mapping[str, Any]) -> None:
        if state.get("kind") != "stream" or state.get("version") != _VERSION:
            raise StateError(
                f"state has kind={state.get('kind')!r}, version={state.get('version')!r}; allowed: "
                f"kind='stream', version={_VERSION}: a state_dict() of a StreamLoader or of "
                "rebalance(), by this version"
            )

    def _check_shards(self, saved: Mapping[str, Any]) -> None:
        """Refuse to go on under other settings where ranks cannot read on for one another."""
        if self._source.fingerprint is None or saved["shards"] is None:
            raise StateError(
                f"state was saved under other settings: {self._different(saved)}; a stream that "
                f"each rank has of its own, as {type(self._source.dataset).__name__}, goes on "
                "under the same only: give a ShardedStream, whose shards any rank can read"
            )
        if saved["shards"] != self._source.fingerprint:
            raise StateError(
                f"state was saved with {saved['shards']}, dataset has {self._source.fingerprint}; "
                "resume with the same shards in the same order"
            )

    def _different(self, saved: Mapping[str, Any]) -> str:
        return "; ".join(
            f"{name}: {saved.get(name)!r} saved, {value!r} here"
            for name, value in self._settings.items()
            if saved.get(name) != value
        )


def _beginning(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "window_start": None, "done": 0, "next_step": 0, "handed_out": []}
