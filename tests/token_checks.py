"""The results table: every token rule against the published code that can run here."""

from tests.audio_oracles import AUDIO_ORACLES
from tests.image_oracles import IMAGE_ORACLES
from tests.native_oracles import NATIVE_ORACLES
from tests.tile_oracles import TILE_ORACLES
from tests.token_oracles import (
    CheckRow,
    audio_durations,
    check_audio,
    check_images,
    check_videos,
    has_torchvision,
    image_sizes,
    video_sizes,
)
from tests.video_oracles import QWEN_UTILS_ORACLES, VIDEO_ORACLES

__all__ = ["ALL_IMAGE_ORACLES", "token_check_rows"]

ALL_IMAGE_ORACLES = IMAGE_ORACLES | TILE_ORACLES | NATIVE_ORACLES
"""Case name to a function that builds its oracle."""


def token_check_rows(num_random: int = 2000, seed: int = 0) -> list[CheckRow]:
    """One row a medium, family and source; `num_random` random sizes beside those at thresholds.

    The video processors of transformers are left out where torchvision is not installed.
    """
    rows: list[CheckRow] = []
    sizes = image_sizes(num_random, seed)
    rows += [check_images(build(), sizes)[0] for _, build in sorted(ALL_IMAGE_ORACLES.items())]
    videos = video_sizes(num_random, seed)
    for family in ("qwen2-vl", "qwen2.5-vl", "qwen3-vl"):
        rows.append(check_videos(QWEN_UTILS_ORACLES["plain"](family), videos)[0])
    if has_torchvision():
        rows += [check_videos(build(), videos)[0] for _, build in sorted(VIDEO_ORACLES.items())]
    seconds = audio_durations(num_random, seed)
    rows += [check_audio(build(), seconds)[0] for _, build in sorted(AUDIO_ORACLES.items())]
    return rows
