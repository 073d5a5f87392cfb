"""BalancedDataLoader with filled steps and with modules in step."""

import numpy as np
import pytest

from balancer.cost import Costs
from balancer.errors import ArgumentError
from balancer.samples import SampleTable
from loaders.loader import BalancedDataLoader

LENGTHS = np.random.default_rng(1).integers(5, 40, 120)


class Numbers:
    """Dataset of its own indices."""

    def __len__(self):
        return len(LENGTHS)

    def __getitem__(self, index):
        return index


def loader(dp_rank, **options):
    return BalancedDataLoader(
        Numbers(), sizes=SampleTable.from_lengths(LENGTHS), dp_rank=dp_rank, dp_size=2,
        collate_fn=list, **options,
    )  # fmt: skip


def by_length(table):
    return table.text_tokens


def test_i7_without_a_batch_size_steps_are_filled():
    """Ranks have equal numbers of microbatches, len is exact, each step tells its samples."""
    ranks = [loader(rank, cost_model=by_length, max_tokens=100, tail="filler") for rank in (0, 1)]
    announced = [len(each) for each in ranks]
    assert announced == [each.steps_per_epoch for each in ranks]
    delivered = [list(each) for each in ranks]
    assert announced == [len(each) for each in delivered]
    assert announced[0] == announced[1]
    assert {i for each in delivered for ids in each for i in ids} == set(range(120))
    assert all(LENGTHS[ids].sum() <= 100 for each in delivered for ids in each)
    again = loader(0, cost_model=by_length, max_tokens=100, tail="filler")
    sizes = [step.num_samples for step in again.steps()]
    assert sum(sizes) == 120
    assert len(set(sizes)) > 1


def test_a_batch_size_or_a_limit_is_needed():
    """With neither there is nothing that ends a step."""
    with pytest.raises(ArgumentError, match="batch_size is None, global_batch_size is None"):
        loader(0, cost_model=by_length)
    with pytest.raises(ArgumentError, match="batch_size is None, global_batch_size is None"):
        loader(0, cost_model=by_length, max_samples=4)


def test_f1_a_loader_spreads_images():
    """F1: every microbatch of every rank has an image sample where there are enough."""

    def cost_model(table):
        values = np.stack([np.arange(120) % 10 == 0, table.text_tokens], axis=1)
        return Costs.from_values(values, modules=("vision", "language"), tokens=table.text_tokens)

    for rank in (0, 1):
        batches = list(
            loader(rank, cost_model=cost_model, batch_size=10, num_microbatches=2,
                   modality_sync="spread", shuffle=False)
        )  # fmt: skip
        assert len(batches) == 6
        assert all(any(index % 10 == 0 for index in ids) for ids in batches)
