"""Which rank am I: every source, in its order, and every refusal."""

import pytest
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh

from balancer.errors import ArgumentError
from loaders.rank import discover_rank


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def process_group():
    """A world of four in which this process is rank 2; the fake backend talks to nobody."""
    from torch.testing._internal.distributed.fake_pg import FakeStore  # registers the backend

    torch.distributed.init_process_group("fake", rank=2, world_size=4, store=FakeStore())
    yield
    torch.distributed.destroy_process_group()


def test_alone_on_a_machine_there_is_one_rank():
    assert discover_rank() == (0, 1)


def test_the_launcher_environment_is_used_without_a_process_group(monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert discover_rank() == (5, 8)


def test_explicit_numbers_win_over_the_environment(monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert discover_rank(dp_rank=1, dp_size=2) == (1, 2)


def test_the_process_group_wins_over_the_environment(process_group, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert discover_rank() == (2, 4)


def test_a_mesh_counts_its_data_parallel_dimensions_only(process_group):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert discover_rank(mesh=mesh) == (1, 2)


def test_replicate_and_shard_dimensions_count_together(process_group):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    assert discover_rank(mesh=mesh) == (2, 4)


def test_a_mesh_of_one_dimension_may_have_any_name(process_group):
    assert discover_rank(mesh=init_device_mesh("cpu", (4,), mesh_dim_names=("world",))) == (2, 4)


def test_a_mesh_without_a_data_parallel_dimension_is_refused(process_group):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    with pytest.raises(ArgumentError, match=r"mesh has dimensions \('pp', 'tp'\)"):
        discover_rank(mesh=mesh)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dp_rank": 4, "dp_size": 4}, "dp_rank is 4, dp_size is 4"),
        ({"dp_rank": -1, "dp_size": 4}, "dp_rank is -1"),
        ({"dp_rank": 0, "dp_size": 0}, "dp_size is 0"),
        ({"dp_rank": 0}, "dp_rank is 0, dp_size is None; give both"),
        ({"dp_size": 3}, "dp_rank is None, dp_size is 3; give both"),
    ],
)
def test_a_rank_outside_the_world_is_refused_by_name(given, message):
    with pytest.raises(ArgumentError, match=message):
        discover_rank(**given)


def test_half_an_environment_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ArgumentError, match="RANK is 1, WORLD_SIZE is None"):
        discover_rank()


def test_an_environment_that_is_no_number_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "first")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ArgumentError, match="RANK is 'first'"):
        discover_rank()
