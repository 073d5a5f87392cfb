"""The measurement of CPU prep time."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.pricing_prep import PREDICTORS, measure_prep, prep_predictions
from benchmarks.pricing_records import heldout_records

pytest.importorskip("scipy")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for index in range(70):
        side = 30 + 3 * index
        pixels = rng.integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index:02d}.{('png', 'jpg')[index % 2]}")
    return tmp_path


def test_every_predictor_says_what_it_expects_of_the_same_images(images: Path) -> None:
    splits = prep_predictions(images, splits=2, repeats=1)
    assert [split.seconds.shape for split in splits] == [(35,), (35,)]
    for split in splits:
        assert set(split.predicted) == set(PREDICTORS)
        assert all((seconds > 0).all() for seconds in split.predicted.values())
    records = heldout_records("e", splits)
    metrics = {"mape_heldout", "mape_heldout_worst", "spearman_heldout"}
    assert {(r.planner, r.metric) for r in records} == {(p, m) for p in PREDICTORS for m in metrics}
    assert all("pillow" in record.versions for record in records)


def test_every_image_is_measured(images: Path) -> None:
    times = measure_prep(images, repeats=1)
    assert times.seconds.shape == (70,)
    assert (times.seconds > 0).all()
    assert "image:resize_pixels" in times.features.names
    assert measure_prep(images, repeats=1, every=7).seconds.shape == (10,)
