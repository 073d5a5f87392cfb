"""accelerate shards the global view and prepares stock loaders: nothing repeats, counts agree."""

import pytest
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard, prepare_data_loader, skip_first_batches
from torch.utils.data import DataLoader

from loaders.loader import BalancedDataLoader
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import TextDataset, ids_of, make_planner, text_tokens

RANKS = 2


def rank_views(tail: str) -> list[list[list[int]]]:
    """Microbatches of each rank by its own view."""
    planner = make_planner(tail=tail)
    return [list(BalancedBatchSampler(planner, dp_rank=rank)) for rank in range(RANKS)]


@pytest.mark.parametrize("tail", ["drop", "pad", "filler"])
@pytest.mark.parametrize("even_batches", [True, False])
def test_case_j1_shards_of_the_global_view_are_the_rank_views(tail, even_batches):
    """Each shard is the view of its rank, so counts are equal and none is repeated to even out."""
    planner, views = make_planner(tail=tail), rank_views(tail)
    for rank, view in enumerate(views):
        shard = BatchSamplerShard(
            BalancedBatchSampler(planner), RANKS, rank, even_batches=even_batches
        )
        assert list(shard) == view
        assert len(shard) == len(view) == len(views[0])
    if tail == "drop":
        ids = [sample for view in views for microbatch in view for sample in microbatch]
        assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("tail", "num_workers"), [("drop", 0), ("drop", 2), ("pad", 0), ("filler", 0)]
)
def test_case_i8_j5_prepared_global_view_has_the_length_it_iterates(tail, num_workers):
    """On two ranks every epoch of a prepared stock loader is as long as `len` says."""
    planner = make_planner(tail=tail)
    for rank, view in enumerate(rank_views(tail)):
        stock = DataLoader(
            range(50), batch_sampler=BalancedBatchSampler(planner), collate_fn=list,
            num_workers=num_workers,
        )  # fmt: skip
        prepared = prepare_data_loader(stock, num_processes=RANKS, process_index=rank)
        first, second = list(prepared), list(prepared)
        assert len(prepared) == len(first) == len(second)
        assert first == view
        assert first != second
        prepared.set_epoch(0)
        assert list(skip_first_batches(prepared, 4)) == view[4:]


def test_case_j5_a_rank_view_is_prepared_by_one_process():
    """A single process prepares a stock loader over a rank view: nothing is sharded."""
    batches = BalancedBatchSampler(make_planner(), dp_rank=0)
    stock = DataLoader(range(50), batch_sampler=batches, collate_fn=list)
    prepared = Accelerator(cpu=True).prepare(stock)
    assert list(prepared) == rank_views("drop")[0]


def test_case_j5_our_loader_stays_as_it_is():
    """`prepare` returns a BalancedDataLoader itself, with its `steps`, state and rank."""
    loader = BalancedDataLoader(
        TextDataset([3, 1, 4, 1]), cost_model=text_tokens, batch_size=2, dp_rank=0, dp_size=1,
        collate_fn=ids_of,
    )  # fmt: skip
    assert Accelerator(cpu=True).prepare(loader) is loader
