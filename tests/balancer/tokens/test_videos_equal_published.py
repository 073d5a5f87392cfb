"""Video counts against qwen-vl-utils and the published processors."""

import pytest

from tests.token_oracles import check_videos, has_torchvision, video_sizes
from tests.video_oracles import QWEN_UTILS_ORACLES, VIDEO_ORACLES

SIZES = video_sizes(2000, seed=3)
needs_torchvision = pytest.mark.skipif(
    not has_torchvision(), reason="the video processors of transformers need torchvision"
)


@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"])
def test_video_counts_equal_the_plain_rule_of_qwen_vl_utils(family: str) -> None:
    row, lines = check_videos(QWEN_UTILS_ORACLES["plain"](family), SIZES)
    assert row.cases >= 2000
    assert row.mismatches == 0, "\n".join(lines[:10])


@needs_torchvision
@pytest.mark.parametrize("family", ["qwen2-vl", "qwen2.5-vl", "qwen3-vl"])
def test_video_counts_equal_the_package_qwen_vl_utils(family: str) -> None:
    pytest.importorskip("qwen_vl_utils")
    row, lines = check_videos(QWEN_UTILS_ORACLES["package"](family), SIZES)
    assert row.mismatches == 0, "\n".join(lines[:10])


@needs_torchvision
@pytest.mark.parametrize("case", sorted(VIDEO_ORACLES))
def test_video_counts_equal_the_published_processor(case: str) -> None:
    row, lines = check_videos(VIDEO_ORACLES[case](), SIZES)
    assert row.mismatches == 0, "\n".join(lines[:10])
