"""Image counts against the published processors."""

import numpy as np
import pytest
from PIL import Image

from tests.image_oracles import IMAGE_ORACLES as FIRST_ORACLES
from tests.native_oracles import NATIVE_ORACLES
from tests.tile_oracles import TILE_ORACLES
from tests.token_oracles import check_images, image_sizes, mismatches

IMAGE_ORACLES = FIRST_ORACLES | TILE_ORACLES | NATIVE_ORACLES
SIZES = image_sizes(2000, seed=7)
REAL_SIZES = [(8, 8), (60, 60), (70, 41), (100, 300), (333, 500), (700, 390), (450, 1300)]


@pytest.mark.parametrize("case", sorted(IMAGE_ORACLES))
def test_image_counts_equal_the_published_processor(case: str) -> None:
    row, lines = check_images(IMAGE_ORACLES[case](), SIZES)
    assert row.cases >= 2000
    assert row.mismatches == 0, "\n".join(lines[:10])


@pytest.mark.parametrize("case", sorted(IMAGE_ORACLES))
def test_image_counts_equal_the_tensors_of_real_images(case: str) -> None:
    oracle = IMAGE_ORACLES[case]()
    if oracle.run is None:
        pytest.skip("this source reports sizes only")
    heights, widths = np.array(REAL_SIZES).T
    expected = [oracle.run(Image.new("RGB", (width, height))) for height, width in REAL_SIZES]
    lines = mismatches(oracle.rule.images(heights, widths), expected, REAL_SIZES)
    assert not lines, "\n".join(lines)
