"""torchdata's StatefulDataLoader drives the batch sampler: its state is where the user stands."""

import pickle

import pytest
from torchdata.stateful_dataloader import StatefulDataLoader

from balancer.errors import StateError
from loaders.sampler import BalancedBatchSampler
from tests.loaders.planning import make_planner

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
WORKERS = pytest.mark.parametrize("num_workers", [0, 2])
EPOCH = 6


def make_loader(num_workers, **options):
    sampler = BalancedBatchSampler(make_planner(**options), dp_rank=0, on_topology_change="replan")
    return StatefulDataLoader(
        range(50), batch_sampler=sampler, collate_fn=list, num_workers=num_workers
    )


@WORKERS
@pytest.mark.parametrize("behind", [0, 1, 4, EPOCH])
def test_it_goes_on_where_it_was_and_the_next_epoch_is_whole(num_workers, behind):
    """After k of n microbatches come n - k, then n; after all of an epoch the next."""
    plain = make_loader(0)
    first, second = list(plain), list(plain)
    loader = make_loader(num_workers)
    if behind:
        for count, _ in enumerate(loader, start=1):
            if count == behind < EPOCH:
                break
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    resumed = make_loader(num_workers)
    resumed.load_state_dict(state)
    expected = [first[behind:], second] if behind < EPOCH else [second]
    assert [list(resumed) for _ in expected] == expected
    assert len(resumed) == EPOCH


@WORKERS
def test_other_ranks_go_on_with_what_is_left(num_workers):
    """Four ranks become one at the second step: its ids are those that were left."""
    loader = make_loader(num_workers, dp_size=4, num_microbatches=1)
    next(iter(loader))
    state = loader.state_dict()
    resumed = make_loader(num_workers, dp_size=1)
    resumed.load_state_dict(state)
    ids = sorted(i for microbatch in resumed for i in microbatch)
    planner = make_planner()
    assert ids == sorted(i for step in (1, 2) for i in planner.step_ids(0, step)[0].tolist())


def test_a_state_of_another_seed_is_refused():
    loader = make_loader(0)
    next(iter(loader))
    resumed = make_loader(0, seed=1)
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(StateError, match="seed: its default in the state, 1 here"):
        iter(resumed)
