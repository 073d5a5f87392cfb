"""reshard: what the ranks of a stopped run had not handed out, shared out to ranks anew."""

from collections.abc import Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

import numpy as np

from balancer.errors import StateError
from loaders.streams.shard_place import place_in_shards, shards_left

__all__ = ["reshard"]


def reshard(
    states: Sequence[Mapping[str, Any]],
    *,
    dp_rank: int,
    dp_size: int,
    num_parts: int,
    order: Sequence[int],
    quota: int,
) -> dict[str, Any]:
    """Where one of `dp_size` ranks begins, so that together they hand out exactly what is left.

    Every sample that a rank had read but none had handed out is read again. Shards are shared out
    by turns: those that ranks were in the middle of, then the others in the order of the epoch.
    O(shards of all ranks + samples of a window).

    Args:
        states: States of all ranks that saved, in any order, of shards and within one window.
        dp_rank: Rank that begins.
        dp_size: Ranks that begin.
        num_parts: Workers of the rank.
        order: Shards in the order of the epoch that the states are of.
        quota: Samples that each rank reads for a window.

    Returns:
        `epoch`, `window_start`, `done`, `next_step` and `handed_out`, as a state has them.

    Raises:
        StateError: A rank's state is missing, or they are not of the same window.
    """
    by_rank = sorted(states, key=lambda state: int(state["settings"]["dp_rank"]))
    _check_one_run(by_rank)
    epoch = by_rank[0]["epoch"]
    if by_rank[0]["window_start"] is None:
        return _place(epoch, None, 0)
    positions = [state["window_start"]["position"] for state in by_rank]
    given = set(chain.from_iterable(state["handed_out"] for state in by_rank))
    for position in positions:
        given.update(position["skipped"], position["place"]["excluded"])
    parts = [
        part
        for rank, position in enumerate(positions)
        for part in shards_left(position["place"], order, dp_rank=rank, dp_size=len(positions))
    ]
    num_shards = len(order)
    in_turn = chain.from_iterable(zip_longest(*parts))
    pending = [_past_given(entry, given, num_shards) for entry in in_turn if entry is not None]
    begun = [entry for entry in pending if entry[1]]
    unbegun = {shard for shard, index in pending if not index}
    places = [place for place, shard in enumerate(order) if shard in unbegun]
    first, rest = begun[dp_rank::dp_size], places[(dp_rank - len(begun)) % dp_size :: dp_size]
    start_of = dict(first) | dict.fromkeys((order[place] for place in rest), 0)
    index_and_shard = [divmod(sample_id, num_shards) for sample_id in given]
    excluded = [
        index * num_shards + shard
        for index, shard in index_and_shard
        if shard in start_of and index >= start_of[shard]
    ]
    next_step = max(state["next_step"] for state in by_rank)
    window_start = {
        "position": {
            "number": 0, "skip": 0, "skipped": [], "until": 0, "failed": [],
            "place": place_in_shards(
                num_parts=num_parts, first=first, rest=np.isin(np.arange(num_shards), rest),
                excluded=excluded,
            ),
        },
        "quota": quota, "first_step": next_step, "spare": None,
    }  # fmt: skip
    return _place(epoch, window_start, next_step)


def _place(epoch: int, window_start: dict[str, Any] | None, next_step: int) -> dict[str, Any]:
    return {
        "epoch": epoch, "window_start": window_start, "done": 0, "next_step": next_step,
        "handed_out": [],
    }  # fmt: skip


def _past_given(entry: Sequence[int], given: set[int], num_shards: int) -> tuple[int, int]:
    """A shard and the first of its samples that is left."""
    shard, index = entry
    while index * num_shards + shard in given:
        index += 1
    return shard, index


def _check_one_run(by_rank: Sequence[Mapping[str, Any]]) -> None:
    """Refuse states that are not of all ranks of one run, or not of one window of it."""
    size = by_rank[0]["settings"]["dp_size"]
    ranks = [state["settings"]["dp_rank"] for state in by_rank]
    if ranks != list(range(size)):
        raise StateError(
            f"states are those of ranks {ranks} of a run of {size}; give the state of every rank "
            "once"
        )
    for rank, state in enumerate(by_rank):
        for told, of in (("settings", _shared_settings), ("places", _window_of)):
            if of(state) != of(by_rank[0]):
                raise StateError(
                    f"states of ranks 0 and {rank} are of different {told}: {of(by_rank[0])} and "
                    f"{of(state)}; give states that all ranks saved after the same step"
                )


def _shared_settings(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state["settings"].items() if name != "dp_rank"}


def _window_of(state: Mapping[str, Any]) -> str:
    start = state["window_start"]
    where = "its beginning" if start is None else f"the window from step {start['first_step']}"
    return f"epoch {state['epoch']}, {where}"
