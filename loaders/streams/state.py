"""StreamState: where the epoch of a stream stands, saved and loaded."""

import copy
from collections.abc import Mapping
from typing import Any

from balancer.errors import StateError
from loaders.microbatch import MicrobatchFacts
from loaders.streams.rules import StreamRules

__all__ = ["StreamState"]

_VERSION = 1


class StreamState:
    """Epoch, start of the window, and microbatches of the window handed out.

    Attributes:
        epoch: Epoch being handed out, or the next one.
        window_start: Start of the window to begin with; `None`: the beginning of the epoch.
        handed_out_any: Whether the iteration has handed out a microbatch.

    Args:
        rules: What plans depend on.
        dp_rank: This rank.
        num_workers: Processes that read.
        modules: Modules of the costs.
        moves: Whether samples move between ranks.
        steps_per_epoch: Steps of an epoch, if given.
    """

    def __init__(
        self,
        *,
        rules: StreamRules,
        dp_rank: int,
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
        self._to_skip = 0
        self._settings = {
            "dp_size": rules.topology.dp_size,
            "dp_rank": dp_rank,
            "topology": repr(rules.topology),
            "global_batch_size": rules.global_batch_size,
            "window_steps": rules.window_steps,
            "oversize": rules.oversize,
            "tail": rules.tail,
            "effort": rules.effort,
            "num_workers": max(num_workers, 1),
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
        self.handed_out_any = False
        return self.window_start is not None

    def enter(self, window_start: dict[str, Any]) -> None:
        """A window's microbatches follow."""
        self.window_start = window_start
        self._done = 0

    def advance(self, facts: MicrobatchFacts, *, is_last: bool) -> bool:
        """Count a microbatch, maybe the epoch's last; whether it is to be handed out now."""
        self._done += 1
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
            }  # fmt: skip
        return True

    def finish(self) -> None:
        """The epoch is over; the next one follows."""
        self._now, self.epoch = None, self._next["epoch"]

    def state_dict(self) -> dict[str, Any]:
        """Everything to go on from; see `StreamLoader.state_dict`."""
        place = copy.deepcopy(self._now or self._next)
        return {"version": _VERSION, "kind": "stream", "settings": dict(self._settings), **place}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take up a state.

        Raises:
            StateError: It is of another version or loader; lists every setting that differs.
        """
        if state.get("kind") != "stream" or state.get("version") != _VERSION:
            raise StateError(
                f"state has kind={state.get('kind')!r}, version={state.get('version')!r}; allowed: "
                f"kind='stream', version={_VERSION}: a state_dict() of a StreamLoader or of "
                "rebalance(), by this version"
            )
        saved = state["settings"]
        different = [
            f"{name}: {saved.get(name)!r} saved, {value!r} here"
            for name, value in self._settings.items()
            if saved.get(name) != value
        ]
        if different:
            raise StateError(
                f"state was saved under other settings: {'; '.join(different)}; resume with the "
                "same, each rank with its own state"
            )
        self._next = copy.deepcopy(
            {name: state[name] for name in ("epoch", "window_start", "done")}
        )
        self._now, self.epoch = None, self._next["epoch"]


def _beginning(epoch: int) -> dict[str, Any]:
    return {"epoch": epoch, "window_start": None, "done": 0}
