"""BalancedDataLoader: what it hands out, in steps and epochs, with and without workers."""

import gc
import multiprocessing
from collections import namedtuple

import pytest
import torch

from balancer.errors import ArgumentError
from balancer.plan import Flag
from balancer.samples import SampleTable
from loaders.collate import PackedCollator, PaddedCollator
from loaders.loader import BalancedDataLoader
from loaders.reading import MicrobatchDataset
from loaders.sample_errors import SampleReadError
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import (
    BatchedTextDataset,
    TextDataset,
    ids_of,
    make_planner,
    skewed_lengths,
    text_tokens,
)

DATASETS = [TextDataset, BatchedTextDataset]
WORKERS = [
    {"num_workers": 0},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "spawn"},
]


def make_loader(dataset=None, num_samples=50, **options):
    dataset = dataset or TextDataset(skewed_lengths(num_samples))
    settings = {
        "cost_model": text_tokens,
        "global_batch_size": 16,
        "num_microbatches": 2,
        "dp_rank": 0,
        "dp_size": 2,
        "collate_fn": ids_of,
    }
    return BalancedDataLoader(dataset, **(settings | options))


@pytest.mark.parametrize("workers", WORKERS, ids=["alone", "fork", "spawn"])
@pytest.mark.parametrize("dataset_class", DATASETS)
def test_the_microbatches_are_those_of_the_plan_whoever_reads_them(dataset_class, workers):
    loader = make_loader(dataset_class(skewed_lengths(50)), **workers)
    plan = loader.batch_sampler.planner.plan_epoch(0)
    assert list(loader) == [ids.tolist() for ids in plan.for_rank(0)]


@pytest.mark.parametrize("workers", WORKERS, ids=["alone", "fork", "spawn"])
def test_facts_reach_the_collator_in_every_process(workers):
    loader = make_loader(collate_fn=PackedCollator(check_targets="error"), **workers)
    for step in loader.steps():
        for batch in step:
            assert batch["global_target_tokens"] == step.num_target_tokens
            assert batch["global_samples"] == step.num_samples == 16
            assert batch["loss_scale"] == 2 / step.num_target_tokens
            assert batch["sample_ids"].tolist() == list(loader.facts.sample_ids)
            assert loader.facts.step == step.number


def test_the_ranks_of_a_step_add_up_to_its_target_tokens():
    loaders = [make_loader(dp_rank=rank, collate_fn=PackedCollator()) for rank in (0, 1)]
    for steps in zip(*(loader.steps() for loader in loaders), strict=True):
        counted = sum(batch["num_target_tokens"] for step in steps for batch in step)
        assert counted == steps[0].num_target_tokens == steps[1].num_target_tokens


Pair = namedtuple("Pair", "ids total")


def as_pair(samples):
    return Pair(torch.tensor([sample["id"] for sample in samples]), len(samples))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_type_that_the_users_collate_function_returns_is_kept(num_workers):
    for batch in make_loader(collate_fn=as_pair, num_workers=num_workers):
        assert type(batch) is Pair
        assert type(batch.ids) is torch.Tensor


def test_without_a_collate_function_samples_are_stacked_as_torch_does():
    loader = make_loader(
        range(10), sizes=SampleTable.from_lengths([1] * 10), global_batch_size=4, collate_fn=None
    )
    assert [batch.dtype for batch in loader] == [torch.int64] * len(loader)


def test_steps_group_the_same_microbatches():
    loader = make_loader()
    flat = list(loader)
    loader.set_epoch(0)
    steps = [(step.number, len(step), list(step)) for step in loader.steps()]
    assert [(number, size) for number, size, _ in steps] == [(0, 2), (1, 2), (2, 2)]
    assert [batch for _, _, batches in steps for batch in batches] == flat


def test_what_is_left_of_a_step_is_not_mistaken_for_the_next():
    loader = make_loader()
    whole = [list(step) for step in loader.steps()]
    loader.set_epoch(0)
    firsts = [next(step) for step in loader.steps()]
    assert firsts == [batches[0] for batches in whole]


def test_a_step_whose_loader_iterator_is_gone_says_so_rather_than_end_early():
    step = next(make_loader().steps())
    next(step)
    with pytest.raises(RuntimeError, match="step 0 ended 1 microbatches early"):
        next(step)


@pytest.mark.parametrize("tail", ["drop", "pad", "filler"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_case_i2_len_is_what_is_iterated_in_every_epoch(tail, num_workers):
    loader = make_loader(num_samples=53, tail=tail, num_workers=num_workers)
    for _ in range(2):
        assert len(loader) == sum(1 for _ in loader)


def test_len_is_that_of_the_running_epoch_to_its_end():
    lengths = skewed_lengths(64)
    loader = make_loader(
        TextDataset(lengths), num_microbatches=1, max_tokens=max(lengths), num_workers=2
    )
    promised = [loader.batch_sampler.num_microbatches(epoch) for epoch in range(6)]
    assert len(set(promised)) > 1, "the epochs were to differ in length"
    for epoch in range(6):
        seen = [(loader.epoch, len(loader)) for _ in loader]
        assert seen == [(epoch, promised[epoch])] * promised[epoch]


@pytest.mark.parametrize(
    "workers", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]
)
def test_case_g1_epochs_differ_and_come_again_whatever_the_workers(workers):
    loader, plain = make_loader(**workers), make_loader()
    epochs = [list(loader) for _ in range(3)]
    assert epochs == [list(plain) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    loader.set_epoch(1)
    assert list(loader) == epochs[1]
    loader.sampler.set_epoch(0)
    assert list(loader) == epochs[0]


def test_repeats_are_flagged_and_fillers_have_no_loss():
    for tail, flag in (("pad", Flag.REPEAT), ("filler", Flag.FILLER)):
        flagged = 0
        for rank in (0, 1):
            loader = make_loader(
                num_samples=33, tail=tail, dp_rank=rank, collate_fn=PackedCollator()
            )
            for batch in loader:
                flagged += int((batch["sample_flags"] == flag).sum())
                assert batch["is_filler"] == (batch["num_target_tokens"] == 0)
        assert flagged == (15 if tail == "pad" else 3)


def children_since(others):
    """Processes that were started since; those of other tests may still be ending."""
    gc.collect()
    return set(multiprocessing.active_children()) - others


def test_a_break_leaves_nothing_running():
    others, loader = children_since(set()), make_loader(num_workers=2)
    for _ in loader:
        break
    assert not children_since(others)
    for step in loader.steps():
        next(step)
        break
    assert not children_since(others)
    assert len(list(loader)) == len(loader)


def test_persistent_workers_start_afresh_after_a_break():
    others, plain = children_since(set()), make_loader()
    loader = make_loader(num_workers=2, persistent_workers=True)
    for _ in loader:
        break
    assert len(children_since(others)) == 2
    plain.set_epoch(1)
    assert list(loader) == list(plain)
    del loader
    assert not children_since(others)


def test_an_exception_in_the_loop_leaves_nothing_running():
    others, loader = children_since(set()), make_loader(num_workers=2)
    kept = None
    try:
        for number in loader:
            raise ZeroDivisionError(number)
    except ZeroDivisionError as error:
        kept = error
    assert not children_since(others)
    assert kept is not None


def test_two_iterators_at_once_do_not_disturb_each_other():
    loader, apart = make_loader(), make_loader()
    first, second = list(apart), list(apart)
    assert list(zip(loader, loader, strict=True)) == list(zip(first, second, strict=True))


class Broken(TextDataset):
    def __getitem__(self, index):
        raise OSError("disk on fire")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_in_a_sample_reaches_the_loop_and_leaves_nothing_running(num_workers):
    others = children_since(set())
    loader = make_loader(Broken([3] * 32), num_workers=num_workers)
    with pytest.raises(SampleReadError, match="disk on fire"):
        next(iter(loader))
    assert not children_since(others)


def test_case_l2_planning_reads_no_sample():
    assert len(make_loader(Broken([3] * 32))) == 4


def test_frameworks_find_the_attributes_they_look_for():
    dataset = TextDataset(skewed_lengths(50))
    loader = make_loader(dataset, num_workers=0, prefetch_factor=4, persistent_workers=True)
    assert loader.dataset is dataset
    assert loader.collate_fn is ids_of
    assert isinstance(loader.batch_sampler, BalancedBatchSampler)
    loader.sampler.set_epoch(3)
    assert loader.epoch == loader.sampler.epoch == loader.batch_sampler.sampler.epoch == 3
    assert (loader.batch_size, loader.num_workers) == (None, 0)
    assert (loader.pin_memory, loader.drop_last) == (False, True)
    assert not isinstance(loader, torch.utils.data.DataLoader)


def test_case_j4_options_for_workers_may_be_given_without_workers():
    loader = make_loader(
        num_workers=0,
        prefetch_factor=2,
        persistent_workers=True,
        multiprocessing_context="spawn",
        timeout=5,
        pin_memory=False,
        pin_memory_device="",
        in_order=True,
        worker_init_fn=None,
        generator=torch.Generator(),
    )
    assert len(list(loader)) == len(loader)


def test_batch_size_is_the_average_of_a_microbatch():
    loader = make_loader(batch_size=4, global_batch_size=None)
    assert loader.batch_sampler.planner.global_batch_size == 16


def test_drop_last_is_another_word_for_the_tail():
    tails = [
        make_loader(drop_last=given).batch_sampler.planner.tail for given in (None, True, False)
    ]
    assert tails == ["drop", "drop", "pad"]


def test_the_collator_says_on_what_the_limit_is_checked():
    collator = PaddedCollator(pad_token_id=0)
    limits = make_loader(collate_fn=collator, max_samples=9).batch_sampler.planner.topology.limits
    assert (limits.layout, limits.max_samples) == ("padded", 9)
    loader = make_loader(collate_fn=collator, max_tokens=1500)
    assert max(batch["input_ids"].numel() for batch in loader) <= 1500


def test_a_batch_sampler_may_be_given_in_place_of_the_plans_arguments():
    dataset = TextDataset(skewed_lengths(50))
    view = BalancedBatchSampler(make_planner(), dp_rank=1)
    loader = BalancedDataLoader(dataset, batch_sampler=view, collate_fn=ids_of)
    assert list(loader) == [ids.tolist() for ids in view.planner.plan_epoch(0).for_rank(1)]


def test_a_dataset_that_carries_facts_itself_is_not_wrapped_again():
    dataset = MicrobatchDataset(TextDataset(skewed_lengths(50)))
    loader = make_loader(dataset, sizes=dataset.dataset.sizes, collate_fn=PackedCollator())
    assert all("loss_scale" in batch for batch in loader)


class Endless(torch.utils.data.IterableDataset):
    def __iter__(self):
        yield from iter(int, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost_model": None}, "cost_model is None"),
        ({"dataset": [1, 2, 3]}, "dataset has no sizes of its own"),
        ({"dataset": Endless()}, "dataset is a Endless"),
        ({"sizes": SampleTable.from_lengths([1])}, "sizes has 1 rows, dataset has 50"),
        ({"global_batch_size": None}, "batch_size is None, global_batch_size is None"),
        ({"batch_size": 2}, "batch_size is 2, global_batch_size is 16"),
        ({"batch_size": 0, "global_batch_size": None}, "batch_size is 0"),
        ({"sampler": range(3)}, "sampler and cost_model exclude"),
        ({"in_order": False}, "in_order is False"),
        ({"batch_sampler": [[1]]}, "batch_sampler is a list .* cost_model"),
        (
            {"batch_sampler": BalancedBatchSampler(make_planner(), dp_rank=0)},
            "batch_sampler and cost_model are both given",
        ),
        ({"tail": "pad", "drop_last": True}, "drop_last is True, tail is 'pad'"),
        (
            {"layout": "padded", "collate_fn": PackedCollator()},
            "layout is 'padded', but collate_fn",
        ),
        ({"dp_rank": 2}, "dp_rank is 2, dp_size is 2"),
        ({"num_workers": -1}, "num_workers is -1"),
        ({"num_microbatches": 0}, "num_microbatches is 0"),
        ({"global_batch_size": 3}, "global_batch_size is 3"),
        ({"max_tokens": -5}, "max_tokens is -5"),
        ({"barrier": "never"}, "barrier is 'never'"),
        ({"oversize": "split"}, "oversize is 'split'"),
        ({"tail": "wrap"}, "tail is 'wrap'"),
    ],
)
def test_bad_arguments_are_refused_by_name(options, message):
    with pytest.raises(ArgumentError, match=message):
        make_loader(**options)


def test_limits_are_given_once():
    from balancer.topology import Limits

    with pytest.raises(ArgumentError, match="limits and max_tokens are both given"):
        make_loader(limits=Limits(), max_tokens=5)
    with pytest.raises(ArgumentError, match="layout is 'padded', limits has layout 'packed'"):
        make_loader(limits=Limits(), layout="padded")


def test_the_view_of_all_ranks_is_refused():
    with pytest.raises(ArgumentError, match="dp_rank=None"):
        BalancedDataLoader(range(50), batch_sampler=BalancedBatchSampler(make_planner()))
