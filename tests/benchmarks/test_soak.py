"""The soak experiment for a few seconds."""

from benchmarks.soak import Run, measure_soak


def test_nothing_is_lost_where_samples_fail_and_workers_are_killed() -> None:
    records = measure_soak(
        name="soak", minutes=0.1, num_samples=1000, num_workers=2, seconds_between_kills=1.0,
        seed=0, quick=False,
    )  # fmt: skip
    values = {record.metric: record.value for record in records}
    assert values["lost"] == values["delivered_twice"] == values["unclear_errors"] == 0
    assert values["kills"] > 0
    assert values["clear_errors"] - 1 <= values["recovered"] <= values["clear_errors"]
    assert values["longest_error_seconds"] < 10
    assert values["replaced"] > 0


def test_what_is_neither_delivered_nor_reported_is_counted_as_lost() -> None:
    run = Run(num_samples=6, num_workers=1, seconds_between_kills=1, seed=0)
    run._account([(None, [], []), ({}, [0, 1], [2]), ({}, [1], [])], [5])
    assert (run.lost, run.delivered_twice, run.replaced) == (2, 1, 1)
