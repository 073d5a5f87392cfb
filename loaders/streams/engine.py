"""StreamEngine: from the streams of all ranks to this rank's microbatches, window by window."""

import hashlib
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from balancer.cost import Costs
from balancer.errors import BalancerError, PlanError
from balancer.plan import Flag, Plan
from loaders.microbatch import MicrobatchFacts, SampleFailure, SampleList
from loaders.step_facts import step_microbatches
from loaders.streams.exchange import RankLink, StreamClosedError
from loaders.streams.gather import GatheredWindow, gather_window
from loaders.streams.moving_plan import plan_moving
from loaders.streams.plan import WindowPlan, plan_in_place
from loaders.streams.reader import Held, WindowReader
from loaders.streams.rules import StreamRules
from loaders.streams.stats import StreamStats, note_dropped, note_ends

__all__ = ["PlannedWindow", "StreamEngine"]


@dataclass(slots=True, kw_only=True)
class PlannedWindow:
    """This rank's part of a window.

    Attributes:
        steps: Microbatches of each step, as facts and samples; taken out as they are handed out.
        failures: Samples of this rank left out since the window before.
        start: Where to begin so that the same window is planned again, JSON-able.
        is_last: Whether no window follows.
    """

    steps: deque[list[tuple[MicrobatchFacts, SampleList]]]
    failures: list[SampleFailure]
    start: dict[str, Any]
    is_last: bool


class StreamEngine:
    """Reads, agrees, plans and, where samples may move, exchanges.

    Args:
        rules: What plans depend on.
        reader: Reads this rank's samples.
        link: Connection to the other ranks.
        moves: Whether samples may go to other ranks.
    """

    def __init__(
        self, rules: StreamRules, reader: WindowReader, link: RankLink, *, moves: bool
    ) -> None:
        self.rules = rules
        self.reader = reader
        self.link = link
        self.moves = moves
        self.stats = StreamStats()
        self._quota = rules.window_steps * rules.rank_samples
        self._spare: Held | None = None
        self._spare_position: dict[str, Any] | None = None

    def windows(
        self, epoch: int, start: Mapping[str, Any] | None = None
    ) -> Generator[PlannedWindow, None, None]:
        """Windows of an epoch, from its beginning or from the `start` of one.

        Raises:
            BalancerError: A sample is at fault, another rank failed or left, or no step could be
                filled. Whatever goes wrong on one rank is raised on all.
        """
        try:
            self._check_alike()
            first_step = self._begin(epoch, start)
            while True:
                window = self._next_window(epoch, first_step)
                first_step += len(window.steps)
                is_last = window.is_last
                if window.steps:
                    yield window
                del window
                if is_last:
                    break
            if not first_step:
                raise PlanError(
                    f"the streams of {self.link.dp_size} ranks ended before a step of "
                    f"global_batch_size={self.rules.global_batch_size} samples was full, and "
                    'tail="drop" drops an incomplete step; lower global_batch_size, or pass '
                    'tail="pad" or "filler"'
                )
        except StreamClosedError:
            return
        except GeneratorExit:
            self.link.leave("stopped iterating before its stream ended")
            raise
        except BaseException as error:
            self.link.leave(f"failed ({type(error).__name__}: {error})")
            raise
        finally:
            self.reader.end()
            self.link.close()

    def read_ahead(self) -> None:
        """Read a step's samples of the next window, in the room that a step handed out left."""
        room = self._quota - len(self.reader.held)
        try:
            self.reader.read(min(room, self.rules.rank_samples))
        except BaseException as error:
            self.link.leave(f"failed ({type(error).__name__}: {error})")
            raise

    def _check_alike(self) -> None:
        """Refuse ranks with other settings: their plans would differ, or they would hang."""
        settings = (self.rules, self.reader.pricing.modules, self.moves)
        digest = hashlib.sha256(repr(settings).encode()).digest()
        alike = self.link.gather(np.frombuffer(digest[:8], np.int64))
        unlike = np.flatnonzero(alike[:, 0] != alike[0, 0])
        if unlike.size:
            raise BalancerError(
                f"ranks 0 and {unlike[0]} have different settings of the stream's plan (limits, "
                "global_batch_size, window_size, microbatches, policies or modules); give every "
                "rank the same"
            )

    def _begin(self, epoch: int, start: Mapping[str, Any] | None) -> int:
        """Start the reader; number of the first step."""
        self.stats = StreamStats()
        if start is None:
            self.reader.begin(epoch=epoch)
            return 0
        self._quota = start["quota"]
        if start["spare"] is None:
            self.reader.begin(epoch=epoch, position=start["position"])
        else:  # the stream had ended; the last samples are read for the one that stands in
            self.reader.begin(epoch=epoch, position=start["spare"])
            self.reader.fill(self._quota)
            self._keep_spare(list(self.reader.held), start["spare"])
            self.reader.held.clear()
        return int(start["first_step"])

    def _next_window(self, epoch: int, first_step: int) -> PlannedWindow:
        reader, quota = self.reader, self._quota
        reader.fill(quota)
        if not reader.held and self._spare is None and self.rules.tail != "drop" and not self.moves:
            self._spare = reader.stand_in()
        position = reader.position()
        start = {
            "position": position,
            "quota": quota,
            "first_step": first_step,
            "spare": self._spare_position if not reader.held else None,
        }
        gathered = gather_window(self.link, reader, self._spare, quota, interleaved=self.moves)
        note_ends(
            self.stats,
            gathered,
            self.rules,
            self.link.dp_rank,
            first_step=first_step,
            stops=self._stops_at_first,
        )
        is_last = bool(gathered.ended.any() if self._stops_at_first else gathered.ended.all())
        plan = self._plan(gathered, epoch, first_step, is_last)
        left = plan.left[gathered.owner[plan.left] == self.link.dp_rank]
        mine = list(islice(reader.held, len(reader.held) - len(left)))
        for _ in mine:
            reader.held.popleft()
        if is_last:
            self.stats.dropped += gathered.ids[left].tolist()
            if self.rules.tail == "drop":
                note_dropped(self.stats, self.link.dp_rank, epoch=epoch)
            reader.held.clear()
        samples = self._samples(gathered, plan.steps, mine)
        steps = deque(self._step(step, gathered, samples) for step in plan.steps)
        if not self.moves and mine:
            self._keep_spare(mine, position)
        alive = int((~gathered.ended).sum())
        if self.moves and alive:
            needed = -(-self.rules.global_batch_size // alive)
            self._quota = max(quota, needed)
        self.stats.num_steps += len(steps)
        self.stats.num_read = reader.num_read
        self.stats.left_out = list(reader.left_out)
        self.stats.bytes_sent = self.link.bytes_sent
        failures = self._new_failures(epoch, first_step)
        return PlannedWindow(steps=steps, failures=failures, start=start, is_last=is_last)

    def _new_failures(self, epoch: int, first_step: int) -> list[SampleFailure]:
        """Samples left out that the statistics do not have yet."""
        new = self.reader.omissions.take_new()
        self.stats.failed += [each.sample_id for each in new]
        return [
            SampleFailure(
                sample_id=each.sample_id, substitute_id=None, epoch=epoch, step=first_step,
                error=each.error,
            )
            for each in new
        ]  # fmt: skip

    @property
    def _stops_at_first(self) -> bool:
        """Whether the first stream to end ends all: no one else can fill its place."""
        return self.rules.tail == "drop" and not self.moves

    def _plan(
        self, gathered: GatheredWindow, epoch: int, first_step: int, is_last: bool
    ) -> WindowPlan:
        numbers: dict[str, Any] = {"epoch": epoch, "first_step": first_step}
        if self.moves:
            return plan_moving(
                gathered.costs, gathered.owner, self.rules, is_last=is_last, **numbers
            )
        empty = [rank for rank, row in enumerate(gathered.stand_in) if row is None]
        if empty and self.rules.tail != "drop" and len(gathered.costs):
            raise PlanError(
                f"the stream of rank {empty[0]} gave no sample at all, so that it has none to "
                f'repeat or to fill in with (tail="{self.rules.tail}"); give every rank some, or '
                "use rebalance()"
            )
        return plan_in_place(
            gathered.costs, gathered.owner, gathered.stand_in, self.rules, **numbers
        )

    def _keep_spare(self, mine: list[Held], position: dict[str, Any]) -> None:
        """Keep the cheapest sample, to stand in once this rank's stream has ended."""
        if self.rules.tail == "drop":
            return
        costs: Costs = self.reader.pricing.costs(np.stack([held.row for held in mine]))
        self._spare = mine[int(np.argmin(costs.total))]
        self._spare_position = position

    def _samples(
        self, gathered: GatheredWindow, plans: tuple[Plan, ...], mine: list[Held]
    ) -> dict[int, Any]:
        """This rank's samples by row of the window, once those that move have moved."""
        rank = self.link.dp_rank
        own = np.flatnonzero(gathered.owner == rank)[: len(mine)].tolist()
        samples = {row: held.sample for row, held in zip(own, mine, strict=True)}
        stand_in = gathered.stand_in[rank]
        if self._spare is not None and stand_in is not None and stand_in not in samples:
            samples[stand_in] = self._spare.sample
        if not self.moves or not plans:
            return samples
        row = np.concatenate([plan.sample_ids for plan in plans])
        to = np.concatenate([plan.cell_of_sample() % self.link.dp_size for plan in plans])
        sender = gathered.owner[row]
        moving = np.unique(np.stack([sender, to, row])[:, sender != to], axis=1)
        if not moving.size:
            return samples
        outgoing: list[list[Any]] = [[] for _ in range(self.link.dp_size)]
        for _, receiver, sent in moving[:, moving[0] == rank].T.tolist():
            outgoing[receiver].append(samples[sent])
            self.stats.samples_sent += 1
        incoming = self.link.exchange(outgoing)
        for other, parcel in enumerate(incoming):
            coming = moving[2, (moving[0] == other) & (moving[1] == rank)]
            samples |= dict(zip(coming.tolist(), parcel, strict=True))
        return samples

    def _step(
        self, plan: Plan, gathered: GatheredWindow, samples: dict[int, Any]
    ) -> list[tuple[MicrobatchFacts, SampleList]]:
        """Microbatches of this rank, with ids of the stream in their facts."""
        microbatches = []
        for rows in step_microbatches(plan, gathered.costs, dp_ranks=[self.link.dp_rank]):
            ids = tuple(int(gathered.ids[row]) for row in rows)
            self.stats.num_repeats += rows.facts.flags.count(Flag.REPEAT)
            self.stats.num_fillers += rows.facts.flags.count(Flag.FILLER)
            facts = replace(rows.facts, sample_ids=ids)
            microbatches.append((facts, SampleList([samples[row] for row in rows], facts)))
        return microbatches
