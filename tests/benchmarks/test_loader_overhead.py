"""The loader_overhead experiment on few small images."""

from benchmarks.loader_overhead import measure_loader_overhead


def test_every_number_of_workers_is_paired_with_torch_and_stalls_are_measured() -> None:
    records = measure_loader_overhead(
        name="loader_overhead", num_samples=48, batch_size=8, side=16, num_workers=[0, 1],
        repeats=1, dp_size=2, samples_per_rank=8, num_microbatches=2, num_steps=3, seed=0,
        quick=False,
    )  # fmt: skip
    assert all(record.value > 0 for record in records)
    assert [(record.metric, record.topology) for record in records if "jpeg" in record.data] == [
        (metric, f"dp1_m1_workers{workers}")
        for workers in (0, 1)
        for metric in ("total_time_vs_torch", "longest_gap_vs_torch")
    ]
    assert [record.data for record in records if record.metric == "step_stall_seconds"] == [
        "lognormal_raise", "lognormal_replace",
    ]  # fmt: skip
