"""StreamLoader and rebalance on several gloo processes, whose streams differ in every way."""

import logging
import threading
import time
from typing import Any

import pytest
import torch
from torch import distributed

from balancer.errors import BalancerError
from balancer.plan import Flag
from loaders.collate import PackedCollator
from loaders.streams import exchange
from tests.loaders.streaming import (
    TextStream,
    lengths,
    on_ranks,
    rebalanced,
    stream_loader,
)

pytestmark = pytest.mark.dist

MAKERS = {"stream": stream_loader, "rebalance": rebalanced}


def own_stream(rank: int, num_samples: int) -> TextStream:
    return TextStream(lengths(num_samples, seed=rank), first=1000 * rank)


def epoch_of(loader: Any) -> list[dict[str, Any]]:
    """What every microbatch says of itself and of its step."""
    return [
        {
            "ids": [sample["id"] for sample in batch],
            "tokens": sum(len(sample["input_ids"]) for sample in batch),
            "flags": batch.facts.flags,
            "place": (batch.facts.epoch, batch.facts.step, batch.facts.index),
            "step": (
                batch.facts.num_microbatches,
                batch.facts.step_target_tokens,
                batch.facts.step_samples,
            ),
            "targets": sum(batch.facts.target_tokens),
        }
        for batch in loader
    ]


def check_ranks_agree(epochs: list[list[dict[str, Any]]]) -> None:
    """Equal numbers of microbatches, and equal facts of a step, that they add up to."""
    places = [[batch["place"] for batch in epoch] for epoch in epochs]
    assert places == [places[0]] * len(epochs)
    steps = [[batch["step"] for batch in epoch] for epoch in epochs]
    assert steps == [steps[0]] * len(epochs)
    together: dict[Any, list[dict[str, Any]]] = {}
    for epoch in epochs:
        for batch in epoch:
            together.setdefault(batch["place"][:2], []).append(batch)
    for batches in together.values():
        _, targets, samples = batches[0]["step"]
        assert sum(batch["targets"] for batch in batches) == targets
        real = [flag for batch in batches for flag in batch["flags"] if flag != Flag.FILLER]
        assert len(real) == samples
        assert all(batch["ids"] for batch in batches)


def real_ids(epochs: list[list[dict[str, Any]]]) -> list[int]:
    return sorted(
        sample_id
        for epoch in epochs
        for batch in epoch
        for sample_id, flag in zip(batch["ids"], batch["flags"], strict=True)
        if flag == Flag.REAL
    )


def key_of(stream_id: int, num_ranks: int) -> int:
    return 1000 * (stream_id % num_ranks) + stream_id // num_ranks


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize("kind", list(MAKERS))
def test_unequal_streams_end_at_the_same_step_and_nothing_is_lost_unreported(
    kind, num_ranks, tmp_path
):
    """A5: streams of 26, 7 (and 12) samples; each sample once or reported; the same twice over."""
    counts = [26, 7, 12][:num_ranks]
    options = {"global_batch_size": 4 * num_ranks, "window_size": 9, "max_tokens": 700}

    def run(rank: int) -> Any:
        results = {}
        for tail in ("drop", "pad", "filler"):
            loader = MAKERS[kind](own_stream(rank, counts[rank]), tail=tail, **options)
            first, second = epoch_of(loader), epoch_of(loader)
            results[tail] = (first, second, loader.stats())
            # A collective in every microbatch, as sharded training has, must not mix with ours.
            for _ in first:
                distributed.all_reduce(torch.ones(1))
        return results, threading.active_count()

    ranks = on_ranks(run, num_ranks, tmp_path)
    everything = sorted(1000 * r + i for r in range(num_ranks) for i in range(counts[r]))
    for tail in ("drop", "pad", "filler"):
        epochs = [results[tail][0] for results, _ in ranks]
        check_ranks_agree(epochs)
        for results, _ in ranks:
            first, second, _ = results[tail]
            later = [{**b, "place": (b["place"][0] - 1, *b["place"][1:])} for b in second]
            assert later == first
        delivered = real_ids(epochs)
        stats = [results[tail][2] for results, _ in ranks]
        dropped = sorted(key_of(i, num_ranks) for each in stats for i in each.dropped)
        assert sorted(delivered + dropped) == (
            everything
            if tail != "drop" or kind == "rebalance"
            else sorted(1000 * r + i for r, each in enumerate(stats) for i in range(each.num_read))
        )
        assert bool(dropped) == (tail == "drop")
        assert all(each.ended[1] == 7 for each in stats)
        assert all(batch["tokens"] <= 700 for epoch in epochs for batch in epoch)
    assert [threads for _, threads in ranks] == [1] * num_ranks


@pytest.mark.parametrize("kind", list(MAKERS))
def test_the_rank_that_ran_out_is_named(kind, tmp_path):
    """A5: rank 0 has 10 samples, rank 1 has 7."""

    def run(rank: int) -> Any:
        messages: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("loaders.streams").addHandler(handler)
        list(MAKERS[kind](own_stream(rank, 10 - 3 * rank)))
        return messages

    ranks = on_ranks(run, 2, tmp_path)
    for messages in ranks:
        assert messages[0].startswith("the stream of rank 1 ended after 7 samples")
    drops = [messages[1:] for messages in ranks]
    if kind == "rebalance":  # 17 samples are 4 steps of 4, and one more of rank 0
        assert [len(messages) for messages in drops] == [1, 0]
        assert drops[0][0].startswith("epoch 0: rank 0 drops 1 samples that fill no step")
    else:
        assert drops[0][0].startswith("epoch 0: rank 0 drops 2 samples")
        assert "leaves what follows in its stream unread" in drops[0][0]
        assert drops[1][0].startswith("epoch 0: rank 1 drops 1 samples")
        assert [len(messages) for messages in drops] == [1, 1]


def test_rebalanced_ranks_run_alike_though_their_streams_do_not(tmp_path):
    """Rank 1's samples are ten times as long: moved, no rank has over 1.1 of the mean's tokens."""

    def run(rank: int) -> Any:
        given = [20 + (7 * i) % 11 + 200 * rank for i in range(64)]
        loader = rebalanced(
            TextStream(given, 1000 * rank), global_batch_size=32, window_size=32, barrier="step"
        )
        return epoch_of(loader), loader.stats()

    ranks = on_ranks(run, 2, tmp_path)
    check_ranks_agree([epoch for epoch, _ in ranks])
    totals = [sum(batch["tokens"] for batch in epoch) for epoch, _ in ranks]
    assert max(totals) < 1.1 * sum(totals) / 2
    sent = sum(stats.samples_sent for _, stats in ranks)
    assert 0 < sent <= 64
    assert sum(stats.bytes_sent for _, stats in ranks) > 8 * 20 * sent
    assert real_ids([epoch for epoch, _ in ranks]) == sorted([*range(64), *range(1000, 1064)])


def test_samples_that_suit_their_ranks_stay_there(tmp_path):
    """Streams of equal samples: nothing moves."""

    def run(rank: int) -> Any:
        loader = rebalanced(TextStream([30] * 32, 1000 * rank), window_size=16)
        return epoch_of(loader), loader.stats().samples_sent, loader.stats().bytes_sent

    ranks = on_ranks(run, 2, tmp_path)
    assert [(samples, sent) for _, samples, sent in ranks] == [(0, 0), (0, 0)]
    assert [batch["ids"][0] // 1000 for epoch, _, _ in ranks for batch in epoch] == [0] * 32 + [
        1
    ] * 32


class FailingStream(TextStream):
    def sample(self, index: int) -> dict[str, Any]:
        if index == 20:
            raise OSError("the disk is gone")
        return super().sample(index)


@pytest.mark.parametrize("kind", list(MAKERS))
@pytest.mark.parametrize("where", ["source", "pickle"])
def test_what_fails_on_one_rank_is_raised_on_all(kind, where, tmp_path):
    """Rank 1's source raises, or one of its samples cannot be sent: no rank waits for it."""
    if (kind, where) == ("stream", "pickle"):
        pytest.skip("samples of a StreamLoader are not sent")

    def run(rank: int) -> Any:
        stream: TextStream = own_stream(rank, 60)
        if rank == 1 and where == "source":
            stream = FailingStream(stream.lengths, 1000)
        options: dict[str, Any] = {}
        if where == "pickle":
            stream.lengths = [20 + 200 * rank] * 60
            options = {"size_fn": _unpicklable if rank == 1 else _plain}
        loader = MAKERS[kind](stream, **options)
        told = ("none", "")
        try:
            list(loader)
        except Exception as error:
            told = (type(error).__name__, str(error))
        return *told, threading.active_count()

    ranks = on_ranks(run, 2, tmp_path)
    what = "the disk is gone" if where == "source" else "cannot be sent to another rank"
    assert all(what in message for _, message, _ in ranks)
    assert "rank 1 failed" in ranks[0][1]
    assert [name for name, *_ in ranks] == [
        "BalancerError",
        "SampleReadError" if where == "source" else "BalancerError",
    ]
    assert [threads for *_, threads in ranks] == [1, 1]


def _plain(sample: dict[str, Any]) -> dict[str, int]:
    return {"text_tokens": len(sample["input_ids"])}


def _unpicklable(sample: dict[str, Any]) -> dict[str, int]:
    sample["lock"] = threading.Lock()
    return _plain(sample)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_break_on_all_ranks_leaves_nothing_behind_and_the_loader_is_ready_again(kind, tmp_path):
    """Break after 3 microbatches, then the state of it, then the next epoch."""

    def run(rank: int) -> Any:
        options = {"global_batch_size": 8, "tail": "filler"}
        loader = MAKERS[kind](own_stream(rank, 30), **options)
        taken = []
        for batch in loader:
            taken.append([sample["id"] for sample in batch])
            if len(taken) == 3:
                break
        threads = threading.active_count()
        state = loader.state_dict()
        resumed = MAKERS[kind](own_stream(rank, 30), **options)
        resumed.load_state_dict(state)
        rest = [b["ids"] for b in epoch_of(resumed)]
        return taken, rest, [b["ids"] for b in epoch_of(loader)], threads

    for taken, rest, whole, threads in on_ranks(run, 2, tmp_path):
        assert taken + rest == whole
        assert threads == 1


@pytest.mark.parametrize("kind", list(MAKERS))
def test_states_resume_at_any_microbatch_though_streams_have_ended(kind, tmp_path):
    """Streams of 22 and 5 samples, saved after each microbatch: the rest is always the same."""

    def run(rank: int) -> Any:
        options = {"global_batch_size": 8, "tail": "filler", "window_size": 4}
        num = 22 - 17 * rank
        loader = MAKERS[kind](own_stream(rank, num), **options)
        states, whole = [], []
        for batch in loader:
            whole.append([sample["id"] for sample in batch])
            states.append(loader.state_dict())
        rests = []
        for state in states[:-1:2]:
            resumed = MAKERS[kind](own_stream(rank, num), **options)
            resumed.load_state_dict(state)
            rests.append([b["ids"] for b in epoch_of(resumed)])
        return whole, rests

    for whole, rests in on_ranks(run, 2, tmp_path):
        assert len(whole) >= 8
        assert rests == [whole[taken:] for taken in range(1, len(whole), 2)]


def test_a_break_on_one_rank_only_is_an_error_on_the_others(tmp_path):
    def run(rank: int) -> Any:
        outcomes = []
        for make in MAKERS.values():
            loader = make(own_stream(rank, 80))
            try:
                for index, _ in enumerate(loader):
                    if rank == 0 and index == 2:
                        break
                outcomes.append("no error")
            except BalancerError as error:
                outcomes.append(str(error))
        return outcomes, threading.active_count()

    ranks = on_ranks(run, 2, tmp_path)
    assert ranks[0] == (["no error"] * 2, 1)
    assert ranks[1][1] == 1
    assert all("rank 0 stopped iterating" in told for told in ranks[1][0])


@pytest.mark.parametrize("kind", list(MAKERS))
def test_a_rank_that_does_not_come_is_named_within_the_time_given(kind, tmp_path):
    """Rank 1 goes to sleep in its first microbatch."""

    def run(rank: int) -> Any:
        loader = MAKERS[kind](own_stream(rank, 80), agree_timeout_s=1.0)
        iterator = iter(loader)
        next(iterator)
        if rank == 1:
            time.sleep(4)
            iterator.close()
            return "slept"
        try:
            list(iterator)
        except BalancerError as error:
            return str(error)
        return "no error"

    ranks = on_ranks(run, 2, tmp_path)
    assert "rank 1 did not come to agree on the next window within 1 s" in ranks[0]


@pytest.mark.parametrize("kind", list(MAKERS))
def test_case_a10_a_slow_rank_is_named_while_the_others_wait(kind, tmp_path):
    """Rank 1 takes long over its last sample: rank 0 says so once, and goes on when it comes."""

    class Slow(TextStream):
        def sample(self, index: int) -> dict[str, Any]:
            time.sleep(1.5 if index == 39 else 0)
            return super().sample(index)

    def run(rank: int) -> Any:
        exchange._SLOW_S = 0.3
        messages: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
        logging.getLogger("loaders.streams").addHandler(handler)
        stream = (Slow if rank else TextStream)(lengths(40, seed=rank))
        return len(list(MAKERS[kind](stream))), messages

    (count, messages), (other_count, _) = on_ranks(run, 2, tmp_path)
    assert count == other_count > 0
    assert any(
        told.startswith("rank 1 keeps the other ranks waiting for the next window")
        for told in messages
    )


def test_other_settings_on_one_rank_are_an_error_on_all(tmp_path):
    def run(rank: int) -> Any:
        loader = stream_loader(own_stream(rank, 40), window_size=8 + 8 * rank)
        try:
            list(loader)
        except BalancerError as error:
            return str(error)
        return "no error"

    assert all("ranks 0 and 1 have different settings" in m for m in on_ranks(run, 2, tmp_path))


def test_packed_microbatches_of_two_ranks_make_the_gradient_of_one(tmp_path):
    """The gradient of the mean token loss over a step, from rebalanced microbatches, to 1e-12."""

    def run(rank: int) -> Any:
        loader = rebalanced(own_stream(rank, 16), global_batch_size=16, collate_fn=PackedCollator())
        gradients = []
        for step in loader.steps():
            weight = torch.ones((), dtype=torch.float64, requires_grad=True)
            for batch in step:
                losses = batch["labels"][batch["labels"] != -100].double() * weight
                (losses.sum() * batch["loss_scale"]).backward()
            distributed.all_reduce(weight.grad, op=distributed.ReduceOp.SUM)
            gradients.append((weight.grad / 2).item())
        return gradients

    ranks = on_ranks(run, 2, tmp_path)
    targets = [
        (1000 * rank + i, length - 1)
        for rank in range(2)
        for i, length in enumerate(lengths(16, seed=rank))
    ]
    for step, gradient in enumerate(ranks[0]):
        members = [
            (label, num) for label, num in targets if 8 * step <= label % 1000 < 8 * step + 8
        ]
        total = sum(num for _, num in members)
        expected = sum(label * num for label, num in members) / total
        assert gradient == pytest.approx(expected, rel=1e-12)
    assert ranks[0] == ranks[1]
    assert len(ranks[0]) == 2


def test_a_group_of_some_of_the_ranks_agrees_by_itself(tmp_path):
    """Ranks 0 and 2 of three read streams; rank 1 does something else."""

    def run(rank: int) -> Any:
        group = distributed.new_group([0, 2])
        if rank == 1:
            return None
        loader = rebalanced(own_stream(rank, 9 + rank), group=group, tail="filler")
        return epoch_of(loader)

    ranks = on_ranks(run, 3, tmp_path)
    check_ranks_agree([ranks[0], ranks[2]])
    assert real_ids([ranks[0], ranks[2]]) == [*range(9), *range(2000, 2011)]
