"""Every option of `plan` and `split`: it reaches what it stands for, or is refused by its name."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from balancer.cli.main import main

_PLAN = ["--dp-size", "4", "--num-microbatches", "2", "--global-batch-size", "16", "--steps", "1"]
_SPLIT = ["--gpus", "4", "--layout", "1x4", "--global-batch-size", "16", "--steps", "1"]
_PIPELINE = ["--barrier", "pipeline", "--pp-size", "2"]


@pytest.fixture(scope="module")
def sizes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """32 samples, every second one with an image."""
    images: list[list[int]] = [[224 + 14 * i] if i % 2 else [] for i in range(32)]
    columns = {
        "text_tokens": list(range(100, 132)), "image_heights": images, "image_widths": images,
    }  # fmt: skip
    path = tmp_path_factory.mktemp("sizes") / "sizes.parquet"
    parquet.write_table(pa.table(columns), path)
    return path


def _command(sizes: Path, command: str, *options: str) -> int:
    given = {"plan": [*_PLAN, "--effort", "fast"], "split": _SPLIT}[command]
    return main([command, str(sizes), "--model", "qwen2.5-vl-7b", *given, *options])


_TOPOLOGY: list[tuple[list[str], str, Any]] = [
    (["--rank-speeds", "1,1,0.5,0.25"], "rank_speeds", [1.0, 1.0, 0.5, 0.25]),
    (
        ["--rank-speeds", '{"vision": [1, 1, 2, 2], "language": [1, 1, 1, 1]}'],
        "rank_speeds",
        {"vision": [1.0, 1.0, 2.0, 2.0], "language": [1.0] * 4},
    ),
    (["--modality-sync", "spread"], "modality_sync", "spread"),
    (["--modules", "summed"], "modules", "summed"),
    (["--max-microbatches", "3"], "max_microbatches", 3),
    ([*_PIPELINE], "pp_size", 2),
    ([*_PIPELINE, "--stages", "encoder-first"], "stages", [{"vision": 1.0}, {"language": 1.0}]),
    (
        [*_PIPELINE, "--stages", '[{"vision": 1, "language": 1}, {"language": 3}]'],
        "stages",
        [{"language": 1.0, "vision": 1.0}, {"language": 3.0}],
    ),
    ([*_PIPELINE, "--schedule", "eager_1f1b"], "schedule", "eager_1f1b"),
    (
        [*_PIPELINE, "--schedule", "interleaved", "--virtual-stages", "2"],
        "virtual_stages",
        2,
    ),
    ([*_PIPELINE, "--forward-share", "0.5"], "forward_share", 0.5),
    ([*_PIPELINE, "--microbatch-cost", "7"], "microbatch_cost", 7.0),
    ([*_PIPELINE, "--max-tokens", "4096", "--max-in-flight", "8192"], "max_in_flight", 8192),
    ([*_PIPELINE, "--stages", "encoder-first", "--deferral"], "deferral", True),
]


@pytest.mark.parametrize(("options", "name", "value"), _TOPOLOGY)
def test_options_of_the_topology_reach_it(
    options: list[str], name: str, value: Any, sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command(sizes, "plan", *options, "--json") == 0
    assert json.loads(capsys.readouterr().out)["topology"][name] == value


def test_limits_reach_the_topology_together(
    sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those of each rank have the layout and the roundings of all."""
    options = ["--max-patches", "90000", "--max-images", "9", "--max-samples", "8", "--layout",
               "padded", "--pad-sample-to", "8", "--pad-microbatch-to", "16", "--rank-max-tokens",
               "9600", "9600", "9600", "9600"]  # fmt: skip
    assert _command(sizes, "plan", *options, "--json") == 0
    limits = json.loads(capsys.readouterr().out)["topology"]["rank_limits"]
    assert len(limits) == 4
    assert limits[3] == {
        "max_tokens": 9600, "max_patches": 90000, "max_images": 9, "max_samples": 8,
        "layout": "padded", "pad_sample_to": 8, "pad_microbatch_to": 16, "dummies": {},
    }  # fmt: skip


def test_options_of_the_epoch_reach_the_plan(
    sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --global-batch-size a step is filled; the seed and the epoch change the plan."""
    model = ["plan", str(sizes), "--model", "qwen2.5-vl-7b", "--dp-size", "2", "--effort", "fast"]
    prints = set()
    for options in (["--seed", "1"], ["--seed", "2"], ["--epoch", "1"], ["--no-shuffle"]):
        filled = [*model, "--max-tokens", "1200", "--tail", "filler", "--illegal", "drop"]
        assert main([*filled, *options, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert record["global_batch_size"] is None
        assert record["report"]["steps"] > 1
        prints.add(record["fingerprint"])
    assert len(prints) == 4
    assert main([*model, "--global-batch-size", "8", "--window-steps", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["report"]["displacement"] is not None


_BAD: list[tuple[str, list[str], list[str]]] = [
    ("plan", ["--rank-speeds", "1,1"], ["--rank-speeds has 2 speeds for --dp-size=4 ranks"]),
    ("plan", ["--rank-speeds", ""], ["--rank-speeds is ''", "a number for each rank"]),
    ("plan", ["--rank-speeds", "1,1,0,1"], ["--rank-speeds is 0 for rank 2", "above 0"]),
    ("plan", ["--rank-speeds", "1,1,-2,1"], ["--rank-speeds is -2 for rank 2"]),
    ("plan", ["--rank-speeds", "1,1,NaN,1"], ["--rank-speeds is nan for rank 2"]),
    ("plan", ["--rank-speeds", "1,1,null,1"], ["--rank-speeds is None for rank 2"]),
    ("plan", ["--rank-speeds", "1,1,fast,1"], ["--rank-speeds is '1,1,fast,1'", "JSON"]),
    ("plan", ["--rank-speeds", "1,1,1,5000"], ["--rank-speeds reach from 1 to 5000", "1024"]),
    ("plan", ["--rank-speeds", '{"vision": [1, 1, 1, 1]}'], ["--rank-speeds names", "'language'"]),
    ("plan", ["--rank-speeds", '{"vision": 1}'], ["--rank-speeds['vision'] is 1"]),
    ("plan", ["--rank-max-tokens", "9"], ["--rank-max-tokens has 1 numbers for --dp-size=4"]),
    ("plan", ["--rank-max-tokens", *"1111"], ["raise --rank-max-tokens to ", "--oversize="]),
    ("plan", ["--rank-max-tokens", *"1011"], ["--rank-max-tokens is 0"]),
    ("plan", ["--max-patches", "-1"], ["--max-patches is -1; allowed: whole numbers >= 1"]),
    ("plan", ["--max-images", "0"], ["--max-images is 0"]),
    ("plan", ["--max-samples", "0"], ["--max-samples is 0"]),
    ("plan", ["--max-samples", "1", "--max-microbatches", "3"], ["--max-microbatches to at least"]),
    ("plan", ["--max-tokens", "400", "--max-microbatches", "2"], ["raise --max-tokens to"]),
    ("plan", ["--pad-sample-to", "0"], ["--pad-sample-to is 0"]),
    (
        "plan",
        ["--pad-microbatch-to", "64", "--max-tokens", "32"],
        ["--max-tokens is 32", "--pad-microbatch-to=64", "raise it to at least 64"],
    ),
    ("plan", ["--max-microbatches", "1"], ["--max-microbatches is 1", "--num-microbatches=2"]),
    ("plan", ["--num-microbatches", "0"], ["--num-microbatches is 0"]),
    ("plan", ["--window-steps", "0"], ["--window-steps is 0"]),
    ("plan", ["--seed", "-1"], ["--seed is -1; allowed: whole numbers >= 0"]),
    ("plan", ["--epoch", "-1"], ["--epoch is -1"]),
    ("plan", ["--effort", "slow"], ["--effort is 'slow'", '"default"']),
    ("plan", ["--effort", "nan"], ["--effort is 'nan'"]),
    ("plan", ["--pp-size", "2"], ["--pp-size is 2", 'pass --barrier="pipeline"']),
    ("plan", ["--schedule", "interleaved"], ["--schedule is 'interleaved'"]),
    ("plan", ["--deferral"], ["--deferral is True"]),
    ("plan", ["--barrier", "pipeline"], ["--pp-size is 1; allowed: whole numbers >= 2"]),
    ("plan", [*_PIPELINE, "--stages", "odd"], ["--stages is 'odd'", "encoder-first"]),
    ("plan", [*_PIPELINE, "--stages", '[{"vision": 1}]'], ["--stages has 1 entries", "--pp-size"]),
    ("plan", [*_PIPELINE, "--stages", "[1, 2]"], ["--stages[0] is 1"]),
    ("plan", [*_PIPELINE, "--virtual-stages", "2"], ["--virtual-stages is 2", "--schedule='1f1b'"]),
    ("plan", [*_PIPELINE, "--forward-share", "2"], ["--forward-share is 2.0", "<= 1"]),
    ("plan", [*_PIPELINE, "--microbatch-cost", "-1"], ["--microbatch-cost is -1.0"]),
    ("plan", [*_PIPELINE, "--max-in-flight", "9"], ["--max-in-flight is 9", "set --max-tokens"]),
    ("plan", [*_PIPELINE, "--modality-sync", "spread"], ["--modality-sync is 'spread'"]),
    ("split", ["--gpus", "0"], ["--gpus is 0"]),
    ("split", ["--layout", "0x4"], ["--layout is '0x4'", "from 1 on"]),
    ("split", ["--layout", "1x4x0"], ["--layout is '1x4x0'"]),
    ("split", ["--layout", "four"], ["--layout is 'four'; allowed: DPxM or DPxMxTP"]),
    ("split", ["--global-batch-size", "0"], ["--global-batch-size is 0", ">= 4"]),
    ("split", ["--steps", "0"], ["--steps is 0"]),
    ("split", ["--max-tokens", "0"], ["--max-tokens is 0"]),
    ("split", ["--max-tokens", "9"], ["raise --max-tokens to "]),
    ("split", ["--alpha", "0"], ["--alpha is 0.0; allowed: numbers between 0 and 1"]),
    ("split", ["--error", "1"], ["--error is 1.0"]),
    ("split", ["--seed", "-1"], ["--seed is -1"]),
]


@pytest.mark.parametrize(("command", "options", "words"), _BAD)
def test_bad_options_are_one_line_that_names_the_option(
    command: str,
    options: list[str],
    words: list[str],
    sizes: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _command(sizes, command, *options) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"balancer {command}: ")
    assert err.count("\n") == 1
    for word in words:
        assert word in err
    assert "--oversize" not in err or command == "plan"


@pytest.mark.parametrize("option", ["--barrier", "--modules", "--layout", "--tail", "--oversize"])
def test_an_unknown_choice_is_refused_with_those_there_are(
    option: str, sizes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        _command(sizes, "plan", option, "odd")
    assert caught.value.code == 2
    assert f"argument {option}: invalid choice: 'odd' (choose from" in capsys.readouterr().err
