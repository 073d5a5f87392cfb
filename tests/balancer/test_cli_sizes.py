"""`balancer probe` and `balancer tokens`: what they print and write, and bad input."""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pyarrow import parquet

from balancer.cli import probe as cli_probe
from balancer.cli import tokens as cli_tokens
from balancer.errors import ArgumentError, SampleError
from balancer.samples import SampleTable
from balancer.sizing.tables import embedded_table
from balancer.token_counts import token_counts
from balancer.tokens import token_rule


def _run(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    cli_probe.add_parser(commands)
    cli_tokens.add_parser(commands)
    given = parser.parse_args([str(argument) for argument in arguments])
    return {"probe": cli_probe, "tokens": cli_tokens}[given.command].run(given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    images = tmp_path / "images"
    images.mkdir()
    Image.new("RGB", (640, 480)).save(images / "a.jpg")
    Image.new("RGBA", (100, 200)).save(images / "b.png")
    return images


def _printed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    return printed


def test_probed_sizes_can_be_counted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes, counts = tmp_path / "sizes.parquet", tmp_path / "counts.parquet"
    assert _run("probe", folder, "--out", sizes, "--json") == 0
    probed = _printed(capsys)
    assert probed["files"] == {"given": 2, "read": 2, "estimated": 0, "skipped": 0}
    assert probed["formats"] == {"JPEG/RGB": 1, "PNG/RGBA": 1}
    assert _run("tokens", sizes, "--family", "qwen2.5-vl", "--json", "--out", counts) == 0
    counted = _printed(capsys)
    assert counted["counts"]["tokens"]["max"] == 391
    table = parquet.read_table(counts)
    assert table["tokens"].to_pylist() == [391, 28]
    assert table["refused"].to_pylist() == [False, False]


def test_files_at_fault_are_listed_and_decide_the_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "c.png").write_bytes(b"noise")
    with pytest.raises(SampleError, match=r"c\.png"):
        _run("probe", folder)
    assert _run("probe", folder, "--on-error", "skip") == 1
    shown = capsys.readouterr().out
    assert "1 skipped" in shown
    assert "c.png: has no readable header" in shown


def test_a_model_counts_as_its_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("tokens", "embedded", "--model", "qwen2.5-vl-7b", "--json") == 0
    summary = _printed(capsys)
    counts = token_counts(embedded_table(), token_rule("qwen2.5-vl"))
    assert summary["counts"]["tokens"]["sum"] == int(counts.tokens.sum())
    assert summary["counts"]["patches"]["p90"] == pytest.approx(np.quantile(counts.patches, 0.9))


def test_settings_of_a_family_and_samples_it_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"text_tokens": 3, "image_heights": [1000], "image_widths": [1000]},
        {"text_tokens": 4, "image_heights": [1], "image_widths": [900]},
    ]
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert _run("tokens", path, "--family", "qwen2.5-vl", "--set", "max_pixels=100352") == 1
    shown = capsys.readouterr().out
    assert "max_pixels=100352" in shown
    assert "1 samples left out: 1" in shown


def test_counts_of_samples_beside_refused_ones_are_kept() -> None:
    table = SampleTable.from_arrays(
        text_tokens=[1, 2, 3],
        image_heights=[[1], [480], []],
        image_widths=[[900], [640], []],
        audio_seconds=[[], [], [2.0]],
    )
    counts = token_counts(table, token_rule("qwen2.5-vl"))
    assert counts.refused.tolist() == [0, 2]
    assert counts.tokens.tolist() == [0, 393, 0]
    assert counts.why


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--family", "qwen9"), "known families"),
        (("--family", "qwen2.5-vl", "--set", "max_pixels"), "NAME=VALUE"),
        (("--family", "qwen2.5-vl", "--set", "=3"), "NAME=VALUE"),
        (("--family", "qwen2.5-vl", "--set", "pixels=3"), "settings has pixels"),
        (("--model", "qwen2.5-vl-7b", "--set", "max_pixels=3"), "--set goes with --family"),
        (("--model", "qwen9"), "--model is 'qwen9'"),
        (("--family", "clip", "--out", "/no/such/folder/a.parquet"), "--out is"),
    ],
)
def test_bad_options_are_told(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        _run("tokens", "embedded", *arguments)
