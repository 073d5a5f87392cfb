"""The partition benchmark: records of every kind, and the peer's own result."""

import numpy as np
import pytest

from benchmarks.karmarkar_karp import karmarkar_karp
from benchmarks.partition import costs_of, measure_partition


@pytest.mark.parametrize("equal_size", [False, True])
def test_the_peer_places_every_item_once(equal_size: bool) -> None:
    parts = karmarkar_karp([7, 1, 4, 4, 2, 6], 3, equal_size=equal_size)
    assert sorted(item for part in parts for item in part) == list(range(6))
    if equal_size:
        assert [len(part) for part in parts] == [2, 2, 2]


def test_two_way_differencing_of_the_peer_is_the_published_example() -> None:
    costs = [8, 7, 6, 5, 4]
    parts = karmarkar_karp(costs, 2, equal_size=False)
    assert sorted(sum(costs[item] for item in part) for part in parts) == [14, 16]


def test_records_set_ours_beside_the_peer() -> None:
    records = measure_partition(
        name="partition", distributions=["workload"], sizes=[[64, 4], [50, 4], [90, 4]],
        speeds=[1, 0.5], most_for_peer=256, repeats=2, seed=0, quick=True,
    )  # fmt: skip
    values = {(r.planner, r.topology, r.barrier, r.metric): r.value for r in records}
    for topology, counts in (("n64_k4", "free"), ("n64_k4", "equal"), ("n50_k4", "free")):
        ours = values["balanced", topology, counts, "makespan_over_bound"]
        peer = values["verl_karmarkar_karp", topology, counts, "makespan_over_bound"]
        assert 1.0 - 1e-9 <= ours <= peer + 1e-5
        assert values["balanced", topology, counts, "above_verl"] == pytest.approx(ours - peer)
    assert ("balanced", "n50_k4", "equal", "seconds") not in values
    assert values["balanced", "n90_k4", "free", "makespan_over_bound"] < 1.01
    assert ("verl_karmarkar_karp", "n90_k4", "free", "seconds") not in values
    worst = "makespan_over_simple_bound_worst"
    assert 1.0 <= values["balanced", "n64_k2", "speeds [1, 0.5]", worst] < 1.05


def test_lengths_are_drawn_by_name() -> None:
    lengths = costs_of("bimodal", 1000, 0)
    assert lengths.min() >= 1
    assert lengths.max() <= 16384
    assert (costs_of("workload", 1000, 0) == 24576 * lengths + lengths**2).all()
    assert np.array_equal(costs_of("zipf", 10, 5), costs_of("zipf", 10, 5))
    with pytest.raises(ValueError, match="data is 'uniform'"):
        costs_of("uniform", 3, 0)
