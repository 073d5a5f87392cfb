"""A loader keeps nothing that grows with the epochs, and is freed with its last reference."""

import gc
import logging
import weakref

import numpy as np
import pytest

from loaders.failures import FailureList
from loaders.loader import BalancedDataLoader
from loaders.microbatch import SampleFailure
from loaders.series import Series
from tests.loaders.planning import TextDataset, ids_of, skewed_lengths, text_tokens


class Broken(TextDataset):
    """Every fourth sample cannot be read."""

    def __getitem__(self, index):
        if index % 4 == 3:
            raise OSError("no such file")
        return super().__getitem__(index)


def make_loader(dataset=None, **options):
    dataset = dataset or TextDataset(skewed_lengths(32))
    return BalancedDataLoader(
        dataset, cost_model=text_tokens, global_batch_size=4, dp_rank=0, dp_size=1,
        collate_fn=ids_of, effort="fast", **options,
    )  # fmt: skip


def failure(sample_id):
    return SampleFailure(sample_id=sample_id, substitute_id=0, epoch=0, step=0, error="OSError")


def test_all_failures_are_counted_and_the_first_listed_and_that_is_said_once(caplog):
    """Over the epochs each broken sample fails again; what is kept stays as it is."""
    loader = make_loader(Broken(skewed_lengths(32)), on_sample_error="replace")
    loader.failures.most = 10
    of_microbatches = []
    with caplog.at_level(logging.WARNING, logger="loaders"):
        for _ in range(3):
            for _ in loader:
                of_microbatches += loader.facts.failures
    assert loader.failures.total == len(of_microbatches) == 24
    assert loader.failures == of_microbatches[:10]
    assert [record.args[1] for record in caplog.records] == [10]
    assert "lists the first 10" in caplog.text


def test_a_list_of_failures_that_is_just_full_says_nothing(caplog):
    failures = FailureList(most=3)
    failures.add([failure(0), failure(1)])
    failures.add([failure(2)])
    failures.add([])
    assert not caplog.records
    failures.add([failure(3)])
    assert (len(failures), failures.total, len(caplog.records)) == (3, 4, 1)


def test_a_series_keeps_its_sum_and_the_last_numbers():
    numbers = np.random.default_rng(0).exponential(size=1000)
    series = Series(keep=64)
    for end, number in enumerate(numbers.tolist(), start=1):
        series.add(number)
        last = numbers[max(0, end - 64) : end]
        assert series.quantile(0.95) == np.quantile(last, 0.95)
    assert series.total == pytest.approx(numbers.sum())
    assert (series.count, series.largest) == (1000, numbers.max())


@pytest.mark.parametrize("ending", ["whole epoch", "break", "steps", "state"])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}],
    ids=["alone", "worker", "persistent"],
)
def test_a_loader_is_freed_with_its_last_reference(options, ending):
    """No reference cycle holds the dataset until garbage is collected."""
    dataset = TextDataset(skewed_lengths(32))
    loader = make_loader(dataset, **options)
    state = loader.state_dict()
    alive = [weakref.ref(each) for each in (dataset, loader, loader.batch_sampler)]
    gc.collect()
    gc.disable()
    try:
        if ending == "whole epoch":
            loader.sampler.set_epoch(1)
            list(loader)
            loader.stats()
        elif ending == "break":
            for _ in loader:
                break
        elif ending == "steps":
            for step in loader.steps():
                next(step)
                break
            del step
        else:
            loader.load_state_dict(state)
            next(iter(loader))
        del loader, dataset
        assert [each() for each in alive] == [None] * 3
    finally:
        gc.enable()
