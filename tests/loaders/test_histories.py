"""Random histories of a training job against a plain model of what it must be handed.

The model knows the order of an epoch from the oracle in plain Python, and cuts it. All ranks run in
this process, in lock step. `EVENSTEP_HISTORIES=500` runs as many histories.
"""

import os
from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from balancer.plan import Flag
from loaders.loader import BalancedDataLoader
from tests import naive
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens

NUM_SAMPLES = 26
SEED = 5
DATASET = TextDataset(skewed_lengths(NUM_SAMPLES))
END = object()


@dataclass(frozen=True)
class Job:
    """Ranks, microbatches of each in a step, and samples of a step."""

    dp_size: int
    num_microbatches: int
    global_batch_size: int


JOBS = st.builds(Job, st.integers(1, 4), st.integers(1, 2), st.sampled_from([8, 9, 12]))


@dataclass(frozen=True)
class Place:
    """Where the model stands in an epoch; `begin` is where its order is cut from, by `job`."""

    job: Job
    epoch: int = 0
    step: int = 0
    microbatch: int = 0
    first_step: int = 0
    begin: int = 0
    in_step: tuple[int, ...] = ()
    delivered: Counter = field(default_factory=Counter)

    def members(self):
        """Ids that the step holds: a cut of the order, short at the end of the epoch."""
        order = naive.permuted(range(NUM_SAMPLES), NUM_SAMPLES, SEED, self.epoch)
        start = self.begin + (self.step - self.first_step) * self.job.global_batch_size
        return order[start : start + self.job.global_batch_size]

    @property
    def consumed(self):
        """Samples of the whole steps that are behind."""
        return self.begin + (self.step - self.first_step) * self.job.global_batch_size

    def continued_by(self, job):
        """Another job goes on at the begin of the step; it has the whole step to do."""
        if job == self.job:
            return self
        behind = self.delivered - Counter(self.in_step)
        return replace(
            self, job=job, microbatch=0, first_step=self.step, begin=self.consumed, in_step=(),
            delivered=behind,
        )  # fmt: skip


class History(RuleBasedStateMachine):
    """A job that iterates, breaks off, saves, loads, and comes back with other ranks."""

    @initialize(job=JOBS)
    def start(self, job):
        self.place = Place(job)
        self.next_epoch = 0
        self.loaders = self.new_loaders(job)
        self.streams = None
        self.saved = []
        self.loaded_place = None

    def new_loaders(self, job):
        return [
            BalancedDataLoader(
                DATASET, cost_model=text_tokens, global_batch_size=job.global_batch_size,
                num_microbatches=job.num_microbatches, dp_rank=rank, dp_size=job.dp_size,
                tail="filler", seed=SEED, collate_fn=ids_of, on_topology_change="replan",
            )
            for rank in range(job.dp_size)
        ]  # fmt: skip

    @rule(count=st.integers(1, 9))
    def iterate_long(self, count):
        self.iterate(count)

    @rule(count=st.sampled_from([1, 3]))
    def iterate_short(self, count):
        self.iterate(count)

    def iterate(self, count):
        """Each rank is handed the next microbatches, and at the end all end together."""
        if self.streams is None:
            self.streams = [iter(loader) for loader in self.loaders]
            if self.next_epoch is not None:
                self.place = Place(self.place.job, epoch=self.next_epoch)
        self.next_epoch = None
        for _ in range(count):
            handed = [next(stream, END) for stream in self.streams]
            if END in handed:
                assert all(each is END for each in handed)
                self.streams, self.next_epoch = None, self.ended
                return
            self.hand_out(handed)

    def hand_out(self, handed):
        place, self.loaded_place = self.place, None
        ids = list(place.in_step)
        for rank, (loader, microbatch) in enumerate(zip(self.loaders, handed, strict=True)):
            facts = loader.facts
            assert (facts.epoch, facts.step, facts.index, facts.dp_rank) == (
                place.epoch, place.step, place.microbatch, rank,
            )  # fmt: skip
            assert microbatch == list(facts.sample_ids)
            real = [i for i, f in zip(microbatch, facts.flags, strict=True) if f == Flag.REAL]
            ids += real
        delivered = place.delivered + Counter(ids) - Counter(place.in_step)
        place = replace(
            place, microbatch=place.microbatch + 1, in_step=tuple(ids), delivered=delivered
        )
        if place.microbatch == place.job.num_microbatches:
            assert sorted(ids) == sorted(place.members())
            place = replace(place, step=place.step + 1, microbatch=0, in_step=())
            if place.consumed >= NUM_SAMPLES:
                assert delivered == Counter(range(NUM_SAMPLES))
                self.ended = place.epoch + 1
                place = Place(place.job, epoch=place.epoch + 1)
        self.place = place

    @precondition(lambda self: self.streams is not None)
    @rule()
    def break_off(self):
        """The objects go on with the next epoch, a state with the place."""
        for stream in self.streams:
            stream.close()
        self.streams = None
        self.next_epoch = self.loaders[0].epoch

    @rule(epoch=st.integers(0, 3))
    def set_epoch(self, epoch):
        """Another epoch begins, unless it is that of a place just loaded."""
        if self.streams is not None:
            self.break_off()
        kept = self.next_epoch is None and epoch == self.place.epoch
        if not kept and self.next_epoch is None and self.place != Place(self.place.job):
            return  # gives a loaded place up, with a warning: has a test of its own
        for loader in self.loaders:
            loader.set_epoch(epoch)
        if not kept:
            self.place = Place(self.place.job, epoch=epoch)
            self.next_epoch = epoch
            self.loaded_place = None

    @rule()
    def save(self):
        """All ranks have the same state; it is the loaded one until something is handed out."""
        states = [loader.state_dict() for loader in self.loaders]
        assert all(state == states[0] for state in states)
        self.saved.append((states[0], self.loaded_place or self.place))

    @precondition(lambda self: self.saved)
    @rule(data=st.data(), job=st.none() | JOBS, fresh=st.booleans())
    def load(self, data, job, fresh):
        """Goes on at a saved place, in a job as it was, or in another at the begin of its step."""
        state, place = data.draw(st.sampled_from(self.saved))
        self.go_on(state, place, place.job if job is None else job, fresh)

    @rule(job=JOBS, fresh=st.booleans())
    def move(self, job, fresh):
        """The job is stopped where it is, and goes on at once with other ranks."""
        self.go_on(self.loaders[0].state_dict(), self.loaded_place or self.place, job, fresh)

    def go_on(self, state, place, job, fresh):
        if fresh or job != self.place.job:
            self.loaders = self.new_loaders(job)
        for loader in self.loaders:
            loader.load_state_dict(state)
            assert loader.state_dict() == state
        self.place = place.continued_by(job)
        self.loaded_place = place
        self.streams, self.next_epoch = None, None


History.TestCase.settings = settings(
    max_examples=int(os.environ.get("EVENSTEP_HISTORIES", "25")), stateful_step_count=30,
    deadline=None,
)  # fmt: skip
TestHistories = History.TestCase
