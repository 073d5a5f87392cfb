"""The scale experiment on a small table."""

import json
from pathlib import Path

import numpy as np
import pytest

from balancer.sizing.tables import load_table
from benchmarks import scale, scale_rank
from benchmarks.scale import measure_scale, write_sizes


def test_sizes_on_disk_are_those_of_text_and_images(tmp_path: Path) -> None:
    """Three of five samples have one image, and nothing else is left in the folder."""
    write_sizes(tmp_path / "sizes.arrow", 23, seed=1)
    table = load_table(tmp_path / "sizes.arrow")
    assert len(table) == 23
    assert table.num_images.tolist() == ([1, 1, 1, 0, 0] * 5)[:23]
    assert len(table.image_heights) == table.num_images.sum()
    assert table.text_tokens.min() >= 1
    assert not table.num_videos.any()
    assert [path.name for path in tmp_path.iterdir()] == ["sizes.arrow"]
    assert np.array_equal(table.select([22]).image_widths, table.image_widths[-1:])


def test_a_rank_starts_and_seeks_beside_torchs_sampler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that the experiment promises is there, and memory is small.

    In this process, where kernels may be compiled already.
    """

    def in_process(task: str, setting: dict[str, object]) -> dict[str, float]:
        result: dict[str, float] = getattr(scale_rank, task)(json.loads(json.dumps(setting)))
        return result

    monkeypatch.setattr(scale, "_in_process", in_process)
    records = measure_scale(
        name="scale", sizes=[3000, 10**9], model="text-7b", dp_size=4, dp_rank=2,
        num_microbatches=2, samples_per_rank=8, max_tokens=32768, most_for_peers=3000,
        folder=None, seed=0, quick=True,
    )  # fmt: skip
    values = {(r.planner, r.metric): r.value for r in records}
    ours = {metric for planner, metric in values if planner == "balanced"}
    assert ours == {
        "first_pass_seconds", "open_seconds", "epoch_start_seconds", "epoch_start_mib",
        "seek_seconds_first", "seek_seconds_middle", "seek_seconds_last",
    }  # fmt: skip
    assert values["balanced", "epoch_start_mib"] < 16
    assert values["distributed_sampler", "epoch_start_seconds"] > 0
