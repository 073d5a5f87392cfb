"""Experiment overlap, in small: real images through loaders side by side."""

from pathlib import Path

import pytest

from balancer.errors import ArgumentError
from benchmarks.overlap import measure_overlap
from benchmarks.overlap_work import DEARER, mixes

SMALL = {
    "name": "overlap",
    "paces": [1.0],
    "num_microbatches": 4,
    "microbatch": 2,
    "side": 32,
    "repeats": 1,
    "seed": 0,
    "quick": False,
}


def test_every_loader_hands_out_every_microbatch_and_is_compared(shared_data: Path) -> None:
    """Threads, torch's workers and reordering: all metrics for each mix, all above zero."""
    loaders = ["stages_thread", "torch", "as_completed"]
    records = measure_overlap(folder=str(shared_data / "demo"), loaders=loaders, **SMALL)
    assert {r.data for r in records} == {f"{m}_pace1" for m in ("uniform", "real", "skewed")}
    for loader in loaders:
        metrics = {r.metric for r in records if r.planner == loader}
        assert {"total_time_over_bound", "longest_gap", "data_wait_p99"} <= metrics
        assert ("total_time_vs_torch" in metrics) == (loader != "torch")
    assert all(record.value >= 0 for record in records)


def test_one_sample_in_a_hundred_of_the_skewed_mix_is_dear(shared_data: Path) -> None:
    """The mixes hold the same number of samples, each once in the microbatches."""
    _, made = mixes(shared_data / "demo", num_microbatches=50, microbatch=4, seed=1)
    assert [mix.name for mix in made] == ["uniform", "real", "skewed"]
    for mix in made:
        assert sorted(i for ids in mix.microbatches for i in ids) == list(range(200))
    assert sorted(made[2].rounds.tolist())[-3:] == [1, DEARER, DEARER]


def test_a_folder_without_images_and_an_unknown_loader_are_refused(shared_data: Path) -> None:
    with pytest.raises(ArgumentError, match=r"folder is 'nowhere'"):
        measure_overlap(folder="nowhere", loaders=["torch"], **SMALL)
    with pytest.raises(ArgumentError, match=r"loaders has 'dali'"):
        measure_overlap(folder=str(shared_data / "demo"), loaders=["dali"], **SMALL)
