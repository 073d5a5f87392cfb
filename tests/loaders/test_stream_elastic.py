"""Streams in shards on gloo processes: resumed by other numbers of ranks, again and again."""

import json
import os
import random
import re
import subprocess
import sys
from itertools import islice
from typing import Any

import pytest
from torch import distributed

from balancer.plan import Flag
from tests.loaders.streaming import on_ranks, rebalanced, shards_of, stream_loader
from tests.loaders.test_recipes import program

pytestmark = pytest.mark.dist

MAKERS = {"stream": stream_loader, "rebalance": rebalanced}
NUM_PROCESSES = 4


def drawn_cases(seed: int, num_cases: int) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """Sizes of shards, and numbers of ranks that run one after another with their microbatches."""
    draw = random.Random(seed)
    cases = []
    for _ in range(num_cases):
        sizes = [draw.randint(0, 30) for _ in range(draw.randint(1, 9))] + [1]
        runs = [(draw.randint(1, NUM_PROCESSES), draw.randint(0, 9)) for _ in range(3)]
        cases.append((sizes, [*runs, (draw.randint(1, NUM_PROCESSES), 1000)]))
    return cases


@pytest.mark.parametrize("kind", list(MAKERS))
def test_what_ranks_had_not_handed_out_others_hand_out_once(kind, tmp_path):
    """H3, H4: any shards, one to four ranks, stopped at any microbatch.

    Where there are fewer shards than ranks, some have no sample of their own and run on fillers.
    """
    cases = drawn_cases(seed=len(kind), num_cases=8)

    def run(rank: int) -> Any:
        groups = [distributed.new_group(range(n + 1)) for n in range(NUM_PROCESSES)]
        outcomes = []
        for sizes, runs in cases:
            got: list[int] = []
            counts: list[int] = []
            states: list[Any] = []
            ended = False
            for dp_size, taken in runs:
                report: Any = None
                if rank < dp_size and not ended:
                    loader = MAKERS[kind](
                        shards_of(sizes), group=groups[dp_size - 1], global_batch_size=12,
                        window_size=15, tail="filler",
                        effort="fast",
                    )  # fmt: skip
                    if states:
                        loader.load_state_dict(states)
                    iterator = iter(loader)
                    batches = list(islice(iterator, taken))
                    for batch in batches:
                        pairs = zip(batch.facts.sample_ids, batch.facts.flags, strict=True)
                        assert list(batch.facts.sample_ids) == [each["id"] for each in batch]
                        got += [sample_id for sample_id, flag in pairs if flag == Flag.REAL]
                    report = (json.loads(json.dumps(loader.state_dict())), len(batches))
                reports: list[Any] = [None] * NUM_PROCESSES
                distributed.all_gather_object(reports, report)
                if ended:
                    continue
                iterator = None  # only now, so that no rank leaves another one waiting
                states = [state for state, _ in reports[:dp_size]]
                counts.append(len({num for _, num in reports[:dp_size]}))
                ended = states[0]["epoch"] == 1
            outcomes.append((got, counts, ended))
        return outcomes

    ranks = on_ranks(run, NUM_PROCESSES, tmp_path)
    for number, (sizes, runs) in enumerate(cases):
        outcomes = [outcomes[number] for outcomes in ranks]
        delivered = sorted(sample_id for got, _, _ in outcomes for sample_id in got)
        expected = [
            index * len(sizes) + shard for shard, size in enumerate(sizes) for index in range(size)
        ]
        assert delivered == sorted(expected), (sizes, runs)
        assert {ended for _, _, ended in outcomes} == {True}
        # In each run one number of microbatches, the same on all ranks.
        assert all(set(counts) == {1} for _, counts, _ in outcomes)


def test_the_recipe_stops_with_two_ranks_and_goes_on_with_three(tmp_path):
    """96 samples in 9 shards: 36 on two ranks, the other 60 on three, each once."""
    sizes = [6, 7, 8, 9, 10, 11, 12, 13, 20]
    (tmp_path / "shards").mkdir()
    for shard, size in enumerate(sizes):
        lines = [str([index] * (1 + 5 * index % 40)) for index in range(size)]
        (tmp_path / "shards" / f"{shard}.jsonl").write_text("\n".join(lines))
    (tmp_path / "stream.py").write_text(program("A stream in shards"))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    runs = []
    for num_ranks in (2, 3):
        done = subprocess.run(
            [*torchrun, str(num_ranks), "stream.py"], cwd=tmp_path, capture_output=True, text=True,
            timeout=120, check=False, env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        found = re.findall(r"rank \d: \d+ samples (\[.*?\])", done.stdout)
        assert len(found) == num_ranks
        runs.append([sample_id for text in found for sample_id in json.loads(text)])
    assert [len(run) for run in runs] == [36, 60]
    expected = [index * 9 + shard for shard, size in enumerate(sizes) for index in range(size)]
    assert sorted(runs[0] + runs[1]) == sorted(expected)
