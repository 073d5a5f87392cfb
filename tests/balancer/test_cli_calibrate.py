"""The command `balancer calibrate`."""

import argparse
import json
from pathlib import Path

import numpy as np
import pytest

from balancer.calibrate import Calibration
from balancer.cli.calibrate import add_parser, run
from balancer.errors import ArgumentError


def _arguments(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers(dest="command"))
    return parser.parse_args(["calibrate", *options])


def _write_times(path: Path) -> None:
    """80 rows of one to eight images, 3 % noise, three times ten times too long."""
    rng = np.random.default_rng(0)
    rows = ["step,patches,patches_squared,vision_seconds"]
    for step in range(80):
        sizes = np.exp(rng.uniform(np.log(64), np.log(16384), rng.integers(1, 9)))
        seconds = 1e-6 * (sizes**2).sum() + 2e-3 * sizes.sum() + 5.0
        seconds *= np.exp(0.03 * rng.normal()) * (10 if step % 30 == 7 else 1)
        rows.append(f"{step},{sizes.sum()},{(sizes**2).sum()},{seconds}")
    path.write_text("\n".join(rows) + "\n")


def test_the_command_prints_saves_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_times(tmp_path / "times.csv")
    out, plot = tmp_path / "fit.json", tmp_path / "fit.png"
    options = ["--out", str(out), "--plot", str(plot), "--hardware", "one GPU"]
    assert run(_arguments(str(tmp_path / "times.csv"), *options)) == 0
    text = capsys.readouterr().out
    assert "s/patch^2" in text
    assert "far from the fit" in text
    assert Calibration.load(out).hardware == "one GPU"
    assert plot.stat().st_size > 10_000
    assert len((tmp_path / "fit.csv").read_text().splitlines()) == 81


def test_the_command_prints_json_that_holds_the_calibration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write_times(tmp_path / "times.csv")
    options = ["--json", "--amounts", "vision=patches"]
    assert run(_arguments(str(tmp_path / "times.csv"), *options)) == 0
    record = json.loads(capsys.readouterr().out)
    assert set(record["calibration"]["fits"][0]["coefficients"]) == {"patches", "constant"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--plot", "fit.pdf"], "ending in .png"),
        (["--out", "absent/fit.json"], "does not exist"),
        (["--amounts", "vision"], "MODULE=NAME"),
        (["--amounts", "audio=samples"], "amounts names 'audio'; allowed: modules that were timed"),
        (["--held-out", "1"], "held_out is 1.0; allowed: shares above 0 and below 1"),
        (["--seed", "-1"], "seed is -1; allowed: whole numbers >= 0"),
        (["--max-wait", "-0.1"], "max_wait is -0.1; allowed: shares from 0 to 1"),
        (["--max-wait", "nan"], "max_wait is nan"),
        (["--peak-flops-per-s", "0"], "peak_flops_per_s is 0.0; allowed: finite numbers above 0"),
        (["--peak-flops-per-s", "inf"], "peak_flops_per_s is inf"),
    ],
)
def test_the_command_refuses_bad_options(
    tmp_path: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _write_times(tmp_path / "times.csv")
    with pytest.raises(ArgumentError, match=message):
        run(_arguments(str(tmp_path / "times.csv"), *options))
