"""torch's arguments: what is illegal there or here is refused by both names, the rest works."""

import multiprocessing

import pytest
import torch
from torch.utils.data import SequentialSampler

from balancer.errors import BalancerError
from balancer.samples import SampleTable
from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import TextDataset, ids_of, make_planner, skewed_lengths, text_tokens

DATASET = TextDataset(skewed_lengths(50))


def make_loader(dataset=DATASET, **options):
    settings = {"cost_model": text_tokens, "batch_size": 8, "dp_rank": 0, "dp_size": 2}
    return BalancedDataLoader(dataset, collate_fn=ids_of, **(settings | options))


def view():
    return BalancedBatchSampler(make_planner(), dp_rank=0)


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"sampler": SequentialSampler(DATASET)}, ("sampler", "cost_model")),
        ({"in_order": False}, ("in_order", "dp_size")),
        ({"drop_last": True, "tail": "pad"}, ("drop_last", "tail")),
        ({"drop_last": False, "tail": "drop"}, ("drop_last", "tail")),
        ({"global_batch_size": 16}, ("batch_size", "global_batch_size")),
        ({"pin_memory_device": "cuda"}, ("pin_memory_device", "pin_memory")),
        ({"num_workers": -1}, ("num_workers",)),
        ({"num_workers": True}, ("num_workers",)),
        ({"prefetch_factor": 0}, ("prefetch_factor",)),
        ({"prefetch_factor": 0, "num_workers": 2}, ("prefetch_factor",)),
        ({"timeout": -1}, ("timeout",)),
        ({"persistent_workers": "yes"}, ("persistent_workers",)),
        ({"pin_memory": 1}, ("pin_memory",)),
        ({"worker_init_fn": 3}, ("worker_init_fn",)),
        ({"generator": 3}, ("generator",)),
        ({"multiprocessing_context": "threads"}, ("multiprocessing_context", "fork")),
        (
            {"dp_size": 7, "batch_size": None, "global_batch_size": 3},
            ("global_batch_size", "dp_size"),
        ),
        ({"sizes": SampleTable.from_lengths([1, 2])}, ("sizes", "dataset")),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_arguments_that_do_not_go_are_refused_by_name(options, names):
    with pytest.raises(BalancerError) as caught:
        make_loader(**options)
    assert all(name in str(caught.value) for name in names), caught.value


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 8},
        {"shuffle": False},
        {"drop_last": True},
        {"sampler": SequentialSampler(DATASET)},
        {"seed": 3},
        {"on_topology_change": "replan"},
    ],
    ids=lambda value: "-".join(value),
)
def test_a_batch_sampler_excludes_what_it_has_itself(options):
    with pytest.raises(BalancerError, match=f"batch_sampler.*{next(iter(options))}|"
                       f"{next(iter(options))}.*batch_sampler"):  # fmt: skip
        BalancedDataLoader(DATASET, batch_sampler=view(), **options)


def test_case_j4_all_worker_options_without_workers():
    """Wrappers pass them always; nothing that is handed out depends on them."""
    loader = make_loader(
        num_workers=0, prefetch_factor=4, persistent_workers=True, timeout=30,
        multiprocessing_context=multiprocessing.get_context("spawn"), worker_init_fn=print,
        generator=torch.Generator(), pin_memory=False, in_order=True,
    )  # fmt: skip
    assert list(loader) == list(make_loader())


@pytest.mark.parametrize("options", [
    {"num_workers": 0}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True},
])  # fmt: skip
def test_cases_c6_a7_g1_epochs_do_not_depend_on_workers(options):
    """Three epochs differ, are whole, and are the same whoever reads them."""
    loader, plain = make_loader(**options), make_loader()
    epochs = [list(loader) for _ in range(3)]
    assert epochs == [list(plain) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert {len(epoch) for epoch in epochs} == {len(loader)} == {loader.steps_per_epoch}
    loader.set_epoch(0)
    assert list(loader) == epochs[0]


def test_case_m1_fewer_samples_than_ranks():
    """Three samples for seven ranks: one each, the repeats flagged; or a clear error."""
    dataset = TextDataset([3, 4, 5])
    options = {"batch_size": 1, "dp_size": 7}
    handed = []
    for rank in range(7):
        loader = make_loader(dataset, **(options | {"dp_rank": rank, "tail": "pad"}))
        handed += [(microbatch, loader.facts.flags) for microbatch in loader]
    assert sorted(i for ids, flags in handed for i in ids if flags == (0,)) == [0, 1, 2]
    assert sorted(flags for _, flags in handed) == [(0,)] * 3 + [(1,)] * 4
    with pytest.raises(BalancerError, match=r"3 samples .* global_batch_size=7.*drop_last"):
        make_loader(dataset, **options)


def test_case_m2_a_batch_smaller_than_the_ranks_names_both():
    with pytest.raises(BalancerError, match=r"global_batch_size is 6, .*dp_size=7"):
        make_loader(batch_size=None, global_batch_size=6, dp_size=7)


@pytest.mark.parametrize("drop", [{"drop_last": True}, {"tail": "drop"}, {}])
def test_case_m3_fewer_samples_than_one_batch(drop):
    with pytest.raises(BalancerError, match=r"50 samples .* global_batch_size=64.*drop_last"):
        make_loader(batch_size=32, **drop)


@pytest.mark.parametrize(("tail", "steps", "samples"), [("drop", 3, 48), ("pad", 4, 50),
                                                        ("filler", 4, 50)])  # fmt: skip
def test_case_i6_nobody_divides_by_hand(tail, steps, samples):
    loader = make_loader(tail=tail)
    assert loader.steps_per_epoch == sum(1 for _ in loader.steps()) == steps
    assert loader.samples_per_epoch == samples
    assert loader.microbatches_per_step == 1
    assert len(loader) == steps
    assert make_loader(max_tokens=10**4).microbatches_per_step is None
