"""The resume experiment on a small epoch."""

import pytest

from benchmarks.resume import measure_resume


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")
def test_resuming_reads_nothing_that_is_behind_where_torch_reads_it_all() -> None:
    records = measure_resume(
        name="resume", num_samples=2000, step=20, batch_size=4, dp_size=4, repeats=1, seed=0,
        quick=False,
    )  # fmt: skip
    values = {(record.planner, record.metric): record.value for record in records}
    assert all(
        seconds > 0 for (_, metric), seconds in values.items() if metric != "reads_to_resume"
    )
    for planner in ("evenstep", "evenstep_replanned"):
        assert values[planner, "reads_to_resume"] == 0
        assert values[planner, "state_bytes"] < 4096
    assert values["torch_skipping", "reads_to_resume"] == 80
    assert ("torchdata_stateful", "resume_seconds") in values
