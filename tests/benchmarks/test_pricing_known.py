"""The filter and the monitor keep what they promise, on a few seeds."""

from benchmarks.pricing_known import known_records


def test_known_truths_are_found() -> None:
    records = known_records("e", num_seeds=4, num_samples=20_000)
    values = {(r.planner, r.metric): r.value for r in records}
    assert values["two filters", "coefficient_error_worst"] < 0.05
    assert values["no filter", "coefficient_error_median"] > 0.1
    assert values["monitor", "delay_worst"] <= 200
    assert values["monitor", "false_alarms"] == 0
