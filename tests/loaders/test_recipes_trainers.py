"""The programs of loaders/RECIPES.md that run in one process, as they are written there."""

import itertools
import re
from typing import Any

import pytest

from balancer.errors import ArgumentError
from loaders.megatron import MegatronBatchSampler
from tests.loaders.planning import make_planner
from tests.loaders.test_recipes import program


def run(title: str) -> dict[str, Any]:
    """Run a recipe in this process; the names that it leaves behind."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program(title), title, "exec"), names)
    return names


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_torchdata_goes_on_in_the_middle_of_a_step():
    """Each sample once: 3 microbatches before the state, 9 after it, also read by 2 workers."""
    names = run("torchdata")
    assert len(names["before"]) == 3
    assert len(names["after"]) == 9
    ids = [sample for batch in names["before"] + names["after"] for sample in batch]
    assert sorted(ids) == list(range(48))
    assert names["after"][0] == names["following"]


def test_megatron_goes_on_from_consumed_samples():
    """Two ranks resumed after 4 of 3 steps an epoch get the ids of the 5th and on; each once an epoch."""
    make_loader = run("Megatron-LM")["external_loader"]
    numbers = {"micro_batch_size": 4, "global_batch_size": 16, "data_parallel_size": 2}

    def steps(consumed_samples, num_steps):
        loaders = [
            make_loader(consumed_samples=consumed_samples, data_parallel_rank=rank, **numbers)
            for rank in (0, 1)
        ]
        microbatches = [itertools.islice(loader, 2 * num_steps) for loader in loaders]
        ids = [[batch["sample_ids"].tolist() for batch in part] for part in microbatches]
        return [[rank[2 * step : 2 * step + 2] for rank in ids] for step in range(num_steps)]

    whole = steps(0, 6)
    assert steps(64, 2) == whole[4:]
    for epoch in (whole[:3], whole[3:]):
        read = [i for step in epoch for rank in step for batch in rank for i in batch]
        assert sorted(read) == list(range(48))
    assert whole[:3] != whole[3:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"consumed_samples": 24}, "consumed_samples is 24, global_batch_size is 16; allowed"),
        ({"data_parallel_size": 4}, "data_parallel_size is 4, the planner's dp_size is 2"),
        ({"micro_batch_size": 2}, "micro_batch_size is 2, but the planner's global_batch_size"),
        ({"data_parallel_rank": 2}, "dp_rank is 2, the topology's dp_size is 2; allowed"),
    ],
)
def test_megatron_numbers_that_are_not_the_plan_s_are_refused(change, message):
    numbers = {"consumed_samples": 0, "micro_batch_size": 4}
    numbers |= {"data_parallel_rank": 0, "data_parallel_size": 2}
    with pytest.raises(ArgumentError, match=re.escape(message)):
        MegatronBatchSampler(make_planner(), **(numbers | change))
