"""Image counts against the published processors."""

import numpy as np
import pytest
from PIL import Image

from balancer.tokens import TOKEN_RULES, token_rule
from tests.audio_oracles import AUDIO_ORACLES
from tests.setting_oracles import SETTING_ORACLES
from tests.token_checks import ALL_IMAGE_ORACLES, token_check_rows
from tests.token_oracles import check_images, image_sizes, mismatches

SIZES = image_sizes(2000, seed=7)
REAL_SIZES = [(8, 8), (60, 60), (70, 41), (100, 300), (333, 500), (700, 390), (450, 1300)]


@pytest.mark.parametrize("case", sorted(ALL_IMAGE_ORACLES))
def test_image_counts_equal_the_published_processor(case: str) -> None:
    row, lines = check_images(ALL_IMAGE_ORACLES[case](), SIZES)
    assert row.cases >= 2000
    assert row.mismatches == 0, "\n".join(lines[:10])


@pytest.mark.parametrize("case", sorted(SETTING_ORACLES))
def test_image_counts_follow_settings_as_the_published_code_does(case: str) -> None:
    row, lines = check_images(SETTING_ORACLES[case](), SIZES)
    assert row.mismatches == 0, "\n".join(lines[:10])


@pytest.mark.parametrize(
    ("longest_side", "tile_size", "height", "width"),
    [(500, 300, 100, 90), (1000, 300, 37, 111), (1000, 300, 151, 200), (4500, 700, 37, 111)],
)
def test_idefics3_tiles_equal_the_tensors_where_sides_are_no_multiples(
    longest_side: int, tile_size: int, height: int, width: int
) -> None:
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    processor = Idefics3ImageProcessorPil(
        size={"longest_edge": longest_side}, max_image_size={"longest_edge": tile_size}
    )
    rule = token_rule("idefics3", longest_side=longest_side, tile_size=tile_size)
    tensors = processor(images=[[Image.new("RGB", (width, height))]])
    counts = rule.images(np.array([height]), np.array([width]))
    assert counts.segments.tolist() == [len(tensors["pixel_values"][0])]


@pytest.mark.parametrize("case", sorted(ALL_IMAGE_ORACLES))
def test_image_counts_equal_the_tensors_of_real_images(case: str) -> None:
    oracle = ALL_IMAGE_ORACLES[case]()
    if oracle.run is None:
        pytest.skip("this source reports sizes only")
    heights, widths = np.array(REAL_SIZES).T
    expected = [oracle.run(Image.new("RGB", (width, height))) for height, width in REAL_SIZES]
    lines = mismatches(oracle.rule.images(heights, widths), expected, REAL_SIZES)
    assert not lines, "\n".join(lines)


def test_every_known_family_is_checked_against_its_published_code() -> None:
    rows = token_check_rows(num_random=20)
    checked = {row.family for row in rows}
    # A Qwen2.5-Omni image is a Qwen2-VL image; its audio is checked.
    assert set(TOKEN_RULES) - checked == {"text-only"}
    assert set(AUDIO_ORACLES) <= checked
    assert not any(row.mismatches for row in rows)
