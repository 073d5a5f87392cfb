"""Benchmarks run end to end on small choices and write what they promise."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from balancer.errors import ArgumentError
from balancer.flops.presets import preset
from balancer.topology import Topology
from benchmarks.figures import draw
from benchmarks.measure import Record, median_seconds, read_records, write_records
from benchmarks.planners import Balanced, Baseline
from benchmarks.planning_time import measure_planning_time
from benchmarks.step_time import measure_step_time
from benchmarks.summary import markdown
from benchmarks.traces import TileTrace, Trace, trace_costs

_ROOT = Path(__file__).resolve().parents[2]
_EMBEDDED = Trace(name="embedded")
_SMALL = Topology(dp_size=4, num_microbatches=2)


def _arrival() -> Baseline:
    from benchmarks.baselines import arrival

    return Baseline(name="arrival", assign=arrival)


def _step_time(**traces: Trace) -> list[Record]:
    return measure_step_time(
        name="step_time",
        traces=traces,
        cost=preset("qwen2.5-vl-3b"),
        planners={"balanced": Balanced(), "arrival": _arrival()},
        topologies={"small": _SMALL},
        barriers=["step", "microbatch"],
        samples_per_rank=16,
        num_steps=2,
        seed=0,
        quick=False,
    )


def _record(**changes: object) -> Record:
    fields: dict[str, object] = {
        "experiment": "e", "data": "d", "planner": "p", "topology": "dp8_m4", "barrier": "step",
        "metric": "m", "value": 1.0, "unit": "ratio", "n": 1, "commit": "c", "versions": {},
    }  # fmt: skip
    return Record(**(fields | changes))  # type: ignore[arg-type]


def test_step_time_gives_every_planner_on_the_same_samples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    absent = Trace(name="absent", path="absent.parquet")
    records = _step_time(embedded=_EMBEDDED, absent=absent, again=Trace(name="again"))
    values = {(r.data, r.planner, r.barrier, r.metric): r.value for r in records if r.n == 2}
    for barrier in ("step", "microbatch"):
        ours = values["embedded", "balanced", barrier, "step_time_over_bound"]
        theirs = values["embedded", "arrival", barrier, "step_time_over_bound"]
        assert 1 <= ours < 1.1 < theirs
        assert values["embedded", "balanced", barrier, "step_time_over_bound_worst"] >= ours
        assert values["embedded", "balanced", barrier, "speedup_vs_arrival"] > 1.1
    assert {r.topology for r in records if r.data == "all"} == {"dp4_m2", "all"}
    assert "there is no absent.parquet, skipped" in capsys.readouterr().err


def test_step_time_without_any_trace_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ArgumentError, match="data=embedded"):
        _step_time(absent=Trace(name="absent", path="absent.parquet"))


def test_planning_time_is_set_beside_sorting() -> None:
    records = measure_planning_time(
        name="planning_time",
        traces={"embedded": _EMBEDDED},
        cost=preset("qwen2.5-vl-3b"),
        planners={"balanced": Balanced()},
        topologies={"small": _SMALL},
        barriers=None,
        sizes={"small": [256]},
        repeats=3,
        seed=0,
        quick=True,
    )
    values = {r.metric: r.value for r in records}
    assert set(values) == {
        "planning_seconds", "argsort_seconds", "planning_over_argsort", "planned_over_bound",
        "compile_seconds",
    }  # fmt: skip
    ratio = values["planning_seconds"] / values["argsort_seconds"]
    assert values["planning_over_argsort"] == pytest.approx(ratio)
    assert values["compile_seconds"] > 0


def test_samples_the_model_cannot_take_are_left_out_and_counted(shared_data: Path) -> None:
    mixture = Trace(name="mixture", path=str(shared_data / "traces" / "mixture.parquet"))
    costs, left_out = trace_costs(mixture, preset("qwen2.5-vl-7b"))
    assert (len(costs), left_out) == (31785, 983)


def test_tiles_are_priced_as_the_tokens_they_were_recorded_with(shared_data: Path) -> None:
    from pyarrow import parquet

    path = shared_data / "traces" / "internvl_sft_tiles.parquet"
    costs, left_out = trace_costs(TileTrace(name="tiles", path=str(path)), preset("qwen2.5-vl-7b"))
    columns = parquet.read_table(path, columns=["text_tokens", "n_tiles"])
    expected = columns["text_tokens"].to_numpy() + 256 * columns["n_tiles"].to_numpy()
    assert left_out == 0
    assert (costs.tokens == expected).all()


def test_records_are_written_whole_and_kept_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "records.json"
    write_records(path, [_record(value=1.0), _record(data="x")])
    assert len(write_records(path, [_record(value=2.0)], keep=True)) == 2
    assert {r.data: r.value for r in read_records(path)} == {"x": 1.0, "d": 2.0}
    assert len(write_records(path, [_record()])) == 1
    entry = json.loads(path.read_text())[0]
    assert list(entry) == [
        "experiment", "data", "planner", "topology", "barrier", "metric", "value", "unit", "n",
        "commit", "versions",
    ]  # fmt: skip


def test_a_summary_has_tables_command_and_hardware(tmp_path: Path) -> None:
    over = _record(metric="step_time_over_bound", value=1.25, planner="arrival")
    worst = _record(metric="step_time_over_bound_worst", value=1.5, planner="arrival")
    text = markdown([over, worst, _record(experiment="other")], "run this")
    assert "| d | 1 | 1.250 (1.500) |" in text
    assert "# other" in text
    assert "Command: `run this`" in text
    assert "Hardware: " in text
    draw([over, worst], tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 5000
    draw([_record()], tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def test_the_median_leaves_out_warm_up_calls() -> None:
    calls: list[int] = []
    assert median_seconds(lambda: calls.append(1), repeats=3, warm_up=2) >= 0
    assert len(calls) == 5


@pytest.mark.slow
def test_a_sweep_gathers_its_records_in_one_file(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    done = subprocess.run(
        [
            sys.executable, "-W", "error", "-m", "benchmarks.run", "-m",
            "planner=arrival,token_greedy", "num_steps=1", f"json={path}",
            f"hydra.sweep.dir={tmp_path / 'sweep'}",
        ],
        cwd=_ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {record.planner for record in read_records(path)} == {"arrival", "token_greedy"}
    assert "-m planner=arrival,token_greedy" in path.with_suffix(".md").read_text()


@pytest.mark.slow
def test_an_absent_trace_ends_in_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "benchmarks.run", "data=text", f"trace_dir={tmp_path}",
        ],
        cwd=_ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("benchmarks.run: traces: none is there")
