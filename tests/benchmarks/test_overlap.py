"""Experiment overlap, in small: real images through loaders side by side."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from balancer.errors import ArgumentError
from benchmarks.overlap import measure_overlap
from benchmarks.overlap_bounds import least_longest_gap
from benchmarks.overlap_loaders import LOADERS
from benchmarks.overlap_work import DEARER, mixes
from tests.loaders.stages.simulation import simulate_stages

SMALL = {
    "name": "overlap",
    "parts": ["loaders"],
    "paces": [1.0],
    "num_microbatches": {"skewed": 4, "real": 4, "uniform": 4},
    "microbatch": 2,
    "side": 32,
    "repeats": 1,
    "precision": 1e9,
    "minutes": 1,
    "memory_steps": 50,
    "phase": 10,
    "seed": 0,
    "quick": False,
}


def test_every_loader_hands_out_every_microbatch_and_is_compared(shared_data: Path) -> None:
    """Threads, torch's workers and reordering: all metrics for each mix, all above zero."""
    loaders = ["stages_thread", "torch", "as_completed"]
    records = measure_overlap(folder=str(shared_data / "demo"), loaders=loaders, **SMALL)
    passes = [r for r in records if r.planner in loaders]
    assert {r.data for r in passes} == {f"{m}_pace1" for m in ("uniform", "real", "skewed")}
    for loader in loaders:
        metrics = {r.metric for r in passes if r.planner == loader}
        assert {"total_time_over_bound", "longest_gap", "data_wait_p99"} <= metrics
        assert ("total_time_vs_torch" in metrics) == (loader != "torch")
        assert ("throughput_vs_best" in metrics) == (loader == "stages_thread")
    assert {r.metric for r in records if r.planner == "bound"} == {"longest_gap"}
    assert all(record.value >= 0 for record in records)


def test_memory_and_scaling_are_measured_without_images() -> None:
    """Bytes in flight keep to the bound and one sample; each phase has its stall and turns."""
    options = SMALL | {"parts": ["memory", "scaling"], "num_microbatches": {}}
    folder = Path(__file__).parent / "no_images"
    with pytest.raises(ArgumentError, match="folder"):
        measure_overlap(folder=str(folder), loaders=[], **(options | {"parts": ["loaders"]}))
    records = measure_overlap(folder=str(folder), loaders=[], **options)
    values = {(r.data, r.metric): r.value for r in records}
    assert 0 < values["slow_consumer", "peak_over_bound_and_sample"] <= 1
    for phase in ("prep_1x", "prep_4x", "prep_1x_again"):
        assert 0 <= values[phase, "stall_share"] < 1
        assert values[phase, "workers"] >= 1


def test_what_was_measured_before_sigterm_is_kept(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal in the second mix: the records of the first one come back."""
    passes = 0

    @contextmanager
    def interrupted(dataset, seconds):
        def one_pass(microbatches):
            nonlocal passes
            passes += 1
            if passes > 3:  # two in the first mix, the first one of them not counted
                os.kill(os.getpid(), signal.SIGTERM)
            yield from microbatches

        yield one_pass

    monkeypatch.setitem(LOADERS, "interrupted", interrupted)
    options = SMALL | {"num_microbatches": {"uniform": 2, "real": 2, "skewed": 2}, "quick": False}
    records = measure_overlap(
        folder=str(shared_data / "demo"), loaders=["interrupted"], **(options | {"repeats": 1})
    )
    assert "uniform_pace1" in {r.data for r in records}
    assert "skewed_pace1" not in {r.data for r in records}


@pytest.mark.parametrize("seed", range(5))
def test_no_simulated_schedule_has_a_shorter_longest_gap(seed: int) -> None:
    """The bound holds for the engine's own schedule with everything known ahead."""
    rng = np.random.default_rng(seed)
    work = rng.choice([1.0, 1.0, 1.0, 30.0], size=(40, 4)).tolist()
    for pause in (0.0, 5.0, 40.0):
        _, waits = simulate_stages(work, workers=2, consumer_seconds=pause, look_ahead=1000)
        least = least_longest_gap(work, workers=2, consumer_seconds=pause)
        assert 0.5 <= least <= max(waits) + 1e-4


def test_one_sample_in_a_hundred_of_the_skewed_mix_is_dear(shared_data: Path) -> None:
    """Each order of a mix has each sample once; no two orders are alike."""
    _, made = mixes(
        shared_data / "demo",
        num_microbatches={"uniform": 50, "real": 50, "skewed": 50},
        microbatch=4,
        num_orders=2,
        seed=1,
    )
    assert [mix.name for mix in made] == ["uniform", "real", "skewed"]
    for mix in made:
        for order in mix.orders:
            assert sorted(i for ids in order for i in ids) == list(range(200))
        assert mix.orders[0] != mix.orders[1]
    assert sorted(made[2].rounds.tolist())[-3:] == [1, DEARER, DEARER]


def test_a_folder_without_images_and_unknown_names_are_refused(shared_data: Path) -> None:
    folder = str(shared_data / "demo")
    with pytest.raises(ArgumentError, match=r"folder is 'nowhere'"):
        measure_overlap(folder="nowhere", loaders=["torch"], **SMALL)
    with pytest.raises(ArgumentError, match=r"loaders has 'dali'"):
        measure_overlap(folder=folder, loaders=["dali"], **SMALL)
    with pytest.raises(ArgumentError, match=r"parts has 'disk'"):
        measure_overlap(folder=folder, loaders=["torch"], **(SMALL | {"parts": ["disk"]}))
