"""The pricing experiment runs part by part, skips what cannot run, and shows what it found."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from balancer.errors import ArgumentError
from benchmarks import pricing, pricing_exact, pricing_speed
from benchmarks.measure import Record
from benchmarks.pricing import measure_pricing
from benchmarks.pricing_figure import draw_predicted
from benchmarks.pricing_records import Predicted, heldout_records, pricing_record
from benchmarks.pricing_speed import processors, speed_records
from benchmarks.summary import tables


def _panel(error: float) -> Predicted:
    seconds = np.array([1.0, 2.0, 4.0])
    return Predicted(data="d", seconds=seconds, predicted={"ours": (1 + error) * seconds})


def test_errors_are_means_over_the_splits_beside_the_worst() -> None:
    values = {r.metric: r.value for r in heldout_records("e", [_panel(0.1), _panel(-0.3)])}
    assert values["mape_heldout"] == pytest.approx(0.2)
    assert values["mape_heldout_worst"] == pytest.approx(0.3)
    assert values["spearman_heldout"] == 1.0
    assert len(heldout_records("e", [_panel(0.1)])) == 2


def test_an_unknown_part_is_refused_with_those_known() -> None:
    with pytest.raises(ArgumentError, match="parts has 'token'; allowed: tokens, flops"):
        measure_pricing(name="pricing", parts=["token"], demo_dir=".")


def test_parts_that_cannot_run_are_skipped_with_a_notice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pricing.importlib.util, "find_spec", lambda name: None)
    parts = ["times", "prep", "tokens"]
    assert measure_pricing(name="pricing", parts=parts, demo_dir=tmp_path / "absent") == []
    notices = capsys.readouterr().err
    assert "part times needs torch, scipy, skipped" in notices
    assert "(set demo_dir), skipped" in notices
    assert "part tokens needs tests, transformers, PIL, skipped" in notices


def test_cases_of_one_source_are_added_up_and_video_checks_said_to_be_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests import token_checks, token_oracles
    from tests.token_oracles import CheckRow

    def rows(num_random: int, seed: int) -> Sequence[CheckRow]:
        same = {"family": "clip", "source": "transformers:P", "version": "5"}
        return [CheckRow(cases=num_random, mismatches=wrong, **same) for wrong in (0, 3)]

    monkeypatch.setattr(token_checks, "token_check_rows", rows)
    monkeypatch.setattr(token_oracles, "has_torchvision", lambda: False)
    (record,) = pricing_exact.token_records("pricing", seed=0, quick=False)
    assert (record.data, record.n, record.value) == ("clip", 4000, 3.0)
    assert record.versions["transformers"] == "5"
    assert "need torchvision, skipped" in capsys.readouterr().err


def test_a_rule_is_timed_beside_the_loop_of_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    fake = SimpleNamespace(get_number_of_image_patches=lambda h, w: asked.append((h, w)))
    monkeypatch.setattr(pricing_speed, "processors", lambda: {"clip": fake})
    values = {r.metric: r.value for r in speed_records("e", seed=0, quick=True)}
    ratio = values["processor_seconds"] / values["rule_seconds"]
    assert values["seconds_vs_transformers"] == pytest.approx(ratio)
    assert len(asked) == 4 * 300


def test_processors_that_are_timed_count_as_the_rule_of_their_family() -> None:
    from balancer.tokens import token_rule

    for family, processor in processors().items():
        counts = token_rule(family).images(np.array([480, 3000]), np.array([640, 1000]))
        theirs = [
            processor.get_number_of_image_patches(*size) for size in ((480, 640), (3000, 1000))
        ]
        if isinstance(theirs[0], tuple):
            theirs = [tiles for tiles, *_ in theirs]
        ours = counts.patches if counts.segments.max() == 1 else counts.segments
        assert theirs == ours.tolist(), family


def test_predictions_are_drawn_beside_the_times(tmp_path: Path) -> None:
    draw_predicted([_panel(0.1), _panel(0.2)], tmp_path / "deep" / "a.png")
    assert (tmp_path / "deep" / "a.png").stat().st_size > 5000


def test_every_part_has_its_table() -> None:
    def record(data: str, planner: str, metric: str, value: float, unit: str = "ratio") -> Record:
        return pricing_record("pricing", data, planner, metric, value, unit=unit, n=7)

    text = tables(
        [
            record("clip", "transformers:LlavaProcessor", "mismatches", 0, "cases"),
            record("Llama", "forward", "flops_relative_error", 0.001),
            record("Llama", "lora_none_qv", "flops_relative_error", 0.002),
            *heldout_records("pricing", [_panel(0.1), _panel(0.1)]),
            record("switch", "monitor", "delay_worst", 17, "samples"),
            record("clip", "P", "rule_seconds", 0.02, "s"),
            record("clip", "P", "processor_seconds", 2.0, "s"),
            record("clip", "P", "seconds_vs_transformers", 100.0),
        ]
    )
    assert "| clip | LlavaProcessor (transformers) | 5." in text
    assert "| **all** |  |  | 7 | 0 |" in text
    assert "| Llama | 0.10% |" in text
    assert "| Llama | lora_none_qv | 0.20% |" in text
    assert "| d | ours | 10.0% (10.0%) | 1.000 | 3 |" in text
    assert "| switch | monitor | samples until the switch is found, worst | 17 | 7 |" in text
    assert "| clip | P | 0.020 | 2.00 | 100 | 7 |" in text
