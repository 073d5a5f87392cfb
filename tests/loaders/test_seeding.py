"""What samples draw at random depends on (seed, epoch, sample) and on nothing else."""

import random

import numpy as np
import pytest
import torch

from loaders.loader import BalancedDataLoader
from tests.loaders.fixed_plan import without_planning
from tests.loaders.planning import TextDataset, skewed_lengths, text_tokens


class Augmented(TextDataset):
    """Draws from all three global generators."""

    def __getitem__(self, index):
        return index, random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002


class AugmentedBatches(Augmented):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def draw_too(samples):
    return [*samples, (-1, random.random(), np.random.random(), torch.rand(()).item())]  # noqa: NPY002


def draws(dataset_class=Augmented, epoch=0, rank=0, dp_size=2, collate_fn=list, **options):
    loader = without_planning(
        BalancedDataLoader(
            dataset_class(skewed_lengths(48)), cost_model=text_tokens, global_batch_size=16,
            dp_rank=rank, dp_size=dp_size, collate_fn=collate_fn, **options,
        )
    )  # fmt: skip
    loader.set_epoch(epoch)
    return [sample for batch in loader for sample in batch]


@pytest.mark.parametrize("dataset_class", [Augmented, AugmentedBatches])
@pytest.mark.parametrize(
    "workers",
    [
        {"num_workers": 1},
        {"num_workers": 2},
        {"num_workers": 2, "multiprocessing_context": "spawn"},
        {"num_workers": 2, "persistent_workers": True},
    ],
)
def test_case_g5_workers_change_nothing_that_is_drawn(dataset_class, workers):
    assert draws(dataset_class, collate_fn=draw_too, **workers) == draws(
        dataset_class, collate_fn=draw_too
    )


def test_case_g5_neither_rank_nor_number_of_ranks_changes_what_a_sample_draws():
    two = draws(rank=0) + draws(rank=1)
    assert sorted(two) == sorted(draws(dp_size=1))


def test_case_g5_every_sample_draws_its_own_and_again_in_every_epoch():
    first, second, other = draws(), draws(epoch=1), draws(seed=1)
    for drawn in (first, second, other):
        assert len({values for _, *rest in drawn for values in [tuple(rest)]}) == len(drawn)
    by_sample = {index: rest for index, *rest in first}
    for drawn in (second, other):
        assert all(by_sample.get(index) != rest for index, *rest in drawn)
    assert draws() == first


def test_the_process_that_trains_keeps_its_generators():
    def state():
        return random.random(), np.random.random(), torch.rand(()).item()  # noqa: NPY002

    def seed_all():
        random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002

    seed_all()
    untouched = state()
    seed_all()
    draws(collate_fn=draw_too)
    assert state() == untouched


def from_user(worker_id):
    torch.manual_seed(17)


def test_seeding_can_be_left_to_the_user():
    """The user's worker_init_fn is called in either case, and decides where seed_samples is not."""
    once = draws(num_workers=1, seed_samples=False, worker_init_fn=from_user)
    again = draws(num_workers=1, seed_samples=False, worker_init_fn=from_user)
    assert [drawn[3] for drawn in once] == [drawn[3] for drawn in again]
    assert draws(num_workers=1, worker_init_fn=from_user) == draws()
