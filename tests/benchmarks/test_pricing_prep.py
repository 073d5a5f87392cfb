"""The measurement of CPU prep time."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.pricing_prep import PREDICTORS, measure_prep, prep_records

pytest.importorskip("scipy")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for index in range(70):
        side = 30 + 3 * index
        pixels = rng.integers(0, 255, (side, side, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{index:02d}.{('png', 'jpg')[index % 2]}")
    return tmp_path


def test_every_predictor_has_its_errors(images: Path) -> None:
    records = prep_records(images, quick=True, splits=2)
    found = {(record.planner, record.metric) for record in records}
    for predictor in PREDICTORS:
        for metric in ("mape_heldout", "mape_heldout_worst", "spearman_heldout"):
            assert (predictor, metric) in found
    assert all(record.experiment == "pricing" for record in records)
    assert all("pillow" in record.versions for record in records)


def test_every_image_is_measured(images: Path) -> None:
    times = measure_prep(images, repeats=1)
    assert times.seconds.shape == (70,)
    assert (times.seconds > 0).all()
    assert "image:resize_pixels" in times.features.names
