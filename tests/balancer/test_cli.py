"""The command line: what it prints and writes, and its answer to bad input."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from balancer.cli.main import main
from balancer.cost import evaluate_costs
from balancer.flops.presets import preset
from balancer.plan import Plan
from balancer.sizing.tables import embedded_table

_MODEL = ["--model", "qwen2.5-vl-7b"]
_RANKS = ["--dp-size", "4", "--num-microbatches", "2", "--global-batch-size", "64"]
_PLAN = ["plan", "embedded", *_MODEL, *_RANKS, "--steps", "2"]


def test_a_plan_is_shown_beside_the_given_order(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_PLAN) == 0
    out, err = capsys.readouterr()
    assert out.startswith("8192 samples, ")
    for words in ("128 samples -> 2 steps on 4 ranks", "given order", "speed-up", "what binds"):
        assert words in out
    assert err == ""


def test_json_has_the_plan_and_both_measures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_PLAN, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record) == {
        "data", "model", "topology", "global_batch_size", "seed", "epoch", "fingerprint",
        "compile_s", "planning_s", "report", "written",
    }  # fmt: skip
    report = record["report"]
    assert set(report) == {
        "samples", "steps", "microbatches", "dp_size", "barrier", "unit", "planned", "given",
        "speedup", "binds", "planners", "dropped", "repeated", "fillers", "alone",
        "displacement", "step_samples",
    }  # fmt: skip
    assert set(report["planned"]) == set(report["given"]) == {
        "step_imbalance", "microbatch_imbalance", "module_imbalance", "idle_fraction",
        "total_time", "time_over_bound", "worst_over_bound", "padding_fraction", "fill",
        "largest", "rank_busy", "rank_idle",
    }  # fmt: skip
    assert report["planned"]["total_time"] < report["given"]["total_time"]
    assert record["topology"]["limits"]["max_tokens"] is None


def test_a_saved_plan_is_the_one_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, plot = tmp_path / "plan.npz", tmp_path / "loads.png"
    assert main([*_PLAN, "--json", "--out", str(out), "--plot", str(plot)]) == 0
    record = json.loads(capsys.readouterr().out)
    plan = Plan.load(out)
    assert plan.fingerprint == record["fingerprint"]
    plan.check(evaluate_costs(preset("qwen2.5-vl-7b"), embedded_table()))
    assert record["written"] == {
        "plan": str(out), "plot": str(plot), "loads": str(tmp_path / "loads.csv"),
    }  # fmt: skip
    assert plot.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert main(["report", str(out), "embedded", *_MODEL, "--json"]) == 0
    again = json.loads(capsys.readouterr().out)["report"]
    assert again["planned"] == record["report"]["planned"]
    assert again["given"] is None


def test_limits_and_policies_reach_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--max-tokens", "16384", "--oversize", "alone", "--barrier", "step", "--json"]
    assert main([*_PLAN, *options]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["topology"]["limits"]["max_tokens"] == 16384
    assert record["report"]["barrier"] == "step"
    assert set(record["report"]["planned"]["fill"]) == {"tokens"}


@pytest.fixture
def sizes(tmp_path: Path) -> Path:
    """Sizes of 100 text-only samples under names of their own; sample 7 is very long."""
    tokens = np.arange(100, 200)
    tokens[7] = 9000
    path = tmp_path / "sizes.parquet"
    parquet.write_table(pa.table({"n": tokens, "name": [str(i) for i in range(100)]}), path)
    return path


def test_columns_are_named_by_options(sizes: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = sizes.with_name("config.json")
    config.write_text(
        json.dumps(
            {
                "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
            }
        )
    )  # fmt: skip
    data = [str(sizes), str(sizes), "--text-tokens-column", "n", "--model", str(config)]
    assert main(["plan", *data, *_RANKS, "--json", "--no-shuffle", "--tail", "pad"]) == 0
    report = json.loads(capsys.readouterr().out)["report"]
    assert (report["samples"], report["steps"]) == (200, 4)
    assert report["repeated"] == list(range(56))


_BAD: dict[str, tuple[list[str], list[str]]] = {
    "missing column": (["SIZES", "--model", "text-7b"], ["text_tokens", "--text-tokens-column"]),
    "named column missing": (
        ["SIZES", "--model", "text-7b", "--text-tokens-column", "m"],
        ["'m'", "its columns are n, name"],
    ),
    "column of texts": (
        ["SIZES", "--model", "text-7b", "--text-tokens-column", "name"],
        ["'name' of type string", "cast"],
    ),
    "missing file": (["absent.parquet", *_MODEL], ["absent.parquet", "`embedded`"]),
    "not Parquet": (["TEXT", *_MODEL], ["not a Parquet file"]),
    "oversize": (
        ["SIZES", "--model", "text-7b", "--text-tokens-column", "n", "--max-tokens", "4096"],
        ["sample 7 has 9000 tokens", "raise --max-tokens to 9000", '--oversize="drop"'],
    ),
    "unknown model": (["embedded", "--model", "gpt"], ["'gpt'", "qwen2.5-vl-7b"]),
    "model is no object": (["embedded", "--model", "LIST"], ["config.json"]),
    "model is no JSON": (["embedded", "--model", "BROKEN"], ["is not JSON"]),
    "zero ranks": (["embedded", *_MODEL, "--dp-size", "0"], ["--dp-size is 0"]),
    "tiny step": (
        ["embedded", *_MODEL, "--global-batch-size", "7"],
        ["--global-batch-size is 7", "at least 8"],
    ),
    "huge step": (["embedded", *_MODEL, "--global-batch-size", "9999"], ['--tail="pad"']),
    "no steps": (["embedded", *_MODEL, "--steps", "0"], ["--steps is 0"]),
    "no folder": (["embedded", *_MODEL, "--out", "absent/plan.npz"], ["--out", "create it"]),
    "no figure": (["embedded", *_MODEL, "--plot", "loads.pdf"], ["--plot", ".png"]),
}


@pytest.mark.parametrize("case", _BAD)
def test_bad_input_is_one_line_with_a_cure_and_exit_code_2(
    case: str, sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"SIZES": sizes, "TEXT": sizes.with_suffix(".txt")}
    files |= {"LIST": sizes.with_name("list.json"), "BROKEN": sizes.with_name("broken.json")}
    files["TEXT"].write_text("no table")
    files["LIST"].write_text("[]")
    files["BROKEN"].write_text("{")
    arguments, words = _BAD[case]
    given = [str(files.get(argument, argument)) for argument in arguments]
    assert main(["plan", given[0], *_RANKS, *given[1:]]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    for word in ("balancer plan: ", *words):
        assert word in err


def test_a_plan_of_other_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "plan.npz"
    assert main([*_PLAN, "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["report", str(out), "embedded", "--model", "qwen2.5-vl-3b"]) == 2
    assert "the plan was made with" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "absent.npz"), "embedded", *_MODEL]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["plan"], ["plan", "embedded", "--dp-size", "two"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_the_command_line_loads_no_torch() -> None:
    script = (
        "import sys, balancer.cli.main\n"
        "heavy = {'torch', 'transformers', 'hydra', 'matplotlib', 'pyarrow'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
