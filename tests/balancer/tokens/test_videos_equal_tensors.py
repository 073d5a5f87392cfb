"""Video counts against the tensors that published processors make of real frames."""

from typing import Any

import numpy as np
import pytest

from balancer.tokens import MediaCounts, token_rule
from tests.token_oracles import has_torchvision

pytestmark = pytest.mark.skipif(
    not has_torchvision(), reason="the video processors of transformers need torchvision"
)
VIDEOS = [(8, 24.0, 60, 90), (31, 24.0, 500, 400), (90, 10.0, 300, 333), (240, 30.0, 700, 390)]


def grids_of(processor: Any, **options: Any) -> list[list[int]]:
    import torch
    from transformers.video_utils import VideoMetadata

    grids: list[list[int]] = []
    for frames, fps, height, width in VIDEOS:
        metadata = VideoMetadata(total_num_frames=frames, fps=fps, duration=frames / fps)
        tensors = processor(
            videos=[torch.zeros(frames, 3, height, width, dtype=torch.uint8)],
            video_metadata=[metadata],
            do_sample_frames=True,
            return_tensors="pt",
            **options,
        )
        assert len(tensors["pixel_values_videos"]) == int(tensors["video_grid_thw"].prod())
        grids += tensors["video_grid_thw"].tolist()
    return grids


def counted_grids(rule: Any) -> list[list[int]]:
    counts: MediaCounts = rule.videos(*(np.array(column) for column in zip(*VIDEOS, strict=True)))
    assert counts.legal.all()
    return np.stack([counts.segments, counts.grid_heights, counts.grid_widths], axis=1).tolist()


@pytest.mark.parametrize("capped", [False, True])
def test_qwen2_video_grids_equal_its_processor(capped: bool) -> None:
    from transformers import Qwen2VLVideoProcessor

    processor = Qwen2VLVideoProcessor(cap_pixels_per_frame=capped, max_video_tokens=2000)
    total_pixels = int(2000 * 28 * 28 * 0.9) if capped else None
    rule = token_rule("qwen2-vl", video_pipeline="qwen2_processor", video_total_pixels=total_pixels)
    assert counted_grids(rule) == grids_of(processor, fps=2.0)


@pytest.mark.parametrize("capped", [False, True])
def test_qwen3_video_grids_equal_its_processor(capped: bool) -> None:
    from transformers import Qwen3VLVideoProcessor

    size = {"shortest_edge": 4096, "longest_edge": 2 * 10**6}
    processor = Qwen3VLVideoProcessor(size=size, cap_pixels_per_frame=capped, max_video_tokens=100)
    rule = token_rule(
        "qwen3-vl",
        video_pipeline="qwen3_processor",
        video_total_pixels=size["longest_edge"],
        video_max_pixels=100 * 32 * 32 if capped else None,
    )
    assert counted_grids(rule) == grids_of(processor)


def test_glm_video_grids_equal_their_processors() -> None:
    from transformers import Glm4vVideoProcessor, Glm46VVideoProcessor

    size = {"shortest_edge": 12544, "longest_edge": 10**6}
    for family, build in (("glm-4.1v", Glm4vVideoProcessor), ("glm-4.6v", Glm46VVideoProcessor)):
        rule = token_rule(family, video_max_pixels=size["longest_edge"])
        assert counted_grids(rule) == grids_of(build(size=size))
