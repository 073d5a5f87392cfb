"""Published video processors; all but the first need torchvision."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from balancer.tokens import token_rule
from tests.token_oracles import Columns, VideoOracle, marker_count, refusing, word_tokenizer

__all__ = ["QWEN_UTILS_ORACLES", "VIDEO_ORACLES"]


def _plain_frames(frames: int, fps: float) -> int:
    """Frames by the rule of qwen-vl-utils: two a second, 4 to 768, even."""
    most = min(768, frames) // 2 * 2
    sampled = math.floor(min(max(frames / fps * 2.0, 4), most) / 2) * 2
    if sampled < 2:
        raise ValueError("too few frames")
    return sampled


def _plain_resize(
    height: int, width: int, factor: int, min_pixels: int, max_pixels: float
) -> tuple[int, int]:
    """Sides by the rule of qwen-vl-utils."""
    if max(height, width) / min(height, width) > 200:
        raise ValueError("too elongated")
    sides = [max(factor, round(side / factor) * factor) for side in (height, width)]
    if sides[0] * sides[1] > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        sides = [math.floor(side / shrink / factor) * factor for side in (height, width)]
    elif sides[0] * sides[1] < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        sides = [math.ceil(side * grow / factor) * factor for side in (height, width)]
    if not min(sides):
        raise ValueError("shrunk to nothing")
    return sides[0], sides[1]


def _qwen_utils(
    family: str, patch_size: int, total_pixels: float, frames_of: Any, resize: Any, source: str
) -> VideoOracle:
    factor = 2 * patch_size
    least, most = 128 * factor**2, 768 * factor**2

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = frames_of(frames, fps)
        budget = max(min(most, total_pixels / sampled * 2), int(least * 1.05))
        sides = resize(height, width, factor, min_pixels=least, max_pixels=budget)
        rows, columns = sides[0] // patch_size, sides[1] // patch_size
        return {
            "segments": sampled // 2,
            "grid_heights": rows,
            "grid_widths": columns,
            "tokens": sampled // 2 * rows * columns // 4,
        }

    rule = token_rule(family)
    return VideoOracle(family=family, source=source, rule=rule, count=refusing(count))


_QWEN_BUDGETS = {
    "qwen2-vl": (14, 24576 * 28 * 28),
    "qwen2.5-vl": (14, 24576 * 28 * 28),
    "qwen3-vl": (16, 128000 * 32 * 32 * 0.9),
}


def plain_qwen_utils(family: str) -> VideoOracle:
    """The rule of qwen-vl-utils, written out in plain Python."""
    settings = _QWEN_BUDGETS[family]
    return _qwen_utils(
        family, *settings, _plain_frames, _plain_resize, "plain Python:qwen-vl-utils"
    )


def real_qwen_utils(family: str) -> VideoOracle:
    """The installed package; needs torchvision."""
    from qwen_vl_utils.vision_process import smart_nframes, smart_resize

    def frames_of(frames: int, fps: float) -> int:
        return smart_nframes({}, frames, fps)

    settings = _QWEN_BUDGETS[family]
    source = "qwen-vl-utils:smart_nframes, smart_resize"
    return _qwen_utils(family, *settings, frames_of, smart_resize, source)


QWEN_UTILS_ORACLES = {"plain": plain_qwen_utils, "package": real_qwen_utils}


def _metadata(frames: int, fps: float) -> Any:
    from transformers.video_utils import VideoMetadata

    return VideoMetadata(total_num_frames=frames, fps=fps, duration=frames / fps)


def _merged(
    family: str, processor: Any, rule: Any, options: dict[str, Any], extra_tokens: int = 0
) -> VideoOracle:
    """A processor that reports the patches of a video of so many sampled frames."""

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = len(processor.sample_frames(_metadata(frames, fps), **options))
        patches = processor.get_num_of_video_patches(sampled, height, width, {})
        segments = (sampled + 1) // 2
        return {"patches": patches, "tokens": patches // 4 + extra_tokens * segments}

    source = f"transformers:{type(processor).__name__}"
    allowed = refusing(count, [ValueError, ZeroDivisionError])
    return VideoOracle(family=family, source=source, rule=rule, count=allowed)


def qwen2_processor() -> VideoOracle:
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

    rule = token_rule("qwen2-vl", video_pipeline="qwen2_processor", video_total_pixels=None)
    processor = Qwen2VLVideoProcessor(cap_pixels_per_frame=False)
    return _merged("qwen2-vl", processor, rule, {"fps": 2.0})


def qwen3_processor() -> VideoOracle:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    size = {"shortest_edge": 4096, "longest_edge": 25165824}
    processor = Qwen3VLVideoProcessor(size=size, cap_pixels_per_frame=False)
    rule = token_rule("qwen3-vl", video_pipeline="qwen3_processor")
    return _merged("qwen3-vl", processor, rule, {})


def qwen3_processor_capped() -> VideoOracle:
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    size = {"shortest_edge": 4096, "longest_edge": 25165824}
    processor = Qwen3VLVideoProcessor(size=size, cap_pixels_per_frame=True)
    rule = token_rule("qwen3-vl", video_pipeline="qwen3_processor", video_max_pixels=768 * 32 * 32)
    return _merged("qwen3-vl", processor, rule, {})


def glm_4_1v() -> VideoOracle:
    from transformers.models.glm4v.video_processing_glm4v import Glm4vVideoProcessor

    return _merged("glm-4.1v", Glm4vVideoProcessor(), token_rule("glm-4.1v"), {}, 2)


def glm_4_6v() -> VideoOracle:
    from transformers.models.glm46v.video_processing_glm46v import Glm46VVideoProcessor

    processor = Glm46VVideoProcessor()
    rule = token_rule("glm-4.6v", video_max_pixels=processor.size["longest_edge"])
    return _merged("glm-4.6v", processor, rule, {}, 2)


def ernie_vl() -> VideoOracle:
    from transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe import (
        Ernie4_5_VLMoeVideoProcessor,
    )

    processor = Ernie4_5_VLMoeVideoProcessor(draw_on_frames=False)

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = len(processor.sample_frames(_metadata(frames, fps), fps=2.0))
        patches = processor.get_num_of_video_patches(sampled, height, width, {})
        return {"patches": patches, "tokens": patches // 8}

    source = "transformers:Ernie4_5_VLMoeVideoProcessor"
    rule = token_rule("ernie-4.5-vl")
    return VideoOracle(family="ernie-4.5-vl", source=source, rule=rule, count=refusing(count))


def gemma4() -> VideoOracle:
    from transformers.models.gemma4.video_processing_gemma4 import (
        Gemma4VideoProcessor,
        get_aspect_ratio_preserving_size,
    )

    processor = Gemma4VideoProcessor()

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = len(processor.sample_frames(_metadata(frames, fps)))
        sides = get_aspect_ratio_preserving_size(height, width, 16, 70 * 9, 3)
        patches = sides[0] // 16 * (sides[1] // 16)
        return {
            "segments": sampled,
            "patches": sampled * patches,
            "tokens": sampled * (patches // 9 + 2),
        }

    source = "transformers:Gemma4VideoProcessor"
    rule = token_rule("gemma-4")
    return VideoOracle(family="gemma-4", source=source, rule=rule, count=refusing(count))


def internvl() -> VideoOracle:
    from transformers.models.internvl.processing_internvl import InternVLProcessor
    from transformers.models.internvl.video_processing_internvl import InternVLVideoProcessor

    videos = InternVLVideoProcessor()
    tokenizer = word_tokenizer("<img>", "</img>", "<context>")
    processor = object.__new__(InternVLProcessor)
    processor.start_image_token, processor.end_image_token = "<img>", "</img>"
    processor.image_token, processor.image_seq_length = "<context>", 256

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = len(videos.sample_frames(_metadata(frames, fps), num_frames=8))
        pixels = [np.zeros((sampled, 1))]
        text = processor.replace_video_token({"pixel_values_videos": pixels}, 0)
        return {"segments": sampled, "tokens": marker_count(tokenizer(text)["input_ids"])}

    source = "transformers:InternVLVideoProcessor"
    rule = token_rule("internvl")
    return VideoOracle(family="internvl", source=source, rule=rule, count=refusing(count))


def llava_onevision() -> VideoOracle:
    from transformers.models.llava_onevision.processing_llava_onevision import (
        LlavaOnevisionProcessor,
    )
    from transformers.models.llava_onevision.video_processing_llava_onevision import (
        LlavaOnevisionVideoProcessor,
    )

    videos = LlavaOnevisionVideoProcessor()
    processor = object.__new__(LlavaOnevisionProcessor)
    processor.num_image_tokens, processor.video_token = 729, "v"

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = len(videos.sample_frames(_metadata(frames, fps), num_frames=32))
        pixels = [np.zeros((sampled, 1))]
        text = processor.replace_video_token({"pixel_values_videos": pixels}, 0)
        return {"segments": sampled, "tokens": len(text)}

    source = "transformers:LlavaOnevisionVideoProcessor"
    rule = token_rule("llava-onevision")
    return VideoOracle(family="llava-onevision", source=source, rule=rule, count=refusing(count))


def smolvlm() -> VideoOracle:
    from transformers.models.smolvlm.processing_smolvlm import _prompt_single_image
    from transformers.models.smolvlm.video_processing_smolvlm import SmolVLMVideoProcessor

    tokenizer = word_tokenizer("<fake>", "<image>", "<global>")
    prompt = _prompt_single_image(64, "<fake>", "<image>", "<global>")
    frame_tokens = marker_count(tokenizer(prompt)["input_ids"])
    processor = SmolVLMVideoProcessor()

    def count(frames: int, fps: float, height: int, width: int) -> Columns:
        sampled = len(processor.sample_frames(_metadata(frames, fps), num_frames=64, fps=1))
        return {"segments": sampled, "tokens": sampled * frame_tokens}

    source = "transformers:SmolVLMVideoProcessor"
    return VideoOracle(family="smolvlm", source=source, rule=token_rule("smolvlm"), count=count)


VIDEO_ORACLES: dict[str, Callable[[], VideoOracle]] = {
    "ernie-4.5-vl": ernie_vl,
    "gemma-4": gemma4,
    "glm-4.1v": glm_4_1v,
    "glm-4.6v": glm_4_6v,
    "internvl": internvl,
    "llava-onevision": llava_onevision,
    "qwen2-vl by its processor": qwen2_processor,
    "qwen3-vl by its processor": qwen3_processor,
    "qwen3-vl by its processor, capped": qwen3_processor_capped,
    "smolvlm": smolvlm,
}
"""Case name to a function that builds its oracle; building imports transformers."""
